"""The initial weights of a tree's scorer: from counts, calibrated by level, with a weight for seen items."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from beamwood.blocks import evenly
from beamwood.errors import InputError
from beamwood.fitting.start_cache import cached, is_caching
from beamwood.fitting.tree.node_start import start_scorer
from beamwood.fitting.tree.objective import ScoredLevel
from beamwood.fitting.tree.scorer import all_tensors, num_bytes
from beamwood.fitting.tree.seen_start import best_seen_start
from beamwood.models.din_start import shift_levels
from beamwood.models.terms.seen import set_weight as set_seen
from beamwood.steps import step
from beamwood.training.budget import Budget, estimated_seconds
from beamwood.training.trainable import Progress

if TYPE_CHECKING:
    from beamwood.fitting.tree.config import TreeConfig
    from beamwood.fitting.tree.task import TreeTask
    from beamwood.kernels.terms import Term

__all__ = ["calibrate_levels", "initialise_scorer", "start_key"]

# The examples on which levels are calibrated; under a limit the share of the time left for it, and the fewest.
_EXAMPLES, _SHARE, _FEWEST = 1024, 0.1, 64
# The most bytes of initial weights that are cached for other trainings.
_MOST_CACHED = 2**29


def start_key(config: TreeConfig, terms: Sequence[Term], seed: int) -> str | None:
    """A cache key of the settings on which initial tree and weights depend; None where nothing is cached."""
    if terms or not is_caching():
        return None
    settings = config.model_dump(mode="json", exclude={"optimiser", "loop", "examples"})
    # These settings have no effect on them.
    for name in ("dropout", "recompute", "light_width"):
        del settings["model"][name]
    return json.dumps(settings | {"seed": seed}, sort_keys=True)


def initialise_scorer(task: TreeTask, key: str | None, rng: torch.Generator, budget: Budget) -> float:
    """Initialise the scorer of a task; returns the initial weight of seen items.

    With a `key` of `start_key` the weights are copied from an earlier fit of these settings, if there was one.
    """
    scorer = task.model.scorer
    # The calibration of independent losses depends on random draws, so it is not cached.
    if key is None or task.objective.loss.link.independent or num_bytes(scorer) > _MOST_CACHED:
        return _initialised(task, rng, budget)

    def started() -> tuple[dict[str, Tensor], float]:
        weight = _initialised(task, rng, budget)
        return {name: tensor.detach().clone() for name, tensor in all_tensors(scorer).items()}, weight

    start, weight = cached(task.split.train, f"scorer {key}", started, budget)
    with torch.no_grad():
        for name, tensor in all_tensors(scorer).items():
            tensor.copy_(start[name])
    return weight


def _initialised(task: TreeTask, rng: torch.Generator, budget: Budget) -> float:
    started = task.config.start.scores == "transitions"
    with step("initialising the weights of nodes from counts"):
        start_scorer(task.model.scorer, task.counts, network=started)
    if started and task.objective.loss.link.independent:
        calibrate_levels(task, rng, budget)
    return _initialise_seen(task, rng.initial_seed(), budget)


def _initialise_seen(task: TreeTask, seed: int, budget: Budget) -> float:
    """Set the initial weight of seen items, as given or as chosen on validation users; returns it."""
    given, seen = task.config.start.seen, task.model.scorer.held_terms().get("seen")
    if seen is None:
        return given or 0.0

    def set_weight(weight: float) -> None:
        seen.change(lambda held: set_seen(held, weight))

    if given is None:
        monitor, valid = task.config.choose.monitor, task.split.valid
        with step("choosing how seen items start"):
            given = best_seen_start(set_weight, task.searcher, valid, monitor, seed=seed, budget=budget)
    set_weight(given)
    return given


def calibrate_levels(task: TreeTask, rng: torch.Generator, budget: Budget) -> None:
    """Shift the initial scores of each level by the offset with the least loss on a few examples.

    For losses with a probability for each node: the initial scores order nodes, but are not calibrated. Under a time
    limit the examples are as many as are certain to fit. Errors: `InputError` on a loss that is not finite.
    """
    # Imported here: it takes a second, and few losses need it.
    from scipy.optimize import minimize_scalar

    def scored(num: int, rng: torch.Generator) -> list[ScoredLevel]:
        return task.scored(task.draw(task.batch(evenly(task.num_examples, num), rng, Progress()), rng))

    def loss(level: ScoredLevel, shift: float) -> float:
        return float(task.objective.level_loss(task.tree, level._replace(scores=level.scores + shift)))

    num = min(_EXAMPLES, task.num_examples)
    task.model.eval()
    with torch.no_grad():
        if budget.limited:
            seconds = estimated_seconds(lambda few: scored(few, torch.Generator().manual_seed(0)), num, budget.clock)
            num = budget.affordable(num, seconds, share=_SHARE, fewest=_FEWEST)
        levels = scored(num, rng)
        if not all(math.isfinite(loss(level, 0.0)) for level in levels):
            raise InputError(
                f"the loss '{task.objective.loss.name}' of the initial scores is not finite; mend its function, or "
                "set start.scores=random"
            )
        offsets = [minimize_scalar(lambda shift, own=level: loss(own, shift)).x for level in levels]
    task.model.train()
    shift_levels(task.model.scorer, offsets)
