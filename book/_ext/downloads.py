"""Offer each page that runs code as a notebook which also runs outside the repository, and say how it gets the package.

The theme would offer the notebook of MyST-NB, and only where a launch button is: with outputs, and with no word of the
package. This one has no outputs, opens with what it is and what it needs, and is offered on every such page.
"""

from __future__ import annotations

from pathlib import Path

import jupytext
import nbformat
import repository

EXTRA = "attncore[pages]"
HEAD = """\
*This is a page of the book **{title}** by the {author}, as a notebook without outputs, built from* `{digest}`*. Text
and figures: CC BY 4.0; code: BSD 3-clause. In JupyterLab the extension* `jupyterlab-myst` *shows the boxes of theorems
and definitions; links to other pages and to figures work in the book.*

{how}"""
WITH_ADDRESS = "The next cell installs the book's package, `attncore`, if this environment lacks it."
THREADS = """\
import importlib.util
import os

os.environ.setdefault("OMP_NUM_THREADS", "1")  # matrices are small: more would be slower
"""
INSTALL = """\
if importlib.util.find_spec("attncore") is None:
    %pip install --quiet "{requirement}\""""
WITHOUT_ADDRESS = """\
It needs the book's package, `attncore`. In a clone of the book's repository, with this notebook's Python, run
`pip install ".[pages]"`."""
ASK = """\
if importlib.util.find_spec("attncore") is None:
    need = 'in a clone of the book, run: pip install ".[pages]"'
    raise ModuleNotFoundError(f"attncore is missing; {need}")"""


def requirement(url: str) -> str:
    """What pip is asked for: the package as it is in the repository at ``url``, with what its pages need."""
    return f"{EXTRA} @ git+{url}@{repository.BRANCH}"


def notebook(source: Path, url: str | None, **about: str) -> nbformat.NotebookNode:
    """The page in file ``source`` as a notebook without outputs.

    Parameters
    ----------
    source : Path
        A page with code cells.
    url : str or None
        The public address of the repository; without one the notebook asks for an installation from a clone.
    about : str
        ``title`` and ``author`` of the book, ``digest`` of the page.
    """
    page = jupytext.read(source, fmt="md:myst")
    how, first = (WITHOUT_ADDRESS, ASK)
    if url is not None:
        how, first = WITH_ADDRESS, INSTALL.format(requirement=requirement(url))
    head = [nbformat.v4.new_markdown_cell(HEAD.format(how=how, **about)), nbformat.v4.new_code_cell(THREADS + first)]
    for number, cell in enumerate([*head, *page.cells]):
        cell["id"] = f"cell-{number}"  # nbformat's are random, and two builds would differ
    metadata = {"kernelspec": page.metadata["kernelspec"], "language_info": {"name": "python"}}
    return nbformat.v4.new_notebook(cells=[*head, *page.cells], metadata=metadata)


def offer(app, pagename: str, templatename: str, context: dict, doctree) -> None:
    """Let the theme make the button, and no launch button on a page that names a kernel but runs no code."""
    about = app.env.metadata.get(pagename, {})
    if about.get("state", {}).get("run_digest"):
        context["ipynb_source"] = f"{pagename}.ipynb"
    else:
        about.pop("kernelspec", None)


def write(app, pagename: str, templatename: str, context: dict, doctree) -> None:
    """Write the notebook where the button leads, over the theme's own if it made one."""
    if context.get("ipynb_source") is None:
        return
    about = {"title": app.config.html_title, "author": app.config.author}
    about["digest"] = app.env.metadata[pagename]["state"]["page_digest"]
    made = notebook(Path(app.env.doc2path(pagename)), repository.address(Path(app.confdir)), **about)
    target = Path(app.outdir) / "_sources" / context["ipynb_source"]
    target.parent.mkdir(parents=True, exist_ok=True)
    nbformat.write(made, target)


def setup(app) -> dict:
    app.connect("html-page-context", offer, priority=400)
    app.connect("html-page-context", write, priority=900)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
