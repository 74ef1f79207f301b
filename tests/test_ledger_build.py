"""The ledger in real builds of a small book: planted faults turn the build red, twice, and mending them green."""

from __future__ import annotations

import json
import re
import shutil

import pytest
import yaml
from books import ROOT, Built, TrialBook, notebook, registry_with

pytestmark = pytest.mark.book

FIRST, LEDGER = "book/svm/attention-chooses-tokens", "book/reference/ledger"
OTHER = "book/other"
RECORDS = """
import random
from attncore.course import ledger

rng = random.Random(0)
corr = sorted(0.995 + 0.004 * rng.random() for _ in range(50))
mean = sum(corr) / len(corr)
ledger.record("svm-fro-direction", {"corr": mean}, seeds=len(corr), interval=(corr[0], corr[-1]),
              band="smallest to largest", hypotheses={"<b>unique</b>": True})
"""
PATH = """
ledger.record("svm-path-fro", {"corr": corr[-1] + 0.0005}, seeds=len(corr))
"""
FEASIBLE = """
ledger.record("svm-feasible", {"share": sum(c > 0 for c in corr) / len(corr)}, seeds=len(corr))
ledger.record("svm-feasible", {"share": sum(c > 0.997 for c in corr) / len(corr)}, role="control",
              hypotheses={"d >= max(T - 1, n)": False})
"""
ELSEWHERE = """
from attncore.course import ledger
ledger.record("svm-path-fro", {"corr": 1 - sum(x**2 for x in [1e-3, 1e-3])})
"""
HERE = "```{claims-here}\n```"


def page(*cells: str) -> str:
    return notebook("First", *(cell.strip() for cell in cells), prose=HERE)


class LedgerBook(TrialBook):
    """A trial book with the ledger, and a copy of the package whose registry a test may edit."""

    def __init__(self, root) -> None:
        super().__init__(root)
        config = yaml.safe_load((root / "_config.yml").read_text("utf8"))
        config["sphinx"]["local_extensions"]["ledger"] = "book/_ext"
        self.write("_config.yml", yaml.safe_dump(config))
        for name in ("__init__.py", "validation.py", "course"):
            source, target = ROOT / "attncore" / name, root / "attncore" / name
            if source.is_dir():
                shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))
            else:
                target.parent.mkdir(exist_ok=True)
                shutil.copy(source, target)
        self.write("attncore/course/claims.toml",
                   registry_with(FIRST, "svm-fro-direction", "svm-path-fro", "svm-feasible"))
        shutil.copy(ROOT / "book" / "references.bib", root / "book" / "references.bib")
        self.write(f"{LEDGER}.md", (ROOT / f"{LEDGER}.md").read_text("utf8"))
        self.write("book/index.md", "# Trial\n\n{ledger-count}`x`.\n\n```{ledger-summary}\n```\n")
        self.write("book/bib.md", "# Bibliography\n\n```{bibliography}\n```\n")
        self.write(f"{OTHER}.md", "# Other\n\nNothing.\n")
        self.contents("book/index", FIRST, LEDGER, "book/bib", OTHER)
        self.first(RECORDS, PATH, FEASIBLE)

    def first(self, *cells: str) -> None:
        self.write(f"{FIRST}.md", page(*cells))

    def build(self, *arguments: str, **extra: str) -> Built:
        return super().build(*arguments, PYTHONPATH=str(self.root), **extra)

    def data(self) -> dict:
        return json.loads((self.html / "_static" / "ledger.json").read_text("utf8"))


@pytest.fixture(scope="module")
def book(tmp_path_factory) -> LedgerBook:
    return LedgerBook(tmp_path_factory.mktemp("ledger") / "trial")


def warned(built: Built) -> list[str]:
    return [line for line in built.output.splitlines() if "WARNING" in line]


def red_twice(book: LedgerBook, *parts: str) -> None:
    """The build is red for these reasons alone, and red for the same ones when run again."""
    for attempt in ("first", "second"):
        built = book.build()
        assert built.status == 1, f"{attempt} build: {built.output}"
        lines = warned(built)
        assert len(lines) == len(parts), f"{attempt} build: {built.output}"
        for part in parts:
            assert any(part in line for line in lines), f"{attempt} build lacks {part!r}: {built.output}"


def green(book: LedgerBook) -> Built:
    built = book.build()
    assert built.status == 0, built.output
    return built


def test_a_true_ledger_is_green_and_drawn(book):
    assert green(book).executed == {FIRST}
    assert book.data()["counts"] == {
        "reproduced": 3, "partly": 0, "not reproduced": 0, "not checkable here": 1, "planned": 38,
    }  # fmt: skip
    shown = book.page(FIRST)
    assert shown.count('class="claim claim-reproduced admonition"') == 3
    assert shown.count('class="claim claim-control admonition"') == 1
    assert "&lt;b&gt;unique&lt;/b&gt;" in shown and "<b>unique</b>" not in shown
    assert "3 of 42 claims are judged so far" in book.page("book/index")
    drawn = book.page(LEDGER)
    assert set(re.findall(r'<tr[^>]* id="ledger-([\w-]+)"', drawn)) == {c["id"] for c in book.data()["claims"]}
    assert 'href="../svm/attention-chooses-tokens.html#claim-svm-feasible"' in drawn
    assert 'href="../../_static/ledger.json"' in drawn
    assert all(text in drawn for text in ("50 seeds", "smallest to largest", "Control without d &gt;= max(T - 1, n)"))
    assert "tex-chtml.js" in drawn, "statements of claims are mathematics"
    record = next(c for c in book.data()["claims"] if c["id"] == "svm-feasible")
    assert record["record"]["measured"] == {"share": 1.0} and record["link"].endswith("#claim-svm-feasible")


def test_a_wrong_number_is_red_twice(book):
    book.first(RECORDS.replace("0.995 + ", "0.95 + "), PATH.replace("0.0005", "0.0455"), FEASIBLE)
    red_twice(book, "claim svm-fro-direction: measured")


def test_a_removed_record_is_red_twice_and_green_when_mended(book):
    book.first(RECORDS, FEASIBLE)
    red_twice(book, "claim svm-path-fro: due on this page, but no main record")
    book.first(RECORDS, PATH, FEASIBLE)
    green(book)


def test_recorded_twice_and_elsewhere_and_hidden_and_typed_is_red_twice(book):
    hidden = ":tags: [remove-output]\n" + PATH.strip()
    book.first(RECORDS, hidden, FEASIBLE, 'ledger.record("svm-feasible", {"share": 1.0})')
    book.write(f"{OTHER}.md", notebook("Other", ELSEWHERE.strip()))
    red_twice(
        book,
        "svm-feasible: recorded 2 times",
        "typed, not measured: 1.0",
        "the tag 'remove-output' hides the record",
        "svm-path-fro: recorded here, but the registry places it on",
        "svm-path-fro: due on this page, but no main record",
    )


def test_an_edited_registry_judges_again_and_runs_nothing(book):
    book.write(f"{OTHER}.md", "# Other\n\nNothing.\n")
    book.first(RECORDS, PATH, FEASIBLE)
    registry, rule = "attncore/course/claims.toml", "[svm-path-fro.rule.corr]"
    text = (book.root / registry).read_text("utf8")
    head, tail = text.split(rule)
    stricter = head + rule + tail.replace('">= 0.999"', '">= 0.99999"', 1)
    known = '[svm-path-fro]\nexpected = "partly"\nbecause = "Said by the test."\n'
    book.write(registry, stricter.replace("[svm-path-fro]\n", known))
    green(book)
    assert book.data()["counts"]["partly"] == 1
    assert book.page(FIRST).count('class="claim claim-partly admonition"') == 1
    assert "Said by the test." in book.page(LEDGER)
    book.write(registry, text.replace("[svm-path-fro]\n", known))
    built = book.build()
    assert built.status == 1 and built.executed == set() and FIRST in built.read
    [line] = warned(built)
    assert "better than the expected 'partly'" in line, "a surprise is red"
    book.write(registry, text)
    assert green(book).executed == set()
    assert book.page(FIRST).count('class="claim claim-reproduced admonition"') == 3
