"""The lint for alternative texts: every rule is fed a page that breaks it and one that does not."""

import json

import alt_text
import pytest

GOOD = "Correlation climbs from zero to almost one within a hundred steps for every width."
FRONT = """---
jupytext:
  text_representation:
    format_name: myst
---

# A page

"""
IMPORTS = """```{code-cell} ipython3
import matplotlib.pyplot as plt
from attncore.course import figures
figures.use()
```

"""


def cell(code, alt=GOOD, caption="Wider models learn faster."):
    options = []
    if alt is not None:
        options.append(f"  image:\n    alt: {json.dumps(alt)}")
    if caption is not None:
        options.append(f"  figure:\n    name: fig-x\n    caption: {json.dumps(caption)}")
    head = "---\nmystnb:\n" + "\n".join(options) + "\n---\n" if options else ""
    return f"```{{code-cell}} ipython3\n{head}{code}\n```\n\n"


@pytest.fixture
def lint(tmp_path):
    def run(*pages):
        paths = []
        for i, page in enumerate(pages):
            paths.append(tmp_path / f"page{i}.md")
            paths[-1].write_text(FRONT + page, encoding="utf8")
        return alt_text.check_sources(paths)

    return run


DRAW = "fig, ax = figures.new()\nax.plot([1, 2])"


@pytest.mark.parametrize(
    "code", [DRAW, "plt.subplots()", "plt.imshow(x)", "if True:\n    figures.new()", "for b in c:\n    plt.plot(b)"]
)
def test_a_cell_that_draws_needs_an_alt_text_and_a_caption(lint, code):
    assert lint(IMPORTS + cell(code)) == []
    (fault,) = lint(IMPORTS + cell(code, alt=None))
    assert fault == "page0.md, line 15: the cell draws and has no mystnb: image: alt:"
    assert "has no mystnb: figure: caption:" in lint(IMPORTS + cell(code, caption=None))[0]
    assert len(lint(IMPORTS + cell(code, None, None))) == 2


@pytest.mark.parametrize(
    "code", ["plt.close('all')", "x = 1", "def f():\n    return figures.new()", "figures.lines(3)"]
)
def test_a_cell_that_does_not_draw_needs_none(lint, code):
    assert lint(IMPORTS + cell(code, None, None)) == []


def test_a_cell_that_calls_a_drawing_function_of_the_page_draws(lint):
    define = cell("def show(x):\n    fig, ax = figures.new()\n    ax.plot(x)", None, None)
    assert "has no mystnb: image: alt:" in lint(IMPORTS + define + cell("show([1])", alt=None))[0]
    assert lint(IMPORTS + define + cell("show([1])")) == []


def test_imports_under_other_names_are_followed(lint):
    page = cell("from matplotlib import pyplot as p\nfrom attncore.course.figures import new as make", None, None)
    assert len(lint(page + cell("p.figure()", alt=None))) == 1
    assert len(lint(page + cell("make()", alt=None))) == 1


@pytest.mark.parametrize(
    "alt, match",
    [
        ("Too short.", "10 characters, at least 40"),
        ("Wider models learn faster,  and deeper models learn slower!", "repeats the caption"),
        ("The file correlation_against_width.png as it was drawn by the cell", "file name"),
        ("2c26b46b68ffc68ff99b453c1d30413413422d706483bfa0f98a5e886266e7ae", "file name"),
        ("A plot of the correlation against the number of gradient steps taken", "say nothing"),
    ],
)
def test_an_alt_text_that_says_nothing_is_refused(lint, alt, match):
    (fault,) = lint(IMPORTS + cell(DRAW, alt, "Wider models learn faster, and deeper models learn slower"))
    assert match in fault


def test_one_alt_text_for_two_figures_is_refused_also_across_pages(lint):
    (fault,) = lint(IMPORTS + cell(DRAW), IMPORTS + cell(DRAW))
    assert fault == "page1.md, line 15: the same alt text as page0.md, line 15"


BAND = "fig, ax = figures.new()\nfigures.band(ax, x, runs, 'c')"


@pytest.mark.parametrize(
    "caption", ["The band narrows.", "10% to 90% quantiles.", "Median of 20 seeds.", "Quantiles of seeds."]
)
@pytest.mark.parametrize("code", [BAND, "fig, ax = figures.new()\nax.fill_between(x, a, b)"])
def test_a_band_must_be_named_in_the_caption(lint, code, caption):
    (fault,) = lint(IMPORTS + cell(code, caption=caption))
    assert "does not name the quantiles and the number of seeds" in fault
    assert lint(IMPORTS + cell(code, caption="It narrows (10% to 90% quantiles of 100 seeds).")) == []


def test_a_band_inside_a_function_of_the_page_is_seen(lint):
    define = cell("def show(x):\n    fig, ax = figures.new()\n    ax.fill_between(x, x, x)", None, None)
    assert "does not name" in lint(IMPORTS + define + cell("show(1)"))[0]


def test_a_bare_figure_at_the_end_is_refused(lint):
    assert "shows the figure twice" in lint(IMPORTS + cell(DRAW + "\nfig"))[0]


@pytest.mark.parametrize(
    "page, faults",
    [
        (f"![{GOOD}](a.svg)", 0),
        ("![](a.svg)", 1),
        ("![short](a.svg)", 1),
        ("`![](a.svg)` in code", 0),
        ("```\n![](a.svg)\n```", 0),
        (f"```{{image}} a.svg\n:alt: {GOOD}\n```", 0),
        ("```{image} a.svg\n```", 1),
        (":::{figure} a.svg\n:alt: short\nCaption\n:::", 1),
        ("```{image} a.svg\n:alt:\n:class: decorative\n```", 0),
    ],
)
def test_images_in_prose(lint, page, faults):
    assert len(lint(page)) == faults


def test_an_unreadable_page_is_a_fault(lint):
    assert "load" in lint("```{code-cell} ipython3\n:load: other.py\n```\n")[0]


# Built pages


@pytest.fixture
def lint_site(tmp_path):
    def run(**pages):
        for name, body in pages.items():
            (tmp_path / f"{name}.html").write_text(f"<html><body>{body}</body></html>", encoding="utf8")
        return alt_text.check_site(tmp_path)

    return run


def img(alt=GOOD, src="a.png", more=""):
    return f'<img alt="{alt}" src="{src}"{more}>'


def test_a_good_page_is_clean(lint_site):
    figure = f"<figure>{img()}<figcaption>Wider is faster.</figcaption></figure>"
    assert lint_site(a=figure, b="<p>no picture</p>") == []


@pytest.mark.parametrize(
    "body, match",
    [
        ('<img src="a.png">', "without alt text"),
        (img(alt=""), "not marked as decorative"),
        (img(alt="short"), "5 characters"),
        (img(alt="_images/2c26b46b68ffc68ff99b453c1d30413413422d706483bfa0f98a5e886266e7ae.png"), "file name"),
        (f"<figure>{img()}<figcaption><p>{GOOD}</p></figcaption></figure>", "repeats the caption"),
        ('<svg role="img"></svg>', "without alt text"),
        ("<pre>&lt;matplotlib.legend.Legend at 0x7f&gt;</pre>", "semicolon"),
    ],
)
def test_each_fault_of_a_built_page_is_found(lint_site, body, match):
    (fault,) = lint_site(a=body)
    assert fault.startswith("a.html: ") and match in fault


def test_decoration_must_say_so(lint_site):
    assert lint_site(a=img(alt="", more=' class="decorative"')) == []


def test_the_same_text_twice_in_the_book(lint_site):
    (fault,) = lint_site(a=img(), b=img(src="b.png"))
    assert fault.startswith("b.html: the same alt text as another picture, on a.html")


def test_the_same_picture_twice_may_share_its_text(lint_site):
    assert lint_site(a=img(src="_images/a.png"), b=img(src="../_images/a.png")) == []


def widget(value, name="HTMLModel"):
    state = json.dumps({"state": {"m": {"model_name": name, "state": {"value": value}}}})
    return f'<script type="application/vnd.jupyter.widget-state+json">{state}</script>'


def test_frames_of_widgets_are_pictures_too(lint_site):
    assert lint_site(a=widget(img())) == []
    assert "without alt text" in lint_site(a=widget("<img src='a.png'>"))[0]
    assert "without alt text" in lint_site(a=widget("", name="ImageModel"))[0]


def test_the_sources_of_the_book(book_folder):
    pages = sorted(p for p in book_folder.rglob("*.md") if not p.is_relative_to(book_folder / "_static"))
    assert alt_text.check_sources(pages) == []


@pytest.mark.book
def test_the_built_book(site):
    assert alt_text.check_site(site) == []
