"""Tables of the lines as Markdown, with the findings that their paired tests select."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType

from beamwood.errors import InputError, nearest
from beamwood.methods import METHODS
from benchmarks.answer_table import answer_table, bar_table
from benchmarks.bench import Bench
from benchmarks.evidence import Evidence, gather, paired
from benchmarks.figures import EMPTY, markdown, number, p_value
from benchmarks.lines import Line
from benchmarks.portfolio_table import LINES, portfolio_tables, read
from benchmarks.published import published_table
from benchmarks.serve_table import serve_table
from benchmarks.suite import Column, Topic
from benchmarks.verdicts import verdict

__all__ = ["names", "rendered"]

MAIN = (
    Column(figure="kept/f@20", heading="F@20, seen kept", interval=True),
    Column(figure="removed/f@20", heading="F@20, seen removed", interval=True),
    Column(figure="kept/ndcg@20", heading="NDCG@20, seen kept"),
    Column(figure="removed/ndcg@20", heading="NDCG@20, seen removed"),
)
READ = "removed/f@20"
README = ("cooccurrence", "ease", "two_tower", "sasrec", "dtr", "dtr+cooccurrence")


def names(bench: Bench) -> list[str]:
    """The names of all tables."""
    return [*bench.suite.topics, "readme", "published", "portfolio", *(f"method-{name}" for name in METHODS)]


def rendered(bench: Bench, name: str) -> str:
    """The table with this name. Errors: there is none."""
    if name not in names(bench):
        raise InputError(f"table '{name}' is unknown{nearest(name, names(bench))}")
    if name == "readme":
        return _readme(bench)
    if name == "published":
        return published_table(bench)
    if name == "portfolio":
        return portfolio_tables(read(bench.place.root / LINES)) or EMPTY
    if name.startswith("method-"):
        return _of_method(bench, name.removeprefix("method-"))
    return _topic(bench, name)


def _topic(bench: Bench, name: str) -> str:
    topic = bench.suite.topics[name]
    if any(row.recipe == "answers" for row in topic.rows.values()):
        return _answers(bench, name)
    if any(row.recipe == "serve" for row in topic.rows.values()):
        return _served(bench, name)
    parts = []
    for log in topic.logs:
        rows = gather(bench, name, log)
        if rows:
            table = _table(topic, rows, rows, topic.published.get(log, {}))
            parts += [_heading(bench, log, rows), table, verdict(topic, rows)]
    return "\n\n".join(part for part in parts if part) or EMPTY


def _answers(bench: Bench, name: str) -> str:
    runs = [run for run in bench.suite if run.topic == name and bench.suite.row(run).recipe == "answers"]
    lines = [line for line in map(bench.lines.get, runs) if line is not None]
    tables = [answer_table(bench.suite, line, bench.lines.values(line)) + _newer(bench, line) for line in lines]
    return "\n\n".join([*tables, bar_table(lines)]) if lines else EMPTY


def _newer(bench: Bench, line: Line) -> str:
    """The sentence on models of an answers' line that have been fitted again; "" without any."""
    named = ", ".join(f"`{name}`" for name in bench.lines.newer_starts(line))
    return f"\n- The main table has newer fits, whose figures may differ: {named}." if named else ""


def _served(bench: Bench, name: str) -> str:
    found = [(run, line) for run in bench.suite if run.topic == name and (line := bench.lines.get(run)) is not None]
    titles = bench.suite.logs
    return (
        "\n\n".join(serve_table(titles[run.log].title, bench.suite.row(run).title, line) for run, line in found)
        or EMPTY
    )


def _of_method(bench: Bench, method: str) -> str:
    """The tables of a method: for topics without `against` one per row, over logs; else its rows and `against`."""
    parts = []
    for name, topic in bench.suite.topics.items():
        own = [key for key, row in topic.rows.items() if row.method == method and row.recipe != "fitted"]
        found = {log: gather(bench, name, log) for log in topic.logs if own}
        if topic.against is None:
            parts += [table for key in own if (table := _by_log(bench, topic, key, found))]
            continue
        for log, rows in found.items():
            shown = [key for key in rows if key in own or key == topic.against]
            if any(key in rows for key in own):
                parts += [f"{topic.title}. {_heading(bench, log, rows)}", _table(topic, rows, shown)]
    return "\n\n".join(parts) or EMPTY


def _by_log(bench: Bench, topic: Topic, key: str, found: Mapping[str, Mapping[str, Evidence]]) -> str:
    columns = topic.columns or list(MAIN)
    rows = []
    for log, evidence in ((log, rows[key]) for log, rows in found.items() if key in rows):
        named = bench.suite.logs[log].title + _as_of(evidence)
        figures = [_figure(evidence, column, None, found[log]) for column in columns]
        rows.append([named, f"{evidence.lines[0].queries:,}", str(len(evidence.lines)), *figures, *_cost(evidence)])
    if not rows:
        return ""
    headings = [topic.rows[key].title, "test users", "seeds", *(column.heading for column in columns), "fit, s", "MiB"]
    return markdown(headings, rows)


def _readme(bench: Bench) -> str:
    topic = bench.suite.topics["main"]
    found = {log: gather(bench, "main", log) for log in topic.logs}
    keys = [key for key in README if key in topic.rows and any(key in found[log] for log in topic.logs)]
    # Logs with a missing run are left out, because they could show the wrong row as the best.
    logs = [log for log in topic.logs if all(key in found[log] for key in keys)]
    if not keys or not logs:
        return EMPTY
    rows = []
    for key in keys:
        best = {log: max(found[log][other].figure(READ) or 0.0 for other in found[log]) for log in logs}
        cells = [_cell_of_best(found[log].get(key), READ, best[log]) for log in logs]
        rows.append([topic.rows[key].title, *cells])
    table = markdown(["F@20, seen items removed", *(bench.suite.logs[log].title for log in logs)], rows)
    seeds = sorted({len(each.lines) for log in logs for each in found[log].values()})
    trained = f"{seeds[0]} to {seeds[-1]} seeds" if len(seeds) > 1 else f"{seeds[0]} seed{'' if seeds[0] == 1 else 's'}"
    return f"{table}\n\nShort trainings, {trained}; the highest of a column is bold."


def _cell_of_best(evidence: Evidence | None, figure: str, best: float) -> str:
    value = None if evidence is None else evidence.figure(figure)
    if value is None:
        return ""
    text = number(value, 3)
    return f"**{text}**" if text == number(best, 3) else text


def _heading(bench: Bench, log: str, rows: Mapping[str, Evidence]) -> str:
    line = next(iter(rows.values())).lines[0]
    sizes = " users, ".join(f"{line.data[key]:,}" for key in ("users", "items"))
    sizes += f" items, {line.data['rows']:,} rows; {line.queries:,} test users"
    return f"**{bench.suite.logs[log].title}** (`{log}`): {sizes}."


def _table(
    topic: Topic,
    rows: Mapping[str, Evidence],
    shown: Iterable[str],
    published: Mapping[str, Mapping[str, float]] = MappingProxyType({}),
) -> str:
    columns = topic.columns or list(MAIN)
    tests = {c.figure: paired(rows, topic.against, c.figure) for c in columns if c.test and topic.against}
    best = {c.figure: max((rows[key].figure(c.figure) or 0.0) for key in rows) for c in columns if c.interval}
    timed = any("fit" in line.seconds for evidence in rows.values() for line in evidence.lines)
    lines = []
    for key in shown:
        evidence = rows[key]
        cells = [evidence.title + _as_of(evidence), str(len(evidence.lines))]
        for column in columns:
            text = _figure(evidence, column, best.get(column.figure), rows)
            if column.test and key in tests.get(column.figure, {}):
                text += f" (p {p_value(tests[column.figure][key].p)})"
            cells.append(text)
        lines.append(cells + (_cost(evidence) if timed else []))
    for title, told in published.items():
        cells = [number(told[each.figure], each.digits) if each.figure in told else "" for each in columns]
        lines.append([f"{title} (published)", "", *cells, *(["", ""] if timed else [])])
    headings = ["", "seeds", *(column.heading for column in columns), *(("fit, s", "MiB") if timed else ())]
    return markdown(headings, lines)


def _as_of(evidence: Evidence) -> str:
    return f" (as of {', '.join(evidence.as_of)})" if evidence.as_of else ""


def _cost(evidence: Evidence) -> list[str]:
    """Seconds of a fit, and peak memory."""
    seconds = evidence.seconds()
    return ["" if seconds is None else f"{seconds:,.0f}", f"{max(line.peak_mib for line in evidence.lines):,}"]


def _figure(evidence: Evidence, column: Column, best: float | None, rows: Mapping[str, Evidence]) -> str:
    value = evidence.figure(column.figure)
    if value is None:
        return ""
    if column.of is not None:
        whole = rows[column.of].figure(column.figure) if column.of in rows else None
        return number(value / whole, column.digits) if whole else ""
    text = number(value, column.digits)
    if best is not None and text == number(best, column.digits):
        text = f"**{text}**"
    interval = evidence.interval(column.figure) if column.interval else None
    return text if interval is None else f"{text} ± {number((interval.high - interval.low) / 2, column.digits)}"
