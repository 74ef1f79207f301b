"""Boxes in colour, in grey and on paper: each kind has its own shape, and what is drawn or written stands out."""

from __future__ import annotations

import re

import pytest
from browsing import CHAPTERS_WITH_CODE, ROOT, open_page, visit

pytestmark = pytest.mark.browser

KINDS = {
    "definition": ".proof.definition",
    "theorem": ".proof.theorem",
    "proof": ".proof:not(:has(> .admonition-title))",
    "claim": ".claim",
    "exercise": ".exercise",
    "solution": ".solution",
    "what to see": ".see",
}
LOOKS = {
    "light": ("light", "screen"),
    "dark": ("dark", "screen"),
    "print": ("light", "print"),
    "print of a dark page": ("dark", "print"),
}
MEASURE = """(kinds) => Object.fromEntries(Object.entries(kinds).flatMap(([kind, selector]) => {
  const box = document.querySelector(`main .admonition${selector}`);
  if (!box) return [];
  const s = getComputedStyle(box), title = box.querySelector(":scope > .admonition-title");
  const sides = ["Top", "Right", "Bottom", "Left"];
  const side = sides.find((name) => parseFloat(s[`border${name}Width`]) > 0);
  return [[kind, {
    shape: sides.map((name) => `${s[`border${name}Style`]} ${s[`border${name}Width`]}`).join(", "),
    border: side && s[`border${side}Color`],
    title: title && getComputedStyle(title).color,
    patch: title && getComputedStyle(title, "::after").content,
    ground: s.backgroundColor,
    page: getComputedStyle(document.body).backgroundColor,
  }]];
}))"""


def channels(colour: str) -> list[float]:
    """Red, green, blue and alpha, from 0 to 1, of a computed colour."""
    numbers = [float(x) for x in re.findall(r"-?[\d.]+(?:e-?\d+)?", colour.replace("color(srgb", ""))]
    scale = 1.0 if colour.startswith("color(") else 255.0
    return [x / scale for x in numbers[:3]] + [numbers[3] if len(numbers) > 3 else 1.0]


def over(colour: list[float], ground: list[float]) -> list[float]:
    return [c * colour[3] + g * (1 - colour[3]) for c, g in zip(colour[:3], ground, strict=False)] + [1.0]


def luminance(colour: list[float]) -> float:
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in colour[:3]]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(colour: list[float], ground: list[float]) -> float:
    """The ratio of WCAG, from 1 to 21."""
    high, low = sorted((luminance(over(colour, ground)), luminance(ground)), reverse=True)
    return (high + 0.05) / (low + 0.05)


@pytest.fixture(scope="module")
def boxes(browser, served) -> dict[str, dict]:
    """How the first box of each kind looks, by look and kind."""
    found: dict[str, dict] = {look: {} for look in LOOKS}
    marks = ("{prf:definition}", "{prf:theorem}", "{solution-start}", ":class: see", "ledger.record(")
    name = next(n for n in CHAPTERS_WITH_CODE if all(m in (ROOT / f"{n}.md").read_text("utf8") for m in marks))
    with open_page(browser, mathematics=False) as page:
        visit(page, f"{served}/{name}.html")
        for look, (mode, medium) in LOOKS.items():
            page.emulate_media(media=medium)
            page.evaluate("mode => { document.documentElement.dataset.theme = mode; }", mode)
            found[look] = page.evaluate(MEASURE, KINDS)
    return found


@pytest.mark.parametrize("look", LOOKS)
def test_each_kind_has_a_shape_of_its_own(boxes, look):
    shapes = {kind: box["shape"] for kind, box in boxes[look].items()}
    assert set(shapes) == set(KINDS)
    assert len(set(shapes.values())) == len(KINDS), shapes


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_covers_a_title(boxes, kind):
    assert boxes["light"][kind]["patch"] in (None, "none")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("look", LOOKS)
def test_edges_and_titles_stand_out(boxes, look, kind):
    box = boxes[look][kind]
    page = [1.0] * 4 if "print" in look else channels(box["page"])
    ground = over(channels(box["ground"]), page)
    assert contrast(channels(box["border"]), page) >= 3.0, box
    if box["title"]:
        assert contrast(channels(box["title"]), ground) >= 4.5, box


def test_the_measure_knows_black_white_and_glass():
    white, black = channels("rgb(255, 255, 255)"), channels("rgb(0, 0, 0)")
    assert contrast(black, white) == pytest.approx(21.0)
    assert contrast(channels("rgba(0, 0, 0, 0)"), white) == pytest.approx(1.0)
    assert channels("color(srgb 0.5 0 1 / 0.06)") == pytest.approx([0.5, 0.0, 1.0, 0.06])
    assert contrast(channels("rgb(119, 119, 119)"), white) == pytest.approx(4.478, abs=1e-3)
