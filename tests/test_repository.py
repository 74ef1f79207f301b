"""What every file of the repository owes its readers: length, style, and no trace of the machine it was written on."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
LIMIT = 350
# Spelled in pieces, so that this file does not hold what it looks for.
TRACES = re.compile(
    "|".join(
        [
            r"(?<![\w.])/(?:work|farm|opt|root)" + "/",
            r"-{2}(?:extra-)?index-" + "url",
            r"-{2}find-" + "links",
            r"\bfile:" + r"///(?!\{|\$)",
            r"\.libr" + r"ary\b",
            r"\bshared/(?:oracles|papers|design|style|sample)",
            "pypi" + r"\.org/simple|files\." + "pythonhosted|registry\\.npm" + "js",
        ]
    )
)


def tracked() -> list[Path]:
    """Files that a clone would hold; in a tree without git (a tarball), every file that looks like source."""
    done = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode == 0 and done.stdout:
        return [ROOT / name for name in done.stdout.split("\0") if name and (ROOT / name).is_file()]
    skipped = {".venv", "_build", "__pycache__", "node_modules"}
    return [p for p in ROOT.rglob("*") if p.is_file() and not skipped & set(p.parts)]


def ours(*suffixes: str) -> list[Path]:
    return [p for p in tracked() if p.suffix in suffixes and "vendor" not in p.parts]


def test_python_files_are_short():
    long = {str(p.relative_to(ROOT)): n for p in ours(".py") if (n := len(p.read_text("utf8").splitlines())) > LIMIT}
    assert not long, f"over {LIMIT} lines, split them by what they hold: {long}"


def traces(text: str) -> list[str]:
    return [m.group(0) for m in TRACES.finditer(text)]


def test_no_trace_of_a_machine_or_an_index():
    found = {}
    for path in tracked():
        if "vendor" in path.parts or path.suffix in {".npz", ".png", ".woff", ".woff2", ".ico"}:
            continue
        if hits := traces(path.read_text("utf8")):
            found[str(path.relative_to(ROOT))] = hits
    assert not found


PLANTED = ["see /wo" + "rk/main", "--extra-index" + "-url x", "file:/" + "//home/x", "shared" + "/papers/"]


@pytest.mark.parametrize("planted", PLANTED)
def test_the_trace_pattern_can_find(planted):
    assert traces(planted)


def test_science_does_not_import_the_course():
    """`attncore/` outside `course/` runs without matplotlib, widgets, Sphinx, and cvxpy (referee apart)."""
    names = r"(matplotlib|ipywidgets|IPython|sphinx|docutils|attncore\.course)"
    barred = re.compile(rf"^\s*(?:from|import)\s+{names}\b", re.M)
    cvxpy = re.compile(r"^\s*(?:from|import)\s+cvxpy\b", re.M)
    for path in sorted((ROOT / "attncore").rglob("*.py")):
        name, text = path.relative_to(ROOT / "attncore").as_posix(), path.read_text("utf8")
        if not name.startswith("course/"):
            assert not barred.search(text), f"{name}: {barred.search(text)[0]!r}"
        if name != "svm/reference.py":
            assert not cvxpy.search(text), f"{name} imports cvxpy, which only svm/reference.py may"


def test_importing_the_package_imports_nothing():
    code = "import sys, attncore; sys.exit(any(m in sys.modules for m in ('torch', 'numpy', 'scipy')))"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False).returncode == 0


def test_ruff_is_content():
    done = subprocess.run(
        [sys.executable, "-m", "ruff", "check", "--no-cache", "--output-format", "concise", "."],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout
