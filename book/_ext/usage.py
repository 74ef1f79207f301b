"""What a page may cost to run, and whether it does.

Budget: 45 s and 1 GB a page on two cores, shown on the status page when exceeded. The bound that turns a
build red is wider, 300 s and 1.5 GB, since wall time on a busy machine says little: the same page took
five times as long with ten processes on two cores.
"""

from __future__ import annotations

from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from sphinx.util import logging

logger = logging.getLogger(__name__)
BUDGET_SECONDS, BUDGET_BYTES = 45.0, 1.0e9
BOUND_SECONDS, BOUND_BYTES = 300.0, 1.5e9


def excess(record: dict, seconds: float, size: float) -> list[str]:
    """What a run took beyond ``seconds`` and ``size`` bytes, in words; empty when it kept to both."""
    words = []
    if record["seconds"] > seconds:
        words.append(f"{record['seconds']:.0f} s of {seconds:.0f} s")
    if record["peak_bytes"] > size:
        words.append(f"{record['peak_bytes'] / 1e9:.2f} GB of {size / 1e9:.2g} GB")
    return words


def over_budget(record: dict) -> list[str]:
    return excess(record, BUDGET_SECONDS, BUDGET_BYTES)


def check_bounds(app: Sphinx, env: BuildEnvironment) -> None:
    """Warn, in every build, of each page beyond the hard bound."""
    for docname, metadata in sorted(env.metadata.items()):
        record = metadata.get("state", {}).get("run")
        words = excess(record, BOUND_SECONDS, BOUND_BYTES) if record else []
        if words:
            remedy = "make it smaller, or measure again with tools/build_book.py --rerun"
            logger.warning("costs %s to run: %s", " and ".join(words), remedy, location=docname, type="usage")


def setup(app: Sphinx) -> dict:
    app.connect("env-updated", check_bounds)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
