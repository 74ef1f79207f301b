"""Load on each page only the scripts and styles that it uses, and no script before its text.

The theme and the extensions list their files for every page and let most scripts block the first paint. Here a
file whose mark is not in a page is left out of it, and the others wait, in their order, until the page is read.
A picture states its size, so that the text below it does not move when it arrives.
"""

from __future__ import annotations

import re
from pathlib import PurePosixPath

from sphinx.application import Sphinx

NEEDED_BY = {
    "sphinx-design.min.css": "sd-",
    "design-tabs.js": "sd-",
    "clipboard.min.js": "highlight",
    "copybutton.js": "highlight",
    "copybutton.css": "highlight",
    "togglebutton.js": "dropdown",
    "togglebutton.css": "dropdown",
    "proof.css": "proof",
    "exercise.css": "exercise",
    "ledger.js": "ledger",
    "widgets-mathjax3.js": "jupyter.widget",
}
"""Name of a file -> a mark in the HTML of the pages that use it."""
AT_ONCE = {"documentation_options.js"}  # a script in the page itself changes what it sets
SIZE = re.compile(r'(<img\b[^>]*?) style="width: (\d+)px; height: (\d+)px;"')


def name_of(file) -> str:
    return PurePosixPath(str(file.filename or "")).name


def is_used(file, body: str) -> bool:
    return NEEDED_BY.get(name_of(file), "") in body


def state_sizes(body: str) -> str:
    """Turn the size in a picture's style, which the style sheet overrules, into one that reserves its place."""
    return SIZE.sub(r'\1 width="\2" height="\3"', body)


def waiting(file):
    """The same script, to be run when the page is read; a copy, as the pages share their entries."""
    if not file.filename or name_of(file) in AT_ONCE:
        return file
    return type(file)(file.filename, priority=file.priority, **{"defer": "defer", **file.attributes})


def choose_files(app: Sphinx, pagename: str, templatename: str, context: dict, doctree) -> None:
    """Thin the lists of a page's files; the search page keeps its order, as scripts in its text depend on it."""
    body = context.get("body", "")
    for kind in ("css_files", "script_files"):
        context[kind] = [file for file in context.get(kind, ()) if is_used(file, body)]
    if body:
        context["body"] = state_sizes(body)
    if templatename == "search.html":
        return
    context["script_files"] = [waiting(file) for file in context["script_files"]]


def setup(app: Sphinx) -> dict:
    app.connect("html-page-context", choose_files, priority=950)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
