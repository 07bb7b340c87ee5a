"""Checkpoints bring any nested state back, and a run folder belongs to one run at a time."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from beamwood.errors import ArtefactError, InputError
from beamwood.training.checkpoint import load_checkpoint, save_checkpoint
from beamwood.training.run_folder import RunFolder

scalars = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text()
nested = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.tuples(inner, inner)
        | st.dictionaries(st.text() | st.integers() | st.sampled_from(["$tensor", "$"]), inner, max_size=3)
    ),
    max_leaves=10,
)


@settings(max_examples=30, deadline=None)
@given(nested)
def test_nested_state_comes_back(tmp_path_factory, value):
    path = tmp_path_factory.mktemp("state") / "checkpoint"
    save_checkpoint(path, {"value": value})
    found = load_checkpoint(path)["value"]
    assert found == value
    assert repr(found) == repr(value)


def test_tensors_arrays_and_generators_come_back(tmp_path):
    generator = np.random.default_rng(1)
    state = {
        "half": torch.tensor([1.5, -2.0], dtype=torch.bfloat16),
        "steps": {0: torch.tensor(3), 1: torch.arange(6).reshape(2, 3).T},
        "empty": torch.empty(0, 4),
        "array": np.arange(3, dtype=np.uint8),
        "numpy": generator.bit_generator.state,
        "torch": torch.Generator().get_state(),
        "betas": (0.9, math.inf),
    }
    save_checkpoint(tmp_path / "c", {})
    save_checkpoint(tmp_path / "c", state)
    found = load_checkpoint(tmp_path / "c")
    for left, right in (
        (state["half"], found["half"]),
        (state["steps"][0], found["steps"][0]),
        (state["steps"][1], found["steps"][1]),
        (state["empty"], found["empty"]),
        (state["torch"], found["torch"]),
    ):
        assert torch.equal(left, right)
        assert left.dtype == right.dtype
    np.testing.assert_array_equal(found["array"], state["array"])
    assert found["numpy"] == state["numpy"]
    assert found["betas"] == state["betas"]


def test_only_a_checkpoint_is_a_checkpoint(tmp_path):
    from beamwood.artefact import write_artefact

    write_artefact(tmp_path / "model", manifest={"kind": "retriever"})
    with pytest.raises(ArtefactError, match="holds a retriever, not a checkpoint"):
        load_checkpoint(tmp_path / "model")


def test_metrics_are_cut_back_to_the_checkpoint(tmp_path):
    folder = RunFolder(tmp_path / "run")
    with folder.opened(resume=False) as log:
        log.append({"step": 1})
        log.save({"step": 1})
        log.append({"step": 2})
    with folder.opened(resume=True) as log:
        assert log.state == {"step": 1}
        log.append({"step": "2 again"})
    assert folder.metrics_path.read_text() == '{"step": 1}\n{"step": "2 again"}\n'


def test_one_run_at_a_time(tmp_path):
    folder = RunFolder(tmp_path / "run")
    with (
        folder.opened(resume=False),
        pytest.raises(InputError, match="in use by another process"),
        RunFolder(tmp_path / "run").opened(resume=True),
    ):
        pass
    with folder.opened(resume=True):
        pass


def test_the_configuration_must_agree(tmp_path):
    folder = RunFolder(tmp_path / "run")
    folder.write_config({"width": 24, "max_steps": 10}, resume=False)
    folder.write_config({"width": 24, "max_steps": 20}, resume=True, may_differ=("max_steps",))
    with pytest.raises(InputError, match="trained with width=24, now it is 32"):
        folder.write_config({"width": 32, "max_steps": 20}, resume=True)
    (tmp_path / "file").write_text("x")
    with (
        pytest.raises(InputError, match="cannot hold a run"),
        RunFolder(tmp_path / "file" / "run").opened(resume=False),
    ):
        pass


def test_clear_removes_the_run_and_nothing_else(tmp_path):
    folder = RunFolder(tmp_path / "run")
    folder.write_config({}, resume=False)
    with folder.opened(resume=False) as log:
        log.save({})
    (folder.path / "notes.txt").write_text("mine")
    assert folder.holds_a_run
    folder.clear()
    assert not folder.holds_a_run
    assert [file.name for file in folder.path.iterdir()] == ["notes.txt"]
