"""Figures over several turns: counts are summed, other figures are medians."""

import math
import sys

import pytest
from benchmarks.serve_turns import Turns, flat, middle, together, wrong


def _turn(rate: float, p99: float, *, refused: int = 0, errors: int = 0) -> dict:
    status = {"200": {"count": 10, "a_second": rate, "p50_ms": 1.0, "p90_ms": 2.0, "p99_ms": p99}}
    if refused:
        status["429"] = {"count": refused, "a_second": 1.0, "p50_ms": 0.1, "p90_ms": 0.2, "p99_ms": 0.3}
    return {"status": status, "errors": errors, "degraded": 1, "server_cpu_ms": rate / 100}


def test_one_slow_turn_does_not_change_the_median_and_counts_are_complete():
    found = together([_turn(100, 5), _turn(90, 6), _turn(10, 900)])
    assert found["count"] == 30
    assert found["a_second"] == 90
    assert found["p99_ms"] == 6
    assert found["server_cpu_ms"] == pytest.approx(0.9)
    assert found["degraded"] == 3
    assert "refused" not in found


def test_refused_requests_are_reported_separately():
    found = together([_turn(100, 5, refused=3), _turn(100, 5), _turn(100, 5, refused=4)])
    assert found["refused"]["count"] == 7
    assert found["refused"]["p99_ms"] == 0.3


def test_every_other_status_counts_as_wrong():
    turns = [_turn(100, 5, refused=3, errors=1), _turn(100, 5, errors=2)]
    assert wrong(turns) == 6
    assert wrong(turns, 429) == 3


def test_a_turn_without_answers_gives_nan():
    nothing = {"status": {}, "errors": 4, "degraded": 0}
    assert flat(nothing)["count"] == 0
    assert math.isnan(middle([flat(nothing)["p99_ms"], 1.0]))


def test_turns_share_the_seconds():
    assert list(Turns(4, 10.0)) == [2.5] * 4


@pytest.mark.parametrize("option", ["--folder", "--full", "--rival"])
def test_a_folder_without_a_model_is_refused_before_anything_is_fitted(monkeypatch, capsys, tmp_path, option):
    from benchmarks import serve

    def fitted(*arguments):
        raise AssertionError("a model was fitted")

    monkeypatch.setattr(serve, "in_process", fitted)
    monkeypatch.setattr(serve, "one_thread", lambda: None)
    monkeypatch.setattr(sys, "argv", ["serve", option, str(tmp_path)])
    assert serve.main() == 2
    assert f"benchmarks.serve: {tmp_path} has no manifest.json" in capsys.readouterr().err
