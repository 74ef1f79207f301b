"""The directive ``course-map``: the lectures as a picture whose boxes are links, drawn from the contents.

Each part is a column, read downwards; a box carries the number and title of a lecture and the verdicts of the
claims that it judges, counted from the ledger of this build. Lines of the directive's body, ``page -> page``
with docnames, are dashed arrows across the columns: what a lecture takes from another part (not drawn where
the contents of a draft leave one out). A second drawing, in one column, takes its place in narrow windows.
"""

from __future__ import annotations

import textwrap
from collections import Counter
from dataclasses import dataclass, field, replace
from html import escape
from pathlib import Path

from docutils import nodes
from freshness import toc_parts
from ledger import all_entries
from ledger_draw import STATUSES
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from sphinx.util.docutils import SphinxDirective

SIGNS = {"reproduced": "✔", "partly": "◐", "not reproduced": "✘"}
GAP, RISE, HEAD = 36, 22, 80
"""Space between columns, space between boxes, height of a column's title."""


@dataclass(frozen=True)
class Layout:
    """Class of the picture, number of columns, width and height of a box, letters in a line of it."""

    name: str
    across: int
    width: int
    height: int
    letters: int


LAYOUTS = (Layout("map-wide", 3, 296, 100, 27), Layout("map-narrow", 1, 340, 72, 34))


class course_map(nodes.General, nodes.Element):
    """Stands for the picture until all pages are read. Attribute: `arrows`, pairs of docnames."""


@dataclass(frozen=True)
class Lecture:
    """One box. `x`, `y` are its upper left corner."""

    page: str
    title: str
    number: str
    link: str
    claims: Counter
    needs: list[str] = field(default_factory=list)
    x: int = 0
    y: int = 0


class CourseMap(SphinxDirective):
    """``{course-map}``, with arrows ``page -> page`` in the body."""

    has_content = True

    def run(self) -> list[nodes.Node]:
        arrows = [tuple(name.strip() for name in line.split("->")) for line in self.content if line.strip()]
        for arrow in arrows:
            if len(arrow) != 2 or not all(Path(self.env.doc2path(name)).is_file() for name in arrow):
                said = " -> ".join(arrow)
                raise self.error(f"course-map: {said!r}; expected 'page -> page', both in the book")
        self.env.get_domain("claim").data["shown"].add(self.env.docname)
        self.env.metadata[self.env.docname]["shows_map"] = True
        return [course_map(arrows=arrows)]


def parts(app: Sphinx) -> list[tuple[str, list[str]]]:
    return toc_parts(Path(app.confdir), Path(app.confdir, app.config.external_toc_path))


def lectures(app: Sphinx, docname: str, contents, arrows) -> list[tuple[str, list[Lecture]]]:
    """The lectures of each part, without their places."""
    env, judged = app.env, {}
    for entry in all_entries(app):
        judged.setdefault(entry.claim.page, Counter())[entry.status] += 1
    numbers = {page: _number(env, page) for _, pages in contents for page in pages}
    return [
        (caption, [
            Lecture(page, env.titles[page].astext(), numbers[page],
                    app.builder.get_relative_uri(docname, page), judged.get(page, Counter()),
                    [numbers[a] for a, b in arrows if b == page])
            for page in pages
        ])
        for caption, pages in contents
    ]  # fmt: skip


def _number(env: BuildEnvironment, page: str) -> str:
    return ".".join(map(str, env.toc_secnumbers.get(page, {}).get("", ())))


def verdicts_in_words(claims: Counter) -> str:
    """For example ``2 claims reproduced, 1 partly``; empty when the lecture judges none."""
    said = [f"{claims[status]} {status}" for status in STATUSES if claims[status]]
    return "claims: " + ", ".join(said) if said else ""


def _verdict_signs(claims: Counter) -> str:
    signs = [f"{SIGNS[status]} {claims[status]}" for status in SIGNS if claims[status]]
    words = [f"{claims[status]} {status}" for status in STATUSES if status not in SIGNS and claims[status]]
    return "  ".join(signs + words)


def _placed(columns, layout: Layout):
    """Places by columns, `layout.across` of them side by side; the others below."""
    across, width, height = layout.across, layout.width, layout.height
    placed, heads, depth = {}, [], 0
    for start in range(0, len(columns), across):
        row = columns[start : start + across]
        for i, (caption, boxes) in enumerate(row):
            x = i * (width + GAP)
            heads.append((caption, start + i, x, depth))
            for j, box in enumerate(boxes):
                placed[box.page] = replace(box, x=x, y=depth + HEAD + j * (height + RISE))
        depth += HEAD + max(len(boxes) for _, boxes in row) * (height + RISE) + RISE
    return placed, heads, depth - 2 * RISE + 2


def picture(columns, arrows, layout: Layout) -> str:
    """The map as inline SVG, in the colours of the page."""
    placed, heads, height = _placed(columns, layout)
    box = f"-2 0 {layout.across * (layout.width + GAP) - GAP + 4} {height}"
    drawn = [f'<svg class="{layout.name}" viewBox="{box}" role="group" aria-label="Map of the course">']
    for _, boxes in columns:
        for above, below in zip(boxes, boxes[1:], strict=False):
            x, y = placed[above.page].x + layout.width // 2, placed[above.page].y + layout.height
            drawn.append(f'<path class="next" d="M{x} {y}V{placed[below.page].y - 7}m-5 -1l5 8l5 -8"/>')
    for source, target in arrows if layout.across > 1 else ():
        a, b = placed[source], placed[target]
        x, y, end = a.x + layout.width, a.y + layout.height // 2, b.y + layout.height // 2
        drawn.append(f'<path class="across" d="M{x} {y}C{x + GAP} {y} {b.x - GAP} {end} '
                     f'{b.x - 6} {end}m-7 -5l8 5l-8 5"/>')  # fmt: skip
    for caption, index, x, y in heads:
        lines = [f"Part {'I' * (index + 1)}", *textwrap.wrap(caption, 28)[:2]]
        drawn += [
            f'<text class="part" x="{x}" y="{y + 20 + 22 * i}">{escape(line)}</text>'
            for i, line in enumerate(lines)
        ]
    drawn += [_box(box, layout) for box in placed.values()]
    return "\n".join(drawn) + "</svg>"


def _box(box: Lecture, layout: Layout) -> str:
    needs = f"uses {', '.join(box.needs)}" if box.needs else ""
    foot = "   ".join(filter(None, [_verdict_signs(box.claims), needs]))
    spoken = ", ".join(filter(None, [verdicts_in_words(box.claims), needs]))
    at = f'x="{box.x + 44}" y="{box.y + layout.height - 9}"'
    texts = [
        f'<text class="number" x="{box.x + 12}" y="{box.y + 24}">{box.number}</text>',
        *(f'<text x="{box.x + 44}" y="{box.y + 24 + 20 * i}">{escape(line)}</text>'
          for i, line in enumerate(textwrap.wrap(box.title, layout.letters)[:3])),
        f'<text class="foot" aria-hidden="true" {at}>{escape(foot)}</text>' if foot else "",
        f'<text class="spoken" {at}>({escape(spoken)})</text>' if spoken else "",
    ]  # fmt: skip
    frame = f'x="{box.x}" y="{box.y}" width="{layout.width}" height="{layout.height}" rx="6"'
    return f'<a href="{box.link}"><rect {frame}/>{" ".join(filter(None, texts))}</a>'


def draw(app: Sphinx, doctree: nodes.document, docname: str) -> None:
    for place in list(doctree.findall(course_map)):
        contents = parts(app)
        here = {page for _, pages in contents for page in pages}
        arrows = [arrow for arrow in place["arrows"] if here.issuperset(arrow)]
        columns = lectures(app, docname, contents, arrows)
        both = "".join(picture(columns, arrows, layout) for layout in LAYOUTS)
        drawn = f'<nav class="course-map" aria-label="Lectures">{both}</nav>'
        place.replace_self(nodes.raw("", drawn, format="html"))


def redraw(app: Sphinx, env: BuildEnvironment) -> list[str]:
    """Write the map again when a title, a number or the order of the lectures changed."""
    now = repr([(caption, [(env.titles[page].astext(), _number(env, page)) for page in pages])
                for caption, pages in parts(app)])  # fmt: skip
    if now == getattr(env, "course_map_drawn", None):
        return []
    env.course_map_drawn = now
    return [docname for docname in env.metadata if env.metadata[docname].get("shows_map")]


def setup(app: Sphinx) -> dict:
    app.add_node(course_map)
    app.add_directive("course-map", CourseMap)
    app.connect("env-updated", redraw)
    app.connect("doctree-resolved", draw)
    return {"version": "1", "env_version": 1, "parallel_read_safe": True, "parallel_write_safe": True}
