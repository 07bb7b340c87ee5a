"""A self-contained HTML report: methods with intervals, paired tests, learning curves, and what they rest on."""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from typing import Any

from beamwood.evaluation.page import line_chart, page

__all__ = ["html_report"]


def html_report(
    *,
    title: str,
    results: Mapping[str, Mapping[str, Any]],
    tests: Mapping[str, Sequence[Mapping[str, Any]]],
    curve: Sequence[Mapping[str, Any]] = (),
    facts: Mapping[str, Any] | None = None,
) -> str:
    """The report as one HTML page that loads nothing.

    `results[method][view]` has `metrics`, `interval_95` and `protocol` as the command line writes them; `tests[view]`
    the paired tests of one method against the others; `curve` the lines of a run's `metrics.jsonl`; `facts` whatever
    the figures rest on: data, split, configuration, fingerprint.
    """
    parts: list[str] = []
    if facts and "conclusion" in facts:
        parts.append(f"<p><strong>{html.escape(str(facts['conclusion']))}</strong></p>")
    views = list(dict.fromkeys(view for method in results.values() for view in method))
    parts += [_table(results, view) for view in views]
    parts += [_tests(view, rows) for view, rows in tests.items() if rows]
    parts += _curves(curve)
    if facts:
        rows = "\n".join(f"{name}: {value}" for name, value in facts.items() if name != "conclusion")
        parts.append(f"<h2>What this rests on</h2><pre>{html.escape(rows)}</pre>")
    return page(title, parts)


def _table(results: Mapping[str, Mapping[str, Any]], view: str) -> str:
    """Means and 95 % intervals of one view; the bar shows the first f metric."""
    shown = {name: views[view] for name, views in results.items() if view in views}
    names = list(next(iter(shown.values()))["metrics"])
    protocol = next(iter(shown.values()))["protocol"]
    head = "".join(f"<th scope='col'>{html.escape(name)}</th>" for name in names)
    rows = []
    for method, result in shown.items():
        cells = []
        for name in names:
            low, high = result["interval_95"].get(name, (None, None))
            spread = "" if low is None else f"<br><small>{low:.4f} to {high:.4f}</small>"
            cells.append(f"<td>{result['metrics'][name]:.4f}{spread}</td>")
        rows.append(f"<tr><th scope='row'>{html.escape(method)}</th>{''.join(cells)}</tr>")
    about = f"{protocol['seen']}; {protocol['queries']} users; {protocol['candidates']}"
    tail = f"; tail: {protocol['tail_rule']}" if protocol.get("tail_rule") else ""
    return (
        f"<div class='wide'><table><caption>Test users, {html.escape(about + tail)}</caption>"
        f"<thead><tr><th scope='col'>method</th>{head}</tr></thead><tbody>{''.join(rows)}</tbody></table></div>"
    )


def _tests(view: str, rows: Sequence[Mapping[str, Any]]) -> str:
    names = list(rows[0]["adjusted"])
    head = "".join(f"<th scope='col'>p ({html.escape(name)}, Holm)</th>" for name in names)
    lines = []
    for row in rows:
        difference = row["difference"]
        values = "".join(f"<td>{row['adjusted'][name]:.2g}</td>" for name in names)
        lines.append(
            f"<tr><th scope='row'>{html.escape(row['baseline'])} - {html.escape(row['rival'])}</th>"
            f"<td>{difference['mean']:+.4f}<br>"
            f"<small>{difference['low']:+.4f} to {difference['high']:+.4f}</small></td>"
            f"{values}</tr>"
        )
    return (
        f"<div class='wide'><table><caption>Paired differences ({html.escape(view)})</caption><thead><tr>"
        f"<th scope='col'>pair</th><th scope='col'>difference</th>{head}</tr></thead><tbody>{''.join(lines)}</tbody>"
        "</table></div>"
    )


def _curves(curve: Sequence[Mapping[str, Any]]) -> list[str]:
    """The training loss and each validation metric over steps."""
    names = [name for name in dict.fromkeys(n for line in curve for n in line) if name == "loss" or "/f@" in name]
    parts = []
    for name in names:
        points = [(float(line["step"]), float(line[name])) for line in curve if name in line]
        if len(points) > 1:
            parts.append(line_chart(name, points))
    return ["<h2>Learning curves</h2>", *parts] if parts else []
