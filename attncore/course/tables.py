"""The table of numbers behind a figure, folded: for who cannot see the figure, or wants its values."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from numbers import Integral, Real

from attncore.validation import short

MAX_ROWS = 60
"""More rows than this are a data file, not a table to read."""


@dataclass(frozen=True)
class Numbers:
    """A folded table; Jupyter and the book draw it from ``_repr_html_``."""

    title: str
    heads: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]

    def _repr_html_(self) -> str:
        head = "".join(f'<th scope="col">{escape(name)}</th>' for name in self.heads)
        body = "\n".join(f"<tr>{_row(row)}</tr>" for row in self.rows)
        return (
            f'<details class="numbers"><summary>Numbers: {escape(self.title)}</summary>\n'
            f'<div class="numbers-scroll" tabindex="0" role="region" aria-label="{escape(self.title)}">\n'
            f'<table class="table"><thead><tr>{head}</tr></thead>\n<tbody>{body}</tbody></table>\n'
            "</div></details>"
        )

    def __str__(self) -> str:
        columns = list(zip(self.heads, *self.rows, strict=True))
        widths = [max(map(len, column)) for column in columns]
        lines = [self.heads, *self.rows]
        table = ["  ".join(cell.rjust(w) for cell, w in zip(line, widths, strict=True)) for line in lines]
        return "\n".join([self.title, *table])

    __repr__ = __str__


def numbers(title: str, columns: Mapping[str, Sequence], digits: int = 4) -> Numbers:
    """Return the folded table behind a figure.

    Parameters
    ----------
    title : str
        What the table holds; the summary line reads "Numbers: <title>".
    columns : mapping of str to sequence
        Columns of equal length, first the one that names the rows (the horizontal axis); the keys are the
        heads (plain text with the unit). Values: numbers, strings, or None where there is none. Lists, arrays
        and one-dimensional tensors are taken. At most 60 rows: thin out a curve to points worth reading.
    digits : int
        Significant digits of non-integers.

    Raises
    ------
    TypeError
        When `columns` is no mapping, or a value is neither number, string nor None.
    ValueError
        When there is no column, a head is empty, the lengths differ, or there are no rows or too many.
    """
    if not isinstance(columns, Mapping):
        raise TypeError(f"columns is {short(columns)}; expected a mapping of heads to columns")
    lists = {head: _values(values) for head, values in columns.items()}
    lengths = {head: len(values) for head, values in lists.items()}
    if not lists or not all(str(head).strip() for head in lists):
        raise ValueError(f"columns has the heads {list(lists)}; expected at least one, none of them empty")
    if len(set(lengths.values())) > 1:
        raise ValueError(f"columns has lengths {lengths}; expected equal ones")
    count = next(iter(lengths.values()))
    if not 1 <= count <= MAX_ROWS:
        raise ValueError(f"columns has {count} rows; expected 1 to {MAX_ROWS}")
    texts = [[_text(value, digits) for value in values] for values in lists.values()]
    return Numbers(str(title), tuple(map(str, lists)), tuple(zip(*texts, strict=True)))


def _row(row: tuple[str, ...]) -> str:
    first, *rest = map(escape, row)
    return f'<th scope="row">{first}</th>' + "".join(f"<td>{cell}</td>" for cell in rest)


def _values(values) -> list:
    return list(values.tolist() if hasattr(values, "tolist") else values)


def _text(value, digits: int) -> str:
    if hasattr(value, "item"):
        value = value.item()
    if value is None:
        return "none"
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, Integral):
        return str(int(value))
    if not isinstance(value, Real):
        raise TypeError(f"a value is {short(value)}; expected a number, a string or None")
    if not math.isfinite(value):
        return "not finite" if math.isnan(value) else ("infinite" if value > 0 else "minus infinite")
    return f"{value:.{digits}g}"
