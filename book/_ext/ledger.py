"""The ledger of the book: collects the records of all pages, checks them in every build, draws the tables.

Directives: ``ledger`` (all claims, or those of one paper given by its arXiv number), ``ledger-summary``
(counts by paper and verdict) and ``claims-here`` (the claims of the page it stands on). Roles:
``ledger-count`` (the counts in a sentence) and ``ledger-data`` (a link to the ledger as JSON).

Any fault is a warning, so the build fails on it, and fails again until it is mended: the checks do not depend
on which pages were read.
"""

from __future__ import annotations

import json
from importlib.resources import files
from pathlib import Path

from docutils import nodes
from freshness import toc_pages
from ledger_checks import Entry, Found, entries, faults
from ledger_draw import counts, ledger_tables, page_list, summary_sentence, summary_table
from ledger_lint import lint_page
from ledger_pages import PLANNED
from sphinx.application import Sphinx
from sphinx.domains import Domain
from sphinx.environment import BuildEnvironment
from sphinx.util import logging
from sphinx.util.docutils import SphinxDirective, SphinxRole
from sphinx.util.nodes import make_refnode
from sphinx.util.osutil import relative_uri

from attncore.course.claims import PAPERS, registry
from attncore.course.mime import RECORD

log = logging.getLogger(__name__)
DATA = "ledger.json"


class ledger_place(nodes.General, nodes.Element):
    """Stands for a table until all pages are read. Attributes: `kind`, `paper`."""


class ledger_words(nodes.Inline, nodes.Element):
    """Stands for words in running text. Attributes: `kind`, `text`."""


class LedgerDirective(SphinxDirective):
    """``{ledger}``, ``{ledger-summary}``, ``{claims-here}``."""

    optional_arguments = 1

    def run(self) -> list[nodes.Node]:
        paper = self.arguments[0].strip() if self.arguments else None
        if paper is not None and (self.name != "ledger" or paper not in PAPERS):
            raise self.error(f"{self.name}: the argument must be one of {', '.join(PAPERS)}, got {paper!r}")
        self.env.get_domain("claim").data["shown"].add(self.env.docname)
        return [ledger_place(kind=self.name, paper=paper)]


class WordsRole(SphinxRole):
    """``{ledger-count}`` with any text, ``{ledger-data}`` with the text of the link."""

    def run(self) -> tuple[list[nodes.Node], list]:
        self.env.get_domain("claim").data["shown"].add(self.env.docname)
        return [ledger_words(kind=self.name, text=self.text)], []


class ClaimDomain(Domain):
    """Records by page, and the pages that show a part of the ledger."""

    name = "claim"
    label = "claims"
    data_version = 1
    initial_data = {"records": {}, "shown": set(), "drawn": ""}

    def process_doc(self, env: BuildEnvironment, docname: str, document: nodes.document) -> None:
        boxes = [box for box in document.findall(nodes.admonition) if box.get(RECORD)]
        if boxes:
            self.data["records"][docname] = [(box["ids"][0], json.loads(box[RECORD])) for box in boxes]

    def clear_doc(self, docname: str) -> None:
        self.data["records"].pop(docname, None)
        self.data["shown"].discard(docname)

    def merge_domaindata(self, docnames: list[str], otherdata: dict) -> None:
        for docname in docnames:
            if docname in otherdata["records"]:
                self.data["records"][docname] = otherdata["records"][docname]
            if docname in otherdata["shown"]:
                self.data["shown"].add(docname)

    @property
    def found(self) -> list[Found]:
        return [Found(page, anchor, record) for page, records in sorted(self.data["records"].items())
                for anchor, record in records]


def pages_of(app: Sphinx) -> frozenset[str]:
    """Pages of the book: those that its ``_toc.yml`` lists."""
    return frozenset(toc_pages(Path(app.confdir), Path(app.confdir, app.config.external_toc_path)))


def all_entries(app: Sphinx) -> list[Entry]:
    return entries(registry(), pages_of(app), app.env.get_domain("claim").found)


def check(app: Sphinx, env: BuildEnvironment) -> list[str]:
    """Check the ledger and lint the pages; return the pages to write again because the ledger changed."""
    domain, claims, pages = env.get_domain("claim"), registry(), pages_of(app)
    for page, message in faults(claims, pages, PLANNED, domain.found):
        log.warning(message, location=page, type="ledger", subtype="claim")
    for page in sorted(env.found_docs):
        path = Path(env.doc2path(page))
        if path.suffix == ".md":
            for line, message in lint_page(path):
                log.warning(message, location=(page, line), type="ledger", subtype="lint")
    for page in domain.data["shown"]:  # statements hold mathematics that no reader of the page has seen yet
        env.get_domain("math").data["has_equations"][page] = True
    now = json.dumps([repr(claims), sorted(pages), sorted(domain.data["records"].items())], sort_keys=True)
    if now == domain.data["drawn"]:
        return []
    domain.data["drawn"] = now
    return sorted(domain.data["shown"])


def draw(app: Sphinx, doctree: nodes.document, docname: str) -> None:
    places = list(doctree.findall(ledger_place))
    words = list(doctree.findall(ledger_words))
    if not places and not words:
        return
    current = all_entries(app)

    def link(found: Found, content: nodes.Node) -> nodes.Node:
        return make_refnode(app.builder, docname, found.page, found.anchor, content)

    for place in places:
        if place["kind"] == "ledger-summary":
            drawn = [summary_table(current)]
        elif place["kind"] == "claims-here":
            drawn = [page_list(current, docname, link)]
        else:
            drawn = ledger_tables(current, place["paper"], link)
        place.replace_self(drawn)
    for word in words:
        if word["kind"] == "ledger-data":
            here = app.builder.get_target_uri(docname)
            drawn = nodes.reference(text=word["text"], refuri=relative_uri(here, f"_static/{DATA}"))
        else:
            drawn = nodes.Text(summary_sentence(current))
        word.replace_self(drawn)


def write_data(app: Sphinx, exception: Exception | None) -> None:
    """Write the ledger as data beside the pages, for whoever wants to reuse it."""
    if exception is not None or app.builder.format != "html":
        return
    current = all_entries(app)
    data = {"counts": counts(current), "claims": [_as_data(app, entry) for entry in current]}
    target = Path(app.outdir, "_static", DATA)
    target.parent.mkdir(exist_ok=True)
    target.write_text(json.dumps(data, indent=1, ensure_ascii=False) + "\n", "utf8")


def _as_data(app: Sphinx, entry: Entry) -> dict:
    claim = entry.claim
    rule = {q.name: {"means": q.means, "reproduced": q.reproduced.text, "partly": q.partly and q.partly.text,
                     "why": q.why} for q in claim.rule.quantities} if claim.rule else None
    where = f"{app.builder.get_target_uri(entry.main.page)}#{entry.main.anchor}" if entry.main else None
    return {
        "id": claim.id, "paper": claim.paper, "status": entry.status, "expected": claim.expected,
        "because": claim.because, "reason": claim.reason, "statement": claim.statement,
        "hypotheses": claim.hypotheses, "rule": rule, "page": claim.page, "link": where,
        "record": entry.main.record if entry.main else None,
        "controls": [found.record for found, _ in entry.controls],
    }  # fmt: skip


def depend_on_registry(app: Sphinx, env: BuildEnvironment, *changes) -> list[str]:
    """Pages whose boxes were drawn by another registry are drawn again, without running their cells."""
    now = files("attncore.course").joinpath("claims.toml").read_text("utf8")
    domain = env.get_domain("claim")
    if domain.data.get("registry") == now:
        return []
    domain.data["registry"] = now
    return sorted(domain.data["records"])


def setup(app: Sphinx) -> dict:
    app.add_node(ledger_place)
    app.add_node(ledger_words)
    app.add_domain(ClaimDomain)
    for name in ("ledger", "ledger-summary", "claims-here"):
        app.add_directive(name, LedgerDirective)
    for name in ("ledger-count", "ledger-data"):
        app.add_role(name, WordsRole())
    app.add_css_file("css/ledger.css")
    app.add_js_file("js/ledger.js", loading_method="defer")
    app.connect("env-get-outdated", depend_on_registry)
    app.connect("env-updated", check)
    app.connect("doctree-resolved", draw)
    app.connect("build-finished", write_data)
    return {"version": "1", "env_version": 1, "parallel_read_safe": True, "parallel_write_safe": True}
