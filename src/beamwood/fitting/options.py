"""The options that every method's `fit` accepts, besides the data and the settings."""

from __future__ import annotations

import reprlib
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias, TypedDict, cast

from beamwood.errors import InputError
from beamwood.training.budget import Budget

if TYPE_CHECKING:
    from beamwood.retrieval.retriever import Retriever
    from beamwood.training.run_folder import RunFolder

__all__ = ["MAX_SEED", "PARTS", "RUN", "Fit", "TrainOptions", "check_part", "limit_of", "with_budget"]

Fit: TypeAlias = "Callable[..., Retriever]"
"""A function that fits a method with its default settings, given the split and `TrainOptions`."""

# The largest seed that all generators accept, also where a small offset is added to it.
MAX_SEED = 2**63 - 1


# The options that a user's own method may bind: see `TreeOptions`, `VectorOptions` and `fit_towers`.
PARTS = ("terms", "loss", "sampler", "index")
# The options of a run, which a method that does not train refuses.
RUN = ("run", "resume")


class TrainOptions(TypedDict, total=False):
    """The options of a fit; all are optional. A method that does not train refuses `run` and `resume`.

    `seed`: of all random draws, 0 by default, at most 2^63 - 1. `run`: the folder of metrics and checkpoints; without
    one none are written. `resume`: continue the run in that folder, bit for bit. `time_limit`: in seconds, or a
    `Budget` that began earlier; it covers the whole fit, which returns the best weights found in time. `progress`:
    whether steps are shown on stderr, True by default.
    """

    seed: int
    run: RunFolder | None
    time_limit: float | Budget | None
    resume: bool
    progress: bool


def check_part(name: str, part: Any, fits: bool, wanted: str) -> None:
    """Errors: a part of a user's own method that does not fit; `wanted` says what does. None is the method's own."""
    if part is not None and not fits:
        raise InputError(f"{name}={reprlib.repr(part)} does not fit; give {wanted}")


def with_budget(options: Mapping[str, Any], name: str | None = None) -> TrainOptions:
    """The options with their time limit as a `Budget` that all parts of a fit share; it starts now, unless given."""
    limit = options.get("time_limit")
    if not isinstance(limit, Budget):
        limit = Budget(limit) if name is None else Budget(limit, name=name)
    return cast(TrainOptions, {**options, "time_limit": limit})


def limit_of(limit: float | Budget | None) -> dict[str, float]:
    """What a model's metadata record of the time limit of its fit, in seconds; nothing without one."""
    budget = Budget.of(limit)
    return {"time_limit": budget.limit} if budget.limited else {}
