"""Under the links to the previous and the next page, why one would follow them.

The sentences stand in ``book/_data/neighbours.toml``, for each page one for those who come from the page before
it (``next``) and one for those who look back from the page after it (``previous``).
"""

from __future__ import annotations

import tomllib
from pathlib import Path

from sphinx.application import Sphinx
from sphinx.errors import ExtensionError

FILE = "book/_data/neighbours.toml"
KINDS = {"next", "previous"}


def read_reasons(path: Path) -> dict[str, dict[str, str]]:
    """The sentences by page; without the file there are none.

    Raises
    ------
    ValueError
        If an entry holds anything but a sentence ``next`` and a sentence ``previous``.
    """
    if not path.is_file():
        return {}
    reasons = tomllib.loads(path.read_text("utf8"))
    for page, entry in reasons.items():
        whole = all(isinstance(text, str) and text.endswith((".", "?")) for text in entry.values())
        if set(entry) != KINDS or not whole:
            raise ValueError(f"{path.name}: {page!r} must have one sentence 'next' and one 'previous', got {entry!r}")
    return reasons


def load(app: Sphinx) -> None:
    try:
        app.neighbour_reasons = read_reasons(Path(app.confdir) / FILE)
    except ValueError as error:
        raise ExtensionError(str(error)) from error


def depend_on_file(app: Sphinx, doctree) -> None:
    """A changed sentence makes the pages be written anew."""
    path = Path(app.confdir) / FILE
    if path.is_file():
        app.env.note_dependency(str(path))


def add_reasons(app: Sphinx, pagename: str, templatename: str, context: dict, doctree) -> None:
    _, previous, following = app.builder.relations.get(pagename) or (None, None, None)
    context["next_why"] = app.neighbour_reasons.get(following, {}).get("next", "")
    context["previous_why"] = app.neighbour_reasons.get(previous, {}).get("previous", "")


def setup(app: Sphinx) -> dict:
    app.connect("builder-inited", load)
    app.connect("doctree-read", depend_on_file)
    app.connect("html-page-context", add_reasons)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
