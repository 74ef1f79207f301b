"""Every page of the book in a real browser, from a server and from disk.

No console error, no failed and no foreign request, mathematics typeset, pictures loaded and described, headings in
order, no sideways scroll on a telephone. The special pages are named in `browsing.SPECIAL`; a built page that is
neither a chapter nor special fails the first test.
"""

from __future__ import annotations

import pytest
from browsing import SPECIAL, chapter_names, keep_log, open_page, shifts, visit, watch_shifts

pytestmark = pytest.mark.browser

CHAPTERS = chapter_names()
PAGES = [*CHAPTERS, *(name for name in SPECIAL if name != "index")]

FACTS = """() => {
  const main = document.querySelector("main") || document.body;
  const seen = (node) => node.checkVisibility();
  const formulas = [...main.querySelectorAll(".math")];
  const prose = main.cloneNode(true);
  prose.querySelectorAll("pre, code, script, style, mjx-container").forEach((node) => node.remove());
  return {
    language: document.documentElement.lang,
    title: document.title,
    landmarks: document.querySelectorAll("main").length,
    formulas: formulas.length,
    untypeset: formulas.filter((f) => f.querySelectorAll("mjx-container").length !== 1).map((f) => f.textContent),
    assistive: [...document.querySelectorAll("mjx-container")].filter((m) => m.querySelector("mjx-assistive-mml math"))
      .length,
    containers: document.querySelectorAll("mjx-container").length,
    broken: [...document.querySelectorAll("mjx-merror, [data-mjx-error], mtext[mathcolor=red]")]
      .map((e) => e.textContent),
    raw: prose.textContent.match(/\\\\\\(|\\\\\\[|\\$\\$/g) || [],
    missing: [...document.images].filter((i) => !(i.complete && i.naturalWidth)).map((i) => i.src),
    silent: [...document.images].filter((i) => !i.hasAttribute("alt")).map((i) => i.src),
    headings: [...main.querySelectorAll("h1, h2, h3, h4, h5, h6")].filter(seen).map((h) => +h.tagName[1]),
    unheaded: [...main.querySelectorAll("table")].filter((t) => seen(t) && !t.querySelector("th")).length,
  };
}"""

SIDEWAYS = """() => ({
  page: document.scrollingElement.scrollWidth,
  window: window.innerWidth,
  wide: [...document.querySelectorAll("main *")].filter((e) => {
    const box = e.getBoundingClientRect();
    const boxed = e.closest("mjx-container, pre, table, svg, nav");
    return !boxed && e.checkVisibility() && box.right > window.innerWidth + 1;
  }).slice(0, 5).map((e) => `${e.tagName}.${e.className}`),
})"""


@pytest.fixture(scope="session")
def seen(browser, address):
    """Visit a page once and return what it was like; later calls give the same answer."""
    cache = {}
    with open_page(browser) as page:
        log = keep_log(page, address)
        watch_shifts(page)

        def look(name):
            if name not in cache:
                log.clear()
                page.set_viewport_size({"width": 1280, "height": 900})
                visit(page, f"{address}/{name}.html")
                facts = {**page.evaluate(FACTS), "shift": shifts(page)}
                page.set_viewport_size({"width": 390, "height": 800})
                cache[name] = {**facts, "sideways": page.evaluate(SIDEWAYS), "log": log.copy()}
            return cache[name]

        yield look


def test_every_built_page_is_a_chapter_or_special(site):
    built = {p.relative_to(site).with_suffix("").as_posix() for p in site.rglob("*.html")}
    built = {name for name in built if not name.startswith(("_static/", "_sources/"))}
    assert built == set(CHAPTERS) | set(SPECIAL)


@pytest.mark.parametrize("name", PAGES)
def test_nothing_goes_wrong_and_nothing_leaves(seen, name):
    log = seen(name)["log"]
    assert (log.errors, log.failed, log.foreign) == ([], [], [])


@pytest.mark.parametrize("name", PAGES)
def test_mathematics_is_typeset(seen, name):
    facts = seen(name)
    assert (facts["untypeset"], facts["broken"], facts["raw"]) == ([], [], [])
    assert facts["containers"] >= facts["formulas"]
    assert facts["assistive"] == facts["containers"]


def test_there_is_mathematics_to_typeset(seen):
    assert sum(seen(name)["formulas"] for name in CHAPTERS) > 20


@pytest.mark.parametrize("name", PAGES)
def test_nothing_moves_once_it_is_shown(seen, name):
    assert seen(name)["shift"] < 0.05


@pytest.mark.parametrize("name", PAGES)
def test_pictures_are_loaded_and_described(seen, name):
    facts = seen(name)
    assert (facts["missing"], facts["silent"]) == ([], [])


@pytest.mark.parametrize("name", PAGES)
def test_headings_are_in_order_and_tables_have_headers(seen, name):
    facts = seen(name)
    levels = facts["headings"]
    assert levels.count(1) == 1 and levels[0] == 1
    assert all(below <= above + 1 for above, below in zip(levels, levels[1:], strict=False)), levels
    assert facts["unheaded"] == 0 or name in SPECIAL
    assert (facts["landmarks"], facts["language"]) == (1, "en")
    assert facts["title"].strip()


@pytest.mark.parametrize("name", PAGES)
def test_no_sideways_scroll_on_a_telephone(seen, name):
    sideways = seen(name)["sideways"]
    assert sideways["page"] <= sideways["window"] == 390, sideways["wide"]


def test_the_root_leads_to_the_first_page(browser, address):
    with open_page(browser) as page:
        log = keep_log(page, address)
        page.goto(f"{address}/index.html")
        page.wait_for_url(f"{address}/{CHAPTERS[0]}.html")
        assert (log.errors, log.failed, log.foreign) == ([], [], [])
