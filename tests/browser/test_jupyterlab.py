"""Every page that runs code opens in JupyterLab as a notebook and runs there, from the address its Binder button has.

JupyterLab is started from this environment as Binder starts it (``postBuild``, then ``start``) over a copy of the
pages, and a real browser opens ``lab/tree/PAGE.md`` (the address that ``test_build.py`` finds in the button), two
pages at a time, and chooses *Run All Cells* from the menu. Time is the processor's: on a machine with other work the
wall clock says nothing of the page.
"""

from __future__ import annotations

import re

import pytest
from books import notebook
from browsing import ROOT, chapter_names
from lab import copy_pages, jupyterlab, visit_pages
from page_source import read_page

pytestmark = pytest.mark.browser

SOURCES = {name: (ROOT / f"{name}.md").read_text("utf8") for name in chapter_names()}
RUNNING = [name for name, text in SOURCES.items() if "```{code-cell}" in text]
PLAIN = [name for name in SOURCES if name not in RUNNING]
BOX = re.compile(r"^(?:`{3,}|:{3,})\{prf:(?!ref)\w+\}", re.M)
SECONDS, BYTES = 120, 1.0e9
CELLS = ["import sys\nprint('planted words', file=sys.stderr)", "block = bytearray(300_000_000)", "1 / 0", "2"]


@pytest.fixture(scope="module")
def visited(request, browser, tmp_path_factory):
    """Visits of the pages that the chosen tests ask for, made on first use, by name."""
    parameters = [item.callspec.params for item in request.session.items if "visited" in item.fixturenames]
    wanted = list(dict.fromkeys(given["name"] for given in parameters))
    folder, scratch = copy_pages(tmp_path_factory.mktemp("pages")), tmp_path_factory.mktemp("jupyter")
    (folder / "planted.md").write_text(notebook("Planted", *CELLS, prose="```{prf:lemma} A\nB.\n```"), "utf8")
    paths = {f"lab/tree/{name}.md": name for name in wanted}
    with jupyterlab(folder, scratch) as (address, server):
        return {paths[path]: visit for path, visit in visit_pages(browser, address, server, list(paths))}


@pytest.mark.parametrize("name", RUNNING)
def test_the_page_opens_as_a_notebook_and_runs(visited, name):
    visit = visited[name]
    assert (visit.state["path"], visit.state["notebook"], visit.state["dialogs"]) == (f"{name}.md", True, [])
    assert (visit.state["errors"], visit.state["stderr"]) == ([], [])
    assert visit.state["executed"] == visit.state["cells"] > 0
    assert 0 < visit.processor_seconds <= SECONDS
    assert 50e6 < visit.peak_bytes <= BYTES


@pytest.mark.parametrize("name", RUNNING)
def test_definitions_theorems_and_proofs_are_boxes(visited, name):
    assert len(visited[name].boxes) == len(BOX.findall(SOURCES[name]))


@pytest.mark.parametrize("name", PLAIN)
def test_pages_without_code_begin_like_the_others(name):
    """What makes them open without a question; one of them is opened, since each opening takes seconds."""
    front = read_page(ROOT / f"{name}.md").front_matter
    assert front["kernelspec"] == {"display_name": "Python 3", "language": "python", "name": "python3"}
    assert front["jupytext"]["text_representation"] == {"extension": ".md", "format_name": "myst"}


@pytest.mark.parametrize("name", PLAIN[:1])
def test_a_page_without_code_opens_without_asking_for_a_kernel(visited, name):
    state = visited[name].state
    assert (state["path"], state["notebook"], state["dialogs"]) == (f"{name}.md", True, [])


@pytest.mark.parametrize("name", ["planted"])
def test_faults_and_costs_of_a_planted_page_are_seen(visited, name):
    visit = visited[name]
    assert (visit.state["stderr"], visit.state["executed"]) == (["planted words\n"], 3)
    assert [error.split(":")[0] for error in visit.state["errors"]] == ["ZeroDivisionError"]
    assert visit.peak_bytes > 300e6 and len(visit.boxes) == 1


def test_there_are_boxes_to_see():
    assert sum(len(BOX.findall(SOURCES[name])) for name in RUNNING) > 50
