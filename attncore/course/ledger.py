"""Record what a page measured for a claim; the rule in ``claims.toml`` gives the verdict.

``record`` shows a box: in the book one with the claim, its numbers and its verdict, which the build collects
and checks; in a live notebook an equivalent one in plain HTML.
"""

from __future__ import annotations

import difflib
import html
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from types import MappingProxyType

from attncore.course.claims import (
    NOT_CHECKABLE,
    PAPERS,
    VERDICTS,
    Claim,
    Quantity,
    Region,
    Rule,
    judge,
    registry,
)
from attncore.validation import one_of, positive_int, real

__all__ = ["MIME", "NOT_CHECKABLE", "PAPERS", "SYMBOLS", "VERDICTS", "Claim", "Quantity", "Record", "Region",
           "Rule", "judge", "record", "registry"]

MIME = "application/vnd.attncore.claim+json"
SYMBOLS: Mapping[str, str] = MappingProxyType({
    "reproduced": "\N{CHECK MARK}",
    "partly": "\N{CIRCLE WITH LEFT HALF BLACK}",
    "not reproduced": "\N{MULTIPLICATION X}",
    NOT_CHECKABLE: "\N{EM DASH}",
})
"""One sign for each verdict, so that no verdict is told by colour alone."""


@dataclass(frozen=True)
class Record:
    """What one run measured for one claim.

    Attributes
    ----------
    claim : str
        Id in the registry.
    measured : dict
        Name -> number; the quantities of the rule, and any others worth showing.
    verdict : str
        What the rule says about `measured`.
    rule : dict
        The thresholds that were applied, as in ``Rule.thresholds``.
    seeds : int or None
        How many independent runs the numbers come from.
    intervals : dict
        Name -> ``[low, high]``.
    band : str or None
        What the intervals are.
    role : str
        ``"main"``, or ``"control"`` for a run with a hypothesis dropped.
    hypotheses : dict
        Hypothesis -> whether the run satisfied it.
    """

    claim: str
    measured: dict[str, float]
    verdict: str
    rule: dict[str, list[str | None]]
    seeds: int | None
    intervals: dict[str, list[float]]
    band: str | None
    role: str
    hypotheses: dict[str, bool]

    def bundle(self) -> dict:
        """Return the record as a MIME bundle: our own type for the book, HTML for notebooks, and text."""
        return {MIME: asdict(self), "text/html": _html(self), "text/plain": str(self)}

    def __str__(self) -> str:
        numbers = ", ".join(f"{k} = {v:.6g}" for k, v in self.measured.items())
        what = "claim" if self.role == "main" else "control of claim"
        return f"{what} {self.claim}: {SYMBOLS[self.verdict]} {self.verdict} ({numbers})"

    def _ipython_display_(self) -> None:
        """Show nothing: `record` has shown the box, and a cell that ends with it must not show a second."""


def record(id, measured, *, seeds=None, interval=None, band=None, role="main", hypotheses=None) -> Record:
    """Judge what was measured for a claim by the rule of the registry, show the verdict, and return it.

    Parameters
    ----------
    id : str
        A claim of ``claims.toml``.
    measured : mapping
        Name -> finite number (Python, NumPy or a tensor with one entry). Must hold every quantity of the rule;
        further numbers are shown and not judged.
    seeds : int, optional
        Number of independent runs behind the numbers.
    interval : pair or mapping, optional
        ``(low, high)`` around the first quantity of the rule, or name -> pair. Each must contain its number:
        a spread that leaves out the value shown with it would mislead.
    band : str, optional
        What the interval is, for example ``"10% to 90% of the seeds"``.
    role : {"main", "control"}
        The record that decides, or a run with a hypothesis dropped, which shows that the hypothesis matters.
    hypotheses : mapping, optional
        Short name -> bool: whether this run satisfied the hypothesis. A control must drop at least one; a main
        record must not drop any.

    Returns
    -------
    Record

    Raises
    ------
    TypeError
        If an argument has the wrong type, for example a measured value that is not a number.
    ValueError
        If the claim is not registered or not checkable, a quantity is missing, a number is not finite, an
        interval is not ordered or leaves out its number, or `role` and `hypotheses` contradict each other.

    Notes
    -----
    Exactly one main record is due for each claim, on the page the registry names; the build of the book
    refuses anything else, and a verdict that differs from the registry's ``expected``.
    """
    claim = _find(id)
    role = one_of(role, "role", ("main", "control"))
    values = _numbers(measured)
    verdict = judge(claim.rule, values)
    result = Record(
        claim=claim.id,
        measured=values,
        verdict=verdict,
        rule=claim.rule.thresholds,
        seeds=None if seeds is None else positive_int(seeds, "seeds"),
        intervals=_intervals(interval, values, claim.rule.quantities[0].name),
        band=_band(band, interval),
        role=role,
        hypotheses=_hypotheses(hypotheses, role),
    )
    _show(result)
    return result


def number(x: float, quantity: Quantity | None = None) -> str:
    """Write a number with four significant digits, or as many as keep it on its side of every threshold.

    A correlation of 0.98999 is below a threshold of 0.99, and must not be written as 0.99 beside it.
    """
    for digits in range(4, 17):
        text = f"{x:.{digits}g}"
        if quantity is None or quantity.verdict(float(text)) == quantity.verdict(x):
            return text
    return repr(x)


def _find(id) -> Claim:
    if not isinstance(id, str):
        raise TypeError(f"id must be the id of a claim, got {id!r}")
    claims = registry()
    if id not in claims:
        near = difflib.get_close_matches(id, claims, n=3, cutoff=0.5)
        hint = f"; did you mean {' or '.join(map(repr, near))}?" if near else "; see claims.toml for the ids"
        raise ValueError(f"id {id!r} is not a registered claim{hint}")
    if not claims[id].checkable:
        raise ValueError(f"id {id!r} is registered as {NOT_CHECKABLE}: {claims[id].reason} "
                         "Give it a rule in claims.toml before recording it.")
    return claims[id]


def _number(value, name: str) -> float:
    if hasattr(value, "item") and getattr(value, "size", None) is not None:
        count = value.numel() if hasattr(value, "numel") else value.size
        if count != 1:
            raise ValueError(f"{name} must be one number, got {type(value).__name__} of shape {tuple(value.shape)}")
        value = value.item()
    return real(value, name)


def _numbers(measured) -> dict[str, float]:
    if not isinstance(measured, Mapping):
        raise TypeError(f"measured must be a mapping of names to numbers, got {type(measured).__name__}")
    for name in measured:
        if not isinstance(name, str):
            raise TypeError(f"measured must have names as keys, got {name!r}")
    return {name: _number(value, f"measured[{name!r}]") for name, value in measured.items()}


def _pair(pair, name: str, value: float) -> list[float]:
    try:
        low, high = (_number(end, name) for end in pair)
    except TypeError as error:
        raise TypeError(f"{name} must be a pair (low, high) of numbers: {error}") from None
    except ValueError as error:
        raise ValueError(f"{name} must be a pair (low, high) of finite numbers: {error}") from None
    if low > high:
        raise ValueError(f"{name} must have low <= high, got ({low}, {high})")
    slack = 1e-12 * max(abs(low), abs(high), abs(value))
    if not low - slack <= value <= high + slack:
        raise ValueError(f"{name} must contain the measured value {value}, got ({low}, {high})")
    return [low, high]


def _intervals(interval, values: dict[str, float], first: str) -> dict[str, list[float]]:
    if interval is None:
        return {}
    if not isinstance(interval, Mapping):
        return {first: _pair(interval, "interval", values[first])}
    if unknown := [name for name in interval if name not in values]:
        raise ValueError(f"interval names {unknown[0]!r}, which is not among the measured {sorted(values)}")
    return {name: _pair(pair, f"interval[{name!r}]", values[name]) for name, pair in interval.items()}


def _band(band, interval) -> str | None:
    if band is None:
        return None
    if not isinstance(band, str):
        raise TypeError(f"band must be a text that says what the interval is, got {band!r}")
    if interval is None:
        raise ValueError(f"band {band!r} says what the interval is, but no interval was given")
    return band


def _hypotheses(hypotheses, role: str) -> dict[str, bool]:
    hypotheses = {} if hypotheses is None else hypotheses
    if not isinstance(hypotheses, Mapping):
        raise TypeError(f"hypotheses must be a mapping of names to booleans, got {type(hypotheses).__name__}")
    checked = {}
    for name, holds in hypotheses.items():
        if not isinstance(name, str):
            raise TypeError(f"hypotheses must have names as keys, got {name!r}")
        if hasattr(holds, "item"):
            holds = holds.item()
        if not isinstance(holds, bool):
            raise TypeError(f"hypotheses[{name!r}] must be True or False, got {holds!r}")
        checked[name] = holds
    dropped = [name for name, holds in checked.items() if not holds]
    if role == "control" and not dropped:
        raise ValueError("role 'control' is for a run that drops a hypothesis: name it as {'...': False} in "
                         f"hypotheses, got {checked}")
    if role == "main" and dropped:
        raise ValueError(f"role 'main' must satisfy the hypotheses of the claim, got {dropped[0]!r} False; "
                         "record such a run with role='control'")
    return checked


def _html(result: Record) -> str:
    """The record as a small table, for JupyterLab and for exported notebooks. Everything is escaped."""
    claim, esc = registry()[result.claim], html.escape
    judged = {q.name: q for q in claim.rule.quantities}
    rows = "".join(
        f"<tr><th scope='row'>{esc(name)}</th><td>{number(value, judged.get(name))}</td>"
        f"<td>{' to '.join(map(number, result.intervals[name])) if name in result.intervals else ''}</td>"
        f"<td>{esc(result.rule[name][0]) if name in result.rule else 'not judged'}</td>"
        f"<td>{esc(result.rule[name][1] or '') if name in result.rule else ''}</td></tr>"
        for name, value in result.measured.items())
    dropped = [name for name, holds in result.hypotheses.items() if not holds]
    held = [name for name, holds in result.hypotheses.items() if holds]
    notes = [f"{result.seeds} seeds"] if result.seeds else []
    notes += [f"interval: {result.band}"] if result.band else []
    notes += [f"holds: {', '.join(held)}"] if held else []
    notes += [f"dropped: {', '.join(dropped)}"] if dropped else []
    title = "Claim" if result.role == "main" else "Control (a hypothesis is dropped) of claim"
    return (f"<div style='border:1px solid;border-radius:4px;padding:.5em 1em'><p><strong>{title} {esc(claim.id)}: "
            f"{SYMBOLS[result.verdict]} {result.verdict}</strong></p><p>{esc(claim.statement)}</p>"
            "<table><thead><tr><th scope='col'>quantity</th><th scope='col'>measured</th><th scope='col'>interval"
            "</th><th scope='col'>reproduced if</th><th scope='col'>partly if</th></tr></thead>"
            f"<tbody>{rows}</tbody></table><p>{esc('; '.join(notes))}</p></div>")


def _show(result: Record) -> None:
    ipython = sys.modules.get("IPython")
    if ipython is not None and ipython.get_ipython() is not None:
        from IPython.display import display

        display(result.bundle(), raw=True)
