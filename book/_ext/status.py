"""The directive ``status``: when each page ran, at what cost, with which versions, on which machine.

Every entry is read from the record of the run whose outputs the page shows, so the table cannot tell of
another.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from sphinx.util.docutils import SphinxDirective
from sphinx.util.nodes import make_refnode
from usage import over_budget

NAMES = {
    "python": "Python",
    "numpy": "NumPy",
    "scipy": "SciPy",
    "torch": "PyTorch",
    "daqp": "DAQP",
    "cvxpy": "CVXPY",
}
HEADINGS = ("Page", "Status", "Executed (UTC)", "Time", "Peak memory", "Built from")


class status_table(nodes.General, nodes.Element):
    """Stands for the table until all pages are read."""


class StatusDirective(SphinxDirective):
    """``{status}``: a table of all pages that run code, and what they ran on."""

    def run(self) -> list[nodes.Node]:
        self.env.metadata[self.env.docname]["shows_status"] = True
        return [status_table()]


def runs(env: BuildEnvironment) -> dict[str, dict]:
    """State of each page that has code, in reading order."""
    order = [docname for docname in _reading_order(env) if docname in env.metadata]
    states = {docname: env.metadata[docname].get("state", {}) for docname in order}
    return {docname: state for docname, state in states.items() if state.get("run_digest")}


def _reading_order(env: BuildEnvironment) -> list[str]:
    relations = env.collect_relations()
    return [docname for docname in relations if docname in env.found_docs]


def redraw(app: Sphinx, env: BuildEnvironment) -> list[str]:
    """Write the status pages again when any run changed."""
    now = json.dumps(runs(env), sort_keys=True)
    if now == getattr(env, "status_drawn", None):
        return []
    env.status_drawn = now
    return [docname for docname in env.metadata if env.metadata[docname].get("shows_status")]


def word_for(state: dict) -> str:
    record = state["run"]
    if record is None:
        return "failed"
    excess = over_budget(record)
    return "over budget: " + ", ".join(excess) if excess else "ran"


def row_for(state: dict) -> tuple[str, ...]:
    """Cells of a page's row after its name."""
    record = state["run"]
    if record is None:
        return (word_for(state), "never", "", "", state["page_digest"])
    executed = record["executed"][:16].replace("T", " ")
    memory = f"{record['peak_bytes'] / 1e6:.0f} MB"
    return (word_for(state), executed, f"{record['seconds']:.1f} s", memory, state["page_digest"])


def draw(app: Sphinx, doctree: nodes.document, docname: str) -> None:
    for place in list(doctree.findall(status_table)):
        place.replace_self(_contents(app, docname))


def _contents(app: Sphinx, docname: str) -> list[nodes.Node]:
    states = runs(app.env)
    if not states:
        return [nodes.paragraph(text="No page of this book runs code yet.")]
    rows = []
    for page, state in states.items():
        title = nodes.Text(app.env.titles[page].astext())
        rows.append((make_refnode(app.builder, docname, page, None, title), *row_for(state)))
    contents: list[nodes.Node] = [_table(rows)]
    records = [state["run"] for state in states.values() if state["run"]]
    versions = _distinct({NAMES[k]: r["versions"][k] for k in NAMES if k in r["versions"]} for r in records)
    machines = _distinct(record["machine"] for record in records)
    lists = [", ".join(f"{name} {number}" for name, number in one.items()) for one in versions]
    contents += [nodes.paragraph(text=f"Versions: {one}.") for one in lists]
    sentence = "Machine: {system}, {processor}, {cores} cores, {memory_gib} GiB of memory."
    return contents + [nodes.paragraph(text=sentence.format(**one)) for one in machines]


def _distinct(dicts) -> list[dict]:
    return list({json.dumps(one, sort_keys=True): one for one in dicts}.values())


def _table(rows: Sequence[Sequence[nodes.Node | str]]) -> nodes.table:
    table = nodes.table(classes=["status"])
    group = nodes.tgroup(cols=len(HEADINGS))
    table += group
    group += [nodes.colspec(colwidth=1) for _ in HEADINGS]
    head, body = nodes.thead(), nodes.tbody()
    group += [head, body]
    head += _row(HEADINGS)
    body += [_row(row) for row in rows]
    return table


def _row(cells: Sequence[nodes.Node | str]) -> nodes.row:
    row = nodes.row()
    for cell in cells:
        entry = nodes.entry()
        paragraph = nodes.paragraph()
        paragraph += nodes.Text(cell) if isinstance(cell, str) else cell
        entry += paragraph
        row += entry
    return row


def setup(app: Sphinx) -> dict:
    app.add_node(status_table)
    app.add_directive("status", StatusDirective)
    app.connect("env-updated", redraw)
    app.connect("doctree-resolved", draw)
    return {"version": "1", "env_version": 1, "parallel_read_safe": True, "parallel_write_safe": True}
