"""What a reader does: switch to dark, search, fold out a solution, use the keyboard, print."""

from __future__ import annotations

import re

import pytest
from browsing import ROOT, chapter_names, open_page, visit

pytestmark = pytest.mark.browser

CHAPTERS = chapter_names()
THEME = "document.documentElement.dataset.theme"
GROUND = "getComputedStyle(document.body).backgroundColor"


def page_with(text: str) -> str:
    """Return the first chapter whose source contains `text`."""
    return next(name for name in CHAPTERS if text in (ROOT / f"{name}.md").read_text("utf8"))


def choose(page, theme: str) -> None:
    """Press the theme button until the page has `theme`, as a reader does."""
    for _ in range(3):
        page.locator(".theme-switch-button:visible").first.click()
        if page.evaluate("document.documentElement.dataset.mode") == theme:
            return
    raise AssertionError(f"three clicks on the theme button do not lead to {theme}")


@pytest.mark.parametrize("system", ["light", "dark"])
def test_the_page_follows_the_system_until_the_reader_chooses(browser, address, system):
    with open_page(browser, mathematics=False) as page:
        page.emulate_media(color_scheme=system)
        visit(page, f"{address}/{CHAPTERS[0]}.html")
        assert page.evaluate(THEME) == system


def test_dark_mode_is_chosen_and_remembered(browser, address):
    with open_page(browser, mathematics=False) as page:
        page.emulate_media(color_scheme="light")
        visit(page, f"{address}/{CHAPTERS[0]}.html")
        light = page.evaluate(GROUND)
        choose(page, "dark")
        assert page.evaluate(THEME) == "dark"
        dark = page.evaluate(GROUND)
        assert dark == "rgb(18, 18, 18)" != light
        visit(page, f"{address}/{CHAPTERS[1]}.html")
        assert (page.evaluate(THEME), page.evaluate(GROUND)) == ("dark", dark)
        choose(page, "light")
        assert page.evaluate(GROUND) == light


def test_figures_stand_on_the_page_itself_in_both_modes(browser, served):
    with open_page(browser, mode="light", mathematics=False) as page:
        visit(page, f"{served}/{page_with('figures.new(')}.html")
        styles = """() => [...document.querySelectorAll("main .cell_output img")].map((i) => {
          const s = getComputedStyle(i); return [s.backgroundColor, s.padding, s.filter].join(" ") })"""
        light = page.evaluate(styles)
        choose(page, "dark")
        dark = page.evaluate(styles)
    assert light and set(light) == {"rgba(0, 0, 0, 0) 0px none"}
    assert set(dark) == {"rgba(0, 0, 0, 0) 0px invert(1) hue-rotate(180deg)"}


def test_search_finds_a_theorem_by_its_name(browser, address):
    name = page_with("{prf:theorem}")
    title = re.search(r"\{prf:theorem\} *(\S.*)", (ROOT / f"{name}.md").read_text("utf8"))[1]
    with open_page(browser, mathematics=False) as page:
        visit(page, f"{address}/{CHAPTERS[0]}.html")
        page.keyboard.press("Control+k")
        page.keyboard.type(re.sub(r"\$[^$]*\$", "", title))
        page.keyboard.press("Enter")
        page.wait_for_url(re.compile(r"/search\.html\?q="))
        result = page.locator(f"#search-results li a[href*='{name}.html']").first
        result.wait_for()
        result.click()
        page.wait_for_url(re.compile(re.escape(name)))
        assert page.get_by_text(title.split("$")[0].strip()).count() > 0


def test_search_finds_nothing_for_nonsense(browser, address):
    with open_page(browser, mathematics=False) as page:
        visit(page, f"{address}/search.html?q=zyxwvutsrq")
        page.get_by_text(re.compile("did not match any documents")).wait_for()


def test_the_keyboard_can_skip_to_the_text(browser, served):
    with open_page(browser, mathematics=False) as page:
        visit(page, f"{served}/{CHAPTERS[0]}.html")
        page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement.textContent").strip() == "Skip to main content"
        box = page.locator(":focus").bounding_box()
        assert box["x"] >= 0 and box["y"] >= 0 and box["height"] > 10
        page.keyboard.press("Enter")
        page.keyboard.press("Tab")
        assert page.evaluate("!!document.activeElement.closest('main, #main-content')")


@pytest.mark.parametrize("mode", ["light", "dark"])
def test_focus_is_visible_wherever_the_keyboard_leads(browser, served, mode):
    with open_page(browser, mode=mode, mathematics=False) as page:
        visit(page, f"{served}/{CHAPTERS[1]}.html")
        steps = 40
        for _ in range(steps):
            page.keyboard.press("Tab")
            style = page.evaluate("""() => { const e = document.activeElement, s = getComputedStyle(e);
              return [e.outerHTML.slice(0, 120), s.outlineStyle, parseFloat(s.outlineWidth)] }""")
            assert style[1] != "none" and style[2] >= 2, style


def test_a_solution_folds_out_by_keyboard_and_in_print(browser, served):
    name = page_with("{solution-start}")
    with open_page(browser, mathematics=False) as page:
        visit(page, f"{served}/{name}.html")
        button = page.locator(".solution .toggle-button").first
        body = page.locator(".solution section").first
        assert button.get_attribute("aria-expanded") == "false" and not body.is_visible()
        assert "Solution" in button.get_attribute("aria-label")
        page.emulate_media(media="print")
        assert body.is_visible()
        assert not page.locator(".bd-sidebar-primary").is_visible()
        page.emulate_media(media="screen")
        button.focus()
        page.keyboard.press("Enter")
        assert button.get_attribute("aria-expanded") == "true" and body.is_visible()


def test_the_theme_is_switched_by_keyboard(browser, served):
    with open_page(browser, mode="light", mathematics=False) as page:
        visit(page, f"{served}/{CHAPTERS[1]}.html")
        button = page.locator(".theme-switch-button:visible").first
        assert button.get_attribute("title") or button.get_attribute("aria-label")
        button.focus()
        seen = set()
        for _ in range(3):
            page.keyboard.press("Enter")
            seen.add(page.evaluate("document.documentElement.dataset.mode"))
        assert seen == {"light", "dark", "auto"}


def test_folded_code_opens_by_keyboard(browser, served):
    with open_page(browser, mathematics=False) as page:
        visit(page, f"{served}/{page_with('hide-input')}.html")
        fold = page.locator("main details.hide").first
        fold.locator("summary").focus()
        assert not fold.locator("pre").first.is_visible()
        page.keyboard.press("Enter")
        assert fold.locator("pre").first.is_visible()


def test_the_contents_open_and_close_by_keyboard_on_a_telephone(browser, served):
    with open_page(browser, width=390, mathematics=False) as page:
        visit(page, f"{served}/{CHAPTERS[1]}.html")
        toggle = page.locator(".primary-toggle:visible").first
        link = page.locator(f".bd-links a[href$='{CHAPTERS[-1].split('/')[-1]}.html']").first
        assert not link.is_visible()
        toggle.focus()
        page.keyboard.press("Enter")
        link.wait_for(state="visible")
        assert page.evaluate("!!document.activeElement.closest('dialog[open]')")
        page.keyboard.press("Escape")
        link.wait_for(state="hidden")


def test_the_neighbouring_pages_come_with_a_reason(browser, served):
    with open_page(browser, mathematics=False) as page:
        visit(page, f"{served}/{CHAPTERS[1]}.html")
        for side in ("left-prev", "right-next"):
            link = page.locator(f".prev-next-area a.{side}")
            assert link.locator(".prev-next-why").inner_text().strip()
        link.focus()
        page.keyboard.press("Enter")
        page.wait_for_url(re.compile(re.escape(CHAPTERS[2])))


def test_nothing_moves_for_those_who_asked_for_less_motion(browser, served):
    longest = """() => Math.max(...[...document.querySelectorAll("*")].flatMap((e) => {
      const s = getComputedStyle(e), seconds = (text) => text.split(",").map(parseFloat);
      return [...seconds(s.transitionDuration), ...seconds(s.animationDuration)]; }))"""
    with open_page(browser, mathematics=False) as page:
        visit(page, f"{served}/{CHAPTERS[1]}.html")
        assert page.evaluate(longest) <= 0.001
        assert page.evaluate("getComputedStyle(document.documentElement).scrollBehavior") == "auto"
        page.emulate_media(reduced_motion="no-preference")
        assert page.evaluate(longest) > 0.05
