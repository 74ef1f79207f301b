"""Every picture says in words what it shows: lints over the sources and over the built pages.

The functions need no Sphinx (tests and the driver call them); the extension runs both in every build.

In the sources, a code cell that draws carries ``mystnb: image: alt:`` and ``mystnb: figure: caption:``, and a
caption of a figure with a band names the quantiles and the number of seeds. In the built pages every picture,
also one inside a widget, has an alternative text of at least 40 characters that no other picture has and that is
neither its caption nor a file name. A picture that only decorates says so: empty text and class ``decorative``.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path

from page_source import Cell, PageSource, SourceError, parse_cell, read_page

MINIMUM = 40
FILE_NAME = re.compile(r"\.(?:png|svg|jpe?g|gif|webp|pdf)\b|\b[0-9a-f]{16,}\b", re.I)
EMPTY_OPENING = re.compile(r"^(?:an? |the )?(?:image|picture|figure|plot|graph|illustration) (?:of|showing)\b", re.I)
BAND_WORDS = re.compile(r"quantile|percentile|interval|quartile|standard (?:error|deviation)|%", re.I)
RUN_WORDS = re.compile(r"\b(?:seed|run|draw|repetition|problem|sample)s?\b", re.I)
SILENT_PYPLOT = {"close", "ioff", "ion", "rc", "rcdefaults", "get_cmap", "switch_backend", "colormaps"}
DRAWING_HELPERS = {"new"}
BANDS = {"fill_between", "fill_betweenx", "band"}
DECORATIVE = {"decorative", "logo__image"}  # the logo stands beside its own name
MARKDOWN_IMAGE = re.compile(r"(?<!\\)!\[((?:[^\]\\]|\\.)*)\]\(")
IMAGE_DIRECTIVE = re.compile(r"^\s*(?:`{3,}|:{3,})\{(image|figure)\}")
OPTION = re.compile(r"^\s*:([\w-]+):\s*(.*)$")


def faults_of_text(alt: str, caption: str = "") -> list[str]:
    """What is wrong with one alternative text, without regard to other pictures."""
    alt = " ".join(alt.split())
    found = []
    if len(alt) < MINIMUM:
        found.append(f"alt text of {len(alt)} characters, at least {MINIMUM} are needed: {alt!r}")
    if caption and plain(alt) == plain(caption):
        found.append(f"alt text repeats the caption; say what is to be seen: {alt!r}")
    if FILE_NAME.search(alt):
        found.append(f"alt text holds a file name: {alt!r}")
    if EMPTY_OPENING.match(alt):
        found.append(f"alt text opens with words that say nothing; start with what is shown: {alt!r}")
    return found


def plain(text: str) -> str:
    """Letters and digits only, so that mathematics and mark-up do not hide an equal text."""
    return re.sub(r"[\W_]+", " ", text).strip().casefold()


# Sources


@dataclass
class Names:
    """What a page calls pyplot, the figure helpers and its own drawing functions."""

    pyplot: set[str] = field(default_factory=set)
    helpers: set[str] = field(default_factory=set)
    functions: set[str] = field(default_factory=set)
    bands: set[str] = field(default_factory=set)

    def learn(self, tree: ast.Module) -> None:
        """Take in the imports and the function definitions of a cell."""
        for node in ast.walk(tree):
            if isinstance(node, ast.Import | ast.ImportFrom):
                module = getattr(node, "module", None)
                for name in node.names:
                    self._imported(f"{module}.{name.name}" if module else name.name, name.asname or name.name)
        for node in tree.body:
            if isinstance(node, ast.FunctionDef):
                if any(map(self.is_drawing, ast.walk(node))):
                    self.functions.add(node.name)
                if any(map(self.is_band, ast.walk(node))):
                    self.bands.add(node.name)

    def _imported(self, full: str, name: str) -> None:
        if full in ("matplotlib.pyplot", "pylab"):
            self.pyplot.add(name)
        elif full == "attncore.course.figures":
            self.helpers.add(name)
        elif full.startswith(("attncore.course.figures.", "matplotlib.pyplot.")):
            if full.rpartition(".")[2] in DRAWING_HELPERS | {"subplots", "figure"}:
                self.functions.add(name)

    def is_drawing(self, node: ast.AST) -> bool:
        """Whether a node is a call that makes a picture."""
        if not isinstance(node, ast.Call):
            return False
        called = node.func
        if isinstance(called, ast.Name):
            return called.id in self.functions
        if not isinstance(called, ast.Attribute):
            return False
        owner = ast.unparse(called.value)
        return (owner in self.pyplot and called.attr not in SILENT_PYPLOT) or (
            owner in self.helpers and called.attr in DRAWING_HELPERS
        )

    def is_band(self, node: ast.AST) -> bool:
        """Whether a node is a call that draws a band."""
        if not isinstance(node, ast.Call):
            return False
        name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        return name in BANDS | self.bands


def executed(tree: ast.Module) -> Iterator[ast.AST]:
    """All nodes that run when the cell runs: bodies of functions and classes are left out."""
    waiting: list[ast.AST] = list(tree.body)
    while waiting:
        node = waiting.pop()
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Lambda):
            yield node
            waiting += ast.iter_child_nodes(node)


def faults_of_cell(cell: Cell, tree: ast.Module, names: Names) -> list[str]:
    """What is wrong with one code cell, given the names that the page knows so far."""
    nodes = list(executed(tree))
    if not any(map(names.is_drawing, nodes)):
        return []
    options = cell.options.get("mystnb") or {}
    alt = str((options.get("image") or {}).get("alt") or "")
    caption = str((options.get("figure") or {}).get("caption") or "")
    found = faults_of_text(alt, caption) if alt else ["the cell draws and has no mystnb: image: alt:"]
    if not caption.strip():
        found.append("the cell draws and has no mystnb: figure: caption:")
    named = BAND_WORDS.search(caption) and RUN_WORDS.search(caption) and re.search(r"\d", caption)
    if any(map(names.is_band, nodes)) and not named:
        found.append("the figure has a band, and its caption does not name the quantiles and the number of seeds")
    last = tree.body[-1]
    if isinstance(last, ast.Expr) and isinstance(last.value, ast.Name) and "fig" in last.value.id:
        found.append(f"the cell ends with a bare {last.value.id!r}, which shows the figure twice: end with plt.show()")
    return found


def faults_of_prose(lines: list[str]) -> Iterator[tuple[int, str]]:
    """Yield (line number, fault) for the images in the text of a page."""
    fence = None
    for number, line in enumerate(lines, 1):
        directive = IMAGE_DIRECTIVE.match(line)
        mark = re.match(r"^\s*(`{3,}|~{3,})", line)
        if fence is None and directive:
            options = {}
            for following in lines[number:]:
                if not (option := OPTION.match(following)):
                    break
                options[option[1]] = option[2]
            if "decorative" in options.get("class", ""):
                continue
            for fault in faults_of_text(options["alt"]) if "alt" in options else ["image without :alt:"]:
                yield number, fault
        if mark:
            fence = None if fence and line.strip().startswith(fence) else fence or mark[1]
        elif fence is None:
            for image in MARKDOWN_IMAGE.finditer(re.sub(r"`[^`]*`", "", line)):
                for fault in faults_of_text(image[1]):
                    yield number, fault


def faults_of_page(page: PageSource) -> Iterator[str]:
    """Yield the faults of one source page, each with its line."""
    names = Names()
    for cell in page.cells:
        tree = parse_cell(cell, page.path.name)
        if tree is None or not tree.body:
            continue
        names.learn(tree)
        for fault in faults_of_cell(cell, tree, names):
            yield f"{page.path.name}, line {cell.line}: {fault}"
    for line, fault in faults_of_prose(page.text.splitlines()):
        yield f"{page.path.name}, line {line}: {fault}"


def check_sources(paths: Iterable[Path]) -> list[str]:
    """Return the faults of the source pages at ``paths``, as messages."""
    found, seen = [], {}
    for path in paths:
        try:
            page = read_page(path)
        except SourceError as error:
            found.append(str(error))
            continue
        found += faults_of_page(page)
        for cell in page.cells:
            alt = plain(str(((cell.options.get("mystnb") or {}).get("image") or {}).get("alt") or ""))
            if alt and alt in seen:
                found.append(f"{path.name}, line {cell.line}: the same alt text as {seen[alt]}")
            elif alt:
                seen[alt] = f"{path.name}, line {cell.line}"
    return found


# Built pages


@dataclass
class Picture:
    """A picture of a built page: its text (None when missing), classes, caption and address."""

    alt: str | None
    decorative: bool
    src: str
    caption: str = ""


class _Pictures(HTMLParser):
    """Collect the pictures of a page, with the captions of their figures, and the states of its widgets."""

    def __init__(self):
        super().__init__(convert_charrefs=True)
        self.pictures: list[Picture] = []
        self.widget_states: list[str] = []
        self.text: list[str] = []
        self._figures: list[list[Picture]] = []
        self._caption: list[str] | None = None
        self._state = False

    def handle_starttag(self, tag, attributes):
        a = {k: v or "" for k, v in attributes}
        if tag == "img" or (tag == "svg" and a.get("role") == "img"):
            alt = a.get("alt") if tag == "img" else a.get("aria-label")
            silent = a.get("role") in ("presentation", "none")
            decorative = silent or not DECORATIVE.isdisjoint(a.get("class", "").split())
            picture = Picture(alt, decorative, a.get("src", tag))
            self.pictures.append(picture)
            for figure in self._figures:
                figure.append(picture)
        elif tag == "figure":
            self._figures.append([])
        elif tag == "figcaption":
            self._caption = []
        elif tag == "script":
            self._state = a.get("type", "") == "application/vnd.jupyter.widget-state+json"

    def handle_endtag(self, tag):
        if tag == "figure" and self._figures:
            self._figures.pop()
        elif tag == "figcaption" and self._caption is not None:
            for picture in self._figures[-1] if self._figures else ():
                picture.caption = " ".join("".join(self._caption).split())
            self._caption = None
        elif tag == "script":
            self._state = False

    def handle_data(self, data):
        if self._state:
            self.widget_states.append(data)
        elif self._caption is not None:
            self._caption.append(data)
        self.text.append(data)


def pictures_of(html: str) -> tuple[list[Picture], str]:
    """Return the pictures of a built page, frames of widgets included, and its text."""
    parser = _Pictures()
    parser.feed(html)
    pictures = parser.pictures
    for state in parser.widget_states:
        for model in json.loads(state).get("state", {}).values():
            value = model.get("state", {}).get("value")
            if isinstance(value, str) and "<img" in value:
                pictures = pictures + pictures_of(value)[0]
            elif model.get("model_name") == "ImageModel":
                pictures = [*pictures, Picture(None, False, "a widget of type Image, which cannot carry any")]
    return pictures, "".join(parser.text)


def check_site(html: Path) -> list[str]:
    """Return the faults of all pictures of a built site, as messages."""
    found: list[str] = []
    seen: dict[str, tuple[str, str]] = {}
    for path in sorted(html.rglob("*.html")):
        name = path.relative_to(html).as_posix()
        if name.startswith(("_static/", "_sources/")):
            continue
        pictures, text = pictures_of(path.read_text("utf8", "replace"))
        if drawn := re.search(r"<matplotlib\.[\w. ]+", text):
            found.append(f"{name}: prints {drawn[0]!r}...; end the cell with a semicolon")
        for picture in pictures:
            found += (f"{name}: {fault}" for fault in _faults_of_picture(picture, name, seen))
    return found


def _faults_of_picture(picture: Picture, page: str, seen: dict) -> Iterator[str]:
    where = picture.src[:60]
    if picture.alt is None:
        yield f"picture without alt text: {where}"
    elif not picture.alt.strip():
        if not picture.decorative:
            yield f"empty alt text on a picture that is not marked as decorative: {where}"
    else:
        yield from faults_of_text(picture.alt, picture.caption)
        first_page, first_src = seen.setdefault(plain(picture.alt), (page, picture.src))
        if Path(first_src).name != Path(picture.src).name:
            yield f"the same alt text as another picture, on {first_page}: {picture.alt!r}"


def _check(app, error) -> None:
    if error or app.builder.format != "html":
        return
    from sphinx.util import logging

    sources = [Path(app.env.doc2path(name)) for name in sorted(app.env.found_docs)]
    faults = check_sources(path for path in sources if path.suffix == ".md") + check_site(Path(app.outdir))
    for fault in faults:
        logging.getLogger(__name__).warning("%s", fault, type="alt_text")


def setup(app) -> dict:
    app.connect("build-finished", _check)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
