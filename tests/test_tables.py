import math
from html.parser import HTMLParser

import numpy as np
import pytest
import torch

from attncore.course.tables import MAX_ROWS, numbers


class Cells(HTMLParser):
    """Collects the cells of a table, row by row, with their tags."""

    def __init__(self):
        super().__init__()
        self.rows, self.tag = [], None

    def handle_starttag(self, tag, attrs):
        if tag == "tr":
            self.rows.append([])
        self.tag = (tag, dict(attrs).get("scope")) if tag in ("th", "td") else None

    def handle_endtag(self, tag):
        self.tag = None

    def handle_data(self, data):
        if self.tag:
            self.rows[-1].append((*self.tag, data))


def cells(table):
    parser = Cells()
    parser.feed(table._repr_html_())
    return parser.rows


def test_columns_become_rows_with_a_head_for_each_row_and_column():
    found = cells(numbers("share", {"d": [2, 4], "share": torch.tensor([0.5, 0.987654321])}))
    assert found == [
        [("th", "col", "d"), ("th", "col", "share")],
        [("th", "row", "2"), ("td", None, "0.5")],
        [("th", "row", "4"), ("td", None, "0.9877")],
    ]


def test_text_is_escaped_and_kinds_of_values_are_written_in_words():
    table = numbers("a < b", {"n & d": ["<b>", "x", "y", "z"], "v": [None, True, math.nan, -math.inf]})
    assert "<b>" not in table._repr_html_() and "a &lt; b" in table._repr_html_()
    assert [row[1][2] for row in cells(table)[1:]] == ["none", "yes", "not finite", "minus infinite"]


def test_digits_and_integers():
    table = numbers("t", {"k": np.array([1, 20000]), "v": [1.23456789e-12, 123456.0]}, digits=3)
    assert table.rows == (("1", "1.23e-12"), ("20000", "1.23e+05"))


def test_text_form_holds_every_value():
    assert str(numbers("t", {"k": [1], "loss": [0.25]})).split() == ["t", "k", "loss", "1", "0.25"]


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({}, "heads"),
        ({" ": [1]}, "heads"),
        ({"a": [1], "b": [1, 2]}, "lengths"),
        ({"a": []}, "0 rows"),
        ({"a": range(MAX_ROWS + 1)}, f"{MAX_ROWS + 1} rows"),
    ],
)
def test_tables_that_cannot_be_read_are_refused(columns, message):
    with pytest.raises(ValueError, match=message):
        numbers("t", columns)


@pytest.mark.parametrize("columns", [[1, 2], {"a": [object()]}, {"a": [1j]}])
def test_wrong_types_are_refused(columns):
    with pytest.raises(TypeError, match="expected"):
        numbers("t", columns)
