"""Draw a claim record as a box of the book: the MyST-NB renderer for our MIME type.

The box carries the record in the doctree, where the build collects it. It is drawn by the registry as it is
now: an edited rule judges the stored numbers again, and no cell is run for that.
"""

from __future__ import annotations

import json
import re
from dataclasses import fields

from docutils import nodes

from attncore.course.claims import Claim, judge, registry
from attncore.course.ledger import MIME, Record, number

RECORD = "claim_record"
"""Attribute of the box that holds the record, as JSON."""

HEADINGS = ("Quantity", "Measured", "Interval", "Reproduced if (partly if)")


class ClaimBox:
    """Entry point ``myst_nb.mime_renderers``: takes our MIME type before any other."""

    mime_priority_overrides = [("*", MIME, 0)]

    @staticmethod
    def handle_mime(renderer, data, inline: bool):
        """Return the box for a claim record, None for anything else."""
        if inline or data.mime_type != MIME:
            return None
        document = renderer.renderer.document
        box = claim_box(data.content)
        box["ids"] = [_free_id(document, data.content)]
        document.ids[box["ids"][0]] = box
        return [box]


def rejudge(record: dict) -> tuple[Claim | None, str | None, str]:
    """Judge a stored record by the registry as it is now.

    Returns
    -------
    claim : Claim or None
        None when the record names no claim that can be judged.
    verdict : str or None
        None when the rule cannot judge the stored numbers.
    problem : str
        Why there is no verdict; empty when there is one.
    """
    claim = registry().get(str(record.get("claim")))
    if claim is None:
        return None, None, f"claim {record.get('claim')!r} is not registered"
    if claim.rule is None:
        return None, None, f"claim {claim.id!r} is registered as {claim.expected}"
    if missing := {f.name for f in fields(Record)} - set(record):
        return claim, None, f"the record was not made by ledger.record: it lacks {', '.join(sorted(missing))}"
    try:
        return claim, judge(claim.rule, record["measured"]), ""
    except (ValueError, TypeError) as error:
        return claim, None, str(error)


def claim_box(record: dict) -> nodes.admonition:
    """Return the box for one record: verdict, statement, numbers with thresholds, seeds, hypotheses."""
    claim, verdict, problem = rejudge(record)
    if claim is None or verdict is None:
        box = nodes.admonition(classes=["claim", "claim-unknown"])
        box += nodes.title(text=f"Claim {record.get('claim')}: no verdict")
        box += nodes.paragraph(text=problem)
    else:
        control = record["role"] == "control"
        box = nodes.admonition(classes=["claim", "claim-control" if control else f"claim-{slug(verdict)}"])
        box += nodes.title("", f"{'Control of claim' if control else 'Claim'} {claim.id}: ",
                           nodes.Text(verdict) if control else verdict_words(verdict))
        if control:
            box += nodes.paragraph(text=_control_sentence(record, verdict))
        box += nodes.paragraph("", "", *inline(claim.statement), classes=["claim-statement"])
        box += measured_table(claim, record)
        box += notes(claim, record)
    box[RECORD] = json.dumps(record, sort_keys=True)
    return box


def slug(verdict: str) -> str:
    """Return a verdict as part of a CSS class, such as ``not-reproduced``."""
    return verdict.replace(" ", "-")


def verdict_words(verdict: str) -> nodes.inline:
    """Return a verdict in words, of a class to which the style sheet adds the verdict's sign."""
    return nodes.inline(text=verdict, classes=["verdict", f"verdict-{slug(verdict)}"])


def inline(text: str) -> list[nodes.Node]:
    """Turn text with ``$...$`` into text and mathematics nodes."""
    parts = re.split(r"\$([^$]+)\$", text)
    return [nodes.math(part, part) if i % 2 else nodes.Text(part) for i, part in enumerate(parts) if part]


def interval_text(pair) -> str:
    """Write an interval, or a dash where there is none."""
    return f"{number(pair[0])} to {number(pair[1])}" if pair else "\N{EM DASH}"


def measured_table(claim: Claim, record: dict) -> nodes.table:
    """Return the table of all measured numbers, those of the rule first, with the regions that judge them."""
    judged = {q.name: q for q in claim.rule.quantities}
    rows = []
    for name in [*judged, *(name for name in record["measured"] if name not in judged)]:
        reproduced, partly = claim.rule.thresholds.get(name, ("not judged", None))
        rows.append((name, number(record["measured"][name], judged.get(name)),
                     interval_text(record["intervals"].get(name)),
                     f"{reproduced} ({partly})" if partly else reproduced))
    return text_table(HEADINGS, rows, "claim-numbers")


def text_table(headings, rows, css: str) -> nodes.table:
    """Return a table of plain text whose first column heads its rows."""
    table = nodes.table(classes=[css])
    group = nodes.tgroup(cols=len(headings))
    table += group
    for i in range(len(headings)):
        group += nodes.colspec(colwidth=1, stub=1 if i == 0 else 0)
    for part, lines in ((nodes.thead(), [headings]), (nodes.tbody(), rows)):
        for line in lines:
            row = nodes.row()
            for text in line:
                row += nodes.entry("", nodes.paragraph(text=text))
            part += row
        group += part
    return table


def notes(claim: Claim, record: dict) -> nodes.bullet_list:
    """Return what stands behind the numbers: their meaning, the runs, the band, the hypotheses of the run."""
    items = [f"{q.name}: {q.means}." for q in claim.rule.quantities]
    if record["seeds"]:
        items.append(f"{record['seeds']} independent run{'s' if record['seeds'] > 1 else ''}"
                     + (f"; interval: {record['band']}." if record["band"] else "."))
    elif record["band"]:
        items.append(f"Interval: {record['band']}.")
    held = [name for name, holds in record["hypotheses"].items() if holds]
    dropped = [name for name, holds in record["hypotheses"].items() if not holds]
    if held:
        items.append("Hypotheses that this run satisfies: " + "; ".join(held) + ".")
    if dropped:
        items.append("Hypothesis dropped: " + "; ".join(dropped) + ".")
    if claim.because and record["role"] == "main":
        items.append(f"Expected: {claim.expected}. {claim.because}")
    listed = nodes.bullet_list(bullet="-", classes=["claim-notes"])
    for text in items:
        listed += nodes.list_item("", nodes.paragraph("", "", *inline(text)))
    return listed


def _control_sentence(record: dict, verdict: str) -> str:
    dropped = "; ".join(name for name, holds in record["hypotheses"].items() if not holds)
    return (f"This run drops a hypothesis of the claim: {dropped}. It decides nothing; by the rule it would be "
            f"\N{LEFT DOUBLE QUOTATION MARK}{verdict}\N{RIGHT DOUBLE QUOTATION MARK}.")


def _free_id(document: nodes.document, record: dict) -> str:
    base = f"claim-{record.get('claim')}" + ("-control" if record.get("role") == "control" else "")
    base = re.sub(r"[^A-Za-z0-9-]+", "-", base)
    name, count = base, 1
    while name in document.ids:
        count += 1
        name = f"{base}-{count}"
    return name
