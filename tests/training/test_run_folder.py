"""Checkpoints restore any nested state, and a run folder belongs to one run at a time."""

import errno
import json
import math
import os
from contextlib import contextmanager

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from beamwood.errors import ArtefactError, InputError
from beamwood.training import run_folder
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
def test_nested_state_is_restored(tmp_path_factory, value):
    path = tmp_path_factory.mktemp("state") / "checkpoint"
    save_checkpoint(path, {"value": value})
    found = load_checkpoint(path)["value"]
    assert found == value
    assert repr(found) == repr(value)


def test_tensors_arrays_and_generators_are_restored(tmp_path):
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


def test_another_artefact_is_not_read_as_a_checkpoint(tmp_path):
    from beamwood.artefact import write_artefact

    write_artefact(tmp_path / "model", manifest={"kind": "retriever"})
    with pytest.raises(ArtefactError, match="holds a retriever, not a checkpoint"):
        load_checkpoint(tmp_path / "model")


def test_a_damaged_checkpoint_names_the_options_to_restart(tmp_path):
    save_checkpoint(tmp_path / "at", {"step": 1})
    (tmp_path / "at" / "state.json").write_text("{")
    with pytest.raises(
        ArtefactError,
        match=r"cannot continue from its checkpoint \(.*state\.json .*with --overwrite and without --resume",
    ):
        load_checkpoint(tmp_path / "at")


def test_metrics_are_truncated_to_the_checkpoint(tmp_path):
    folder = RunFolder(tmp_path / "run")
    with folder.open(resume=False) as log:
        log.append({"step": 1})
        log.save({"step": 1})
        log.append({"step": 2})
    with folder.open(resume=True) as log:
        assert log.state == {"step": 1}
        log.append({"step": "2 again"})
    assert folder.metrics_path.read_text() == '{"step": 1}\n{"step": "2 again"}\n'


def test_a_folder_is_locked_by_one_run_at_a_time(tmp_path):
    folder = RunFolder(tmp_path / "run")
    with (
        folder.open(resume=False),
        pytest.raises(InputError, match=rf"is in use by process {os.getpid()}; wait"),
        RunFolder(tmp_path / "run").open(resume=True),
    ):
        pass
    with folder.open(resume=True):
        pass


def test_a_resumed_run_must_have_the_stored_configuration(tmp_path):
    folder = RunFolder(tmp_path / "run")
    with folder.open(resume=False, config={"width": 24, "loop.max_steps": 10}):
        pass
    with folder.open(resume=True, config={"width": 24, "loop.max_steps": 20}):
        pass
    with (
        pytest.raises(InputError, match="trained with width=24, now it is 32"),
        folder.open(resume=True, config={"width": 32, "loop.max_steps": 20}),
    ):
        pass
    assert json.loads(folder.config_path.read_text())["width"] == 24


def test_another_method_is_named_before_its_settings(tmp_path):
    folder = RunFolder(tmp_path / "run")
    with folder.open(resume=False, config={"activation": None, "method": "sasrec"}):
        pass
    with (
        pytest.raises(InputError, match="trained with method='sasrec', now it is 'dtr'"),
        folder.open(resume=True, config={"activation": "relu", "method": "dtr"}),
    ):
        pass


def test_overwriting_removes_only_the_run(tmp_path):
    folder = RunFolder(tmp_path / "run", overwrite=True)
    with folder.open(resume=False, config={"width": 24}) as log:
        log.save({})
    (folder.path / "notes.txt").write_text("mine")
    assert folder.holds_a_run
    with folder.open(resume=False, config={"width": 32}):
        assert not folder.checkpoint_path.exists()
        assert folder.metrics_path.read_bytes() == b""
    assert json.loads(folder.config_path.read_text())["width"] == 32
    assert (folder.path / "notes.txt").read_text() == "mine"


@pytest.mark.parametrize("lost", ["manifest.json", "state.json", "tensors.safetensors", "all"])
def test_a_damaged_or_half_removed_checkpoint_is_overwritten(tmp_path, lost):
    folder = RunFolder(tmp_path / "run", overwrite=True)
    with folder.open(resume=False, config={"width": 24}) as log:
        log.save({"step": 1})
    for name in os.listdir(folder.checkpoint_path):
        if lost in (name, "all"):
            (folder.checkpoint_path / name).unlink()
    with pytest.raises(InputError, match="with --overwrite and without --resume"), folder.open(resume=True):
        pass
    with folder.open(resume=False, config={"width": 32}) as log:
        assert log.state is None
        log.save({"step": 2})
    with folder.open(resume=True, config={"width": 32}) as log:
        assert log.state == {"step": 2}


def contents(folder):
    return {path.relative_to(folder): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_a_locked_run_is_not_changed(tmp_path):
    folder = RunFolder(tmp_path / "run")
    with folder.open(resume=False, config={"width": 24}) as log:
        log.append({"step": 1})
        log.save({})
        before = contents(folder.path)
        for resume in (False, True):
            other = RunFolder(folder.path, overwrite=True)
            with (
                pytest.raises(InputError, match=rf"is in use by process {os.getpid()}; wait"),
                other.open(resume=resume, config={"width": 32}),
            ):
                pass
            with pytest.raises(InputError, match=rf"is in use by process {os.getpid()}; wait"):
                other.check(resume=resume)
        assert contents(folder.path) == before


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"config.json": '{"mine": 1}'}, "was not written by beamwood"),
        ({"config.json": '["mine"]'}, "was not written by beamwood"),
        ({"config.json": '{"beamwood": "ru'}, "is damaged or not of a run"),
        ({"notes.txt": "mine"}, "holds files but no config.json of a run"),
        ({"metrics.jsonl": "mine"}, "holds files but no config.json of a run"),
        ({"checkpoint/thesis.doc": "mine"}, "holds files but no config.json of a run"),
        ({"config.json": '{"beamwood": "run"}', "checkpoint/thesis.doc": "mine"}, "'thesis.doc', which is not part"),
        ({"config.json": '{"beamwood": "run"}', "checkpoint": "mine"}, "'checkpoint', which is not part"),
    ],
)
def test_foreign_files_are_not_changed(tmp_path, files, message):
    for name, content in files.items():
        (tmp_path / "run" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "run" / name).write_text(content)
    before = contents(tmp_path / "run")
    with pytest.raises(InputError, match=message), RunFolder(tmp_path / "run", overwrite=True).open(resume=False):
        pass
    for resume in (False, True):
        with pytest.raises(InputError), RunFolder(tmp_path / "run").open(resume=resume):
            pass
    assert contents(tmp_path / "run") == before


def test_a_full_disk_asks_for_space_and_leaves_nothing_to_move(tmp_path, monkeypatch):
    @contextmanager
    def no_room(_):
        raise OSError(errno.ENOSPC, "No space left on device")
        yield

    with monkeypatch.context() as patched:
        patched.setattr(run_folder, "whole_file", no_room)
        with (
            pytest.raises(InputError, match=r"cannot hold a run .*No space left.*; free some space$"),
            RunFolder(tmp_path / "run").open(resume=False),
        ):
            pass
    with RunFolder(tmp_path / "run").open(resume=True) as log:
        assert log.state is None


def test_a_file_at_the_path_of_the_folder_is_an_error(tmp_path):
    (tmp_path / "file").write_text("x")
    for path in (tmp_path / "file", tmp_path / "file" / "run"):
        with pytest.raises(InputError, match="cannot hold a run"), RunFolder(path).open(resume=False):
            pass
    with pytest.raises(InputError, match="cannot hold a run"):
        RunFolder(tmp_path / "file").check(resume=True)
