"""Let Sphinx read and write in parallel although two extensions of Jupyter Book do not say that they can.

``sphinx_multitoc_numbering`` and ``sphinx_jupyterbook_latex`` keep no state per page while reading: the first
renumbers toctrees once all are read, the second acts in LaTeX builds only. ``sphinx_proof`` merges what it read
in an event of its own and keeps nothing in its domain, but does not say so: the reading process would stop.
"""

from sphinx.application import Sphinx
from sphinx_proof.domain import ProofDomain

SAFE = ("sphinx_multitoc_numbering", "sphinx_jupyterbook_latex")


def allow(app: Sphinx) -> None:
    for name in SAFE:
        if name in app.extensions:
            app.extensions[name].parallel_read_safe = True
            app.extensions[name].parallel_write_safe = True


def nothing_to_merge(self, docnames, otherdata) -> None:
    if kept := set(otherdata) - {"version"}:
        raise NotImplementedError(f"sphinx_proof now keeps {sorted(kept)} in its domain; merge it here")


def setup(app: Sphinx) -> dict:
    app.connect("builder-inited", allow)
    if "merge_domaindata" not in vars(ProofDomain):
        ProofDomain.merge_domaindata = nothing_to_merge
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
