"""How one training is run: what every method's `fit` takes besides the data and the method's own configuration."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias, TypedDict, cast

from beamwood.training.budget import Budget

if TYPE_CHECKING:
    from beamwood.retrieval.retriever import Retriever
    from beamwood.training.run_folder import RunFolder

__all__ = ["MOST_SEED", "PARTS", "Fit", "TrainOptions", "with_budget"]

Fit: TypeAlias = "Callable[..., Retriever]"
"""Another method as a part of this one: it is given the split and options of `TrainOptions`, and has its defaults."""

# Every generator takes this one, and those that start from a seed just above it.
MOST_SEED = 2**63 - 1


# What methods of one's own may bind: see `TreeOptions` and `VectorOptions`.
PARTS = ("terms", "loss", "sampler", "index")


class TrainOptions(TypedDict, total=False):
    """Each may be left out; a method that only counts needs none.

    `seed` (0; at most 2^63 - 1) starts all that is drawn. `run` is the folder of metrics and checkpoints (None: nothing
    is kept), with which `resume` (False) goes on, bit for bit. `time_limit` in seconds (None), or a `Budget` that began
    earlier, covers all of a fit, from what a model starts from to saving; the best so far is returned in time.
    `progress` (True) shows the steps on stderr.
    """

    seed: int
    run: RunFolder | None
    time_limit: float | Budget | None
    resume: bool
    progress: bool


def with_budget(options: Mapping[str, Any], name: str | None = None) -> TrainOptions:
    """The options with one budget that begins here, unless it began before, for all parts of a fit to share."""
    limit = options.get("time_limit")
    if not isinstance(limit, Budget):
        limit = Budget(limit) if name is None else Budget(limit, name=name)
    return cast(TrainOptions, {**options, "time_limit": limit})
