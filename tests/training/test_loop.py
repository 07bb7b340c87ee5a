"""The loop: a resumed run equals the uninterrupted one bit for bit; early stopping, the best weights, and reports."""

import json
import os
import signal
import subprocess
import sys
import textwrap
import time

import pytest
import torch

from beamwood.errors import ArtefactError, InputError
from beamwood.training.checkpoint import load_checkpoint, save_checkpoint
from beamwood.training.checkpoint_times import CheckpointTimes
from beamwood.training.interrupt import Interrupted
from beamwood.training.loop import run_loop
from beamwood.training.loop_config import LoopConfig
from beamwood.training.pace import Validator
from beamwood.training.precision import subnormals_are_flushed
from beamwood.training.run_folder import RunFolder, RunRecord
from beamwood.training.step import NonFiniteError
from linear_task import LinearTask, Network

CONFIG = LoopConfig(
    batch_size=8,
    max_steps=60,
    evaluate_every=7,
    monitor="valid/fit",
    clip_norm=1.0,
    schedule="cosine",
    warmup_steps=5,
    log_every=4,
)


def lines(folder):
    records = [json.loads(line) for line in (folder.path / "metrics.jsonl").read_text().splitlines()]
    return [{k: v for k, v in r.items() if k not in ("seconds", "examples_per_second")} for r in records]


def trained(folder=None, *, task=None, config=CONFIG, resume=False, **options):
    task = task or LinearTask()
    evaluate = options.pop("evaluate", task.evaluate)
    validator = None if evaluate is None else Validator(evaluate)
    record = None if folder is None else RunRecord(folder, resume=resume)
    options = {"seed": 3, "progress": False} | options
    return task, run_loop(task, config, validator=validator, record=record, **options)


def everything(task, result, folder):
    state = load_checkpoint(folder.checkpoint_path)["run"]
    for name in ("seconds", "evaluation_seconds", "prepared"):
        state.pop(name)
    state["since_log"].pop("seconds")
    return state, task.model.state_dict(), (result.best_metric, result.best_step, result.steps), lines(folder)


def assert_equal(left, right):
    assert type(left) is type(right)
    if isinstance(left, torch.Tensor):
        assert torch.equal(left, right)
    elif isinstance(left, dict):
        assert list(left) == list(right)
        for key in left:
            assert_equal(left[key], right[key])
    elif isinstance(left, list | tuple):
        assert len(left) == len(right)
        for a, b in zip(left, right, strict=True):
            assert_equal(a, b)
    else:
        assert left == right


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory):
    folder = RunFolder(tmp_path_factory.mktemp("whole") / "run")
    task, result = trained(folder)
    return everything(task, result, folder)


class Stopping(LinearTask):
    """A task that sends itself a signal at the given step or evaluation, at a step as many `times`."""

    def __init__(self, *, step=None, evaluation=None, number=signal.SIGINT, times=1):
        super().__init__()
        self.left, self.evaluations_left, self.number, self.times = step, evaluation, number, times

    def loss(self, batch, rng):
        if self.left is not None:
            self.left -= 1
            if self.left == 0:
                for _ in range(self.times):
                    os.kill(os.getpid(), self.number)
        return super().loss(batch, rng)

    def evaluate(self):
        if self.evaluations_left is not None:
            self.evaluations_left -= 1
            if self.evaluations_left == 0:
                os.kill(os.getpid(), self.number)
                time.sleep(1)
        return super().evaluate()


@pytest.mark.parametrize("stop", [{"step": 1}, {"step": 14}, {"step": 30}, {"step": 60}, {"evaluation": 3}])
def test_resume_after_ctrl_c_equals_uninterrupted(tmp_path, uninterrupted, stop):
    folder = RunFolder(tmp_path / "run")
    before = signal.getsignal(signal.SIGINT)  # SIGINT is ignored if a shell started the tests in the background.
    with pytest.raises(
        Interrupted, match=r"checkpoint of step \d+ is in .*run/checkpoint; .* --resume to go on"
    ) as told:
        trained(folder, task=Stopping(**stop))
    # A program that goes on after a failed fit, by `except Exception`, ends all the same.
    assert not isinstance(told.value, Exception)
    assert signal.getsignal(signal.SIGINT) is before
    torch.manual_seed(99)
    task, result = trained(folder, resume=True)
    assert_equal(everything(task, result, folder), uninterrupted)


def test_resume_after_a_second_interruption(tmp_path, uninterrupted):
    folder = RunFolder(tmp_path / "run")
    with pytest.raises(Interrupted):
        trained(folder, task=Stopping(step=20))
    with pytest.raises(Interrupted):
        trained(folder, task=Stopping(evaluation=1), resume=True)
    with pytest.raises(Interrupted):
        trained(folder, task=Stopping(step=9, number=signal.SIGTERM), resume=True)
    task, result = trained(folder, resume=True)
    assert_equal(everything(task, result, folder), uninterrupted)


def test_a_second_signal_within_a_step_keeps_the_last_checkpoint(tmp_path, uninterrupted):
    folder = RunFolder(tmp_path / "run")
    with pytest.raises(Interrupted, match=r"interrupted within step 4, before the first checkpoint; .* to start again"):
        trained(folder, task=Stopping(step=4, times=2))
    with pytest.raises(Interrupted, match="checkpoint of step 20 "):
        trained(folder, task=Stopping(step=20), resume=True)
    with pytest.raises(Interrupted, match="checkpoint of step 20 "):
        trained(folder, task=Stopping(step=1, times=2), resume=True)
    task, result = trained(folder, resume=True)
    assert_equal(everything(task, result, folder), uninterrupted)


@pytest.mark.parametrize(
    "step", [pytest.param(3, marks=pytest.mark.slow), 29, pytest.param(51, marks=pytest.mark.slow)]
)
def test_resume_after_a_kill_equals_uninterrupted(tmp_path, uninterrupted, step):
    code = textwrap.dedent("""
        import itertools, os, sys
        sys.path[:0] = [sys.argv[1], os.path.dirname(sys.argv[1])]
        from test_loop import CheckpointTimes, RunFolder, Stopping, signal, trained
        asked = itertools.count(1)
        CheckpointTimes.is_due = lambda times, ahead: next(asked) % 10 == 0
        trained(RunFolder(sys.argv[2]), task=Stopping(step=int(sys.argv[3]), number=signal.SIGKILL))
    """)
    arguments = [sys.executable, "-c", code, os.path.dirname(__file__), str(tmp_path / "run"), str(step)]
    assert subprocess.run(arguments).returncode == -signal.SIGKILL
    folder = RunFolder(tmp_path / "run")
    assert folder.checkpoint_path.exists() == (step > 10)
    # A line truncated by the kill is removed.
    with folder.metrics_path.open("a") as stream:
        stream.write('{"step": 3')
    task, result = trained(folder, resume=True)
    assert_equal(everything(task, result, folder), uninterrupted)


def test_global_generators_are_not_changed_and_the_seed_decides():
    task = LinearTask()
    torch.manual_seed(7)
    expected = torch.rand(3)
    torch.manual_seed(7)
    first = trained(task=task)[0].model.state_dict()
    assert torch.equal(torch.rand(3), expected)
    second = trained()[0].model.state_dict()
    assert_equal(first, second)
    other = trained(seed=4)[0].model.state_dict()
    assert not torch.equal(first["table.weight"], other["table.weight"])


def test_subnormals_are_flushed_only_during_training():
    """Gradients can be subnormal, which makes the attention kernel eighty times slower."""
    seen = []

    class Looking(LinearTask):
        def loss(self, batch, rng):
            seen.append(subnormals_are_flushed())
            return super().loss(batch, rng)

    able = torch.set_flush_denormal(False)
    trained(task=Looking())
    assert seen
    assert seen == [able] * len(seen)
    assert not subnormals_are_flushed()


def test_the_best_weights_are_restored():
    task = LinearTask()
    scores = iter([0.1, 0.5, 0.3, 0.5, 0.2, 0.1])
    seen = []

    def evaluate():
        seen.append({name: value.clone() for name, value in task.model.state_dict().items()})
        return {"fit": next(scores)}

    config = CONFIG.model_copy(update={"patience": 3})
    _, result = trained(task=task, evaluate=evaluate, config=config)
    assert (result.best_metric, result.best_step, result.steps) == (0.5, 14, 35)
    assert result.stopped_because == "patience"
    assert_equal(dict(task.model.state_dict()), seen[1])
    assert not task.model.training


@pytest.mark.parametrize("kept", [True, False])
def test_the_initial_model_is_kept_if_it_is_best(kept):
    task = LinearTask()
    first = {name: value.clone() for name, value in Network().state_dict().items()}
    scores = iter([0.4, 0.1, 0.3 if kept else 0.5, 0.2])
    config = CONFIG.model_copy(update={"evaluate_start": True, "max_steps": 21})
    _, result = trained(task=task, evaluate=lambda: {"fit": next(scores)}, config=config)
    assert (result.best_step, result.best_metric) == ((0, 0.4) if kept else (14, 0.5))
    same = all(torch.equal(value, first[name]) for name, value in task.model.state_dict().items())
    assert same == kept


def test_a_run_interrupted_during_its_first_evaluation_resumes(tmp_path):
    config = CONFIG.model_copy(update={"evaluate_start": True})
    folders = RunFolder(tmp_path / "stopped"), RunFolder(tmp_path / "whole")
    task = LinearTask()

    def stopped():
        raise KeyboardInterrupt

    with pytest.raises(Interrupted):
        trained(folders[0], task=task, config=config, evaluate=stopped)
    results = [everything(*trained(folder, config=config, resume=folder is folders[0]), folder) for folder in folders]
    assert_equal(*results)
    assert results[0][3][0]["step"] == 0


def test_a_finished_run_can_be_extended(tmp_path):
    folder = RunFolder(tmp_path / "run")
    short = CONFIG.model_copy(update={"max_steps": 28, "schedule": "constant"})
    _, first = trained(folder, config=short)
    _, again = trained(folder, config=short, resume=True)
    assert (first.steps, first.best_metric) == (again.steps, again.best_metric)
    whole = RunFolder(tmp_path / "whole")
    longer = short.model_copy(update={"max_steps": 60})
    assert_equal(
        everything(*trained(folder, config=longer, resume=True), folder),
        everything(*trained(whole, config=longer), whole),
    )


def test_the_lines_of_the_metrics_file(tmp_path):
    folder = RunFolder(tmp_path / "run")
    trained(folder)
    records = [json.loads(line) for line in folder.metrics_path.read_text().splitlines()]
    steps = [r for r in records if "loss" in r]
    assert [r["step"] for r in steps] == list(range(4, 61, 4))
    assert set(steps[0]) == {"step", "epoch", "seconds", "loss", "lr", "examples_per_second"}
    assert steps[0]["lr"] == pytest.approx(0.05 * 4 / 5)
    assert steps[-1]["epoch"] == 12.0
    assert steps[-1]["loss"] < steps[0]["loss"]
    validations = [r for r in records if "valid/fit" in r]
    assert [r["step"] for r in validations] == [7, 14, 21, 28, 35, 42, 49, 56, 60]


def test_without_validation_the_last_weights_are_kept():
    _, result = trained(evaluate=None, config=CONFIG.model_copy(update={"max_steps": None, "max_epochs": 2}))
    assert (result.best_metric, result.best_step, result.steps) == (None, 10, 10)
    assert result.stopped_because == "max_epochs"


def test_a_bad_loss_keeps_the_last_checkpoint(tmp_path, monkeypatch):
    class Exploding(LinearTask):
        def loss(self, batch, rng):
            return super().loss(batch, rng) * (float("inf") if self.steps == 25 else 1.0)

        def batch(self, rows, rng, progress):
            self.steps = getattr(self, "steps", 0) + 1
            return super().batch(rows, rng, progress)

    monkeypatch.setattr(CheckpointTimes, "is_due", lambda times, ahead: True)
    folder = RunFolder(tmp_path / "run")
    with pytest.raises(NonFiniteError, match=r"step 25: the loss is inf .*lower learning_rate"):
        trained(folder, task=Exploding())
    assert load_checkpoint(folder.checkpoint_path)["run"]["step"] == 24


def test_plain_lines_go_to_stderr(capsys):
    trained(progress=True)
    out, err = capsys.readouterr()
    assert out == ""
    assert "step 7: fit -" in err
    assert "(best so far)" in err


@pytest.mark.parametrize(
    ("change", "options", "message"),
    [
        ({"monitor": "fot"}, {}, "monitor='fot' is not measured; did you mean 'fit'"),
        ({"monitor": None}, {}, "monitor is not set"),
        ({"max_steps": None, "schedule": "constant"}, {}, "nothing would end this run"),
        ({"max_steps": None, "patience": 3}, {}, "'cosine' needs decay_steps"),
        ({}, {"evaluate": lambda: {"fit": float("nan")}}, "step 7: the metric fit is nan"),
    ],
)
def test_invalid_configurations_name_the_setting(change, options, message):
    with pytest.raises(InputError, match=message):
        trained(config=CONFIG.model_copy(update=change), **options)


def damaged_states(value, path=()):
    """Pairs of a path of keys and the state with this part missing, null or a text, for every part of a state."""
    if isinstance(value, dict):
        for place, (key, inner) in enumerate(value.items()):
            rest = {other: part for other, part in value.items() if other != key}
            yield (*path, key), [rest, rest | {key: None}, rest | {key: "text"}][place % 3]
            for found, part in damaged_states(inner, (*path, key)):
                yield found, rest | {key: part}
    elif isinstance(value, list):
        yield path, value[:-1]
        for place, inner in enumerate(value):
            for found, part in damaged_states(inner, (*path, place)):
                yield found, [*value[:place], part, *value[place + 1 :]]
    elif isinstance(value, torch.Tensor):
        yield path, value[:-1] if value.ndim else value[None].expand(3)


def test_a_checkpoint_of_another_version_names_the_fix(tmp_path, monkeypatch):
    monkeypatch.setattr("beamwood.artefact.write.sync", lambda path: None)
    folder = RunFolder(tmp_path / "run")
    trained(folder)
    state, metrics = load_checkpoint(folder.checkpoint_path), folder.metrics_path.read_bytes()
    refused = 0
    for path, damaged in damaged_states(state):
        save_checkpoint(folder.checkpoint_path, damaged)
        folder.metrics_path.write_bytes(metrics)
        said = None
        try:
            trained(folder, resume=True, config=CONFIG.model_copy(update={"max_steps": 62}))
        except InputError as error:
            said = str(error)
        except Exception as error:
            raise AssertionError(f"{path}: {type(error).__name__}: {error}") from error
        if said is not None:
            refused += 1
            assert any(fix in said for fix in ("use the same", "start a new run", "--overwrite")), f"{path}: {said}"
    assert refused > 50


def test_a_resume_that_does_not_fit_names_the_difference(tmp_path):
    folder = RunFolder(tmp_path / "run")
    with pytest.raises(InputError, match="does not exist, so there is nothing to resume"):
        trained(folder, resume=True)
    trained(folder)
    with pytest.raises(InputError, match="already holds a run; pass --resume"):
        trained(folder)
    with pytest.raises(InputError, match="made with seed=3, this run has 8"):
        trained(folder, resume=True, seed=8)
    with pytest.raises(InputError, match=r"learning rates .*use the same"):
        trained(folder, resume=True, task=LinearTask(learning_rate=0.1))
    with pytest.raises(InputError, match="batches_per_epoch=5, this run has 3"):
        trained(folder, resume=True, config=CONFIG.model_copy(update={"batch_size": 16}))
    content = folder.metrics_path.read_bytes()
    folder.metrics_path.write_bytes(content[:-5])
    with pytest.raises(InputError, match=r"metrics\.jsonl has \d+ bytes, its checkpoint knows of"):
        trained(folder, resume=True)
    folder.metrics_path.write_bytes(content)
    tensors = folder.checkpoint_path / "tensors.safetensors"
    tensors.write_bytes(tensors.read_bytes()[:-1])
    with pytest.raises(ArtefactError, match=r"tensors\.safetensors"):
        trained(folder, resume=True)
    trained(RunFolder(folder.path, overwrite=True))
