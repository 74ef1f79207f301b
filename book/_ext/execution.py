"""Run the pages whose code changed, before any is read, and hand each page the outputs of its run.

MyST-NB would run a page while Sphinx reads it, and Sphinx reads pages side by side only when many changed
and every extension can merge what it gathered, which sphinx_proof cannot. Here the pages that have no run
for their digest are executed first, ``execution_jobs`` kernels at a time however few changed; reading
then only fetches outputs. A failed page is reported, read without outputs, and tried again next time.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

import run_store
from freshness import SourceError, page_digest, page_file, run_digest
from kernels import Job, KernelPool
from myst_nb.core.read import read_myst_markdown_notebook
from page_source import read_page
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from sphinx.util import logging

logger = logging.getLogger(__name__)
READER = f"{__name__}.read_with_outputs"


def store_of(app: Sphinx) -> Path:
    return Path(app.outdir).parent / ".jupyter_cache"


def say(line: str) -> None:
    """Progress for whoever waits; Sphinx's own is silenced by the driver."""
    sys.stdout.write(f"{line}\n")  # one write, since kernels are started by several threads
    sys.stdout.flush()


def cost(record: dict) -> str:
    return f"{record['seconds']:6.1f} s  {record['peak_bytes'] / 2**20:5.0f} MiB"


def take_digests(app: Sphinx, env: BuildEnvironment, docnames: list[str]) -> None:
    """Digests of every page, once a build."""
    root, pages = Path(app.confdir), sorted(env.found_docs)
    env.page_digests, env.run_digests = {}, {}
    for docname in pages:
        try:
            env.run_digests[docname] = run_digest(root, docname)
            env.page_digests[docname] = page_digest(root, docname, pages)
        except ValueError as error:
            logger.error("%s", error, location=docname, type="freshness")
            env.run_digests[docname], env.page_digests[docname] = None, "unknown"


def outdated(app: Sphinx, env: BuildEnvironment, added, changed, removed) -> list[str]:
    """Pages whose digest, or whose run, is not the one they were read with."""
    take_digests(app, env, [])
    stale = []
    for docname in env.found_docs:
        state = state_of(app, env, docname)
        no_run = state["run_digest"] and state["run"] is None
        if no_run or env.metadata.get(docname, {}).get("state") != state:
            stale.append(docname)
    say(f"  checked   digests of {len(env.found_docs)} pages, {len(stale)} to read")
    return stale


def state_of(app: Sphinx, env: BuildEnvironment, docname: str) -> dict:
    """What a page is made from: page digest, run digest, and the record of its run."""
    digest = env.run_digests[docname]
    record = run_store.record_of(store_of(app), docname, digest)
    return {"page_digest": env.page_digests[docname], "run_digest": digest, "run": record}


def run_pages(app: Sphinx, env: BuildEnvironment, docnames: list[str]) -> None:
    """Execute those of the pages to be read that have code and no run."""
    store, root = store_of(app), Path(app.confdir)
    todo, env.failed_pages = [], {}
    for docname in docnames:
        digest = env.run_digests.get(docname)
        if digest and run_store.record_of(store, docname, digest) is None:
            try:
                todo.append(_job(app, root, docname))
            except SourceError as error:
                _fail(env, docname, str(error))
    pool = KernelPool(root, store.parent, app.config.execution_jobs, app.config.nb_execution_timeout)
    done = 0
    for outcome in pool.run(todo, lambda docname: say(f"  running   {docname}")):
        docname = outcome.job.docname
        done += 1
        if outcome.error is not None:
            _fail(env, docname, f"a cell failed:\n{outcome.error}")
        elif run_digest(root, docname) != env.run_digests[docname]:
            _fail(env, docname, "its code changed while it ran: build again")
        else:
            run_store.keep(store, docname, env.run_digests[docname], outcome.job.notebook, outcome.record)
        word = "FAILED  " if docname in env.failed_pages else "executed"
        say(f"  {word}  {docname:45} {cost(outcome.record)}  ({done} of {len(todo)})")


def _fail(env: BuildEnvironment, docname: str, why: str) -> None:
    env.failed_pages[docname] = why
    logger.error("%s", why, location=docname, type="execution")


def _job(app: Sphinx, root: Path, docname: str) -> Job:
    path = page_file(root, docname)
    page = read_page(path)
    notebook = read_myst_markdown_notebook(page.text, config=app.env.myst_config, path=path)
    sources = [cell.source.strip("\n") for cell in notebook.cells if cell.cell_type == "code"]
    if sources != [cell.source for cell in page.cells]:
        raise SourceError(f"{docname}: MyST-NB sees other code cells than the digest does")
    return Job(docname, notebook, path.parent)


def hand_over_outputs(app: Sphinx, docname: str, source: list[str]) -> None:
    """Let MyST-NB read this page with the outputs of its run, and execute nothing itself."""
    env = app.env
    env.reading_since = time.perf_counter()
    digest = env.run_digests.get(docname)
    arguments = {"path": env.doc2path(docname), "folder": None, "config": env.myst_config}
    if digest and docname not in env.failed_pages:
        arguments["folder"] = str(run_store.folder(store_of(app), docname, digest))
    formats = {".md": (READER, arguments, False)} if digest else {}
    env.mystnb_config = env.mystnb_config.copy(custom_formats=formats, execution_mode="off")


def read_with_outputs(text: str, path: str, folder: str | None, config):
    """Reader for MyST-NB: the notebook of a page with the outputs of its run filled in."""
    notebook = read_myst_markdown_notebook(text, config=config, add_source_map=True, path=path)
    if folder is None:
        return notebook
    executed = run_store.executed_notebook(Path(folder))
    ran = (cell for cell in executed.cells if cell.cell_type == "code")
    for cell in notebook.cells:
        if cell.cell_type == "code":
            source = next(ran)
            cell.outputs, cell.execution_count = source.outputs, source.execution_count
    for key in ("widgets", "language_info"):
        if key in executed.metadata:
            notebook.metadata[key] = executed.metadata[key]
    return notebook


def remember(app: Sphinx, doctree) -> None:
    """Keep with the page what it was made from, and say that it was read."""
    env, docname = app.env, app.env.docname
    env.metadata[docname]["state"] = state_of(app, env, docname)
    record = env.metadata[docname]["state"]["run"]
    source = f"outputs of {record['executed'][:16]}" if record else "no code"
    if docname in env.failed_pages:
        source = "no outputs: it failed"
    say(f"  read      {docname:45} {time.perf_counter() - env.reading_since:6.1f} s  {source}")


def prune(app: Sphinx, env: BuildEnvironment) -> None:
    """Drop runs that no page of the book uses any more."""
    current = [(docname, digest) for docname, digest in env.run_digests.items() if digest]
    for run in run_store.prune(store_of(app), current):
        say(f"  dropped   old run {run}")


def setup(app: Sphinx) -> dict:
    app.add_config_value("execution_jobs", 2, "")
    app.connect("env-get-outdated", outdated)
    app.connect("env-before-read-docs", run_pages)
    app.connect("source-read", hand_over_outputs)
    app.connect("doctree-read", remember)
    app.connect("env-updated", prune)
    return {"version": "1", "env_version": 1, "parallel_read_safe": True, "parallel_write_safe": True}
