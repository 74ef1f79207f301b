"""How a page comes: what it fetches, what is shown meanwhile, and that nothing moves once it is there."""

from __future__ import annotations

import re

import pytest
from browsing import CHAPTERS_WITH_CODE, chapter_names, open_page, shifts, visit, watch_shifts

pytestmark = pytest.mark.browser

CHAPTERS = chapter_names()
LECTURE = next(name for name in CHAPTERS_WITH_CODE if name.startswith("book/svm/"))
FRAME_BUDGET = 2_400_000
"""Bytes of a page view, uncompressed, that are not its figures."""
UNSETTLED = "document.documentElement.classList.contains('unsettled')"


@pytest.mark.parametrize("name", CHAPTERS_WITH_CODE[::3])
def test_a_page_fetches_what_it_shows_and_mathjax_as_one_script(browser, served, name):
    sizes = {}
    with open_page(browser) as page:
        page.on("requestfinished", lambda r: sizes.update({r.url: r.sizes()["responseBodySize"]}))
        visit(page, f"{served}/{name}.html")
    fetched = {url.removeprefix(served).partition("?")[0]: size for url, size in sizes.items()}
    assert [path for path in fetched if "/mathjax/" in path and path.endswith(".js")] == [
        "/_static/vendor/mathjax/tex-chtml.js"
    ]
    assert not [path for path in fetched if "fontawesome" in path or "searchindex" in path]
    assert sum(size for path, size in fetched.items() if not path.startswith("/_images/")) < FRAME_BUDGET


@pytest.mark.parametrize("name", CHAPTERS_WITH_CODE[::3])
def test_nothing_moves_on_a_telephone(browser, served, name):
    with open_page(browser, width=390) as page:
        watch_shifts(page)
        visit(page, f"{served}/{name}.html")
        assert shifts(page) < 0.05


def test_a_jump_is_seen(browser, served):
    with open_page(browser, mathematics=False) as page:
        watch_shifts(page)
        visit(page, f"{served}/{LECTURE}.html")
        page.evaluate("document.querySelector('article h1').style.marginTop = '400px'")
        page.wait_for_function("window.__shift > 0.05")


def test_the_first_formula_is_typeset_before_it_is_shown(browser, served):
    note = """() => {
      window.__raw = [];
      const root = () => document.documentElement;
      const isRaw = (formula) => {
        const { top, bottom } = formula.getBoundingClientRect();
        return bottom > 0 && top < innerHeight && !formula.querySelector("mjx-container")
          && formula.checkVisibility({ visibilityProperty: true });
      };
      new MutationObserver((list) => {
        if (root().classList.contains("unsettled") || !list.some((change) => change.target === root())) return;
        window.__raw.push([...document.querySelectorAll("main .math")].filter(isRaw).length);
      }).observe(document, { subtree: true, attributeFilter: ["class"] });
    }"""
    with open_page(browser) as page:
        page.add_init_script(f"({note})()")
        visit(page, f"{served}/{LECTURE}.html")
        assert page.evaluate("window.__raw")[:1] == [0]


def test_without_scripts_the_text_is_there_and_formulas_can_be_read(browser, site):
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto((site / f"{LECTURE}.html").as_uri())
    paragraph = page.locator("article section > p:has(.math)").first
    assert paragraph.is_visible()
    assert paragraph.locator(".math").first.inner_text().startswith("\\(")
    assert page.locator("a.right-next").is_visible()
    context.close()


@pytest.mark.parametrize("lost", ["/vendor/mathjax/", "/js/settle.js", "/_static/.*[.]js"])
def test_a_lost_script_does_not_hide_the_text(browser, served, lost):
    with open_page(browser) as page:
        page.route(re.compile(lost), lambda route: route.abort())
        page.goto(f"{served}/{LECTURE}.html")
        page.wait_for_function(
            "() => document.querySelector('article section > p').checkVisibility({ visibilityProperty: true })"
        )


def test_a_page_without_formulas_settles_at_once(browser, served):
    with open_page(browser) as page:
        page.goto(f"{served}/book/reference/status.html", wait_until="domcontentloaded")
        assert page.evaluate("!window.MathJax") and not page.evaluate(UNSETTLED)


@pytest.mark.parametrize("system", ["light", "dark"])
def test_the_first_paint_has_the_colours_of_the_system(browser, served, system):
    with open_page(browser, mathematics=False) as page:
        page.route(re.compile("pydata-sphinx-theme[.]js"), lambda route: route.abort())
        page.emulate_media(color_scheme=system)
        page.goto(f"{served}/{CHAPTERS[0]}.html")
        assert page.evaluate("document.documentElement.dataset.theme") == system
