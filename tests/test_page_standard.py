"""Rules of the page standard that can be read off the sources: columns of code, prerequisites, who comes next."""

from __future__ import annotations

import re

import freshness
import neighbours
import pytest
from books import ROOT
from page_source import read_page

COLUMNS = 75
PAGES = freshness.toc_pages(ROOT, ROOT / "_toc.yml")
LECTURES = [page for _, pages in freshness.toc_parts(ROOT) for page in pages]
CODE_FENCE = re.compile(r"^```(?:python|\{code-block\}[^\n]*)\n(.*?)^```", re.M | re.S)
NEED = re.compile(r"\*\*You need\*\*(.*?)\*\*Time:\*\*", re.S)
LINK = re.compile(r"\{(?:doc|ref|prf:ref|eq|numref)\}`[^`]+`")


def wide_lines(text: str) -> list[str]:
    return [line for line in text.splitlines() if len(line) > COLUMNS]


def source(page: str) -> str:
    return (ROOT / f"{page}.md").read_text("utf8")


@pytest.mark.parametrize("page", PAGES)
def test_code_fits_the_page(page):
    shown = [cell.source for cell in read_page(ROOT / f"{page}.md").cells] + CODE_FENCE.findall(source(page))
    wide = [line for text in shown for line in wide_lines(text)]
    assert not wide, f"more than {COLUMNS} columns"


@pytest.mark.parametrize("page", LECTURES)
def test_a_lecture_links_to_what_it_needs(page):
    need = NEED.search(source(page))
    assert need, "there must be a sentence '**You need** ...' before '**Time:**'"
    needs_no_page = "No earlier page is" in " ".join(need[1].split())
    assert LINK.search(need[1]) or needs_no_page


@pytest.mark.parametrize("page", LECTURES)
def test_a_lecture_needs_only_what_comes_before_it(page):
    need = NEED.search(source(page))[1]
    named = {f"book/{name}" for name in re.findall(r"\{doc\}`[^`]*?/book/([\w/-]+)>?`", need)}
    assert named <= set(PAGES[: PAGES.index(page)])


def test_every_page_says_why_one_would_go_there():
    reasons = neighbours.read_reasons(ROOT / neighbours.FILE)
    assert set(PAGES) <= set(reasons)
    texts = [entry["next"] for entry in reasons.values()]
    assert len(set(texts)) == len(texts)
    assert max(len(text) for entry in reasons.values() for text in entry.values()) <= 110


@pytest.mark.parametrize(
    "entry", ['next = "Why."', 'next = "Why."\nprevious = "No stop"', 'next = "A."\nprevious = "B."\nother = "C."']
)
def test_half_a_reason_is_refused(tmp_path, entry):
    path = tmp_path / "neighbours.toml"
    path.write_text(f'["book/a"]\n{entry}\n', "utf8")
    with pytest.raises(ValueError, match="'book/a' must have one sentence"):
        neighbours.read_reasons(path)


def test_without_the_file_there_are_no_reasons(tmp_path):
    assert neighbours.read_reasons(tmp_path / "none.toml") == {}
