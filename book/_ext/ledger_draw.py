"""Draw the ledger: all claims of a paper as a table, counts of verdicts, the claims of one page."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence

from docutils import nodes
from ledger_checks import MISSING, PLANNED, Entry, Found

from attncore.course.claims import NOT_CHECKABLE, PAPERS, VERDICTS
from attncore.course.ledger import number
from attncore.course.mime import inline, interval_text, slug, verdict_words

STATUSES = (*VERDICTS, NOT_CHECKABLE, PLANNED)
COLUMN = {"2308.16898": "SVM", "2310.05249": "In context", "2603.01514": "Precon\N{SOFT HYPHEN}ditioning"}
HEADINGS = ("Claim", "Verdict", "Measured")
Link = Callable[[Found, nodes.Node], nodes.Node]
"""Makes a reference to the box of a record, with the given content."""


def counts(entries: Iterable[Entry]) -> dict[str, int]:
    """Number of claims by status, statuses in their fixed order; a missing record has a place only if it occurs."""
    counted = Counter(entry.status for entry in entries)
    names = STATUSES + ((MISSING,) if counted[MISSING] else ())
    return {status: counted[status] for status in names}


def count_sentence(entries: Sequence[Entry]) -> nodes.paragraph:
    said = [f"{n} {status}" for status, n in counts(entries).items() if n]
    return nodes.paragraph(text=f"Of {len(entries)} claims: {', '.join(said)}.", classes=["ledger-counts"])


def ledger_tables(entries: Sequence[Entry], paper: str | None, link: Link) -> list[nodes.Node]:
    """The claims of one paper, or of all papers one after the other under their titles."""
    drawn: list[nodes.Node] = []
    for arxiv, (_, title) in PAPERS.items():
        chosen = [entry for entry in entries if entry.claim.paper == arxiv]
        if paper in (None, arxiv) and chosen:
            if paper is None:
                drawn.append(nodes.rubric(text=title))
            drawn += [count_sentence(chosen), _claims_table(chosen, link)]
    return drawn


def summary_table(entries: Sequence[Entry]) -> nodes.table:
    """Counts by verdict and paper."""
    by_paper = [counts(e for e in entries if e.claim.paper == arxiv) for arxiv in PAPERS]
    total = counts(entries)
    rows = [
        [verdict_words(status), *(str(counted.get(status, 0)) for counted in by_paper), str(total[status])]
        for status in total
    ]
    rows.append(["all", *(str(sum(counted.values())) for counted in by_paper), str(len(entries))])
    heads = ("Verdict", *(COLUMN[arxiv] for arxiv in PAPERS), "All")
    return _table(heads, rows, ["ledger-summary"], [2, 1, 1, 1, 1], stub=True)


def summary_sentence(entries: Sequence[Entry]) -> str:
    """The counts in one sentence, for running text."""
    counted = counts(entries)
    judged = sum(counted[verdict] for verdict in VERDICTS)
    said = ", ".join(f"{counted[verdict]} {verdict}" for verdict in VERDICTS)
    return (f"{judged} of {len(entries)} claims are judged so far ({said}); {counted[PLANNED]} are planned, "
            f"{counted[NOT_CHECKABLE]} {'is' if counted[NOT_CHECKABLE] == 1 else 'are'} {NOT_CHECKABLE}")


def page_list(entries: Iterable[Entry], page: str, link: Link) -> nodes.Node:
    """The claims that `page` judges, each with its verdict."""
    listed = nodes.bullet_list(bullet="-", classes=["claims-here"])
    for entry in entries:
        if entry.claim.page == page:
            words = nodes.paragraph("", "", _name(entry, link), nodes.Text(": "), verdict_words(entry.status))
            words += [nodes.Text(". "), *inline(entry.claim.statement)]
            listed += nodes.list_item("", words)
    return listed if len(listed) else nodes.paragraph(text="This page judges no claim.")


def _claims_table(entries: Sequence[Entry], link: Link) -> nodes.table:
    rows = [(_claim_cell(entry, link), _verdict_cell(entry), _measured_cell(entry, link)) for entry in entries]
    table = _table(HEADINGS, rows, ["ledger"], [56, 17, 27], stub=False)
    for row, entry in zip(table.findall(lambda n: isinstance(n, nodes.row) and isinstance(n.parent, nodes.tbody)),
                          entries, strict=True):
        row["classes"] += [f"paper-{PAPERS[entry.claim.paper][0]}", f"status-{slug(entry.status)}"]
        row["ids"] = [f"ledger-{entry.claim.id}"]
    return table


def _name(entry: Entry, link: Link) -> nodes.Node:
    name = nodes.literal(text=entry.claim.id)
    return link(entry.main, name) if entry.main else name


def _claim_cell(entry: Entry, link: Link) -> list[nodes.Node]:
    claim = entry.claim
    details = nodes.bullet_list(bullet="-")
    for text in claim.hypotheses:
        details += nodes.list_item("", nodes.paragraph("", "", nodes.Text("Hypothesis: "), *inline(text)))
    for quantity in claim.rule.quantities if claim.rule else ():
        regions = f"reproduced {quantity.reproduced.text}"
        regions += f", partly {quantity.partly.text}" if quantity.partly else ""
        text = nodes.paragraph("", "", nodes.Text("Rule: "), nodes.literal(text=quantity.name),
                               nodes.Text(f" {regions}. It is the "), *inline(quantity.means), nodes.Text(". "))
        text += inline(quantity.why)
        details += nodes.list_item("", text)
    return [
        nodes.paragraph("", "", _name(entry, link), classes=["ledger-id"]),
        nodes.paragraph("", "", *inline(claim.statement)),
        nodes.raw("", "<details><summary>Hypotheses and rule<span class='visually-hidden'> of "
                  f"{claim.id}</span></summary>", format="html"),
        details,
        nodes.raw("", "</details>", format="html"),
    ]


def _verdict_cell(entry: Entry) -> list[nodes.Node]:
    cell: list[nodes.Node] = [nodes.paragraph("", "", verdict_words(entry.status))]
    if entry.claim.reason:
        cell.append(nodes.paragraph("", "", *inline(entry.claim.reason)))
    elif entry.claim.because:
        cell.append(nodes.paragraph("", "", nodes.Text(f"Expected {entry.claim.expected}: "),
                                    *inline(entry.claim.because)))
    return cell


def _measured_cell(entry: Entry, link: Link) -> list[nodes.Node]:
    cell: list[nodes.Node] = []
    if entry.main:
        record = entry.main.record
        judged = {q.name: q for q in entry.claim.rule.quantities}
        for name, value in record["measured"].items():
            text = f" = {number(value, judged.get(name))}"
            if pair := record["intervals"].get(name):
                text += f" [{interval_text(pair)}]"
            cell.append(nodes.paragraph("", "", nodes.literal(text=name), nodes.Text(text)))
        said = [f"{record['seeds']} seeds"] if record["seeds"] else []
        said += [f"interval: {record['band']}"] if record["band"] else []
        said += [f"holds: {name}" for name in record["hypotheses"]]
        if said:
            cell.append(nodes.paragraph(text="; ".join(said)))
    for found, verdict in entry.controls:
        dropped = "; ".join(name for name, holds in found.record["hypotheses"].items() if not holds)
        name = link(found, nodes.Text(f"Control without {dropped}"))
        cell.append(nodes.paragraph("", "", name, nodes.Text(f": {verdict}")))
    return cell or [nodes.paragraph(text="\N{EM DASH}")]


def _table(heads, rows, classes: list[str], widths: Sequence[int], *, stub: bool) -> nodes.table:
    table = nodes.table(classes=classes)
    group = nodes.tgroup(cols=len(widths))
    table += group
    for i, width in enumerate(widths):
        group += nodes.colspec(colwidth=width, stub=int(stub and i == 0))
    for part, lines in ((nodes.thead(), [heads]), (nodes.tbody(), rows)):
        for line in lines:
            part += nodes.row("", *(nodes.entry("", *_blocks(cell)) for cell in line))
        group += part
    return table


def _blocks(cell) -> list[nodes.Node]:
    if isinstance(cell, list):
        return cell
    return [nodes.paragraph(text=cell) if isinstance(cell, str) else nodes.paragraph("", "", cell)]
