"""axe-core on every page, in a window and on a telephone, light and dark: no violation of any level.

Dark differs from light in colours alone, a telephone from a window in everything else: no rule runs in vain.
Formulas are left as TeX: the thousands of spans of a typeset page are hidden from screen readers, have the colour
of the text around them, and take axe most of its time. Their assistive MathML is tested with the pages.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest
from browsing import SPECIAL, chapter_names, open_page, visit

pytestmark = pytest.mark.browser

AXE = Path(__file__).with_name("vendor") / "axe.min.js"
AXE_VERSION = "4.14.1"
AXE_SHA256 = "29348999450cdf2849a8e70b7912fc2da85a849da39c0d0d5394f51d4a9ed95c"
PAGES = [*chapter_names(), *(name for name in SPECIAL if name != "index")]
COLOUR_RULES = ["color-contrast", "link-in-text-block"]
VIEWS = {
    "light": (1280, {}),
    "dark": (1280, {"runOnly": COLOUR_RULES}),
    "telephone": (390, {"rules": {rule: {"enabled": False} for rule in COLOUR_RULES}}),
}
"""View -> width of the window, and which rules to run."""
EXCUSED: dict[str, str] = {}
"""Rule -> why our pages cannot keep it. Every excuse must still be needed: see the last test."""

SWITCH = """mode => { document.documentElement.dataset.theme = mode;
  dispatchEvent(new Event("resize"));  // the browser's own may come later than the first frames
  const frame = () => new Promise((done) => { requestAnimationFrame(done); });
  return frame().then(frame).then(frame).then(() => null); }"""
RUN = """async (options) => {
  const result = await axe.run(document, { resultTypes: ["violations"], elementRef: false, ...options });
  return result.violations.map((v) => ({
    rule: v.id, impact: v.impact, help: v.help,
    nodes: v.nodes.slice(0, 3).map((n) => `${n.target.join(" ")}: ${n.failureSummary}`), count: v.nodes.length,
  }));
}"""


@pytest.fixture(scope="session")
def violations(browser, served):
    """Run axe once for each page and view."""
    cache = {}
    script = AXE.read_text("utf8")
    with open_page(browser, mathematics=False) as page:

        def run(name, view):
            if name not in cache:
                visit(page, f"{served}/{name}.html")
                page.evaluate(script)
                cache[name] = {}
                for each, (width, options) in VIEWS.items():
                    page.set_viewport_size({"width": width, "height": 900})
                    page.wait_for_function(f"innerWidth === {width}")
                    page.evaluate(SWITCH, "dark" if each == "dark" else "light")
                    cache[name][each] = page.evaluate(RUN, options)
            return cache[name][view]

        yield run


def test_axe_is_the_published_file():
    text = AXE.read_bytes()
    assert hashlib.sha256(text).hexdigest() == AXE_SHA256
    assert f"axe v{AXE_VERSION}".encode() in text[:100]
    assert (AXE.parent / "LICENSE-axe-core.txt").is_file()


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("name", PAGES)
def test_no_violation(violations, name, view):
    found = [v for v in violations(name, view) if v["rule"] not in EXCUSED]
    said = [f"{v['rule']} ({v['impact']}, {v['count']} times): {v['help']}\n  {v['nodes']}" for v in found]
    assert not found, "\n".join(said)


def test_every_excuse_is_needed(violations):
    broken = {v["rule"] for name in PAGES for view in VIEWS for v in violations(name, view)}
    assert set(EXCUSED) <= broken


def test_axe_sees_a_fault(browser, served):
    with open_page(browser, mathematics=False) as page:
        visit(page, f"{served}/{PAGES[0]}.html")
        page.evaluate(AXE.read_text("utf8"))
        page.evaluate("document.querySelector('main').insertAdjacentHTML('beforeend', '<img src=\"data:,\">')")
        page.evaluate("document.querySelector('main p').style.color = '#f4f4f4'")
        assert {"image-alt", "color-contrast"} <= {v["rule"] for v in page.evaluate(RUN, {})}
        assert "color-contrast" in {v["rule"] for v in page.evaluate(RUN, VIEWS["dark"][1])}
