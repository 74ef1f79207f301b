"""The landing page in a real browser: the map of the course, wide and narrow, and the picture on the cover."""

from __future__ import annotations

import json
import re
from collections import Counter

import pytest
from freshness import toc_parts

pytestmark = pytest.mark.browser
ROOT_PAGE = "book/index.html"


@pytest.fixture(scope="module")
def lectures(root) -> list[str]:
    return [page for _, pages in toc_parts(root) for page in pages]


@pytest.mark.parametrize(("width", "name"), [(1280, "map-wide"), (390, "map-narrow")])
def test_the_map_leads_to_every_lecture(browser, site, lectures, width, name):
    page = browser.new_page(viewport={"width": width, "height": 900})
    page.goto((site / ROOT_PAGE).as_uri())
    links = page.locator(".course-map a:visible")
    found = [(site / "book" / link.get_attribute("href")).resolve() for link in links.all()]
    assert found == [(site / f"{lecture}.html").resolve() for lecture in lectures]
    assert page.locator(f".course-map svg.{name}").is_visible()
    for link in links.all():
        texts = [t for t in link.locator("text").all() if "number" not in (t.get_attribute("class") or "")]
        box = link.locator("rect").bounding_box()
        for text in texts:
            at = text.bounding_box()
            assert at["x"] + at["width"] <= box["x"] + box["width"], text.inner_text()
    first = links.first
    first.focus()
    page.keyboard.press("Enter")
    page.wait_for_url(re.compile(re.escape(lectures[0])))
    page.close()


def test_the_map_counts_the_verdicts_of_the_ledger(browser, site, lectures):
    ledger = json.loads((site / "_static" / "ledger.json").read_text("utf8"))["claims"]
    page = browser.new_page(viewport={"width": 1280, "height": 900})
    page.goto((site / ROOT_PAGE).as_uri())
    names = page.locator(".course-map svg.map-wide a").evaluate_all(
        "all => all.map(a => [...a.querySelectorAll('text:not([aria-hidden])')].map(t => t.textContent).join(' '))"
    )
    page.close()
    for lecture, name in zip(lectures, names, strict=True):
        want = Counter(claim["status"] for claim in ledger if claim["page"] == lecture)
        found = re.search(r"claims: ([^)]*)\)", name)
        pairs = re.findall(r"(\d+) (\w[^,]+)", found[1].split(", uses")[0]) if found else []
        assert {status: int(count) for count, status in pairs} == want, name
