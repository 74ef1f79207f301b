"""One style for every figure of the book.

A page calls `use` once, in its first code cell, and then draws with `new`, `lines` and `band`::

    from attncore.course import figures
    figures.use()
    fig, ax = figures.new()
    for series, style in zip(results, figures.lines(len(results))):
        ax.plot(steps, series, label="W-descent", **style)
    figures.band(ax, steps, samples, label="correlation")
    figures.legend(ax);

A cell that draws ends with a semicolon (or ``plt.show()``), never with a bare ``fig``: that shows it twice.

How one picture serves a light and a dark page
----------------------------------------------
Figures are drawn once, dark ink on a transparent ground. On the dark page the style sheet applies the filter
``invert(1) hue-rotate(180deg)``: lightness turns round and hues stay, so a caption that says "blue" holds in
both. (Two pictures switched by the style sheet would need two alternative texts, and break in notebooks.)
`dark_mode` computes what the filter does, so that tests can measure contrast and colour-blind distances on
both pages. A caption never says "darker" or "lighter": it says "stronger" or names the number.

A line differs from its neighbours in colour, dash **and** marker; the palette keeps its colours apart for
readers with protanopia, deuteranopia and tritanopia, on both grounds.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
from cycler import cycler
from matplotlib.colors import LinearSegmentedColormap, to_rgb

from attncore.validation import positive_int, real

COLOURS = {
    "blue": "#032aac",
    "red": "#e53a42",
    "teal": "#008568",
    "orchid": "#b252bf",
    "olive": "#637b10",
    "plum": "#5a4368",
}
INK = "#1b1f24"
AXIS = "#59626e"
GRID = "#d5d9df"
PAGE_LIGHT = "#ffffff"
PAGE_DARK = "#121212"
DASHES = [
    "-",
    (0, (5, 2)),
    (0, (1.2, 1.4)),
    (0, (6, 2, 1.2, 2)),
    (0, (9, 3)),
    (0, (3, 1.2, 1.2, 1.2, 1.2, 1.2)),
]
MARKERS = ["o", "s", "^", "D", "v", "X"]

SEQUENTIAL = LinearSegmentedColormap.from_list(
    "attncore", ["#ffffff", "#9fb8f2", "#3f64cf", "#032aac", "#02114d"]
)
DIVERGING = LinearSegmentedColormap.from_list(
    "attncore_diverging", ["#00523f", "#008568", "#a9d9cb", "#ffffff", "#f7b9bc", "#e53a42", "#8c0f18"]
)

WIDTH, HEIGHT = 5.6, 3.4
"""Default size in inches, 96 pixels each on the page: 538 pixels, shrunk to about 350 on a telephone."""
MAX_WIDTH = 7.2
FONT_SIZE = 11.0


def _style() -> dict:
    cycle = (
        cycler(color=list(COLOURS.values()))
        + cycler(linestyle=DASHES)
        + cycler(marker=MARKERS)
        + cycler(markevery=[(0.02 + 0.025 * i, 0.16) for i in range(len(COLOURS))])
    )
    return {
        "figure.figsize": (WIDTH, HEIGHT),
        "figure.dpi": 96,
        "figure.constrained_layout.use": True,
        "figure.facecolor": "none",
        "savefig.facecolor": "none",
        "savefig.edgecolor": "none",
        "axes.facecolor": "none",
        "axes.edgecolor": AXIS,
        "axes.labelcolor": INK,
        "axes.titlecolor": INK,
        "axes.titlesize": FONT_SIZE + 0.5,
        "axes.titlelocation": "left",
        "axes.labelsize": FONT_SIZE,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.grid": True,
        "axes.axisbelow": True,
        "axes.prop_cycle": cycle,
        "grid.color": GRID,
        "grid.linewidth": 0.7,
        "text.color": INK,
        "xtick.color": AXIS,
        "ytick.color": AXIS,
        "xtick.labelcolor": INK,
        "ytick.labelcolor": INK,
        "xtick.labelsize": FONT_SIZE - 0.5,
        "ytick.labelsize": FONT_SIZE - 0.5,
        "font.family": "DejaVu Sans",
        "font.size": FONT_SIZE,
        "mathtext.fontset": "dejavusans",
        "legend.fontsize": FONT_SIZE - 0.5,
        "legend.frameon": False,
        "legend.handlelength": 3.2,
        "lines.linewidth": 2.0,
        "lines.markersize": 5.5,
        "image.cmap": "Blues",
        "svg.hashsalt": "attncore",
        "svg.fonttype": "path",
        "pdf.fonttype": 42,
    }


STYLE = _style()


@contextmanager
def style():
    """Apply the style inside a ``with`` block and put the old settings back."""
    with mpl.rc_context(STYLE):
        yield


def use() -> None:
    """Apply the style to this notebook for good; call it in the first code cell of a page.

    Changes matplotlib's global ``rcParams`` and, inside Jupyter, asks for pictures with twice the pixels and
    a stated width, so that they are crisp and keep their size. Nothing else here changes global settings.
    """
    mpl.rcParams.update(STYLE)
    if "inline" in mpl.get_backend():
        from matplotlib_inline.backend_inline import set_matplotlib_formats

        set_matplotlib_formats("retina", bbox_inches=None)


def new(width=WIDTH, height=HEIGHT, rows: int = 1, cols: int = 1, grid: bool = True, **subplots):
    """Return ``(figure, axes)`` in the book's style, as `matplotlib.pyplot.subplots` does.

    Parameters
    ----------
    width, height : float
        Size in inches, 96 page pixels each. At most 7.2 wide, or the type is too small on a telephone.
    rows, cols : int
        Rows and columns of axes; two columns at most read well on a telephone.
    grid : bool
        Draw grid lines; pictures of matrices want none.
    **subplots
        Passed on to `matplotlib.pyplot.subplots`.

    Returns
    -------
    fig, ax
        ``ax`` is one `Axes`, or an array of them when ``rows * cols > 1``.

    Raises
    ------
    ValueError
        If ``width`` is above 7.2 or a size is not positive.
    """
    width, height = real(width, "width", above=0.0), real(height, "height", above=0.0)
    if width > MAX_WIDTH:
        raise ValueError(f"width must be at most {MAX_WIDTH} inches to be readable at 390 px, got {width}")
    rows, cols = positive_int(rows, "rows"), positive_int(cols, "cols")
    with style(), mpl.rc_context({"axes.grid": bool(grid)}):
        return plt.subplots(rows, cols, figsize=(width, height), **subplots)


def legend(ax, cols: int = 2):
    """Put one legend for all axes of a figure below them, where it hides nothing, and return it.

    At most ``cols`` columns, fewer where the labels would not fit into the figure's width.
    """
    fig, entries = ax.figure, {}
    for axes in fig.axes:
        for handle, label in zip(*axes.get_legend_handles_labels(), strict=True):
            entries.setdefault(label, handle)
    for count in range(positive_int(cols, "cols"), 0, -1):
        made = fig.legend(entries.values(), entries.keys(), loc="outside lower center", ncols=count)
        fig.draw_without_rendering()
        if count == 1 or made.get_window_extent().width <= fig.bbox.width:
            return made
        made.remove()


def lines(count: int = len(COLOURS)) -> list[dict]:
    """Return ``count`` sets of line properties: colour, dash and marker, each different from the others.

    Raises
    ------
    ValueError
        If ``count`` exceeds the palette; more lines than that in one figure cannot be told apart.
    """
    count = positive_int(count, "count")
    if count > len(COLOURS):
        raise ValueError(f"count must be at most {len(COLOURS)}, got {count}; draw small multiples instead")
    return [dict(properties) for properties, _ in zip(STYLE["axes.prop_cycle"], range(count), strict=False)]


@dataclass(frozen=True)
class Band:
    """What `band` drew: the curves, the quantiles and the number of runs, for the caption and the table."""

    median: np.ndarray
    low: np.ndarray
    high: np.ndarray
    quantiles: tuple[float, float]
    runs: int

    def __str__(self) -> str:
        low, high = (f"{100 * q:g}%" for q in self.quantiles)
        return f"median of {self.runs} seeds, {low} to {high} quantiles"


def band(ax, x, samples, label: str, quantiles=(0.1, 0.9), properties: dict | None = None) -> Band:
    r"""Draw the median of many runs and the band between two quantiles, and name both in the legend.

    Parameters
    ----------
    ax : matplotlib.axes.Axes
    x : array_like, shape (R,)
        Abscissae, for example recorded steps.
    samples : array_like, shape (runs, R)
        One row a seed. A tensor on a GPU must be moved to the CPU first.
    label : str
        What the curve is; the legend adds the quantiles and the number of seeds.
    quantiles : (float, float)
        Lower and upper level, ``0 <= low < high <= 1``.
    properties : dict, optional
        One entry of `lines`; default: the next of the axes' cycle.

    Returns
    -------
    Band
        ``str(band)`` is the sentence a caption needs.

    Raises
    ------
    ValueError
        If the shapes disagree, there are fewer than two runs, a value is not finite or the levels are not
        ordered.
    """
    x, samples = np.asarray(x, dtype=float), np.asarray(samples, dtype=float)
    if samples.ndim != 2 or x.shape != samples.shape[1:]:
        raise ValueError(f"samples must have shape (runs, {x.size}) to go with x, got {samples.shape}")
    if samples.shape[0] < 2:
        raise ValueError(f"samples must hold at least 2 runs for a band, got {samples.shape[0]}")
    if not np.isfinite(samples).all():
        raise ValueError(f"samples must be finite, got {np.count_nonzero(~np.isfinite(samples))} nan or inf")
    low, high = (real(q, "quantiles", at_least=0.0) for q in quantiles)
    if not low < high <= 1:
        raise ValueError(f"quantiles must satisfy 0 <= low < high <= 1, got {quantiles}")
    lower, median, upper = np.quantile(samples, [low, 0.5, high], axis=0)
    drawn = Band(median, lower, upper, (low, high), samples.shape[0])
    (line,) = ax.plot(x, median, label=f"{label},\n{drawn}", **(properties or {}))
    ax.fill_between(x, lower, upper, color=line.get_color(), alpha=0.22, linewidth=0)
    return drawn


def dark_mode(colour) -> tuple[float, float, float]:
    """Return the colour that the dark page shows for ``colour``: ``invert(1) hue-rotate(180deg)`` in sRGB.

    The matrix is the one of the CSS Filter Effects module for ``hueRotate`` at 180 degrees.
    """
    inverted = 1.0 - np.array(to_rgb(colour))
    luma = np.array([0.213, 0.715, 0.072])
    return tuple(np.clip(2.0 * luma @ inverted - inverted, 0.0, 1.0).tolist())
