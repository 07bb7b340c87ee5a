"""A figure that rounds to zero is written without a minus, in every table."""

import json

import numpy as np
import pytest
from benchmarks.figures import number

from beamwood.notebook import lines, table
from beamwood.recipes.portfolio.choice import Candidate
from beamwood.recipes.portfolio.table import as_rows, table_lines
from beamwood.report.page import number_text, percent, plain, signed
from chromium import rows_of

SMALL = -1e-6


def test_in_notebooks_and_terminals():
    assert lines(("a", "b"), [("x", SMALL)]).split() == ["a", "b", "x", "0.0000"]
    assert "<td>0.0000</td>" in table(("a",), [(SMALL,)])


def test_in_the_table_of_a_search():
    one, other = (Candidate((name,), np.full(2, value), 1.0, 1.0) for name, value in (("ease", 0.5), ("dtr", 0.5)))
    document = {"rows": as_rows([one, other], [], one), "metric": "f@20", "monitor": "removed/f@20", "chosen": "ease"}
    document |= {"not_tried": [], "validation_users": 2}
    document["rows"][1] |= {"behind": SMALL, "behind_95": [2 * SMALL, SMALL]}
    assert "0.0000 [0.0000, 0.0000]" in table_lines(document)[2]
    assert "-0.0000" not in "\n".join(table_lines(document))


def test_in_pages():
    """The exact value stays in the page."""
    pytest.importorskip("markupsafe", reason="pages need the extra plots")
    written = [number_text(SMALL), signed(SMALL), percent(SMALL), plain(-0.0)]
    assert [each.striptags() for each in written] == ["0.0000", "+0.0000", "0 %", "0"]
    assert f'value="{SMALL}"' in written[0]


def test_in_charts():
    charts = pytest.importorskip("beamwood.report.charts", reason="pages need the extra plots")
    row = {"name": "ease", "mean": SMALL, "low": 2 * SMALL, "high": 0.25, "tone": "other"}
    drawn = charts.intervals([row], "difference", zero=True)
    (held,) = (each for each in rows_of(drawn) if "name" in each)
    assert (held["mean"], held["low"]) == (SMALL, 2 * SMALL)
    assert [held[f"{each}_text"] for each in ("mean", "low", "high")] == ["+0.0000", "+0.0000", "+0.2500"]
    # D3 writes a minus before 0.0000 where a sign is asked for.
    assert '"+.4f"' not in json.dumps(drawn)


def test_in_tables_of_benchmarks():
    assert (number(SMALL, 3), number(-0.02, 2), number(-0.5, 1)) == (".000", "-.02", "-.5")
