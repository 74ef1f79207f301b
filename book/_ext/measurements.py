"""The directives ``benchmarks`` and ``benchmark-runs``: what ``benchmarks/results.json`` holds, as tables.

``{benchmarks} test_svm*.py ...`` shows the rows of the files whose names match; ``{benchmark-runs}`` the runs
that rows come from, and it warns of rows that no table of the page shows. Nothing is typed: every number of
the tables is the file's. The page's digest covers the file (see ``freshness.SHOWN``).
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from fnmatch import fnmatch
from pathlib import Path

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util import logging
from sphinx.util.docutils import SphinxDirective

from attncore.course.mime import text_table

log = logging.getLogger(__name__)
RESULTS = Path("benchmarks/results.json")
MEASURES = {"gap": "largest certified gap", "peak_MiB": "peak memory, MiB"}  # words for names of measures


class BenchmarksDirective(SphinxDirective):
    """``{benchmarks} pattern ...``: the rows of the files that match, each a table of times and a list of bars."""

    required_arguments = 1
    final_argument_whitespace = True

    def run(self) -> list[nodes.Node]:
        rows = results(self.env.app)["rows"]
        found = [
            name
            for pattern in self.arguments[0].split()
            for name in rows
            if fnmatch(name.partition("::")[0], pattern)
        ]
        self.env.temp_data.setdefault("benchmarks_shown", set()).update(found)
        return [node for name in found for node in row_nodes(rows[name])] or [
            nodes.paragraph(text="Not measured yet.")
        ]


class RunsDirective(SphinxDirective):
    """``{benchmark-runs}``: date, commit, machine and versions of each run that rows come from."""

    def run(self) -> list[nodes.Node]:
        data = results(self.env.app)
        lost = sorted(set(data["rows"]) - self.env.temp_data.get("benchmarks_shown", set()))
        if lost:
            log.warning("no table of this page shows %s", ", ".join(lost), location=self.get_location())
        return [bullets(map(run_words, data["runs"].values()))]


def results(app: Sphinx) -> dict:
    return json.loads((Path(app.confdir) / RESULTS).read_text("utf8"))


def row_nodes(row: dict) -> list[nodes.Node]:
    """One row: its times as a table with its title, then its bars and other measurements as a list."""
    title, items = f"{row['title']}; {row['work']}", [*map(bar_words, row["bars"]), *measure_words(row)]
    if row["opponents"] or row["floors"]:
        with_gap = any("gap" in side for side in row["opponents"].values())
        headings = ("Who", "Time", "Ratio", "Gap")[: 4 if with_gap else 3]
        head = table(title, headings, (line[: len(headings)] for line in times(row)))
    else:
        head, items = nodes.paragraph("", "", nodes.strong(text=title)), [f"time: {seconds(row['ours'])}", *items]
    items.append(f"run of {day(row['run'])}")
    return [head, bullets(items)]


def times(row: dict) -> Iterable[tuple[str, ...]]:
    """A line for ours and for each opponent and floor: name, time, ratio to ours, gap."""
    own = row["measures"].get("gap")
    yield "ours", seconds(row["ours"]), "1", "" if own is None else number(own)
    sides = [*row["opponents"].items(), *((f"floor: {name}", side) for name, side in row["floors"].items())]
    for name, side in sides:
        gap = number(side["gap"]) if "gap" in side else ""
        yield name, seconds(side["seconds"]), number(side["seconds"] / row["ours"]), gap


def bar_words(bar: dict) -> str:
    kind = "aim" if bar["aim"] else "bar"
    verdict = "met" if bar["met"] else "not met"
    return f"{bar['what']}: {number(bar['measured'])} ({kind}: {bar['sign']} {number(bar['asked'])}, {verdict})"


def measure_words(row: dict) -> Iterable[str]:
    """Measurements that no bar shows already."""
    held = {bar["measured"] for bar in row["bars"]}
    for name, value in row["measures"].items():
        if value not in held:
            yield f"{MEASURES.get(name, name.replace('_', ' '))}: {number(value)}"


def run_words(run: dict) -> str:
    cores = f"{run['cores']} cores of which {run['threads']} used, load {run['load']:g}"
    versions = ", ".join(f"{name} {version}" for name, version in run["versions"].items())
    where = f"{run['processor']}, {cores}; {run['system']}, Python {run['python']}"
    return f"{day(run['date'])} UTC, commit {run['commit'] or 'not known'}: {where}; {versions}"


def day(moment: str) -> str:
    """Date and minute of a run, as they stand in its table."""
    return moment[:16].replace("T", " ")


def seconds(value: float) -> str:
    """A time in the unit that suits it, three digits."""
    unit, scale = next((one for one in (("s", 1.0), ("ms", 1e-3)) if value >= one[1]), ("µs", 1e-6))
    return f"{number(value / scale)}\N{NO-BREAK SPACE}{unit}"


def number(value: float) -> str:
    """Three digits, plain where that is short."""
    if value == 0 or 1e-3 <= abs(value) < 1e6:
        return f"{value:.3g}" if abs(value) < 1000 else f"{value:,.0f}"
    mantissa, exponent = f"{value:.1e}".split("e")
    return f"{mantissa}e{int(exponent)}"


def bullets(items: Iterable[str]) -> nodes.bullet_list:
    return nodes.bullet_list("", *(nodes.list_item("", nodes.paragraph(text=item)) for item in items))


def table(title: str, headings: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> nodes.table:
    """A table of plain text with a caption."""
    found = text_table(headings, list(rows), "benchmarks")
    found.insert(0, nodes.title(text=title))
    return found


def setup(app: Sphinx) -> dict:
    app.add_directive("benchmarks", BenchmarksDirective)
    app.add_directive("benchmark-runs", RunsDirective)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
