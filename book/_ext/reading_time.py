"""Say under the title of each page how long it takes to read, and how long its code ran.

Reading is estimated: `PACE` words a minute, and for what is looked at rather than read the seconds in `LOOK`.
Counted is what the page shows before anything is folded out; a paper and a pencil take longer. The running time
is that of the run whose outputs the page shows. Pages to look things up in carry no estimate.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from fnmatch import fnmatch

from docutils import nodes
from sphinx.application import Sphinx

PACE = 180
LOOK = {"formula": 20.0, "symbol": 2.0, "code line": 3.0, "picture": 20.0}
"""Seconds for a displayed formula, a formula in a line, a line of open code, a figure."""
FOLDED = {"dropdown", "tag_hide-input", "tag_hide-cell", "tag_hide-output", "tag_remove-cell", "cell_output"}
UNREAD = (nodes.comment, nodes.target, nodes.system_message, nodes.raw, nodes.substitution_definition)


def shown(node: nodes.Node) -> Iterator[nodes.Node]:
    """What a reader sees of ``node`` before folding anything out, from the top."""
    if isinstance(node, UNREAD) or (isinstance(node, nodes.Element) and FOLDED & set(node.get("classes", ()))):
        return
    yield node
    if not isinstance(node, nodes.literal_block | nodes.math | nodes.math_block):
        for child in node.children:
            yield from shown(child)


def reading_seconds(doctree: nodes.Node) -> float:
    """Estimated time to read what ``doctree`` shows, in seconds."""
    words, looked = 0, 0.0
    for node in shown(doctree):
        if isinstance(node, nodes.math_block):
            looked += LOOK["formula"]
        elif isinstance(node, nodes.math):
            looked += LOOK["symbol"]
        elif isinstance(node, nodes.literal_block):
            looked += LOOK["code line"] * len(node.astext().splitlines())
        elif isinstance(node, nodes.Text):
            words += len(node.astext().split())
    looked += LOOK["picture"] * sum(1 for _ in doctree.findall(nodes.figure))
    return 60.0 * words / PACE + looked


def in_words(seconds: float) -> str:
    """Minutes of an estimate: whole ones up to ten, then in fives."""
    minutes = max(1, math.ceil(seconds / 60))
    minutes = minutes if minutes <= 10 else 5 * round(minutes / 5)
    return "a minute" if minutes == 1 else f"{minutes} minutes"


def sentence(seconds: float, record: dict | None) -> str:
    """The line under the title."""
    line = f"About {in_words(seconds)} to read, without what is folded"
    if record is None:
        return f"{line}."
    ran = max(1, round(record["seconds"]))
    return f"{line}; the code ran in {ran} second{'s' if ran > 1 else ''}."


def add_line(app: Sphinx, doctree: nodes.document) -> None:
    docname = app.env.docname
    title = next(doctree.findall(nodes.title), None)
    if title is None or any(fnmatch(docname, pattern) for pattern in app.config.reading_time_not_on):
        return
    state = app.env.metadata[docname].get("state") or {}
    line = nodes.paragraph(text=sentence(reading_seconds(doctree), state.get("run")), classes=["page-times"])
    title.parent.insert(title.parent.index(title) + 1, line)


def setup(app: Sphinx) -> dict:
    app.add_config_value("reading_time_not_on", [], "env")
    app.connect("doctree-read", add_line, priority=900)  # after execution.py has noted the run
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
