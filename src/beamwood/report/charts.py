"""Charts as Vega-Lite specifications; colours are those of the page, so that they follow it into the dark.

A row of a chart is a plain dict. What is to be seen first has the tone "first", all else "other".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import floor, log, log10
from typing import Any

import altair as alt

__all__ = [
    "LOOK",
    "bar_chart",
    "paired_chart",
    "calibration_chart",
    "choice",
    "curves",
    "histogram",
    "intervals",
    "line_chart",
    "scatter",
    "share_chart",
]

Row = Mapping[str, Any]

_INK, _SOFT, _LINE, _QUIET = "var(--ink)", "var(--soft)", "var(--line)", "var(--quiet)"
_CARD = "var(--card)"
_HALO: dict[str, Any] = {"stroke": _CARD, "strokeWidth": 4, "strokeJoin": "round"}
_ACCENT, _WOOD, _BLUE, _PLUM = "var(--accent)", "var(--wood)", "var(--blue)", "var(--plum)"
_FONT = "system-ui, sans-serif"

LOOK: dict[str, Any] = {
    "background": None,
    "font": _FONT,
    "view": {"stroke": None},
    "axis": {
        "labelColor": _SOFT,
        "titleColor": _SOFT,
        "titleFontWeight": "normal",
        "titleFontSize": 12,
        "labelFontSize": 12,
        "gridColor": _LINE,
        "domainColor": _LINE,
        "tickColor": _LINE,
        "labelLimit": 130,
    },
    "axisY": {"domain": False, "ticks": False},
    "legend": {
        "labelColor": _INK,
        "titleColor": _SOFT,
        "orient": "bottom",
        "direction": "horizontal",
        "columns": 3,
        "labelLimit": 230,
        "labelFontSize": 12,
        "title": None,
    },
}
"""The configuration that all charts share, given to Vega-Embed once."""


def _spec(chart: Any, *, height: Any = 240) -> dict[str, Any]:
    """The Vega-Lite specification of a chart as wide as its container."""
    spec: dict[str, Any] = chart.properties(width="container", height=height).to_dict()
    spec.pop("config", None)
    spec["autosize"] = {"type": "fit-x", "contains": "padding"}
    return spec


def _rows(rows: Sequence[Row]) -> Any:
    """The rows as chart data."""
    return alt.Data(values=[dict(row) for row in rows])  # type: ignore[no-untyped-call]


def _tone() -> alt.Color:
    return alt.Color(
        "tone:N", legend=None, scale=alt.Scale(domain=["first", "other"], range=[_ACCENT, _QUIET]), sort=None
    )


def _words() -> Any:
    """The colour of a text beside a mark."""
    return alt.condition("datum.tone == 'first'", alt.value(_ACCENT), alt.value(_SOFT))


def _coloured(
    names: Sequence[str], colours: Sequence[str] = (_ACCENT, _WOOD, _BLUE, _PLUM), key: str = "name", columns: int = 3
) -> alt.Color:
    """One colour for each name, in this order, with a legend."""
    scale = alt.Scale(domain=list(names), range=list(colours[: len(names)]))
    legend = alt.Legend(symbolOpacity=1, symbolType="circle", symbolStrokeWidth=0, title=None, columns=columns)
    return alt.Color(f"{key}:N", sort=list(names), scale=scale, legend=legend)


def intervals(rows: Sequence[Row], value: str, *, zero: bool = False) -> dict[str, Any]:
    """Means with their intervals: `name`, `mean`, `low`, `high`, `tone`; `zero` draws the line of no difference."""
    order, figures = [row["name"] for row in rows], ("mean", "low", "high")
    # Written here, as D3 writes -0.0000 where a sign is asked for.
    form = "+z.4f" if zero else "z.4f"
    data = _rows([dict(row) | {f"{each}_text": format(row[each], form) for each in figures} for row in rows])
    y = alt.Y("name:N", sort=order, title=None)
    shown = [alt.Tooltip("name:N", title="method")]
    shown += [alt.Tooltip(f"{each}_text:N", title=each) for each in figures]
    base = alt.Chart(data).encode(y=y, color=_tone(), tooltip=shown)
    # Words are wider than their marks: there is room for them at both ends.
    scale = alt.Scale(zero=zero, nice=False, padding=26)
    x = alt.X("low:Q", title=value, scale=scale, axis=alt.Axis(tickCount=4, format="~g", labelBound=12))
    spans = base.mark_rule(strokeWidth=3, strokeCap="round", opacity=0.45).encode(x=x, x2="high:Q")
    points = base.mark_circle(size=80, opacity=1).encode(x=alt.X("mean:Q"))
    written = base.encode(x="mean:Q", text=alt.Text("mean_text:N"))
    style: dict[str, Any] = {"dy": -11, "fontSize": 11, "font": _FONT}
    halo = written.mark_text(**style, **_HALO).encode(color=alt.value(_CARD))
    layers = [spans, halo, points, written.mark_text(**style).encode(color=_words())]
    if zero:
        layers.insert(0, alt.Chart(_rows([{"at": 0}])).mark_rule(color=_INK, strokeDash=[4, 3]).encode(x="at:Q"))
    return _spec(alt.layer(*layers), height=40 * len(rows) + 10)


def paired_chart(rows: Sequence[Row], parts: Sequence[str]) -> dict[str, Any]:
    """Means and intervals of two parts, one above the other: `name`, `part`, `mean`, `low`, `high`."""
    order = list(dict.fromkeys(row["name"] for row in rows))
    shown = [alt.Tooltip("name:N", title="metric"), alt.Tooltip("part:N", title="view")]
    shown += [alt.Tooltip(f"{each}:Q", format=".4f") for each in ("mean", "low", "high")]
    base = alt.Chart(_rows(rows)).encode(
        y=alt.Y("name:N", sort=order, title=None),
        yOffset=alt.YOffset("part:N", sort=list(parts), scale=alt.Scale(paddingOuter=0.6)),
        color=_coloured(parts, key="part", columns=1),
        tooltip=shown,
    )
    x = alt.X("low:Q", title=None, scale=alt.Scale(zero=True), axis=alt.Axis(tickCount=5, format="~g"))
    spans = base.mark_rule(strokeWidth=3, strokeCap="round", opacity=0.45).encode(x=x, x2="high:Q")
    points = base.mark_circle(size=70, opacity=1).encode(x=alt.X("mean:Q"))
    return _spec(alt.layer(spans, points), height=40 * len(order) + 10)


def scatter(rows: Sequence[Row], x: str, y: str) -> dict[str, Any]:
    """Quality against cost: `name`, `x` on a logarithmic axis, `y`, `tone`."""
    xs, ys = [row["x"] for row in rows], [row["y"] for row in rows]
    height, pad = 280, 0.08 * (max(ys) - min(ys)) or 0.5
    across, up = [min(xs) / 1.6, max(xs) * 1.6], [min(ys) - pad, max(ys) + pad]
    y_scale = alt.Scale(domain=up, nice=False)
    base = alt.Chart(_rows(_apart(rows, across, up, height))).encode(
        x=alt.X(
            "x:Q",
            title=x,
            scale=alt.Scale(type="log", domain=across, nice=False),
            axis=alt.Axis(tickCount=4, format="~g", grid=False),
        ),
        y=alt.Y("y:Q", title=y, scale=y_scale, axis=alt.Axis(tickCount=5)),
        tooltip=[
            alt.Tooltip("name:N", title="method"),
            alt.Tooltip("x:Q", title=x, format=",.3~f"),
            alt.Tooltip("y:Q", title=y, format=".4f"),
        ],
    )
    layers: list[Any] = []
    for side, shift in (("left", 8), ("right", -8)):
        own = base.transform_filter(f"datum.side == '{side}'")
        own = own.encode(y=alt.Y("label:Q", title=y, scale=y_scale), text="name:N")
        style: dict[str, Any] = {"align": side, "dx": shift, "fontSize": 12, "font": _FONT}
        layers.append(own.mark_text(**style, **_HALO))
        layers.append(own.mark_text(**style).encode(color=_words()))
    # The marks are drawn last, so that no name hides one.
    layers.append(base.mark_circle(size=90, opacity=1).encode(color=_tone()))
    return _spec(alt.layer(*layers), height=height)


# In pixels: the plot width of a narrow page, the width of a letter, the height of a line of text.
_NARROW, _LETTER, _TEXT_LINE = 230, 6.8, 15


def _apart(rows: Sequence[Row], across: Sequence[float], up: Sequence[float], height: int) -> list[dict[str, Any]]:
    """The rows with the position of their names: the side of the mark and the height, so that no two overlap.

    A name is written towards the middle of the chart, and lower where it would overlap one already placed.
    """
    gap, width = _TEXT_LINE * (up[1] - up[0]) / height, log(across[1] / across[0])
    placed: list[dict[str, Any]] = []
    for row in sorted(rows, key=lambda row: -row["y"]):
        at, wide, label = log(row["x"] / across[0]) / width * _NARROW, 10 + _LETTER * len(row["name"]), row["y"]
        left = at <= _NARROW / 2
        span = (at, at + wide) if left else (at - wide, at)
        for other in sorted(placed, key=lambda each: -each["label"]):
            if other["span"][0] < span[1] and span[0] < other["span"][1] and abs(label - other["label"]) < gap:
                label = other["label"] - gap
        placed.append(dict(row) | {"side": "left" if left else "right", "label": label, "span": span})
    return [{name: value for name, value in row.items() if name != "span"} for row in placed]


def share_chart(rows: Sequence[Row], parts: Sequence[str]) -> dict[str, Any]:
    """Shares of a whole, one bar a row: `name`, and a share under the name of each part (three at most)."""
    order = [row["name"] for row in rows]
    values = [
        {"name": row["name"], "part": part, "share": row[part], "place": place}
        for row in rows
        for place, part in enumerate(parts)
    ]
    colour = _coloured(parts, (_ACCENT, _LINE, _WOOD), "part", columns=1)
    base = alt.Chart(_rows(values)).mark_bar(height=18)
    chart = base.encode(
        x=alt.X(
            "share:Q", stack="zero", title=None, axis=alt.Axis(format="%", tickCount=4), scale=alt.Scale(domain=[0, 1])
        ),
        y=alt.Y("name:N", sort=order, title=None),
        color=colour,
        order="place:Q",
        tooltip=[alt.Tooltip("name:N"), alt.Tooltip("part:N"), alt.Tooltip("share:Q", format=".1%")],
    )
    return _spec(chart, height=32 * len(rows))


def line_chart(rows: Sequence[Row], x: str, y: str, *, groups: Sequence[str], names: Sequence[str]) -> dict[str, Any]:
    """One line over the groups for each name: `name`, `group`, `mean`, `low`, `high`; the first name is emphasised."""
    colour = _coloured(names, columns=1)
    shown = [alt.Tooltip("name:N", title="method"), alt.Tooltip("group:N", title=x)]
    shown += [alt.Tooltip(f"{each}:Q", format=".4f") for each in ("mean", "low", "high")]
    base = alt.Chart(_rows(rows)).encode(
        x=alt.X(
            "group:N", sort=list(groups), title=x, axis=alt.Axis(labelAngle=0, labelOverlap=False, labelFontSize=11)
        ),
        color=colour,
        tooltip=shown,
    )
    axis = alt.Y("mean:Q", title=y, scale=alt.Scale(zero=True), axis=alt.Axis(tickCount=5))
    bands = base.mark_area(opacity=0.15).encode(y=alt.Y("low:Q", title=y), y2="high:Q")
    line = base.mark_line(strokeWidth=2).encode(y=axis)
    points = base.mark_circle(size=55, opacity=1).encode(y=axis)
    return _spec(alt.layer(bands, line, points))


def curves(
    rows: Sequence[Row], x: str, y: str, *, marks: Sequence[Row] = (), names: Sequence[str] = ()
) -> dict[str, Any]:
    """Lines over a number: `x`, `y`, and `name` if there are several; `marks`: vertical rules, with `words`."""
    colour: Any = alt.value(_ACCENT)
    if names:
        colour = _coloured(names, columns=1)
    base = alt.Chart(_rows(rows)).encode(
        x=alt.X(
            "x:Q", title=x, scale=alt.Scale(nice=False, zero=False), axis=alt.Axis(tickCount=5, grid=False, format="~s")
        ),
        y=alt.Y("y:Q", title=y, scale=alt.Scale(zero=False), axis=alt.Axis(tickCount=5)),
        color=colour,
        tooltip=[alt.Tooltip("x:Q", title=x, format=","), alt.Tooltip("y:Q", title=y, format=".5~g")],
    )
    layers: list[Any] = [base.mark_line(strokeWidth=2), base.mark_circle(size=30, opacity=1)]
    if marks:
        drawn = alt.Chart(_rows(marks))
        drawn = drawn.mark_rule(color=_WOOD, strokeDash=[4, 3], strokeWidth=1.5)
        layers.insert(0, drawn.encode(x="x:Q", tooltip=[alt.Tooltip("words:N", title="update")]))
    return _spec(alt.layer(*layers))


def choice(rows: Sequence[Row], x: str, y: str, *, chosen: int, names: Sequence[str]) -> dict[str, Any]:
    """Points of cost and quality: `x` on a logarithmic axis, `y`, `name`, `words`; a ring marks the chosen one."""
    xs = [row["x"] for row in rows]
    scale = alt.Scale(type="log", domain=[min(xs) / 1.3, max(xs) * 1.3], nice=False)
    shown = [alt.Tooltip("words:N", title="searched by"), alt.Tooltip("x:Q", title=x, format=",.0f")]
    shown.append(alt.Tooltip("y:Q", title=y, format=".4f"))
    across = alt.X("x:Q", title=x, scale=scale, axis=alt.Axis(tickCount=4, format="~s", grid=False))
    up = alt.Y("y:Q", title=y, scale=alt.Scale(zero=False, padding=16), axis=alt.Axis(tickCount=5))
    points = alt.Chart(_rows(rows)).mark_circle(size=80, opacity=1)
    ring = alt.Chart(_rows([rows[chosen]])).mark_point(size=340, color=_INK, strokeWidth=1.5, opacity=1)
    word: dict[str, Any] = {
        "text": "chosen",
        "dy": -17,
        "fontSize": 12,
        "font": _FONT,
        "fontWeight": 600,
        "color": _INK,
    }
    word |= {"align": "left", "dx": -8} if xs[chosen] ** 2 < min(xs) * max(xs) else {"align": "right", "dx": 8}
    layers = [
        points.encode(x=across, y=up, color=_coloured(names), tooltip=shown),
        ring.encode(x=across, y=up),
        alt.Chart(_rows([rows[chosen]])).mark_text(**word).encode(x=across, y=up),
    ]
    return _spec(alt.layer(*layers))


def bar_chart(rows: Sequence[Row], x: str, y: str, *, many: bool = False) -> dict[str, Any]:
    """One bar a row: `x` in the order given, `y`, a share; `many` makes the bars thin and the labels vertical."""
    order = [row["x"] for row in rows]
    chart = (
        alt.Chart(_rows(rows))
        .mark_bar(color=_WOOD, cornerRadiusEnd=2, size=18 if many else 32)
        .encode(
            x=alt.X("x:N", sort=order, title=x, axis=alt.Axis(labelAngle=-90 if many else 0)),
            y=alt.Y("y:Q", title=y, axis=alt.Axis(format="%", tickCount=4)),
            tooltip=[alt.Tooltip("x:N", title=x), alt.Tooltip("y:Q", title=y, format=".2%")],
        )
    )
    return _spec(chart, height=200)


def histogram(edges: Sequence[float], counts: Sequence[int], x: str) -> dict[str, Any]:
    """Counts between edges; 0 is marked if it lies within them."""
    rows = [
        {"low": low, "high": high, "count": count} for low, high, count in zip(edges, edges[1:], counts, strict=False)
    ]
    drawn = alt.Chart(_rows(rows)).mark_bar(color=_ACCENT, binSpacing=1)
    layers: list[Any] = [
        drawn.encode(
            x=alt.X("low:Q", bin="binned", title=x, axis=alt.Axis(tickCount=6, format="~g")),
            x2="high:Q",
            y=alt.Y("count:Q", title="test users"),
            tooltip=["low:Q", "high:Q", "count:Q"],
        )
    ]
    if edges[0] <= 0 <= edges[-1]:
        layers.append(alt.Chart(_rows([{"at": 0}])).mark_rule(color=_INK, strokeDash=[4, 3]).encode(x="at:Q"))
    return _spec(alt.layer(*layers), height=200)


def calibration_chart(rows: Sequence[Row]) -> dict[str, Any]:
    """Predicted against observed probability on logarithmic axes: `predicted`, `observed`, `count`; the diagonal is
    perfect calibration.

    An observed probability of 0 has no place on a logarithmic axis and is drawn at its lower end.
    """
    above = [value for row in rows for value in (row["predicted"], row["observed"]) if value > 0]
    least = 10.0 ** _decade(min(above, default=1e-3))
    data = [dict(row) | {"shown": max(row["observed"], least), "at": max(row["predicted"], least)} for row in rows]
    scale = alt.Scale(type="log", domain=[least, 1], nice=False)
    axis = alt.Axis(format="~g", tickCount=4)
    line = alt.Chart(_rows([{"at": least, "shown": least}, {"at": 1, "shown": 1}]))
    line = line.mark_line(color=_QUIET, strokeDash=[4, 3])
    points = alt.Chart(_rows(data)).mark_circle(size=70, opacity=1, color=_ACCENT)
    tooltip = [alt.Tooltip(f"{each}:Q", format=".3~g") for each in ("predicted", "observed", "count")]
    x = alt.X("at:Q", title="predicted", scale=scale, axis=axis)
    y = alt.Y("shown:Q", title="observed", scale=scale, axis=axis)
    return _spec(alt.layer(line.encode(x=x, y=y), points.encode(x=x, y=y, tooltip=tooltip)), height=220)


def _decade(value: float) -> int:
    """The power of ten at or below a number above 0, in -9..-1."""
    return min(max(floor(log10(value)), -9), -1)
