"""What a notebook or a terminal shows of a value: a small table, facts or lines, in which ids and names are text."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any

__all__ = ["facts", "lines", "table", "text"]

# A page should not grow with the data.
_MOST_ROWS = 50


def table(columns: Sequence[str], rows: Iterable[Sequence[Any]], *, caption: str = "") -> str:
    """A table of at most fifty rows, with the number of the others; None is an empty cell."""
    every = list(rows)
    head = "".join(f"<th>{_cell(name)}</th>" for name in columns)
    body = "".join(f"<tr>{''.join(f'<td>{_cell(cell)}</td>' for cell in row)}</tr>" for row in every[:_MOST_ROWS])
    left = len(every) - _MOST_ROWS
    more = f"<tfoot><tr><td colspan='{len(columns)}'>and {left:,} more</td></tr></tfoot>" if left > 0 else ""
    over = f"<caption style='text-align:left'>{_cell(caption)}</caption>" if caption else ""
    return f"<table>{over}<thead><tr>{head}</tr></thead><tbody>{body}</tbody>{more}</table>"


def facts(title: str, values: Mapping[str, Any]) -> str:
    """Names and values under a title; values that are None or empty are left out."""
    rows = "".join(
        f"<tr><th style='text-align:left'>{_cell(name)}</th><td style='text-align:left'>{_cell(value)}</td></tr>"
        for name, value in values.items()
        if value not in (None, "")
    )
    return f"<table><caption style='text-align:left'>{_cell(title)}</caption><tbody>{rows}</tbody></table>"


def text(lines: Iterable[str]) -> str:
    """Preformatted lines."""
    return f"<pre>{_cell(chr(10).join(lines))}</pre>"


def lines(columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """Rows under the names of columns, for a terminal: the first column to the left, the others to the right."""
    every = [list(columns), *([_plain(cell) for cell in row] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*every, strict=True)]
    return "\n".join(
        "  ".join(cell.rjust(width) if place else cell.ljust(width) for place, (cell, width) in enumerate(row)).rstrip()
        for row in (list(zip(cells, widths, strict=True)) for cells in every)
    )


def _cell(value: Any) -> str:
    return escape(_plain(value))


def _plain(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:z.4f}"
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)
