"""Checks of what is committed: every table matches its lines, no figure is typed, every line can be repeated."""

from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture
def bench(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT))
    from benchmarks.bench import Bench, Place

    return Bench(Place(ROOT))


def test_the_report_check_passes(bench):
    from benchmarks.pages import faults

    assert faults(bench) == []


def test_every_row_has_a_known_recipe_and_known_settings(bench):
    from benchmarks.recipes import RECIPES

    from beamwood.methods import load_method

    for run in bench.suite:
        row = bench.suite.row(run)
        assert row.recipe in RECIPES, run.name
        assert (row.method is None) == (row.recipe in ("answers", "serve", "optimum")), run.name
        if row.method is not None:
            started = dict.fromkeys(row.start, "a folder")
            load_method(row.method).configured(row.settings | started, row.preset)


def test_every_line_has_the_values_for_its_paired_tests(bench):
    for line in bench.lines:
        topic = bench.suite.topics[line.topic]
        values = bench.lines.values(line)
        tested = {column.figure for column in topic.columns if column.interval} | set(topic.judged)
        assert tested <= values.keys(), line.name
        for name, column in values.items():
            assert column.mean() == pytest.approx(line.figures[name], abs=1e-6), (line.name, name)


def test_the_suite_fits_in_fifteen_hours(bench):
    """By the seconds of its lines; a missing seed counts as another of its row."""
    spent = {}
    for line in bench.lines:
        by_clock = line.seconds.get("fit", 0.0) + line.seconds.get("evaluate", 0.0) + line.seconds.get("answers", 0.0)
        spent[line.topic, line.log, line.row] = line.seconds.get("processor", by_clock)
    assert sum(spent.get((run.topic, run.log, run.row), 0.0) for run in bench.suite) <= 15 * 3600
    # Lines of answers and of the service include missing fits; a published reproduction documents its own duration.
    rows, long = [bench.suite.row(run) for run in bench.suite], ("answers", "serve", "published")
    assert all(row.limit <= (120 if row.recipe in long else 20) * 60 for row in rows)
