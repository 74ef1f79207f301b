"""Let Sphinx read and write in parallel although two extensions of Jupyter Book do not say that they can.

``sphinx_multitoc_numbering`` and ``sphinx_jupyterbook_latex`` keep no state per page while reading: the first
renumbers toctrees once all are read, the second acts in LaTeX builds only.
"""

from sphinx.application import Sphinx

SAFE = ("sphinx_multitoc_numbering", "sphinx_jupyterbook_latex")


def allow(app: Sphinx) -> None:
    for name in SAFE:
        if name in app.extensions:
            app.extensions[name].parallel_read_safe = True
            app.extensions[name].parallel_write_safe = True


def setup(app: Sphinx) -> dict:
    app.connect("builder-inited", allow)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
