"""Training by steps, as all methods do it: the configuration of the run, the loop, and the record of the training."""

from __future__ import annotations

from typing import Any, Unpack

from beamwood.data.split import Split
from beamwood.errors import InputError, nearest
from beamwood.fitting.fitted import folder_digests
from beamwood.fitting.options import PARTS, TrainOptions
from beamwood.fitting.searched_task import SearchedTask
from beamwood.fitting.settings import TrainedConfig
from beamwood.fitting.timed_validation import Later, TimedValidation
from beamwood.fitting.validation import Choice, Measure, Validation, check_monitor
from beamwood.training.budget import Budget
from beamwood.training.forks import refuse_after_fork
from beamwood.training.loop import run_loop
from beamwood.training.loop_state import LoopResult
from beamwood.training.pace import Validator
from beamwood.training.run_folder import RunRecord
from beamwood.training.trainable import Trainable

__all__ = ["train"]


def train(
    task: SearchedTask[Any],
    split: Split,
    config: TrainedConfig,
    *,
    method: str,
    measure: Measure | None = None,
    choice: Choice | None = None,
    later: Later | None = None,
    evaluate_start: bool = False,
    **options: Unpack[TrainOptions],
) -> dict[str, Any]:
    """Train `task`, leaving the weights that are best on `split.valid`; returns the training record for the artefact.

    `measure` replaces validation by full ranking. For `choice` and `later`, which follow the training, time is
    reserved. `evaluate_start`: see `LoopConfig`. A resumed run must have the same data, split and settings, except for
    its bounds. Errors: `InputError` on an unknown monitor, an unknown option, on `resume` without a run folder, and in
    a process forked from one that has trained.
    """
    refuse_after_fork()
    for name in options:
        if name not in TrainOptions.__annotations__:
            raise InputError(f"option '{name}' is unknown{nearest(name, [*TrainOptions.__annotations__, *PARTS])}")
    choose, seed, run = config.choose, options.get("seed", 0), options.get("run")
    budget, resume = Budget.of(options.get("time_limit")), options.get("resume", False)
    if resume and run is None:
        raise InputError("resume needs the folder of the run; give run=RunFolder(path)")
    record = None if run is None else RunRecord(run, _run_config(split, config, method, seed), resume)
    if measure is None:
        check_monitor(choose.monitor)
        measure = Validation(split.valid, choose.validation_users, seed=seed)
    timed = TimedValidation(task, measure, choice, later)
    result = run_loop(
        task,
        config.loop_config(evaluate_start=evaluate_start),
        validator=Validator(timed, lambda num: timed.estimates(budget, checkpoints=record is not None, before=num)),
        record=record,
        budget=budget,
        progress=options.get("progress", True),
        seed=seed,
    )
    return _training_facts(result, task, choose.monitor, budget)


def _training_facts(result: LoopResult, task: Trainable[Any], monitor: str, budget: Budget) -> dict[str, Any]:
    """The training record for the artefact: steps, seconds, the best step and its metric, and skipped work."""
    training: dict[str, Any] = {
        "steps": result.steps,
        "seconds": round(result.seconds, 3),
        "best_step": result.best_step,
        "stopped": result.stopped_because,
        f"valid/{monitor}": result.best_metric,
        "examples": task.num_examples,
    }
    if task.update is not None:
        training["tree_updates"] = result.updates
    return training | budget.notes()


def _run_config(split: Split, config: TrainedConfig, method: str, seed: int) -> dict[str, Any]:
    """The configuration that a resumed run must match, except for the bounds of its loop."""
    settings = config.flat()
    data = {"data": split.dataset.fingerprint(), "split": split.rule, "tables": split.dataset.tables_digest()}
    return {"method": method, "seed": seed} | data | folder_digests(settings) | settings
