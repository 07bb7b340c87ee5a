"""How every method that trains by steps is trained: its configuration kept, the loop run, and how it ended said."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, TypeVar, Unpack

from beamwood.data.split import Split
from beamwood.fitting.assemble import build_retriever
from beamwood.fitting.choose import Choice, Measure, Validation, check_monitor
from beamwood.fitting.fitted import folder_digests
from beamwood.fitting.judge import Later, TimedValidation
from beamwood.fitting.options import TrainOptions
from beamwood.fitting.settings import TrainedConfig
from beamwood.retrieval.retriever import Retriever
from beamwood.training.budget import Budget, Clock
from beamwood.training.loop import run_loop
from beamwood.training.run_folder import RunFolder
from beamwood.training.trainable import Trainable

__all__ = ["SearchedTask", "fit_task", "train"]

Batch = TypeVar("Batch")


class SearchedTask(Trainable[Batch]):
    """A trainable whose weights are a searcher."""

    @abstractmethod
    def searcher(self) -> Any:
        """That of the weights as they are now."""

    def sample(self, clock: Clock) -> tuple[Any, float]:
        """A searcher that takes as long to ask as that of the weights, and the seconds that one takes to make."""
        began = clock()
        return self.searcher(), clock() - began


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
    seed: int = 0,
    run: RunFolder | None = None,
    time_limit: float | Budget | None = None,
    resume: bool = False,
    progress: bool = True,
) -> dict[str, Any]:
    """Train `task` and leave the weights that are best on `split.valid`; returns what an artefact says of it.

    `measure` stands in for validation by full ranking; time is kept for `choice` and `later`; `evaluate_start`: see
    `LoopConfig`. A resumed run must have the same data, split and settings, but for its bounds.
    """
    settings, choose, budget = config.flat(), config.choose, Budget.of(time_limit)
    made_of = {"method": method, "seed": seed, "data": split.dataset.fingerprint(), "split": split.rule}
    made_of |= {"tables": split.dataset.tables_digest()} | folder_digests(settings)
    if measure is None:
        check_monitor(choose.monitor)
        measure = Validation(split.valid, choose.validation_users, seed=seed)
    judge = TimedValidation(task.searcher, measure, choice, later)
    result = run_loop(
        task,
        config.loop_config(evaluate_start=evaluate_start),
        evaluate=judge,
        prices=lambda before: judge.prices(
            task, *task.sample(budget.clock), budget, checkpoints=run is not None, before=before
        ),
        run=run,
        kept=made_of | settings,
        resume=resume,
        budget=budget,
        progress=progress,
        seed=seed,
    )
    training: dict[str, Any] = {
        "steps": result.steps,
        "seconds": round(result.seconds, 3),
        "best_step": result.best_step,
        "stopped": result.stopped_because,
        f"valid/{choose.monitor}": result.best_metric,
        "examples": task.num_examples,
    }
    if task.update is not None:
        training["tree_updates"] = result.updates
    if budget.left_out:
        training["left_out"] = list(budget.left_out)
    return training


def fit_task(
    task: SearchedTask[Any],
    split: Split,
    config: TrainedConfig,
    *,
    method: str,
    measure: Measure | None = None,
    **options: Unpack[TrainOptions],
) -> Retriever:
    """`train`, and the retriever of the best weights."""
    training = train(task, split, config, method=method, measure=measure, **options)
    seed = options.get("seed", 0)
    return build_retriever(task.searcher(), split, method=method, config=config, seed=seed, training=training)
