"""Which code and text a page comes from: its two digests, and the test of a built site against the tree.

The *run digest* covers what a page's outputs depend on: its code cells, the modules and data files they
reach, the lock files, Python and the numerical libraries. It keys the store of executed pages. The *page
digest* covers the run digest, the page's text and the registry entries it shows; it stands in the footer.
Text, captions and alternative texts are in the second alone, so editing them executes nothing.

Needs neither Sphinx nor a kernel.
"""

from __future__ import annotations

import hashlib
import json
import platform
import re
import tomllib
from collections.abc import Iterable
from functools import lru_cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import yaml
from import_closure import reached_files, refuse_readers
from page_source import PageSource, SourceError, parse_cell, read_page

LOCKS = ("requirements.txt", "requirements-torch.txt")
LIBRARIES = ("numpy", "scipy", "torch", "daqp", "cvxpy", "matplotlib", "ipywidgets")
REGISTRY = Path("attncore/course/claims.toml")
CELL_EXECUTION = ("tags", "execution", "timeout")  # cell options that change what runs
PAGE_EXECUTION = ("kernelspec", "mystnb", "execution")  # front matter that changes what runs
SHOWN = {"api": ("attncore/**/*.py",), "benchmarks": ("benchmarks/results.json",)}  # what directives show
SHOWS = re.compile(rf"^ {{0,3}}(?:`{{3,}}|:{{3,}})\{{({'|'.join(SHOWN)})\}}", re.M)
WHOLE_BOOK = re.compile(r"\{(?:ledger|ledger-summary|ledger-count|status)\}")  # shows what other pages hold
GENERATED = {"index", "genindex", "search", "prf-prf", "py-modindex"}  # pages that no source file makes
FOOTER = re.compile(r'<p class="built-from"[^>]*\bdata-page-digest="([^"]*)"')


def toc_pages(root: Path, toc: Path | None = None) -> list[str]:
    """Names of the pages in ``_toc.yml``, in reading order, the root page first."""

    def entries(node: object) -> Iterable[str]:
        if isinstance(node, list):
            for item in node:
                yield from entries(item)
        elif isinstance(node, dict):
            yield from (node[key] for key in ("root", "file") if key in node)
            for key in ("parts", "chapters", "sections", "subtrees", "entries"):
                yield from entries(node.get(key))

    names = entries(yaml.safe_load((toc or root / "_toc.yml").read_text("utf8")))
    return [name.removesuffix(".md") for name in names]


def toc_parts(root: Path, toc: Path | None = None) -> list[tuple[str, list[str]]]:
    """Captions and pages of the numbered parts of ``_toc.yml``: the lectures."""
    parts = yaml.safe_load((toc or root / "_toc.yml").read_text("utf8")).get("parts", [])
    return [
        (part["caption"], [chapter["file"] for chapter in part["chapters"]])
        for part in parts
        if part.get("numbered")
    ]


def run_digest(root: Path, docname: str) -> str | None:
    """Digest of everything the outputs of a page depend on; None for a page that runs no code.

    Raises
    ------
    SourceError, ClosureError
        When the page runs code or reads data that cannot be followed statically.
    """
    return _run_digest(root, docname, read_page(page_file(root, docname)))


def page_digest(root: Path, docname: str, pages: Iterable[str] = ()) -> str:
    """Digest of a page as built: its run digest, text, registry entries and the files its directives show.

    ``pages`` names the whole book: a page that shows all of it (see ``WHOLE_BOOK``) depends on each.
    """
    page = read_page(page_file(root, docname))
    whole = WHOLE_BOOK.search(page.text) is not None
    parts = [str(_run_digest(root, docname, page)), page.text, _registry_entries(root, docname, page, whole)]
    parts += _file_digests(root, _shown_files(root, page))
    if whole:
        parts += [page_digest(root, other) for other in sorted(set(pages) - {docname})]
    return _sha256(parts)[:12]


def page_file(root: Path, docname: str) -> Path:
    """The source of a page; ValueError when the tree has none."""
    path = root / f"{docname}.md"
    if not path.is_file():
        raise ValueError(f"page {docname!r} has no source {docname}.md")
    return path


@lru_cache(maxsize=1)
def library_versions() -> dict[str, str]:
    """Versions of Python, this package and the libraries that numbers depend on; absent ones left out."""
    found = {"python": platform.python_version()}
    for name in ("attncore", *LIBRARIES):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def check_site(root: Path, html: Path, toc: Path | None = None) -> list[str]:
    """What in a built site is missing, stale or left over; empty when it is the tree's."""
    pages = toc_pages(root, toc)
    lines = []
    for docname in pages:
        built = html / f"{docname}.html"
        if not built.is_file():
            lines.append(f"{docname}: in the table of contents, not in the built site")
            continue
        found = FOOTER.search(built.read_text("utf8"))
        want = page_digest(root, docname, pages)
        if found is None:
            lines.append(f"{docname}: the built page carries no digest")
        elif found[1] != want:
            lines.append(f"{docname}: built from {found[1]}, the tree is {want}: build it (again)")
    lines += [f"{path}: no source makes this file" for path in leftovers(html, pages)]
    return lines


def leftovers(html: Path, pages: Iterable[str]) -> list[str]:
    """Built pages, copies of sources, and images that none of ``pages`` makes or shows."""
    known, found, shown = set(pages), [], ""
    for path in sorted(html.rglob("*")):
        relative = path.relative_to(html)
        name = relative.with_suffix("").as_posix()
        if relative.parts[0] == "_sources":
            stale = path.is_file() and name.removeprefix("_sources/") not in known
        else:
            page = path.suffix == ".html" and not relative.parts[0].startswith("_")
            stale = page and name not in known | GENERATED
            shown += path.read_text("utf8") if page and not stale else ""
        if stale:
            found.append(relative.as_posix())
    images = sorted(path for path in (html / "_images").glob("*") if path.name not in shown)
    return found + [path.relative_to(html).as_posix() for path in images]


def _run_digest(root: Path, docname: str, page: PageSource) -> str | None:
    if not page.cells:
        return None
    parts = [json.dumps(library_versions(), sort_keys=True)]
    parts.append(json.dumps({key: page.front_matter.get(key) for key in PAGE_EXECUTION}, sort_keys=True))
    trees = []
    for number, cell in enumerate(page.cells, 1):
        options = {key: cell.options[key] for key in CELL_EXECUTION if key in cell.options}
        parts += [cell.source, json.dumps(options, sort_keys=True)]
        where = f"{docname}, cell {number}"
        tree = parse_cell(cell, where)
        if tree is not None:
            refuse_readers(tree, where)
            trees.append((tree, where))
    files = reached_files(root, (root / docname).parent, trees)
    parts += _file_digests(root, files | {root / lock for lock in LOCKS if (root / lock).is_file()})
    return _sha256(parts)[:16]


def _shown_files(root: Path, page: PageSource) -> set[Path]:
    """Files of the repository whose contents the directives of a page show."""
    patterns = {pattern for name in SHOWS.findall(page.text) for pattern in SHOWN[name]}
    return {path for pattern in patterns for path in root.glob(pattern)}


def _file_digests(root: Path, files: Iterable[Path]) -> list[str]:
    """Name and digest of each file, in the order of names."""
    parts = []
    for path in sorted(files):
        parts += [path.relative_to(root).as_posix(), hashlib.sha256(path.read_bytes()).hexdigest()]
    return parts


def _registry_entries(root: Path, docname: str, page: PageSource, whole: bool) -> str:
    path = root / REGISTRY
    if not path.is_file():
        return ""
    claims = _registry(path, path.stat().st_mtime_ns)
    return json.dumps(
        {
            key: claim
            for key, claim in claims.items()
            if whole or claim.get("page") == docname or key in page.text
        },
        sort_keys=True,
        default=str,
    )


@lru_cache(maxsize=4)
def _registry(path: Path, _mtime: int) -> dict[str, dict]:
    """The claims of the registry by identifier: every table that names a page."""

    def tables(node: object, name: str = "") -> Iterable[tuple[str, dict]]:
        if isinstance(node, dict) and "page" in node:
            yield str(node.get("id", name)), node
        elif isinstance(node, dict):
            for key, value in node.items():
                yield from tables(value, key)
        elif isinstance(node, list):
            for item in node:
                yield from tables(item)

    return dict(tables(tomllib.loads(path.read_text("utf8"))))


def _sha256(parts: Iterable[str]) -> str:
    digest = hashlib.sha256()
    for part in parts:
        encoded = part.encode()
        digest.update(str(len(encoded)).encode() + b":" + encoded)
    return digest.hexdigest()


__all__ = ["SourceError", "check_site", "leftovers", "page_digest", "page_file", "run_digest", "toc_pages"]
