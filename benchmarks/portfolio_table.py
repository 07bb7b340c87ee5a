"""The search for the best method against named methods as Markdown: a table and bars for each pair of limits."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from beamwood.errors import InputError
from benchmarks.figures import held, markdown, number, p_value
from benchmarks.portfolio_bars import FOUND, bars_of_logs

__all__ = ["LINES", "portfolio_tables", "read"]

LINES = Path("benchmarks", "runs", "portfolio", "lines.jsonl")
"""The path of the lines in a checkout."""

Lines = Sequence[Mapping[str, Any]]


def read(path: Path) -> list[dict[str, Any]]:
    """The lines of a study; of several lines for a log and its limits the last counts. Errors: an invalid line."""
    found: dict[tuple[Any, ...], dict[str, Any]] = {}
    for place, text in enumerate(path.read_text().splitlines() if path.exists() else (), start=1):
        try:
            line = json.loads(text)
            found[line["log"], line["minutes"], line["named_minutes"]] = line
        except (ValueError, KeyError, TypeError) as error:
            raise InputError(f"{path}, line {place}: {error!r}; remove the invalid line") from error
    return list(found.values())


def portfolio_tables(lines: Lines) -> str:
    """The tables, longest limits first; "" without lines."""
    limits = sorted({(line["minutes"], line["named_minutes"]) for line in lines}, reverse=True)
    by_limit = [[line for line in lines if (line["minutes"], line["named_minutes"]) == each] for each in limits]
    return "\n\n".join(_of_limits(each) for each in by_limit)


def _of_limits(lines: Lines) -> str:
    first = lines[0]
    heading = (
        f"**The search has {_minutes(first['minutes'])}, each named method {_minutes(first['named_minutes'])}**: "
        "F@20 of test users, seen items removed."
    )
    return "\n\n".join([heading, _table(lines), _bars(lines)])


def _minutes(value: float) -> str:
    return f"{value:g} minute{'' if value == 1 else 's'}"


def _table(lines: Lines) -> str:
    names = list({name: None for line in lines for name in line["figures"]})
    rows = []
    for line in lines:
        values = {name: figures["value"] for name, figures in line["figures"].items()}
        best = number(max(values.values()), 4)
        cells = ["" if name not in values else _bold(number(values[name], 4), best) for name in names]
        rows.append([f"`{line['log']}`", f"{line['users']:,}", f"`{line['chosen']}`", *cells])
    headings = ["log", "test users", "chosen", *("the search" if name == FOUND else f"`{name}`" for name in names)]
    return markdown(headings, rows)


def _bold(text: str, best: str) -> str:
    return f"**{text}**" if text == best else text


def _bars(lines: Lines) -> str:
    return markdown(["bar", "measured", "bound", "holds"], list(_rows(lines)))


def _rows(lines: Lines) -> Iterator[list[str]]:
    for name, bar in bars_of_logs(lines).items():
        value = p_value(bar.value) if "p of" in name else number(bar.value, 1 if name.endswith("%") else 4)
        yield [name, value, f"{'≤' if bar.most else '≥'} {bar.bound:g}", held(bar.holds)]
