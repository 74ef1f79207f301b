import re
from collections import Counter

import course_map
import pytest


def lecture(page, number, claims=(), needs=()):
    return course_map.Lecture(
        page, f"Title of {page} & more", number, f"{page}.html", Counter(claims), list(needs)
    )


COLUMNS = [
    ("First part", [lecture("a", "1", ["reproduced", "reproduced", "partly"]), lecture("b", "2")]),
    ("Second part", [lecture("c", "3", ["not reproduced", "planned"], ["2"])]),
]


def corners(svg):
    places = re.findall(r'<a href="(\w)\.html".*?<rect x="(\d+)" y="(\d+)"', svg)
    return {page: (int(x), int(y)) for page, x, y in places}


def test_every_lecture_is_a_link_named_with_number_title_and_verdicts():
    svg = course_map.picture(COLUMNS, [("b", "c")], 2, "wide")
    names = dict(re.findall(r'<a href="(\w\.html)" aria-label="([^"]*)"', svg))
    assert names == {
        "a.html": "1 Title of a &amp; more. claims: 2 reproduced, 1 partly",
        "b.html": "2 Title of b &amp; more",
        "c.html": "3 Title of c &amp; more. claims: 1 not reproduced, 1 planned. uses 2",
    }


@pytest.mark.parametrize("across", [1, 2])
def test_parts_are_columns_or_follow_one_another_and_boxes_do_not_overlap(across):
    svg = course_map.picture(COLUMNS, [("b", "c")], across, "any")
    at = corners(svg)
    assert at["a"][0] == at["b"][0] and at["b"][1] >= at["a"][1] + course_map.BOX
    if across == 2:
        assert at["c"][0] >= at["a"][0] + course_map.WIDTH and at["c"][1] == at["a"][1]
    else:
        assert at["c"][0] == at["a"][0] and at["c"][1] >= at["b"][1] + course_map.BOX
    x, y, width, height = map(float, re.search(r'viewBox="([^"]*)"', svg)[1].split())
    for left, top in at.values():
        assert x <= left and left + course_map.WIDTH <= x + width
        assert y <= top and top + course_map.BOX <= y + height


def test_arrows_follow_the_order_and_cross_only_between_columns():
    wide = course_map.picture(COLUMNS, [("b", "c")], 2, "wide")
    assert wide.count('class="next"') == 1 and wide.count('class="across"') == 1
    narrow = course_map.picture(COLUMNS, [("b", "c")], 1, "narrow")
    assert narrow.count('class="next"') == 1 and 'class="across"' not in narrow
