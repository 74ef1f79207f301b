"""Pages load what they use and no more: files chosen by page, sizes of pictures, icons, weight of the built site."""

from __future__ import annotations

import gzip
import re
from pathlib import Path

import icons
import page_assets
import pytest
import sphinx_book_theme
from books import ROOT
from sphinx.builders.html._assets import _CascadingStyleSheet, _JavaScript

LIMIT = 150_000
CLASSES = re.compile(r"\bfa[srb]?(?:-solid|-brands)? fa-([a-z-]+)")
SIZES = {"lg"}


STYLES = [_CascadingStyleSheet(name) for name in ("css/book.css", "sphinx-design.min.css", "copybutton.css")]
SCRIPTS = [_JavaScript(name) for name in ("documentation_options.js", "doctools.js", "clipboard.min.js")]


def chosen(body: str, template: str = "page.html") -> dict:
    """The context of a page after the choice; like Sphinx's, all pages share their entries."""
    context = {"body": body, "css_files": list(STYLES), "script_files": list(SCRIPTS)}
    page_assets.choose_files(None, "book/x", template, context, None)
    return context


def names(files) -> list[str]:
    return [page_assets.name_of(file) for file in files]


def test_a_page_without_code_or_cards_loads_nothing_for_them():
    context = chosen("<p>text</p>")
    assert names(context["css_files"]) == ["book.css"]
    assert names(context["script_files"]) == ["documentation_options.js", "doctools.js"]


def test_what_a_page_uses_stays():
    context = chosen('<div class="highlight"></div><div class="sd-card"></div>')
    assert len(context["css_files"]) == 3 and len(context["script_files"]) == 3


def test_scripts_wait_for_the_text_except_where_scripts_in_the_text_need_them():
    waiting = [file.attributes.get("defer") for file in chosen("highlight")["script_files"]]
    assert waiting == [None, "defer", "defer"]
    assert not any(file.attributes for file in chosen("highlight", "search.html")["script_files"])


def test_pictures_reserve_their_place():
    html = '<img alt="a" src="x.png" style="width: 652px; height: 460px;" />'
    assert page_assets.state_sizes(html) == '<img alt="a" src="x.png" width="652" height="460" />'
    other = html.replace("img", "p")
    assert page_assets.state_sizes(other) == other


def test_the_icons_are_those_of_the_installed_theme():
    assert icons.TARGET.read_text("utf8") == icons.style_sheet(), "run tools/icons.py"


def test_an_icon_that_the_theme_lacks_is_an_error():
    with pytest.raises(ValueError, match="'no-such-icon'"):
        icons.outline("", "no-such-icon")


def test_every_icon_that_a_button_of_the_theme_can_show_is_there():
    sources = [*Path(sphinx_book_theme.__file__).parent.rglob("*.py"), ROOT / "book/_ext/repository.py"]
    wanted = {name for path in sources for name in CLASSES.findall(path.read_text("utf8"))} - SIZES
    known = set(icons.ICONS) | {alias for aliases in icons.ALIASES.values() for alias in aliases}
    assert len(wanted) > 5 and wanted <= known


@pytest.fixture(scope="module")
def built(site) -> dict[str, str]:
    paths = [p for p in site.rglob("*.html") if p.relative_to(site).parts[0] not in ("_static", "_sources")]
    return {p.relative_to(site).as_posix(): p.read_text("utf8") for p in paths}


@pytest.mark.book
def test_every_icon_of_the_built_site_is_there(built):
    sheet = icons.TARGET.read_text("utf8")
    shown = {name for html in built.values() for name in CLASSES.findall(html)} - SIZES
    assert shown and not [name for name in shown if f".fa-{name} {{" not in sheet and f".fa-{name}," not in sheet]


@pytest.mark.book
def test_pages_are_light(built):
    sizes = {name: len(gzip.compress(html.encode(), 6)) for name, html in built.items()}
    assert {name: size for name, size in sizes.items() if size >= LIMIT} == {}


@pytest.mark.book
def test_the_search_page_has_its_scripts_in_their_order(built):
    assert "defer" not in re.search(r"<script[^>]*/doctools\.js[^>]*>", built["search.html"])[0]


@pytest.mark.book
def test_no_page_loads_what_it_does_not_use(built):
    """All of Font Awesome, the index of the search outside the search page, scripts that hold up the text."""
    blocking = re.compile(r"<script(?![^>]*\b(?:defer|async)\b)[^>]*\bsrc=\"([^\"?]+)")
    for name, html in built.items():
        assert "fontawesome" not in html, name
        if name != "search.html":
            assert "searchindex.js" not in html, name
            assert {Path(src).name for src in blocking.findall(html)} <= page_assets.AT_ONCE, name


@pytest.mark.book
def test_pictures_of_the_built_site_state_their_size(built):
    pictures = [tag for html in built.values() for tag in re.findall(r"<img\b[^>]*_images/[^>]*>", html)]
    assert pictures and [tag for tag in pictures if not re.search(r'\bwidth="\d+" height="\d+"', tag)] == []
