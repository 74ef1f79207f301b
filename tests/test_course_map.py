import re
from collections import Counter

import course_map
import pytest


def lecture(page, number, claims=(), needs=()):
    return course_map.Lecture(
        page, f"Title of {page} & more", number, f"{page}.html", Counter(claims), list(needs)
    )


TWO = course_map.Layout("wide", 2, 300, 90, 30)
ONE = course_map.Layout("narrow", 1, 340, 72, 34)
COLUMNS = [
    ("First part", [lecture("a", "1", ["reproduced", "reproduced", "partly"]), lecture("b", "2")]),
    ("Second part", [lecture("c", "3", ["not reproduced", "planned"], ["2"])]),
]


def corners(svg):
    places = re.findall(r'<a href="(\w)\.html"><rect x="(\d+)" y="(\d+)"', svg)
    return {page: (int(x), int(y)) for page, x, y in places}


def names(svg):
    """What a screen reader says of each link: its text, without what is hidden from it."""
    spoken = re.sub(r'<text[^>]*aria-hidden="true".*?</text>', "", svg)
    links = re.findall(r'<a href="(\w\.html)">(.*?)</a>', spoken, re.DOTALL)
    return {page: " ".join(re.sub("<[^>]*>", "", inside).split()) for page, inside in links}


def test_every_lecture_is_a_link_named_with_number_title_and_verdicts():
    svg = course_map.picture(COLUMNS, [("b", "c")], TWO)
    assert names(svg) == {
        "a.html": "1 Title of a &amp; more (claims: 2 reproduced, 1 partly)",
        "b.html": "2 Title of b &amp; more",
        "c.html": "3 Title of c &amp; more (claims: 1 not reproduced, 1 planned, uses 2)",
    }
    assert re.findall(r'aria-hidden="true"[^>]*>([^<]*)<', svg) == ["✔ 2  ◐ 1", "✘ 1  1 planned   uses 2"]


@pytest.mark.parametrize("layout", [ONE, TWO])
def test_parts_are_columns_or_follow_one_another_and_boxes_do_not_overlap(layout):
    svg = course_map.picture(COLUMNS, [("b", "c")], layout)
    at = corners(svg)
    assert at["a"][0] == at["b"][0] and at["b"][1] >= at["a"][1] + layout.height
    if layout.across == 2:
        assert at["c"][0] >= at["a"][0] + layout.width and at["c"][1] == at["a"][1]
    else:
        assert at["c"][0] == at["a"][0] and at["c"][1] >= at["b"][1] + layout.height
    x, y, width, height = map(float, re.search(r'viewBox="([^"]*)"', svg)[1].split())
    for left, top in at.values():
        assert x <= left and left + layout.width <= x + width
        assert y <= top and top + layout.height <= y + height


def test_arrows_follow_the_order_and_cross_only_between_columns():
    wide = course_map.picture(COLUMNS, [("b", "c")], TWO)
    assert wide.count('class="next"') == 1 and wide.count('class="across"') == 1
    narrow = course_map.picture(COLUMNS, [("b", "c")], ONE)
    assert narrow.count('class="next"') == 1 and 'class="across"' not in narrow
