"""How one training is run: what every method's `fit` takes besides the data and the method's own configuration."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeAlias, TypedDict

if TYPE_CHECKING:
    from beamwood.retrieval.retriever import Retriever
    from beamwood.training.run_folder import RunFolder

__all__ = ["MOST_SEED", "Fit", "TrainOptions", "with_less_time"]

Fit: TypeAlias = "Callable[..., Retriever]"
"""Another method as a part of this one: it is given the split and options of `TrainOptions`, and has its defaults."""

# Every generator takes this one, and those that start from a seed just above it.
MOST_SEED = 2**63 - 1


class TrainOptions(TypedDict, total=False):
    """Each may be left out; a method that only counts needs none.

    `seed` (0; at most 2^63 - 1) starts all that is drawn. `run` is the folder of metrics and checkpoints (None: nothing
    is kept), with which `resume` (False) goes on, bit for bit. `time_limit` in seconds (None) covers what a model
    starts from, training and its validations; the best so far is returned when it ends. `progress` (True) shows the
    steps on stderr.
    """

    seed: int
    run: RunFolder | None
    time_limit: float | None
    resume: bool
    progress: bool


def with_less_time(options: TrainOptions, seconds: float) -> TrainOptions:
    """The options of what follows after `seconds` of the time limit are gone; one second of a longer one is left."""
    limit = options.get("time_limit")
    # What is no limit is for the training loop to refuse.
    if limit is None or not limit > 0:
        return options
    return {**options, "time_limit": max(min(limit, 1.0), limit - seconds)}
