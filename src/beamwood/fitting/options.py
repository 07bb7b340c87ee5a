"""The options of a training that every method's `fit` takes besides the data and its configuration."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias, TypedDict, cast

from beamwood.training.budget import Budget

if TYPE_CHECKING:
    from beamwood.retrieval.retriever import Retriever
    from beamwood.training.run_folder import RunFolder

__all__ = ["MOST_SEED", "PARTS", "Fit", "TrainOptions", "with_budget"]

Fit: TypeAlias = "Callable[..., Retriever]"
"""A function that fits another method with its defaults, given the split and `TrainOptions`."""

# The largest seed: every generator accepts it, and those derived from it by small offsets.
MOST_SEED = 2**63 - 1


# What methods of one's own may bind: see `TreeOptions` and `VectorOptions`.
PARTS = ("terms", "loss", "sampler", "index")


class TrainOptions(TypedDict, total=False):
    """All are optional; counting methods need none.

    `seed` (0; at most 2^63 - 1) of all random draws. `run`: the folder of metrics and checkpoints (None: none are
    kept); `resume` (False) continues it, bit for bit. `time_limit` in seconds (None), or a `Budget` that began earlier,
    covers the whole fit, from initialisation to saving; the best weights so far are returned in time. `progress` (True)
    shows steps on stderr.
    """

    seed: int
    run: RunFolder | None
    time_limit: float | Budget | None
    resume: bool
    progress: bool


def with_budget(options: Mapping[str, Any], name: str | None = None) -> TrainOptions:
    """The options with one budget that starts here, unless one was given, shared by all parts of a fit."""
    limit = options.get("time_limit")
    if not isinstance(limit, Budget):
        limit = Budget(limit) if name is None else Budget(limit, name=name)
    return cast(TrainOptions, {**options, "time_limit": limit})
