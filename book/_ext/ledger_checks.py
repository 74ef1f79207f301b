"""What a ledger must satisfy for the book to be built: pure functions on the registry, the pages and the records."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from attncore.course.claims import NOT_CHECKABLE, Claim
from attncore.course.mime import rejudge

PLANNED = "planned"
MISSING = "no record"


@dataclass(frozen=True)
class Found:
    """A record as a page shows it: the page, the id of its box, and the record."""

    page: str
    anchor: str
    record: dict

    @property
    def claim(self) -> str:
        return str(self.record.get("claim"))

    @property
    def is_main(self) -> bool:
        return self.record.get("role") == "main"


@dataclass(frozen=True)
class Entry:
    """The state of one claim: `status` is a verdict, or says why there is none."""

    claim: Claim
    status: str
    main: Found | None
    controls: tuple[tuple[Found, str], ...]


def due_claims(claims: Mapping[str, Claim], pages: frozenset[str]) -> list[str]:
    """Return the ids of the claims that need a record: checkable, on a page of the book."""
    return sorted(c.id for c in claims.values() if c.checkable and c.page in pages)


def entries(claims: Mapping[str, Claim], pages: frozenset[str], found: Iterable[Found]) -> list[Entry]:
    """Return the state of every claim, in the order of the registry."""
    found = list(found)
    result = []
    for claim in claims.values():
        mains = [f for f in found if f.claim == claim.id and f.is_main]
        main = next((f for f in mains if f.page == claim.page), mains[0] if mains else None)
        controls = [(f, rejudge(f.record)[1]) for f in found if f.claim == claim.id and not f.is_main]
        if not claim.checkable:
            status = NOT_CHECKABLE
        elif main is not None:
            status = rejudge(main.record)[1] or MISSING
        else:
            status = MISSING if claim.page in pages else PLANNED
        result.append(Entry(claim, status, main, tuple((f, v) for f, v in controls if v)))
    return result


def faults(
    claims: Mapping[str, Claim], pages: frozenset[str], planned: frozenset[str], found: Iterable[Found]
) -> Iterator[tuple[str | None, str]]:
    """Yield (page or None, message) for everything that makes the ledger untrue.

    Parameters
    ----------
    claims : mapping
        The registry.
    pages, planned : frozenset of str
        Pages of the book, and pages that claims may name before they exist.
    found : iterable of Found
        All records of all pages.
    """
    mains: dict[str, list[Found]] = {}
    for one in found:
        yield from ((one.page, message) for message in _record_faults(one))
        if one.is_main:
            mains.setdefault(one.claim, []).append(one)
    for claim in claims.values():
        records = mains.get(claim.id, [])
        if claim.page not in pages | planned:
            yield None, (f"claim {claim.id}: its page {claim.page} is neither in _toc.yml nor among the planned pages "
                         "of book/_ext/ledger_pages.py, so it would never fall due")
        if len(records) > 1:
            where = ", ".join(f.page for f in records)
            yield records[1].page, f"claim {claim.id}: recorded {len(records)} times as main ({where}); one is due"
        for one in records:
            if one.page != claim.page:
                yield one.page, f"claim {claim.id}: recorded here, but the registry places it on {claim.page}"
        if claim.checkable and claim.page in pages and not any(f.page == claim.page for f in records):
            yield claim.page, (f"claim {claim.id}: due on this page, but no main record was found "
                               "(none made, or its output is removed)")


def _record_faults(one: Found) -> Iterator[str]:
    claim, verdict, problem = rejudge(one.record)
    if claim is None or verdict is None:
        yield f"claim {one.claim}: {problem}"
        return
    if one.record["rule"] == claim.rule.thresholds and one.record["verdict"] != verdict:
        yield (f"claim {claim.id}: the stored verdict is {one.record['verdict']!r}, "
               f"the rule says {verdict!r} for {one.record['measured']}")
    dropped = [name for name, holds in one.record["hypotheses"].items() if holds is not True]
    if one.is_main and dropped:
        yield f"claim {claim.id}: a main record must satisfy its hypotheses, but drops {dropped[0]!r}"
    if not one.is_main and not dropped:
        yield f"claim {claim.id}: a control must drop a hypothesis"
    if one.is_main and verdict != claim.expected:
        surprise = "better than" if _rank(verdict) < _rank(claim.expected) else "worse than"
        yield (f"claim {claim.id}: measured {one.record['measured']} is {verdict!r}, {surprise} the expected "
               f"{claim.expected!r}; if it is right, say so in claims.toml (expected, because)")


def _rank(verdict: str) -> int:
    return ("reproduced", "partly", "not reproduced").index(verdict)
