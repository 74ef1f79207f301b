"""The figure style: contrast and colour-blind distances on both pages, and helpers that say what they draw."""

import hashlib
import io
import itertools

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
import pytest
from matplotlib.colors import to_rgb

from attncore.course import figures

PAGES = [("light", figures.PAGE_LIGHT, to_rgb), ("dark", figures.PAGE_DARK, figures.dark_mode)]
page = pytest.mark.parametrize("ground, seen", [(g, s) for _, g, s in PAGES], ids=[n for n, _, _ in PAGES])

# Machado, Oliveira, Fernandes (2009), severity 1, on linear light.
COLOUR_VISION = {
    "all cones": np.eye(3),
    "protanopia": [
        [0.152286, 1.052583, -0.204868],
        [0.114503, 0.786281, 0.099216],
        [-0.003882, -0.048116, 1.051998],
    ],
    "deuteranopia": [
        [0.367322, 0.860646, -0.227968],
        [0.280085, 0.672501, 0.047413],
        [-0.011820, 0.042940, 0.968881],
    ],
    "tritanopia": [
        [1.255528, -0.076749, -0.178779],
        [-0.078411, 0.930809, 0.147602],
        [0.004733, 0.691367, 0.303900],
    ],
}


def linear(rgb):
    rgb = np.asarray(rgb)
    return np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)


def contrast(a, b):
    """Contrast ratio of WCAG 2."""
    high, low = sorted((float(linear(c) @ [0.2126, 0.7152, 0.0722]) for c in (a, b)), reverse=True)
    return (high + 0.05) / (low + 0.05)


def oklab(light):
    lms = np.cbrt(
        np.array(
            [
                [0.4122214708, 0.5363325363, 0.0514459929],
                [0.2119034982, 0.6806995451, 0.1073969566],
                [0.0883024619, 0.2817188376, 0.6299787005],
            ]
        )
        @ np.clip(light, 0, 1)
    )
    return (
        np.array(
            [
                [0.2104542553, 0.7936177850, -0.0040720468],
                [1.9779984951, -2.4285922050, 0.4505937099],
                [0.0259040371, 0.7827717662, -0.8086757660],
            ]
        )
        @ lms
    )


@page
@pytest.mark.parametrize("name", figures.COLOURS)
def test_lines_stand_out_on_both_pages(name, ground, seen):
    assert contrast(seen(figures.COLOURS[name]), to_rgb(ground)) >= 3.0


@page
def test_text_is_readable_on_both_pages(ground, seen):
    text = {k: v for k, v in figures.STYLE.items() if k.endswith(("labelcolor", "titlecolor")) or k == "text.color"}
    assert len(text) == 5
    for key, colour in text.items():
        assert contrast(seen(colour), to_rgb(ground)) >= 4.5, key
    assert contrast(seen(figures.AXIS), to_rgb(ground)) >= 3.0


@page
@pytest.mark.parametrize("vision", COLOUR_VISION)
def test_the_palette_keeps_its_distances_for_colour_blind_readers(ground, seen, vision):
    matrix = np.array(COLOUR_VISION[vision])
    labs = {n: oklab(matrix @ linear(seen(c))) for n, c in figures.COLOURS.items()}
    near = {(a, b): np.linalg.norm(labs[a] - labs[b]) for a, b in itertools.combinations(labs, 2)}
    assert min(near.values()) >= 0.07, min(near, key=near.get)


def test_the_style_sheet_uses_the_filter_that_is_measured(book_folder):
    css = (book_folder / "_static" / "css" / "book.css").read_text("utf8")
    assert "filter: invert(1) hue-rotate(180deg)" in css
    assert f"--book-page-dark: {figures.PAGE_DARK}" in css


def test_dark_mode_keeps_greys_grey_and_turns_them_round():
    assert figures.dark_mode("#ffffff") == pytest.approx((0, 0, 0))
    assert figures.dark_mode("#404040") == pytest.approx((191 / 255,) * 3)


def test_lines_differ_in_colour_dash_and_marker():
    styles = figures.lines(len(figures.COLOURS))
    for key in ("color", "linestyle", "marker", "markevery"):
        assert len({str(s[key]) for s in styles}) == len(styles)
    with pytest.raises(ValueError, match="count must be at most 6, got 7"):
        figures.lines(7)


def test_type_reads_on_a_telephone():
    pixels = figures.FONT_SIZE * 96 / 72 * 350 / (figures.WIDTH * 96)
    assert pixels >= 9.0


def test_new_is_styled_and_leaves_global_settings_alone():
    before = dict(mpl.rcParams)
    fig, ax = figures.new(width=5, height=3)
    assert dict(mpl.rcParams) == before
    assert fig.get_facecolor()[3] == 0 and ax.get_facecolor()[3] == 0
    assert tuple(fig.get_size_inches()) == (5, 3)
    assert not ax.spines["top"].get_visible()
    assert figures.new(rows=2, cols=2)[1].shape == (2, 2)
    plt.close("all")


def test_use_is_global_and_style_is_not():
    with mpl.rc_context():
        figures.use()
        assert mpl.rcParams["text.color"] == figures.INK
    assert mpl.rcParams["text.color"] == "black"
    with figures.style():
        assert mpl.rcParams["text.color"] == figures.INK
    assert mpl.rcParams["text.color"] == "black"


@pytest.mark.parametrize("bad, name", [({"width": 9}, "width"), ({"height": 0}, "height"), ({"rows": 0}, "rows")])
def test_new_refuses(bad, name):
    with pytest.raises(ValueError, match=name):
        figures.new(**bad)


def test_band_draws_the_quantiles_it_names():
    samples = np.random.default_rng(0).normal(size=(101, 7))
    fig, ax = figures.new()
    band = figures.band(ax, np.arange(7), samples, "correlation", quantiles=(0.05, 0.95))
    assert str(band) == "median of 101 seeds, 5% to 95% quantiles"
    assert ax.get_lines()[0].get_label() == f"correlation,\n{band}"
    assert np.allclose(ax.get_lines()[0].get_ydata(), np.sort(samples, axis=0)[50])
    edges = ax.collections[0].get_paths()[0].vertices[:, 1]
    assert np.allclose([edges.min(), edges.max()], [band.low.min(), band.high.max()])
    assert np.allclose(band.low, np.sort(samples, axis=0)[5])
    plt.close(fig)


def test_a_legend_names_every_curve_once_and_fits():
    fig, (left, right) = figures.new(cols=2)
    for ax in (left, right):
        ax.plot([0, 1], [0, 1], label="a curve with a rather long name")
        ax.plot([0, 1], [1, 0], label="another curve with a name as long")
    drawn = figures.legend(left, cols=4)
    fig.draw_without_rendering()
    assert [t.get_text() for t in drawn.get_texts()] == left.get_legend_handles_labels()[1]
    assert drawn.get_window_extent().width <= fig.bbox.width
    assert not drawn.get_window_extent().overlaps(left.get_window_extent())
    assert len(fig.legends) == 1
    plt.close(fig)


@pytest.mark.parametrize(
    "samples, quantiles, match",
    [
        (np.zeros((3, 4)), (0.1, 0.9), "shape"),
        (np.zeros(5), (0.1, 0.9), "shape"),
        (np.zeros((1, 5)), (0.1, 0.9), "at least 2 runs"),
        (np.full((3, 5), np.nan), (0.1, 0.9), "finite"),
        (np.zeros((3, 5)), (0.9, 0.1), "quantiles"),
        (np.zeros((3, 5)), (0.1, 1.2), "quantiles"),
    ],
)
def test_band_refuses(samples, quantiles, match):
    fig, ax = figures.new()
    with pytest.raises(ValueError, match=match):
        figures.band(ax, np.arange(5), samples, "x", quantiles=quantiles)
    plt.close(fig)


@pytest.mark.parametrize("kind", ["png", "svg"])
def test_the_same_figure_gives_the_same_bytes(kind):
    def digest():
        with figures.style():
            fig, ax = figures.new()
            figures.band(ax, np.arange(4), np.arange(12.0).reshape(3, 4), "x")
            ax.legend()
            out = io.BytesIO()
            fig.savefig(out, format=kind, metadata={"Date": None} if kind == "svg" else None)
            plt.close(fig)
        return hashlib.sha256(out.getvalue()).hexdigest()

    assert digest() == digest()
