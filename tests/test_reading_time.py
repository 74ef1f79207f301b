"""The line under a title: what is counted, what is not, and how it is said."""

from __future__ import annotations

import re

import books
import pytest
from docutils import nodes
from reading_time import LOOK, PACE, in_words, reading_seconds, sentence


def words(count: int) -> nodes.paragraph:
    return nodes.paragraph(text=" ".join(["word"] * count))


def page(*children: nodes.Node) -> nodes.section:
    return nodes.section("", *children)


def test_words_are_read_at_a_stated_pace():
    assert reading_seconds(page(words(PACE), words(2 * PACE))) == pytest.approx(180.0)


@pytest.mark.parametrize(
    ("node", "seconds"),
    [
        (nodes.math_block("", r"x = \sum_k y_k"), LOOK["formula"]),
        (nodes.math("", "x"), LOOK["symbol"]),
        (nodes.literal_block("", "a = 1\nb = 2\nc = 3"), 3 * LOOK["code line"]),
        (nodes.figure("", nodes.caption(text=" ".join(["word"] * PACE))), LOOK["picture"] + 60.0),
    ],
    ids=["formula", "symbol", "code", "figure"],
)
def test_what_is_looked_at_takes_its_time(node, seconds):
    assert reading_seconds(page(node)) == pytest.approx(seconds)


@pytest.mark.parametrize("folded", ["dropdown", "tag_hide-input", "cell_output"])
def test_what_is_folded_or_computed_is_not_counted(folded):
    box = nodes.container("", words(PACE), nodes.math_block("", "x"), classes=["cell", folded])
    assert reading_seconds(page(words(PACE), box)) == pytest.approx(60.0)


def test_marks_for_the_builder_are_not_words():
    assert reading_seconds(page(nodes.comment(text="not to be read"), nodes.raw(text="<b>x</b>"))) == 0.0


@pytest.mark.parametrize(
    ("seconds", "said"), [(5, "a minute"), (61, "2 minutes"), (600, "10 minutes"), (1440, "25 minutes")]
)
def test_minutes_are_rounded_as_an_estimate_should_be(seconds, said):
    assert in_words(seconds) == said


def test_the_line_names_the_run_if_there_was_one():
    assert sentence(300, None) == "About 5 minutes to read, without what is folded."
    assert sentence(300, {"seconds": 11.6}).endswith("; the code ran in 12 seconds.")
    assert sentence(300, {"seconds": 0.2}).endswith("; the code ran in 1 second.")


def test_a_built_page_says_it_under_its_title(tmp_path):
    book = books.TrialBook(tmp_path / "trial")
    book.contents("book/start", "book/code")
    book.write("book/start.md", "# Start\n\n" + "word " * (3 * PACE - 1))
    book.write("book/code.md", books.notebook("Code", "1 + 1"))
    built = book.build()
    assert built.status == 0, built.output
    line = re.compile(r'</h1>\s*<p class="page-times">(.*?)</p>')
    start, code = (line.search(book.page(f"book/{name}"))[1] for name in ("start", "code"))
    assert start == "About 3 minutes to read, without what is folded."
    assert re.fullmatch(r"About a minute to read, without what is folded; the code ran in \d+ seconds?\.", code)
