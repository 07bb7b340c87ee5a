"""Notebook displays as HTML: small tables, facts and lines, with all values escaped."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any

__all__ = ["facts", "table", "text"]

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


def _cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:.4f}"
    return escape(f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value))
