"""Executed pages on disk: one folder a page and run digest, written whole or not at all.

``<store>/<docname>/<run digest>/executed.ipynb`` holds the outputs, ``run.json`` beside it when, where and at
what cost they were made. Needs no Sphinx.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterable
from pathlib import Path

import nbformat
from nbformat import NotebookNode

NOTEBOOK, RECORD = "executed.ipynb", "run.json"


def folder(store: Path, docname: str, digest: str) -> Path:
    return store / docname / digest


def record_of(store: Path, docname: str, digest: str | None) -> dict | None:
    """The record of the run with this digest, None when the store has none."""
    path = folder(store, docname, digest) / RECORD if digest else None
    return json.loads(path.read_text("utf8")) if path and path.is_file() else None


def executed_notebook(run: Path) -> NotebookNode:
    """The executed notebook in the folder of a run."""
    return nbformat.read(run / NOTEBOOK, as_version=4)


def keep(store: Path, docname: str, digest: str, notebook: NotebookNode, record: dict) -> None:
    """Store a run and drop older ones of the page; a killed build leaves either all of it or nothing."""
    target = folder(store, docname, digest)
    draft = target.with_name(f".{digest}.{os.getpid()}")
    shutil.rmtree(draft, ignore_errors=True)
    draft.mkdir(parents=True)
    nbformat.write(notebook, draft / NOTEBOOK)
    (draft / RECORD).write_text(json.dumps(record, indent=1), "utf8")
    shutil.rmtree(target, ignore_errors=True)
    draft.rename(target)
    for other in target.parent.iterdir():
        if other != target and (other / RECORD).is_file():
            shutil.rmtree(other, ignore_errors=True)


def forget(store: Path, docname: str) -> None:
    """Drop every run of a page."""
    for record in list((store / docname).glob(f"*/{RECORD}")):
        shutil.rmtree(record.parent)


def prune(store: Path, current: Iterable[tuple[str, str]]) -> list[str]:
    """Drop the runs that are not among ``current`` (docname, digest), and return what was dropped."""
    wanted = {folder(store, docname, digest) for docname, digest in current}
    dropped = []
    for record in sorted(store.rglob(RECORD)):
        if record.parent not in wanted:
            dropped.append(record.parent.relative_to(store).as_posix())
            shutil.rmtree(record.parent)
    for path in sorted((p for p in store.rglob("*") if p.is_dir()), reverse=True):
        if not any(path.iterdir()):
            path.rmdir()
    return dropped
