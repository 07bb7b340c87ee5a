"""A self-contained HTML report: methods with intervals, paired tests, learning curves, and what they rest on."""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from typing import Any

__all__ = ["html_report"]

_STYLE = """
:root { color-scheme: light dark; --line: #8884; --bar: #2a6f97; --soft: #2a6f9733; }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }
.wide { overflow-x: auto; } table { border-collapse: collapse; }
th, td { padding: .3rem .7rem; border-bottom: 1px solid var(--line); text-align: right; }
th:first-child, td:first-child { text-align: left; } caption { text-align: left; font-weight: 600; padding: .5rem 0; }
svg { width: 100%; height: auto; } svg text { font: 12px system-ui, sans-serif; fill: currentColor; }
pre { overflow-x: auto; padding: .7rem; border: 1px solid var(--line); border-radius: .4rem; }
"""
_WIDTH, _HEIGHT, _LEFT, _BOTTOM = 640, 220, 60, 36


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
    parts = [f"<h1>{html.escape(title)}</h1>"]
    if facts and "conclusion" in facts:
        parts.append(f"<p><strong>{html.escape(str(facts['conclusion']))}</strong></p>")
    views = list(dict.fromkeys(view for method in results.values() for view in method))
    parts += [_table(results, view) for view in views]
    parts += [_tests(view, rows) for view, rows in tests.items() if rows]
    parts += _curves(curve)
    if facts:
        rows = "\n".join(f"{name}: {value}" for name, value in facts.items() if name != "conclusion")
        parts.append(f"<h2>What this rests on</h2><pre>{html.escape(rows)}</pre>")
    body = "\n".join(parts)
    return (
        "<!doctype html>\n<html lang='en'><head><meta charset='utf-8'>"
        "<meta name='viewport' content='width=device-width, initial-scale=1'>"
        f"<title>{html.escape(title)}</title><style>{_STYLE}</style></head><body>\n{body}\n</body></html>\n"
    )


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
    about = f"{protocol['consumed']}; {protocol['queries']} users; {protocol['candidates']}"
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
            parts.append(_line_chart(name, points))
    return ["<h2>Learning curves</h2>", *parts] if parts else []


def _line_chart(name: str, points: Sequence[tuple[float, float]]) -> str:
    xs, ys = [x for x, _ in points], [y for _, y in points]
    low, high = min(ys), max(ys)
    span_x, span_y = (max(xs) - min(xs)) or 1.0, (high - low) or 1.0

    def place(x: float, y: float) -> str:
        across = _LEFT + (x - min(xs)) / span_x * (_WIDTH - _LEFT - 12)
        return f"{across:.1f},{12 + (high - y) / span_y * (_HEIGHT - _BOTTOM - 12):.1f}"

    path = " ".join(place(x, y) for x, y in points)
    floor = _HEIGHT - _BOTTOM
    return (
        f"<figure><svg viewBox='0 0 {_WIDTH} {_HEIGHT}' role='img' aria-label='{html.escape(name)} from {ys[0]:.4g} to "
        f"{ys[-1]:.4g} over {len(points)} measurements'><line x1='{_LEFT}' y1='{floor}' x2='{_WIDTH}' y2='{floor}' "
        f"stroke='var(--line)'/><polyline points='{path}' fill='none' stroke='var(--bar)' stroke-width='2'/>"
        f"<text x='4' y='18'>{high:.4g}</text><text x='4' y='{floor}'>{low:.4g}</text>"
        f"<text x='{_LEFT}' y='{_HEIGHT - 12}'>step {min(xs):.0f}</text>"
        f"<text x='{_WIDTH - 90}' y='{_HEIGHT - 12}'>step {max(xs):.0f}</text></svg>"
        f"<figcaption>{html.escape(name)}</figcaption></figure>"
    )
