"""Typed numbers are refused as measurements, on planted pages and on every page of the book."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "book" / "_ext"))

from ledger_lint import lint_page  # noqa: E402

FRONT = "---\njupytext: {text_representation: {extension: .md, format_name: myst}}\n---\n\n# Page\n\n"
IMPORT = "from attncore.course import ledger\n"


def page(tmp_path: Path, *cells: str) -> Path:
    path = tmp_path / "page.md"
    path.write_text(FRONT + "\n".join(f"```{{code-cell}} ipython3\n{cell}\n```\n" for cell in cells), "utf8")
    return path


def lint(tmp_path, *cells: str) -> list[str]:
    return [message for _, message in lint_page(page(tmp_path, IMPORT, *cells))]


TYPED = {
    "number": 'ledger.record("a", {"corr": 0.99})',
    "keyword": 'ledger.record("a", measured={"corr": 0.99})',
    "dict call": 'ledger.record("a", dict(corr=0.99))',
    "dict of pairs": 'ledger.record("a", dict([("corr", 0.99)]))',
    "minus": 'ledger.record("a", {"corr": -0.99})',
    "plus minus": 'ledger.record("a", {"corr": -(+0.99)})',
    "arithmetic": 'ledger.record("a", {"corr": 1 - 0.01})',
    "power": 'ledger.record("a", {"corr": 10 ** -3})',
    "float of text": 'ledger.record("a", {"corr": float("0.99")})',
    "text": 'ledger.record("a", {"corr": "0.99"})',
    "bool": 'ledger.record("a", {"corr": True})',
    "name": 'value = 0.99\nledger.record("a", {"corr": value})',
    "name twice": 'value = 0.9\nvalue = 0.99\nledger.record("a", {"corr": value})',
    "annotated name": 'value: float = 0.99\nledger.record("a", {"corr": value})',
    "name of a name": 'value = 0.99\nother = value / 1\nledger.record("a", {"corr": other})',
    "unpacked": 'value, other = 0.99, 1\nledger.record("a", {"corr": value})',
    "walrus": 'print(value := 0.99)\nledger.record("a", {"corr": value})',
    "name of a dict": 'found = {"corr": 0.99}\nledger.record("a", found)',
    "name of dict()": 'found = dict(corr=0.99)\nledger.record("a", found)',
    "unpacked dict": 'found = {"corr": 0.99}\nledger.record("a", {**found})',
    "union": 'ledger.record("a", {"x": f()} | {"corr": 0.99})',
    "comprehension": 'ledger.record("a", {key: 0.99 for key in keys})',
    "looked up": 'found = {"corr": 0.99}\nledger.record("a", {"corr": found["corr"]})',
    "element": 'ledger.record("a", {"corr": [0.99, 1.0][0]})',
    "array": 'import numpy as np\nledger.record("a", {"corr": np.mean([0.99, 0.98])})',
    "norm": 'import numpy as np\nledger.record("a", {"corr": np.linalg.norm([0.99])})',
    "tensor": 'import torch\nledger.record("a", {"corr": torch.tensor(0.99).item()})',
    "rounded": 'ledger.record("a", {"corr": round(0.987654, 2)})',
    "conditional": 'ledger.record("a", {"corr": 0.99 if True else 0.98})',
    "one of two": 'ledger.record("a", {"x": f(), "corr": 0.99})',
    "control": 'ledger.record("a", {"corr": 0.2}, role="control", hypotheses={"h": False})',
    "interval": 'ledger.record("a", {"corr": f()}, interval=(0.98, 0.999))',
    "one end": 'ledger.record("a", {"corr": f()}, interval=(0.98, f()))',
    "common arguments": 'both = dict(measured={"corr": 0.99})\nledger.record("a", **both)',
    "common interval": 'ledger.record("a", {"corr": f()}, **{"interval": (0.9, 1.0)})',
    "named interval": 'ledger.record("a", {"corr": f()}, interval={"corr": (0.9, 1)})',
}
UNCLEAR = {
    "computed id": ('ledger.record("a" + "b", {"corr": f()})', "string literal"),
    "id by name": ('claim = "a"\nledger.record(claim, {"corr": f()})', "string literal"),
    "id in a loop": ('for claim in ids:\n    ledger.record(claim, {"corr": f()})', "string literal"),
    "no id": ('ledger.record(measured={"corr": f()})', "string literal"),
    "starred": ("ledger.record(*arguments)", "stand in the page"),
    "double starred": ('ledger.record("a", {"corr": f()}, **arguments)', "stand in the page"),
    "double starred call": ('ledger.record("a", {"corr": f()}, **arguments())', "stand in the page"),
    "another name": ('note = ledger.record\nnote("a", {"corr": 0.99})', "call ledger.record directly"),
    "handed on": ('functools.partial(ledger.record, "a")', "call ledger.record directly"),
    "bundle by hand": ('display({"application/vnd.attncore.claim+json": {}}, raw=True)', "MIME bundle"),
    "Record by hand": ('ledger.Record("a", {}, "reproduced", {}, 1, {}, None, "main", {})', "building a Record"),
    "Record imported": ("from attncore.course.ledger import Record", "building a Record"),
    "hidden": (':tags: [remove-output]\nledger.record("a", {"corr": f()})', "'remove-output' hides"),
    "hidden cell": (':tags: [hide-cell]\nledger.record("a", {"corr": f()})', "'hide-cell' hides"),
    "hidden by YAML": ('---\ntags: [remove-cell]\n---\nledger.record("a", {"corr": f()})', "'remove-cell' hides"),
}
MEASURED = {
    "call": 'ledger.record("a", {"corr": f()})',
    "call with settings": 'found = descend(steps=2000, lr=0.1)\nledger.record("a", {"corr": found})',
    "attribute": 'ledger.record("a", {"corr": run.corr[-1]})',
    "share": 'ledger.record("a", {"share": hits / 200})',
    "mean": 'import numpy as np\nledger.record("a", {"corr": np.mean(values)})',
    "distance to a target": 'ledger.record("a", {"error": abs(f() - 0.333)})',
    "counted up": 'hits = 0\nfor x in xs:\n    hits += x > 0.9\nledger.record("a", {"share": hits})',
    "assigned once more": 'best = 0.0\nbest = max(best, f())\nledger.record("a", {"corr": best})',
    "loop variable": 'value = 0.9\nfor value in runs:\n    pass\nledger.record("a", {"corr": value})',
    "quantiles": 'ledger.record("a", {"corr": f()}, seeds=200, interval=np.quantile(v, [0.05, 0.95]), band="5 to 95%")',
    "pair of results": 'lo, hi = g()\nledger.record("a", {"corr": f()}, interval=(lo, hi))',
    "method": 'ledger.record("a", {"corr": values[values > 0.5].mean()})',
    "random": 'import numpy as np\nledger.record("a", {"corr": np.random.rand()})',
    "another record": 'other.record("a", {"corr": 0.99})',
    "hidden input": ':tags: [hide-input]\nledger.record("a", {"corr": f()})',
    "common arguments": 'both = dict(band="quartiles")\nledger.record("a", {"corr": f()}, interval=g(), **both)',
    "no interval": 'ledger.record("a", {"corr": f()}, interval=None)',
}


@pytest.mark.parametrize("case", TYPED)
def test_typed_numbers_are_refused(tmp_path, case):
    assert any("typed, not measured" in message for message in lint(tmp_path, TYPED[case]))


@pytest.mark.parametrize("case", UNCLEAR)
def test_unclear_records_are_refused(tmp_path, case):
    cell, message = UNCLEAR[case]
    assert any(message in found for found in lint(tmp_path, cell))


@pytest.mark.parametrize("case", MEASURED)
def test_measurements_pass(tmp_path, case):
    assert lint(tmp_path, MEASURED[case]) == []


@pytest.mark.parametrize("form", [
    "import attncore.course.ledger as led\nled.record('a', {'corr': 0.99})",
    "import attncore.course.ledger\nattncore.course.ledger.record('a', {'corr': 0.99})",
    "from attncore.course import ledger as book\nbook.record('a', {'corr': 0.99})",
    "from attncore.course.ledger import record\nrecord('a', {'corr': 0.99})",
    "from attncore.course.ledger import record as note\nnote('a', {'corr': 0.99})",
])  # fmt: skip
def test_every_form_of_import_is_seen(tmp_path, form):
    assert [message for _, message in lint_page(page(tmp_path, form))]


def test_a_name_may_be_bound_in_another_cell(tmp_path):
    assert lint(tmp_path, "value = 0.99", 'ledger.record("a", {"corr": value})')


def test_the_line_is_that_of_the_page(tmp_path):
    path = page(tmp_path, IMPORT, ':tags: [hide-input]\n\nx = f()\nledger.record("a",\n   {"corr": 0.99})')
    [(line, _)] = lint_page(path)
    assert path.read_text("utf8").splitlines()[line - 1] == '   {"corr": 0.99})'


def test_a_cell_that_is_no_python_is_left_to_its_execution(tmp_path):
    assert lint(tmp_path, "this is no Python") == []


def pages() -> list[Path]:
    return sorted(path for path in (ROOT / "book").rglob("*.md"))


def test_the_book_has_pages():
    assert pages()


@pytest.mark.parametrize("path", pages(), ids=lambda p: p.relative_to(ROOT / "book").as_posix())
def test_pages_of_the_book_record_measurements(path):
    assert lint_page(path) == []
