"""Say under every page which code and text it comes from, when it ran, and with what versions."""

from __future__ import annotations

from html import escape

from sphinx.application import Sphinx

NAMES = {"python": "Python", "attncore": "attncore", "numpy": "NumPy", "torch": "PyTorch"}


def footer(state: dict) -> str:
    """The line for a page made from ``state`` (see ``execution.state_of``)."""
    record, ran = state["run"], "This page runs no code."
    digest = state["page_digest"]
    if record:
        versions = ", ".join(
            f"{NAMES[key]} {record['versions'][key]}" for key in NAMES if key in record["versions"]
        )
        day = record["executed"][:10]
        ran = f'Executed <time datetime="{escape(record["executed"])}">{day}</time> with {escape(versions)}.'
    elif state["run_digest"]:
        ran, digest = "Its code failed: no outputs.", "failed"
    attributes = f'data-page-digest="{digest}" data-run-digest="{state["run_digest"] or ""}"'
    return f'<p class="built-from" {attributes}>Built from <code>{digest}</code>. {ran}</p>'


def add_footer(app: Sphinx, pagename: str, templatename: str, context: dict, doctree) -> None:
    state = app.env.metadata.get(pagename, {}).get("state")
    if state and "body" in context:
        context["body"] += footer(state)


def setup(app: Sphinx) -> dict:
    app.connect("html-page-context", add_footer)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
