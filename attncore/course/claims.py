"""The claims of the three papers, as registered in ``claims.toml``, and the rules that judge them.

A rule names one or several measured quantities. Each has the region in which the claim counts as
*reproduced* and, usually, a larger one in which it counts as *partly* reproduced; the verdict on the claim
is the worst over its quantities. No verdict is ever written by hand.
"""

from __future__ import annotations

import math
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files
from types import MappingProxyType

VERDICTS = ("reproduced", "partly", "not reproduced")
NOT_CHECKABLE = "not checkable here"

PAPERS: Mapping[str, tuple[str, str]] = MappingProxyType({
    "2308.16898": ("svm", "Transformers as Support Vector Machines"),
    "2310.05249": ("icl", "In-Context Convergence of Transformers"),
    "2603.01514": ("pre", "Fast Global Convergence via Preconditioning"),
})
"""arXiv number of each paper -> (prefix of its claim ids, short title)."""

_NUMBER = r"([-+]?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?)"
_HALF_LINE = re.compile(rf"(>=|<=|>|<) {_NUMBER}")
_INTERVAL = re.compile(rf"in \[{_NUMBER}, {_NUMBER}\]")
_CLAIM_KEYS = {"paper", "statement", "hypotheses", "page", "rule", "expected", "because", "checkable", "reason"}
_QUANTITY_KEYS = {"means", "reproduced", "partly", "why"}


@dataclass(frozen=True)
class Region:
    """An interval of the real line, written ``">= 0.99"``, ``"< 2"`` or ``"in [-1.1, -0.9]"``."""

    text: str
    low: float
    high: float
    low_closed: bool
    high_closed: bool

    @classmethod
    def parse(cls, text: str) -> Region:
        if match := _HALF_LINE.fullmatch(text):
            sign, bound = match[1], float(match[2])
            if sign[0] == ">":
                return cls(text, bound, math.inf, sign == ">=", False)
            return cls(text, -math.inf, bound, False, sign == "<=")
        if match := _INTERVAL.fullmatch(text):
            low, high = float(match[1]), float(match[2])
            if low <= high:
                return cls(text, low, high, True, True)
        raise ValueError(f"a threshold must read like '>= 0.99', '< 2' or 'in [0.9, 1.1]', got {text!r}")

    def __contains__(self, x: float) -> bool:
        above = x > self.low or (self.low_closed and x == self.low)
        below = x < self.high or (self.high_closed and x == self.high)
        return above and below

    def inside(self, other: Region) -> bool:
        """Whether every point of this region lies in `other`, and `other` is larger."""
        low = (other.low, not other.low_closed) <= (self.low, not self.low_closed)
        high = (self.high, self.high_closed) <= (other.high, other.high_closed)
        same = (self.low, self.high, self.low_closed, self.high_closed) == (
            other.low, other.high, other.low_closed, other.high_closed)
        return low and high and not same


@dataclass(frozen=True)
class Quantity:
    """One measured number of a rule: what it is, and what its value says."""

    name: str
    means: str
    reproduced: Region
    partly: Region | None
    why: str

    def verdict(self, value: float) -> str:
        if value in self.reproduced:
            return "reproduced"
        if self.partly is not None and value in self.partly:
            return "partly"
        return "not reproduced"


@dataclass(frozen=True)
class Rule:
    """What decides the verdict on a claim: every quantity must be in its region."""

    quantities: tuple[Quantity, ...]

    @property
    def thresholds(self) -> dict[str, list[str | None]]:
        """The regions as text, ``{name: [reproduced, partly or None]}``: what a record keeps of its rule."""
        return {q.name: [q.reproduced.text, q.partly.text if q.partly else None] for q in self.quantities}


@dataclass(frozen=True)
class Claim:
    """One registered claim. `rule` is None exactly when the claim is not checkable here."""

    id: str
    paper: str
    statement: str
    hypotheses: tuple[str, ...]
    page: str
    rule: Rule | None
    expected: str = "reproduced"
    because: str | None = None
    checkable: bool = True
    reason: str | None = None


def judge(rule: Rule, measured: Mapping[str, float]) -> str:
    """Return the verdict of `rule` on the measured numbers: the worst over the quantities of the rule.

    Parameters
    ----------
    rule : Rule
    measured : mapping
        Name of a quantity -> finite number. Names that the rule does not use are ignored.

    Returns
    -------
    str
        ``"reproduced"``, ``"partly"`` or ``"not reproduced"``.

    Raises
    ------
    ValueError
        If a quantity of the rule is missing, or is nan.
    """
    verdicts = []
    for quantity in rule.quantities:
        if quantity.name not in measured:
            needed = ", ".join(repr(q.name) for q in rule.quantities)
            raise ValueError(f"measured must hold {needed}, got {sorted(measured)}: {quantity.name!r} is missing")
        if math.isnan(measured[quantity.name]):
            raise ValueError(f"measured[{quantity.name!r}] must be a number, got nan")
        verdicts.append(quantity.verdict(measured[quantity.name]))
    return max(verdicts, key=VERDICTS.index)


def registry(text: str | None = None) -> dict[str, Claim]:
    """Read and check the whole registry.

    Parameters
    ----------
    text : str, optional
        TOML text to read in place of the package's ``claims.toml``.

    Returns
    -------
    dict
        Claim id -> `Claim`, in the order of the file.

    Raises
    ------
    ValueError
        If the file breaks a rule of the registry; the message names the claim, the key and the remedy.
    """
    if text is None:
        text = files("attncore.course").joinpath("claims.toml").read_text("utf8")
    return {name: _claim(name, entry) for name, entry in tomllib.loads(text).items()}


def _claim(name: str, entry) -> Claim:
    where = f"claims.toml [{name}]"
    if not isinstance(entry, dict):
        raise ValueError(f"{where}: expected a table, got {entry!r}")
    _known(where, entry, _CLAIM_KEYS)
    paper = _text(where, entry, "paper")
    if paper not in PAPERS:
        raise ValueError(f"{where}: paper must be one of {', '.join(PAPERS)}, got {paper!r}")
    if not re.fullmatch(PAPERS[paper][0] + r"(-[a-z0-9]+)+", name, re.IGNORECASE):
        raise ValueError(f"{where}: a claim of {paper} must be called {PAPERS[paper][0]}-..., got {name!r}")
    page = _text(where, entry, "page")
    if not re.fullmatch(r"book(/[a-z0-9]+(-[a-z0-9]+)*)+", page):
        raise ValueError(f"{where}: page must be a docname like 'book/svm/two-norms', got {page!r}")
    hypotheses = entry.get("hypotheses")
    if not isinstance(hypotheses, list) or not all(isinstance(h, str) and h.strip() for h in hypotheses):
        raise ValueError(f"{where}: hypotheses must be a list of sentences, got {hypotheses!r}")
    checkable = entry.get("checkable", True)
    if not isinstance(checkable, bool):
        raise ValueError(f"{where}: checkable must be true or false, got {checkable!r}")
    common = dict(id=name, paper=paper, statement=_text(where, entry, "statement"), page=page,
                  hypotheses=tuple(" ".join(h.split()) for h in hypotheses), checkable=checkable)
    if not checkable:
        _absent(where, entry, ("rule", "expected", "because"), "is only for a claim that is checkable")
        return Claim(rule=None, expected=NOT_CHECKABLE, reason=_text(where, entry, "reason"), **common)
    _absent(where, entry, ("reason",), "is only for a claim with checkable = false")
    expected = entry.get("expected", "reproduced")
    if expected not in VERDICTS:
        raise ValueError(f"{where}: expected must be one of {', '.join(VERDICTS)}, got {expected!r}")
    if expected == "reproduced":
        _absent(where, entry, ("because",), "explains an expected verdict other than 'reproduced'")
    because = None if expected == "reproduced" else _text(where, entry, "because")
    return Claim(rule=_rule(where, entry.get("rule")), expected=expected, because=because, **common)


def _rule(where: str, table) -> Rule:
    if not isinstance(table, dict) or not table:
        raise ValueError(f"{where}: rule must name at least one quantity, as [{where[13:-1]}.rule.NAME]")
    quantities = []
    for name, entry in table.items():
        spot = f"{where} rule.{name}"
        if not name.isidentifier():
            raise ValueError(f"{spot}: a quantity needs a name that Python can use, got {name!r}")
        if not isinstance(entry, dict):
            raise ValueError(f"{spot}: expected a table with means, reproduced, partly and why, got {entry!r}")
        _known(spot, entry, _QUANTITY_KEYS)
        regions = {}
        for verdict in ("reproduced", "partly"):
            if verdict == "partly" and verdict not in entry:
                regions[verdict] = None
                continue
            try:
                regions[verdict] = Region.parse(_text(spot, entry, verdict))
            except ValueError as error:
                raise ValueError(f"{spot}: {verdict}: {error}") from None
        if regions["partly"] and not regions["reproduced"].inside(regions["partly"]):
            raise ValueError(f"{spot}: partly must be weaker than reproduced, got partly "
                             f"{regions['partly'].text!r} and reproduced {regions['reproduced'].text!r}")
        quantities.append(Quantity(name, _text(spot, entry, "means"), why=_text(spot, entry, "why"), **regions))
    return Rule(tuple(quantities))


def _known(where: str, entry: dict, keys: set[str]) -> None:
    if unknown := sorted(set(entry) - keys):
        raise ValueError(f"{where}: unknown key {', '.join(unknown)}; known: {', '.join(sorted(keys))}")


def _absent(where: str, entry: dict, keys: tuple[str, ...], what: str) -> None:
    for key in keys:
        if key in entry:
            raise ValueError(f"{where}: {key} {what}; remove it")


def _text(where: str, entry: dict, key: str) -> str:
    value = entry.get(key)
    if not isinstance(value, str) or not value.strip():
        raise ValueError(f"{where}: {key} must be a sentence or a word in quotes, got {value!r}")
    return " ".join(value.split())
