"""The tools beside the suite: what is wrong in their options ends in a line."""

import importlib
import sys

import pytest


@pytest.mark.parametrize(
    ("tool", "arguments", "said"),
    [
        ("tree_update", [], "mind_dtr/interactions.parquet does not exist"),
        ("new_items", ["log.csv"], "log.csv does not exist"),
        ("lightgcn", [], "gowalla_lightgcn/interactions.parquet does not exist"),
        ("gpu", ["--only", "sasre"], "--only sasre is not measured; did you mean 'sasrec'"),
    ],
)
def test_a_mistake_ends_in_a_line(monkeypatch, capsys, tmp_path, tool, arguments, said):
    """Logs are looked for in the suite's data folder."""
    module = importlib.import_module(f"benchmarks.{tool}")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("BEAMWOOD_DATA", str(tmp_path))
    monkeypatch.setattr(module, "native", lambda: True, raising=False)
    monkeypatch.setattr(module, "one_thread", lambda: None, raising=False)
    monkeypatch.setattr(sys, "argv", [tool, *arguments])
    assert module.main() == 2
    assert said in capsys.readouterr().err
