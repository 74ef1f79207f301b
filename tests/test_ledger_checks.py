"""What makes the ledger of a book untrue, on planted records; no Sphinx, no build."""

from __future__ import annotations

import sys
from dataclasses import replace

import pytest
from books import ROOT, registry_with

sys.path.insert(0, str(ROOT / "book" / "_ext"))

import ledger_draw  # noqa: E402
from ledger_checks import MISSING, Found, due_claims, entries, faults  # noqa: E402
from ledger_pages import PLANNED  # noqa: E402

from attncore.course import ledger, mime  # noqa: E402

FIRST = "book/svm/attention-chooses-tokens"
PAGES = frozenset({"book/index", FIRST})
GOOD = {"svm-fro-direction": {"corr": 0.995}, "svm-path-fro": {"corr": 0.9995}, "svm-feasible": {"share": 1.0}}
REGISTRY = registry_with(FIRST, *GOOD)
CLAIMS = ledger.registry(REGISTRY)


def found(claim: str, measured: dict, page: str = FIRST, **changes) -> Found:
    made = ledger.record(claim, measured, seeds=3, **changes)
    return Found(page, f"claim-{claim}", made.bundle()[ledger.MIME])


def good() -> list[Found]:
    return [found(claim, measured) for claim, measured in GOOD.items()]


def messages(records, claims=CLAIMS, pages=PAGES, planned=PLANNED) -> list[tuple[str | None, str]]:
    return list(faults(claims, pages, planned, records))


def one(records, *parts: str, page: str | None = FIRST, **changes) -> None:
    """The records have exactly one fault, on `page`, whose message holds all parts."""
    [(where, message)] = messages(records, **changes)
    assert where == page and all(part in message for part in parts), (where, message)


def edited(record: Found, **changes) -> Found:
    return replace(record, record={**record.record, **changes})


def test_a_true_ledger_has_no_faults():
    control = found("svm-feasible", {"share": 0.14}, role="control", hypotheses={"d >= max(T-1, n)": False})
    assert messages([*good(), control, replace(control, page="book/index")]) == []


def test_no_pages_no_claims_due():
    assert messages([], pages=frozenset({"book/index"})) == []


def test_a_due_claim_without_record():
    one(good()[1:], "svm-fro-direction", "due on this page", "no main record")


def test_a_control_does_not_stand_for_the_main_record():
    control = found("svm-fro-direction", {"corr": 0.995}, role="control", hypotheses={"linear head": False})
    one([control, *good()[1:]], "svm-fro-direction", "no main record")


def test_recorded_twice():
    one([*good(), found("svm-feasible", {"share": 1.0})], "svm-feasible", "recorded 2 times")


def test_recorded_elsewhere_too():
    elsewhere = found("svm-feasible", {"share": 1.0}, page="book/index")
    said = messages([*good(), elsewhere])
    assert any("recorded 2 times" in m for _, m in said)
    assert ("book/index" in where and "places it on" in m for where, m in said)


def test_recorded_only_elsewhere():
    said = messages([*good()[:2], replace(good()[2], page="book/index")])
    assert [(w, "places it on" in m or "no main record" in m) for w, m in said] == [("book/index", True), (FIRST, True)]


def test_a_verdict_worse_than_expected():
    one([found("svm-fro-direction", {"corr": 0.95}), *good()[1:]], "'partly'", "worse than", "'reproduced'", "0.95")


def test_a_surprise_is_a_fault_too():
    page = CLAIMS["pre-n2"].page
    one([found("pre-n2", {"slope": -1.9}, page=page), found("pre-n1", {"slope": -1.0}, page=page),
         found("pre-mum", {"ratio": 1.0}, page=page)],
        "pre-n2", "better than", "'not reproduced'", page=page, pages=frozenset({page}))  # fmt: skip


def test_an_expected_failure_is_none():
    page = CLAIMS["pre-n2"].page
    records = [found("pre-n2", {"slope": -0.95}, page=page), found("pre-n1", {"slope": -1.0}, page=page),
               found("pre-mum", {"ratio": 1.0}, page=page)]  # fmt: skip
    assert messages(records, pages=frozenset({page})) == []


def test_an_unregistered_claim():
    one([*good(), edited(good()[0], claim="svm-nothing")], "'svm-nothing' is not registered")


def test_a_claim_that_is_not_checkable():
    elsewhere = replace(edited(good()[0], claim="svm-hierarchy"), page=CLAIMS["svm-hierarchy"].page)
    one([*good(), elsewhere], "not checkable here", page=elsewhere.page)


def test_a_stored_verdict_that_is_not_the_rules():
    one([edited(good()[0], verdict="partly"), *good()[1:]], "stored verdict is 'partly'", "'reproduced'")


def test_a_stored_number_that_was_changed():
    said = messages([edited(good()[0], measured={"corr": 0.5}), *good()[1:]])
    assert ["stored verdict" in m for _, m in said] == [True, False] and "worse than" in said[1][1]


def test_an_edited_rule_judges_again_without_a_run(monkeypatch):
    """A record made by the old rule is no forgery; its verdict is that of the rule of now."""
    old = "[svm-path-fro.rule.corr]"
    head, tail = REGISTRY.split(old)
    stricter = ledger.registry(head + old + tail.replace('">= 0.999"', '">= 0.9999"', 1))
    monkeypatch.setattr(mime, "registry", lambda: stricter)
    one(good(), "svm-path-fro", "'partly'", "worse than", claims=stricter)


@pytest.mark.parametrize("lost", ["measured", "role", "verdict", "hypotheses"])
def test_a_record_that_lacks_a_part(lost):
    broken = replace(good()[0], record={k: v for k, v in good()[0].record.items() if k != lost})
    assert any("it lacks " + lost in m for _, m in messages([broken, *good()[1:]]))


def test_hypotheses_forged_after_the_record():
    one([edited(good()[0], hypotheses={"linear head": False}), *good()[1:]], "must satisfy its hypotheses")
    control = found("svm-feasible", {"share": 0.1}, role="control", hypotheses={"wide": False})
    one([*good(), edited(control, hypotheses={"wide": True})], "must drop a hypothesis")


def test_a_page_that_will_never_come():
    lost = {**CLAIMS, "svm-local": replace(CLAIMS["svm-local"], page="book/svm/locale")}
    one(good(), "svm-local", "book/svm/locale", "never fall due", claims=lost, page=None)


def test_what_is_due():
    assert due_claims(CLAIMS, PAGES) == sorted(GOOD)
    assert due_claims(CLAIMS, PAGES | {"book/svm/hierarchy"}) == sorted(GOOD), "hierarchy is not checkable"
    assert due_claims(CLAIMS, frozenset()) == []


def test_entries_and_their_counts():
    control = found("svm-feasible", {"share": 0.14}, role="control", hypotheses={"wide": False})
    state = {e.claim.id: e for e in entries(CLAIMS, PAGES, [*good()[1:], control])}
    assert state["svm-feasible"].status == "reproduced" and state["svm-feasible"].controls[0][1] == "not reproduced"
    assert state["svm-fro-direction"].status == MISSING and state["svm-local"].status == "planned"
    counted = ledger_draw.counts(state.values())
    assert counted == {"reproduced": 2, "partly": 0, "not reproduced": 0, "not checkable here": 1, "planned": 38,
                       MISSING: 1}  # fmt: skip
    assert sum(counted.values()) == len(CLAIMS)
    assert ledger_draw.summary_sentence(list(state.values())).startswith("2 of 42 claims are judged so far")


def test_the_first_record_on_the_right_page_is_the_one_shown():
    wrong = found("svm-feasible", {"share": 0.5}, page="book/index")
    [entry] = [e for e in entries(CLAIMS, PAGES, [wrong, *good()]) if e.claim.id == "svm-feasible"]
    assert entry.main.page == FIRST and entry.status == "reproduced"


def test_records_read_by_another_process_are_merged():
    """What a second reader found of its own pages comes in; what it knows of other pages does not."""
    from ledger import ClaimDomain

    class Env:
        domaindata = {}

    domain = ClaimDomain(Env())
    domain.data["records"] |= {"a": [("x", {"claim": "one"})], "b": [("y", {"claim": "old"})]}
    other = {"records": {"b": [("z", {"claim": "two"})], "a": []}, "shown": {"b", "a"}}
    domain.clear_doc("b")
    domain.merge_domaindata(["b", "c"], other)
    assert [(f.page, f.anchor, f.claim) for f in domain.found] == [("a", "x", "one"), ("b", "z", "two")]
    assert domain.data["shown"] == {"b"}
