"""Notebooks that readers download: what they say, and that one runs in an empty folder after its own pip line."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

import books  # noqa: F401  (puts the extensions on the import path)
import downloads
import nbformat
import pytest
from nbclient import NotebookClient
from page_source import read_page

ROOT = Path(__file__).resolve().parents[1]
ADDRESS = "https://github.com/owner/name"
ABOUT = {"title": "The book", "author": "its authors", "digest": "0123456789ab"}
PAGE = "book/reference/oracles"  # reads a stored table


def made(name: str, url: str | None) -> nbformat.NotebookNode:
    return downloads.notebook(ROOT / f"{name}.md", url, **ABOUT)


def code(notebook: nbformat.NotebookNode) -> list[str]:
    return [cell.source for cell in notebook.cells if cell.cell_type == "code"]


def test_the_cells_are_the_page_s_after_one_that_brings_the_package():
    notebook = made(PAGE, ADDRESS)
    nbformat.validate(notebook)
    first, *rest = code(notebook)
    assert rest == [cell.source for cell in read_page(ROOT / f"{PAGE}.md").cells]
    line = '%pip install --quiet "attncore[pages] @ git+https://github.com/owner/name@main"'
    assert [text.strip() for text in first.splitlines() if "pip" in text] == [line]
    assert all(text in notebook.cells[0].source for text in ABOUT.values())
    assert not any(cell.get("outputs") for cell in notebook.cells)
    assert "jupytext" not in notebook.metadata  # it would pair the file with a page that is not there


def test_without_an_address_it_asks_for_an_installation_from_a_clone():
    notebook = made(PAGE, None)
    first = code(notebook)[0]
    assert "%" not in first and "git+" not in first
    assert 'pip install ".[pages]"' in first and 'pip install ".[pages]"' in notebook.cells[0].source


def test_the_same_page_gives_the_same_file():
    assert nbformat.writes(made(PAGE, ADDRESS)) == nbformat.writes(made(PAGE, ADDRESS))


def run(*words: str | Path, **options) -> None:
    done = subprocess.run(words, capture_output=True, text=True, check=False, **options)
    assert done.returncode == 0, f"{words}\n{done.stdout}\n{done.stderr}"


@pytest.fixture(scope="module")
def clone(tmp_path_factory) -> Path:
    """A repository that holds the files of this one as they are now, in a folder of its own."""
    folder = tmp_path_factory.mktemp("clone")
    for name in ("pyproject.toml", "setup.py", "MANIFEST.in", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, folder / name)
    for name in ("attncore", "LICENSES", "book/data"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    who = ["-c", "user.name=x", "-c", "user.email=x@example.org"]
    run("git", "init", "--quiet", "--initial-branch=main", folder)
    run("git", "-C", folder, "add", "--all")
    run("git", "-C", folder, *who, "commit", "--quiet", "--message", "state of the tree")
    return folder


@pytest.fixture(scope="module")
def environment(tmp_path_factory) -> Path:
    """A new Python environment with everything that pages need except the package itself, and no network.

    Its packages are links to the ones installed here: pip then finds each dependency there and asks no index.
    """
    folder = tmp_path_factory.mktemp("environment")
    venv.create(folder, with_pip=False, symlinks=os.name != "nt")
    packages = Path(sysconfig.get_path("purelib", vars={"base": str(folder), "platbase": str(folder)}))
    for path in Path(sysconfig.get_path("purelib")).iterdir():
        if not re.search("attncore", path.name):
            (packages / path.name).symlink_to(path)
    return folder


def test_a_downloaded_notebook_runs_anywhere_after_its_own_pip_line(clone, environment, tmp_path, monkeypatch):
    python = environment / "bin" / "python"
    run(python, "-c", "import importlib.util as u, sys; sys.exit(u.find_spec('attncore') is not None)", cwd=tmp_path)
    kernel = tmp_path / "jupyter" / "kernels" / "elsewhere"
    kernel.mkdir(parents=True)
    words = [str(python), "-m", "ipykernel_launcher", "--IPKernelApp.log_level=40", "-f", "{connection_file}"]
    (kernel / "kernel.json").write_text(json.dumps({"argv": words, "display_name": "x", "language": "python"}))
    monkeypatch.setenv("JUPYTER_PATH", str(tmp_path / "jupyter"))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_NO_BUILD_ISOLATION", "0")  # pip reads it so: no isolation
    monkeypatch.delenv("PYTHONPATH", raising=False)
    empty = tmp_path / "empty"
    empty.mkdir()
    notebook = made(PAGE, ADDRESS)
    bring = next(cell for cell in notebook.cells if cell.cell_type == "code")
    bring.source = bring.source.replace(ADDRESS, clone.as_uri())
    where = "import attncore.course.data_files as d; print(d.FOLDER, d.__file__)"
    notebook.cells.append(nbformat.v4.new_code_cell(where))
    NotebookClient(notebook, kernel_name="elsewhere", timeout=300).execute(cwd=str(empty))
    said = "".join(o.text for o in notebook.cells[-1].outputs)
    assert said.count(str(environment)) == 2 and str(ROOT) not in said
    shown = [o for cell in notebook.cells for o in cell.get("outputs", ())]
    assert not [o for o in shown if o.get("name") == "stderr"]


def test_the_wheel_holds_every_data_file(clone, tmp_path):
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation"]
    run(*command, "--wheel-dir", tmp_path, clone)
    (wheel,) = tmp_path.glob("*.whl")
    names = subprocess.run([sys.executable, "-m", "zipfile", "-l", wheel], capture_output=True, text=True, check=True)
    stored = sorted(path.name for path in (ROOT / "book" / "data").glob("*.json"))
    assert stored and re.findall(r"attncore/course/data/(\S+\.json)", names.stdout) == stored
