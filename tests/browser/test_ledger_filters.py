"""The filters of the ledger in a real browser, opened from disk: mouse, keyboard, address, and no script at all."""

from __future__ import annotations

import json

import pytest

pytestmark = pytest.mark.browser
PAGE = "book/reference/ledger.html"


@pytest.fixture(scope="module")
def claims(site) -> list[dict]:
    return json.loads((site / "_static" / "ledger.json").read_text("utf8"))["claims"]


@pytest.fixture
def opened(browser, site):
    page = browser.new_page()
    errors: list[str] = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.on("console", lambda message: errors.append(message.text) if message.type == "error" else None)
    page.goto((site / PAGE).as_uri())
    page.wait_for_selector(".ledger-filters")
    yield page
    page.close()
    assert not errors


def shown(page) -> set[str]:
    rows = page.locator("table.ledger tbody tr:visible")
    return {row.get_attribute("id").removeprefix("ledger-") for row in rows.all()}


def ids(claims, **want) -> set[str]:
    return {c["id"] for c in claims if all(c[key] == value for key, value in want.items())}


def test_all_claims_are_shown_at_first(opened, claims):
    assert shown(opened) == ids(claims)
    assert opened.locator(".ledger-filters output").inner_text() == f"{len(claims)} of {len(claims)} claims shown"


def test_filters_combine_and_are_counted_aloud(opened, claims):
    opened.get_by_label("Paper").select_option("svm")
    assert shown(opened) == ids(claims, paper="2308.16898")
    opened.get_by_label("Verdict").select_option("partly")
    want = ids(claims, paper="2308.16898", status="partly")
    assert shown(opened) == want
    count = opened.locator(".ledger-filters output")
    assert count.get_attribute("aria-live") == "polite"
    assert count.inner_text() == f"{len(want)} of {len(claims)} claims shown"
    opened.get_by_role("button", name="Show all").click()
    assert shown(opened) == ids(claims)


def test_every_verdict_in_the_book_can_be_chosen(opened, claims):
    select = opened.get_by_label("Verdict")
    texts = set(select.locator("option").all_inner_texts())
    assert texts == {"all"} | {c["status"] for c in claims}
    for status in texts - {"all"}:
        select.select_option(label=status)
        assert shown(opened) == ids(claims, status=status)


def test_a_paper_without_a_match_says_so(opened, claims):
    opened.get_by_label("Paper").select_option("icl")
    assert opened.get_by_text("No claim of this paper matches the filters.").locator("visible=true").count() == 2
    assert opened.locator("table.ledger:visible").count() == 1


def test_the_keyboard_is_enough(opened, claims):
    opened.get_by_label("Paper").focus()
    opened.keyboard.type("Fast")
    assert shown(opened) == ids(claims, paper="2603.01514")
    opened.keyboard.press("Tab")
    opened.keyboard.press("Tab")
    opened.keyboard.press("Enter")
    assert shown(opened) == ids(claims)


def test_an_address_selects(browser, site, claims):
    page = browser.new_page()
    page.goto((site / PAGE).as_uri() + "?paper=pre&status=nonsense")
    page.wait_for_selector(".ledger-filters")
    assert shown(page) == ids(claims, paper="2603.01514")
    page.close()


def test_rows_keep_their_roles_as_cards(browser, site, claims):
    page = browser.new_page(viewport={"width": 390, "height": 800})
    page.goto((site / PAGE).as_uri())
    page.wait_for_selector(".ledger-filters")
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    # Rows styled as blocks would lose their roles if the script did not state them.
    assert page.locator("table.ledger [role=row]").count() == len(claims) + page.locator("table.ledger").count()
    assert page.get_by_role("columnheader", name="Verdict").count() >= 3
    page.close()


def test_without_scripts_everything_is_shown_and_nothing_is_dead(browser, site, claims):
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto((site / PAGE).as_uri())
    assert shown(page) == ids(claims)
    assert page.locator(".ledger-filters").count() == 0
    context.close()
