"""The reference pages: benchmark results in one form and shown as they are, every public name documented."""

from __future__ import annotations

import html
import importlib
import json
import pkgutil
import re
import sys

import api
import books
import freshness
import measurements as shown
import pytest

import attncore

sys.path.append(str(books.ROOT))
from benchmarks.__main__ import FIELDS, merge  # noqa: E402

RESULTS = json.loads((books.ROOT / "benchmarks/results.json").read_text("utf8"))
API = (books.ROOT / "book/reference/api.md").read_text("utf8")
PAGE = (books.ROOT / "book/reference/benchmarks.md").read_text("utf8")
MODULES = [m.name for m in pkgutil.walk_packages(attncore.__path__, "attncore.") if ".course" not in m.name]
PUBLIC = [name for name in MODULES if hasattr(importlib.import_module(name), "__all__")]
DIRECTIVES = re.findall(r"^```\{api\} (\S+)(.*)$", API, re.M)


def text_of(site, name: str) -> str:
    """The words of a built page, white space as single blanks."""
    main = re.search(r"<article.*</article>", (site / f"{name}.html").read_text("utf8"), re.S)[0]
    words = html.unescape(re.sub(r"<[^>]+>", " ", main)).replace("\N{RIGHT SINGLE QUOTATION MARK}", "'")
    return " ".join(words.split())


@pytest.mark.parametrize("name", RESULTS["rows"])
def test_every_row_is_complete(name):
    row = RESULTS["rows"][name]
    assert set(row) == {*FIELDS, "run"} and row["title"] and row["work"] and row["ours"] > 0
    run = RESULTS["runs"][row["run"]]
    assert {"date", "commit", "processor", "cores", "threads", "load", "system", "python", "versions"} <= set(run)
    for side in (*row["opponents"].values(), *row["floors"].values()):
        assert side["seconds"] > 0
    for bar in row["bars"]:
        above = bar["measured"] >= bar["asked"]
        below = bar["measured"] <= bar["asked"]
        assert bar["met"] == (above if bar["sign"] == "at least" else below)


def test_every_benchmark_of_the_tree_has_its_row_and_no_row_is_left_over():
    defined = {
        f"{path.name}::{name}"
        for path in (books.ROOT / "benchmarks").glob("test_*.py")
        for name in re.findall(r"^def (test_\w+)", path.read_text("utf8"), re.M)
    }
    assert {name.partition("[")[0] for name in RESULTS["rows"]} == defined


def test_the_bars_of_the_engine_are_all_held_against_a_number():
    asked = {
        (bar["what"], bar["asked"]) for row in RESULTS["rows"].values() for bar in row["bars"] if not bar["aim"]
    }
    for bar in [("times faster than autograd", 150), ("times faster than autograd", 90),
                ("times faster than cvxpy", 450), ("largest certified gap", 1e-12),
                ("times faster than the best accurate library", 10), ("certified gap", 1e-10),
                ("seconds of processor time", 2.0), ("seconds of processor time", 5.0),
                ("peak memory with imports, MiB", 1024), ("wrong, by linear programming", 0)]:
        assert bar in asked


def test_ratios_that_are_barred_are_those_of_the_times():
    for row in RESULTS["rows"].values():
        ratios = [side["seconds"] / row["ours"] for side in row["opponents"].values()]
        for bar in row["bars"]:
            if bar["what"].startswith("times faster"):
                assert any(bar["measured"] == pytest.approx(ratio) for ratio in ratios)


def test_a_row_measured_again_moves_to_the_new_run_and_unused_runs_go():
    rows = {"t.py::x": {"ours": 1, "run": "a"}, "s.py::y": {"ours": 2, "run": "a"}}
    old = {"runs": {"a": {"date": "a"}}, "rows": rows}
    half = merge(old, {"t.py::x": {"ours": 3}}, {"date": "b"})
    assert list(half["rows"]) == ["s.py::y", "t.py::x"] and set(half["runs"]) == {"a", "b"}
    assert half["rows"]["t.py::x"] == {"ours": 3, "run": "b"}
    assert set(merge(half, {"s.py::y": {"ours": 4}}, {"date": "c"})["runs"]) == {"b", "c"}


def test_the_page_shows_the_numbers_of_the_file(site):
    text = text_of(site, "book/reference/benchmarks")
    for row in RESULTS["rows"].values():
        assert " ".join(f"{row['title']}; {row['work']}".split()) in text
        assert " ".join(shown.seconds(row["ours"]).split()) in text
        for words in [shown.bar_words(bar) for bar in row["bars"]]:
            assert words in text
        for name, side in {**row["opponents"], **row["floors"]}.items():
            line = f"{name} {shown.seconds(side['seconds'])} {shown.number(side['seconds'] / row['ours'])}"
            assert " ".join(line.split()) in text
    for run in RESULTS["runs"].values():
        assert text.count(run["date"][:16].replace("T", " ")) >= 2 and run["processor"] in text  # table, a row


@pytest.mark.parametrize(("value", "words"), [
    (0, "0"), (0.0005, "5.0e-4"), (0.001, "0.001"), (1.2345, "1.23"), (999.4, "999"), (1234.5, "1,234"),
    (1.25e6, "1.2e6"), (-3.21e-15, "-3.2e-15"),
])
def test_numbers_keep_three_digits(value, words):
    assert shown.number(value) == words


@pytest.mark.parametrize(("value", "words"), [(2.5, "2.5 s"), (0.0255, "25.5 ms"), (4.4e-5, "44 µs")])
def test_times_have_the_unit_that_suits_them(value, words):
    assert shown.seconds(value).replace("\N{NO-BREAK SPACE}", " ") == words


def test_every_module_with_public_names_is_on_the_page():
    listed = [module for module, _ in DIRECTIVES]
    assert len(listed) == len(set(listed))
    owners = {importlib.import_module(name): name for name in PUBLIC}
    whole = {module for module, members in DIRECTIVES if not members.strip()}
    assert set(owners.values()) <= whole


@pytest.mark.parametrize(("module", "members"), DIRECTIVES, ids=[module for module, _ in DIRECTIVES])
def test_every_public_name_is_documented_on_the_page(site, module, members):
    page = (site / "book/reference/api.html").read_text("utf8")
    names = members.split() or api.public_names(importlib.import_module(module))
    for name in names:
        assert f'id="{module}.{name}"' in page, f"{module}.{name} is not on the page"
        thing = getattr(importlib.import_module(module), name)
        if callable(thing):
            assert (thing.__doc__ or "").strip(), f"{module}.{name} has no docstring"
            assert not thing.__doc__.startswith(f"{name}("), f"{module}.{name} has only what dataclass wrote"


def test_the_page_is_small_enough_to_be_sent_at_once(site):
    import gzip

    assert len(gzip.compress((site / "book/reference/api.html").read_bytes())) < 150_000


@pytest.mark.parametrize(("name", "page"), [("README.md", None), ("book/reference/api.md", API)])
def test_the_examples_of_the_text_run(name, page, capsys):
    text = page or (books.ROOT / name).read_text("utf8")
    (code,) = re.findall(r"^```python\n(.*?)^```", text, re.M | re.S)
    exec(compile(code, name, "exec"), {})
    assert capsys.readouterr().out.strip()


@pytest.mark.parametrize(("line", "escaped"), [
    ("the norm |W|_F of W^mm_a", r"the norm \|W\|_F of W^mm_a"),
    ("``|W|`` and `tol`, :math:`|x|` too", "``|W|`` and ``tol``, :math:`|x|` too"),
    ("x_ and y_ stay plain", r"x\_ and y\_ stay plain"),
    ("2*3*4", r"2\*3\*4"),
    ("*stressed* and **strong**", "*stressed* and **strong**"),
])
def test_formulas_in_docstrings_are_no_markup(line, escaped):
    assert api.escaped(line) == escaped


def test_examples_and_directives_in_docstrings_are_left_alone():
    lines = ["Of |W|::", "", "    |A| x_", "", ".. math:: |W|", "    |V|", "", ">>> f(a|b)", "1|2", "", "|W| again"]
    api.escape_formulas(None, "function", "f", None, None, lines)
    assert lines == [r"Of \|W\|::", "", "    |A| x_", "", ".. math:: |W|", "    |V|", "", ">>> f(a|b)", "1|2", "",
                     r"\|W\| again"]


def test_a_page_follows_the_files_its_directives_show(tmp_path):
    files = {
        "attncore/__init__.py": "", "attncore/svm/solve.py": "def f(): 'One.'\n", "benchmarks/results.json": "{}",
        "book/api.md": "# A\n\n```{api} attncore.svm\n```\n", "book/numbers.md": "# B\n\n```{benchmarks} *\n```\n",
        "book/other.md": "# C\n\nSee `{api}` and {benchmarks}.\n",
    }  # fmt: skip
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text, "utf8")

    def digests():
        return {name: freshness.page_digest(tmp_path, f"book/{name}") for name in ("api", "numbers", "other")}

    first = digests()
    (tmp_path / "attncore/svm/solve.py").write_text("def f(): 'Two.'\n", "utf8")
    second = digests()
    (tmp_path / "benchmarks/results.json").write_text("[]", "utf8")
    third = digests()
    changed = [{name for name in one if one[name] != two[name]} for one, two in ((first, second), (second, third))]
    assert changed == [{"api"}, {"numbers"}]
