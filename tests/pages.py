"""Cells of the book's pages, run outside the book, so that tests can call what a page defines."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

import matplotlib

BOOK = Path(__file__).parents[1] / "book"
CELL = re.compile(r"```\{code-cell\} ipython3\n(.*?)\n```", re.S)
HEADER = re.compile(r"\A(---\n.*?\n---\n|:tags:[^\n]*\n)", re.S)


def cells(page: str) -> list[str]:
    """Code cells of a page such as ``"svm/attention-chooses-tokens"``, without their headers."""
    text = (BOOK / f"{page}.md").read_text("utf8")
    return [HEADER.sub("", cell) for cell in CELL.findall(text)]


def names(page: str, starts: Iterable[str]) -> dict:
    """The names defined by the cells that have a line beginning with one of `starts`, run in that order."""
    matplotlib.use("agg")
    found, defined = cells(page), {}
    with matplotlib.rc_context():
        for start in starts:
            cell = next(c for c in found if any(line.startswith(start) for line in c.splitlines()))
            exec(compile(cell, f"{page}: {start}", "exec"), defined)
    return defined
