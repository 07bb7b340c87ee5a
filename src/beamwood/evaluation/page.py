"""Parts of a self-contained HTML page: its frame, tables and line charts as inline SVG; nothing is loaded."""

from __future__ import annotations

import html
import math
from collections.abc import Sequence

__all__ = ["MARK", "calibration_chart", "histogram", "line_chart", "page", "panels", "table"]

_STYLE = """
:root { color-scheme: light dark; --line: #8884; --bar: #2a6f97; --soft: #2a6f9733; }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }
.panels { display: grid; grid-template-columns: repeat(auto-fill, minmax(14rem, 1fr)); } .panels figure { margin: 0; }
.wide { overflow-x: auto; } table { border-collapse: collapse; }
th, td { padding: .3rem .7rem; border-bottom: 1px solid var(--line); text-align: right; }
th:first-child, td:first-child { text-align: left; } caption { text-align: left; font-weight: 600; padding: .5rem 0; }
svg { width: 100%; height: auto; } svg text { font: 12px system-ui, sans-serif; fill: currentColor; }
pre { overflow-x: auto; padding: .7rem; border: 1px solid var(--line); border-radius: .4rem; }
"""
MARK = "<meta name='generator' content='beamwood'>"
"""What says of a file that it is a page of ours, which another may replace."""
_WIDTH, _HEIGHT, _LEFT, _BOTTOM = 640, 220, 60, 36


def page(title: str, parts: Sequence[str]) -> str:
    """One HTML page of a title and the given parts of its body."""
    body = "\n".join([f"<h1>{html.escape(title)}</h1>", *parts])
    return (
        f"<!doctype html>\n<html lang='en'><head><meta charset='utf-8'>{MARK}"
        "<meta name='viewport' content='width=device-width, initial-scale=1'>"
        f"<title>{html.escape(title)}</title><style>{_STYLE}</style></head><body>\n{body}\n</body></html>\n"
    )


def table(caption: str, head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table of plain texts; the first cell of a row names it."""
    names = "".join(f"<th scope='col'>{html.escape(name)}</th>" for name in head)
    lines = []
    for first, *others in rows:
        cells = "".join(f"<td>{html.escape(cell)}</td>" for cell in others)
        lines.append(f"<tr><th scope='row'>{html.escape(first)}</th>{cells}</tr>")
    return (
        f"<div class='wide'><table><caption>{html.escape(caption)}</caption><thead><tr>{names}</tr></thead>"
        f"<tbody>{''.join(lines)}</tbody></table></div>"
    )


def line_chart(name: str, points: Sequence[tuple[float, float]], *, across: str = "step") -> str:
    """A figure of one line through the points, or of a single point; `across` names the horizontal axis."""
    xs, ys = [x for x, _ in points], [y for _, y in points]
    low, high = min(ys), max(ys)
    span_x, span_y = (max(xs) - min(xs)) or 1.0, (high - low) or 1.0

    def place(x: float, y: float) -> str:
        x_place = _LEFT + (x - min(xs)) / span_x * (_WIDTH - _LEFT - 12)
        return f"{x_place:.1f},{12 + (high - y) / span_y * (_HEIGHT - _BOTTOM - 12):.1f}"

    line = (
        f"<polyline points='{' '.join(place(x, y) for x, y in points)}' fill='none' stroke='var(--bar)' "
        "stroke-width='2'/>"
        if len(points) > 1
        else _dot(place(*points[0]))
    )
    floor = _HEIGHT - _BOTTOM
    return (
        f"<figure><svg viewBox='0 0 {_WIDTH} {_HEIGHT}' role='img' aria-label='{html.escape(name)} from {ys[0]:.4g} to "
        f"{ys[-1]:.4g} over {len(points)} measurements'><line x1='{_LEFT}' y1='{floor}' x2='{_WIDTH}' y2='{floor}' "
        f"stroke='var(--line)'/>{line}"
        f"<text x='4' y='18'>{high:.4g}</text><text x='4' y='{floor}'>{low:.4g}</text>"
        f"<text x='{_LEFT}' y='{_HEIGHT - 12}'>{across} {min(xs):g}</text>"
        f"<text x='{_WIDTH - 90}' y='{_HEIGHT - 12}'>{across} {max(xs):g}</text></svg>"
        f"<figcaption>{html.escape(name)}</figcaption></figure>"
    )


def calibration_chart(name: str, points: Sequence[tuple[float, float]]) -> str:
    """A figure of (predicted, observed) probabilities on logarithmic axes, with the diagonal where both are alike.

    The axes begin at the decade of the least prediction; what is observed below it, as 0 is, stands on the lower edge.
    """
    size = _HEIGHT - _BOTTOM - 12
    decades = max(1, math.ceil(-math.log10(max(1e-9, min(predicted for predicted, _ in points)))))

    def place(predicted: float, observed: float) -> str:
        x, y = (max(0.0, 1 + math.log10(max(1e-9, value)) / decades) for value in (predicted, observed))
        return f"{_LEFT + x * size:.1f},{12 + (1 - y) * size:.1f}"

    low = f"{10.0**-decades:g}"
    return (
        f"<figure><svg viewBox='0 0 {_LEFT + size + 24} {_HEIGHT}' role='img' "
        f"aria-label='{html.escape(name)}, in {len(points)} ranges of the prediction'>"
        f"<rect x='{_LEFT}' y='12' width='{size}' height='{size}' fill='none' "
        f"stroke='var(--line)'/><polyline points='{place(0, 0)} {place(1, 1)}' fill='none' stroke='currentColor' "
        f"stroke-dasharray='4'/>{''.join(_dot(place(*point)) for point in points)}<text x='4' y='18'>1</text>"
        f"<text x='4' y='{12 + size}'>{low}</text><text x='{_LEFT}' y='{_HEIGHT - 12}'>{low}</text>"
        f"<text x='{_LEFT + size - 8}' y='{_HEIGHT - 12}'>1</text></svg>"
        f"<figcaption>{html.escape(name)}</figcaption></figure>"
    )


def panels(figures: Sequence[str]) -> str:
    """Small figures side by side, as many as there is room for."""
    return f"<div class='panels'>{''.join(figures)}</div>"


def _dot(place: str) -> str:
    """A mark at a place "x,y"."""
    x, y = place.split(",")
    return f"<circle cx='{x}' cy='{y}' r='4' fill='var(--bar)'/>"


def histogram(name: str, edges: Sequence[float], counts: Sequence[int]) -> str:
    """A figure of `len(counts)` bars between the given edges; 0 is marked where it lies inside."""
    low, high, most = float(edges[0]), float(edges[-1]), max(1, max(counts))
    span, floor = (high - low) or 1.0, _HEIGHT - _BOTTOM

    def across(x: float) -> float:
        return _LEFT + (x - low) / span * (_WIDTH - _LEFT - 12)

    bars = "".join(
        f"<rect x='{across(float(start)):.1f}' y='{floor - count / most * (floor - 12):.1f}' "
        f"width='{across(float(stop)) - across(float(start)):.1f}' height='{count / most * (floor - 12):.1f}' "
        "fill='var(--bar)'/>"
        for start, stop, count in zip(edges[:-1], edges[1:], counts, strict=True)
    )
    zero = (
        f"<line x1='{across(0):.1f}' y1='12' x2='{across(0):.1f}' y2='{floor}' stroke='currentColor' "
        "stroke-dasharray='4'/>"
        if low <= 0 <= high
        else ""
    )
    return (
        f"<figure><svg viewBox='0 0 {_WIDTH} {_HEIGHT}' role='img' "
        f"aria-label='{html.escape(name)}: {sum(counts)} values from {low:.4g} to {high:.4g}'>{bars}{zero}"
        f"<line x1='{_LEFT}' y1='{floor}' x2='{_WIDTH}' y2='{floor}' stroke='var(--line)'/>"
        f"<text x='4' y='18'>{most}</text><text x='4' y='{floor}'>0</text>"
        f"<text x='{_LEFT}' y='{_HEIGHT - 12}'>{low:.4g}</text>"
        f"<text x='{_WIDTH - 70}' y='{_HEIGHT - 12}'>{high:.4g}</text></svg>"
        f"<figcaption>{html.escape(name)}</figcaption></figure>"
    )
