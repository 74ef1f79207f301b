"""Code cells and front matter of a MyST page, read without Sphinx, MyST-NB or a kernel."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from pathlib import Path

import yaml

FENCE = re.compile(r"^ {0,3}(`{3,}|~{3,}|:{3,})[ \t]*(.*?)[ \t]*$")
OPTION = re.compile(r"^:([\w-]+):[ \t]*(.*)$")
# What else a magic might run (a file, a shell) would be code that the digest does not see.
TRANSPARENT = {"matplotlib", "config", "precision", "time", "timeit", "capture"}
PREFIXES = {"time", "timeit"}  # the rest of the line is Python


class SourceError(ValueError):
    """A page whose freshness cannot be known, or that is not the notebook it looks like."""


@dataclass(frozen=True)
class Cell:
    """One code cell: its source, its options, and the line of its fence (1-based)."""

    source: str
    options: dict
    line: int

    @property
    def tags(self) -> tuple[str, ...]:
        tags = self.options.get("tags", ())
        return tuple(tags if isinstance(tags, list | tuple) else str(tags).split(","))


@dataclass(frozen=True)
class PageSource:
    """A page as it stands in the tree."""

    path: Path
    text: str
    front_matter: dict
    cells: tuple[Cell, ...]

    @property
    def is_notebook(self) -> bool:
        """Whether MyST-NB reads the page as a notebook."""
        jupytext = self.front_matter.get("jupytext") or {}
        layout = jupytext.get("text_representation") or {}
        return layout.get("format_name") == "myst" or self.front_matter.get("file_format") == "mystnb"


def read_page(path: Path) -> PageSource:
    """Read the page at ``path``.

    Raises
    ------
    SourceError
        When a cell cannot be read, loads code from elsewhere, is fenced with colons (MyST-NB knows no such
        cell), or stands on a page without the front matter that makes it a notebook.
    """
    text = path.read_text("utf8")
    lines = text.splitlines()
    front_matter, start = _front_matter(lines, path)
    cells = []
    for line, mark, info, body in _top_level_fences(lines, start):
        if info.startswith("{code-cell}"):
            if mark == ":":
                raise SourceError(f"{path.name}, line {line}: fence code cells with backticks, not colons")
            cells.append(_cell(body, line, path))
    page = PageSource(path, text, front_matter, tuple(cells))
    if cells and not page.is_notebook:
        raise SourceError(
            f"{path.name}: code cells on a page without notebook front matter "
            "(jupytext: text_representation: format_name: myst)"
        )
    return page


def python_of(cell: Cell, where: str) -> str:
    """The cell as plain Python, magics replaced by nothing or by the code they run.

    Raises
    ------
    SourceError
        For a magic or shell line that runs code which a digest of the page would not see.
    """
    lines = []
    for number, line in enumerate(cell.source.splitlines()):
        bare = line.lstrip()
        magic = re.match(r"%{1,2}(\w+)\s*(.*)", bare)
        if magic and magic[1] in TRANSPARENT:
            keep = magic[2] if magic[1] in PREFIXES and not bare.startswith("%%") else "pass"
            indent = line[: len(line) - len(bare)]
            lines.append(indent + (re.sub(r"^(-\w+\s*\d*\s+)+", "", keep) or "pass"))
        elif magic or bare.startswith("!"):
            at = f"{where}, line {cell.line + number + 1}"
            raise SourceError(f"{at}: {bare.split()[0]!r} runs code the page's digest cannot see")
        else:
            lines.append(line)
    return "\n".join(lines) + "\n"


def parse_cell(cell: Cell, where: str) -> ast.Module | None:
    """Syntax tree of a cell; None when it is no valid Python (its execution will say so)."""
    try:
        return ast.parse(python_of(cell, where))
    except SyntaxError:
        return None


def _front_matter(lines: list[str], path: Path) -> tuple[dict, int]:
    if not lines or lines[0].rstrip() != "---":
        return {}, 0
    end = next((i for i, line in enumerate(lines[1:], 1) if line.rstrip() in ("---", "...")), None)
    if end is None:
        raise SourceError(f"{path.name}: the front matter is not closed")
    return _mapping("\n".join(lines[1:end]), f"{path.name}: front matter"), end + 1


def _top_level_fences(lines: list[str], start: int):
    """Yield (line number, fence character, info string, body lines) of each fence that stands in no other."""
    opened = None
    for number, line in enumerate(lines[start:], start + 1):
        fence = FENCE.match(line)
        if opened is None:
            if fence and not ("`" in fence[1] and "`" in fence[2]):
                opened, body = (number, fence[1], fence[2]), []
        elif fence and not fence[2] and fence[1][0] == opened[1][0] and len(fence[1]) >= len(opened[1]):
            yield opened[0], opened[1][0], opened[2], body
            opened = None
        else:
            body.append(line)
    if opened is not None:
        yield opened[0], opened[1][0], opened[2], body


def _cell(body: list[str], line: int, path: Path) -> Cell:
    where = f"{path.name}, line {line}"
    options, rest = {}, body
    if body and body[0].startswith("---"):
        end = next((i for i, text in enumerate(body[1:], 1) if text.startswith("---")), len(body))
        options, rest = _mapping("\n".join(body[1:end]), where), body[end + 1 :]
    else:
        while rest and (option := OPTION.match(rest[0])):
            options[option[1]] = yaml.safe_load(option[2]) if option[2] else None
            rest = rest[1:]
    if "load" in options:
        raise SourceError(f"{where}: the option 'load' brings code the page's digest cannot see")
    return Cell("\n".join(rest).strip("\n"), options, line)


def _mapping(text: str, where: str) -> dict:
    try:
        value = yaml.safe_load(text) or {}
    except yaml.YAMLError as error:
        raise SourceError(f"{where}: {error}") from error
    if not isinstance(value, dict):
        raise SourceError(f"{where}: expected options, found {value!r}")
    return value
