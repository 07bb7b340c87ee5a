"""The most popular items of the training data, the same for every user; with `model.half_life` the recently popular.

    score_i = sum over the users who took i of weight * 2^(-age / h),    h = half_life * (newest - oldest time)

`age` is the time from a user's latest interaction with the item to the newest interaction of the training data.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from beamwood.data.dataset import Dataset
from beamwood.data.split import Split
from beamwood.errors import InputError
from beamwood.fitting.counting import interactions
from beamwood.fitting.method_config import MethodConfig, SettingsGroup
from beamwood.fitting.settings import ChoiceSettings
from beamwood.fitting.validation import CUT, Monitor
from beamwood.methods.method import Method, Needs
from beamwood.ragged import places_in_rows
from beamwood.retrieval.searchers.popularity import PopularitySearcher
from beamwood.training.budget import Budget

__all__ = ["METHOD", "Config"]

# The half-lives that validation chooses from.
_TRIED = (None, *(0.5**power for power in range(1, 10)))
# The least weight by age, so that old items keep their order in float32.
_LEAST = -100.0


class RecencySettings(SettingsGroup):
    """How interactions lose weight with age."""

    half_life: Annotated[float, Field(gt=0)] | Literal["auto"] | None = Field(
        None,
        description="time that halves an interaction's weight, as a share of the log's time; null: never; auto: by "
        "validation",
    )


class Config(MethodConfig):
    """The plain count; its validation users choose `model.half_life=auto` alone."""

    model: RecencySettings = RecencySettings()
    choose: ChoiceSettings = ChoiceSettings(validation_users=10_000)


def build(split: Split, config: Config, seed: int, budget: Budget) -> tuple[PopularitySearcher, dict[str, Any]]:
    """Count the training users who took each item, or sum their weights; repeats count once.

    "auto" is null for a log without times. Errors: a half-life is given for such a log.
    """
    train, half_life = split.train, config.model.half_life
    if half_life is None or (half_life == "auto" and not _compares_times(train)):
        return _counted(train, None), {}
    if half_life != "auto":
        if not _compares_times(train):
            raise InputError(
                f"model.half_life={half_life:g} needs times that compare between users, and the log has none; name the "
                "column with --time-column, or leave it out"
            )
        return _counted(train, half_life), {}
    queries, monitor = split.valid.sample(config.choose.validation_users, seed=seed), Monitor("both", "f")
    cut, values = min(CUT, train.num_items), list[float]()
    for each in _TRIED:
        if values and budget.limited and budget.left <= 0:
            budget.leave_out(f"{len(values)} of {len(_TRIED)} half-lives tried")
            break
        values.append(float(monitor.mean(monitor.results(_counted(train, each), queries, cut)).mean()))
    best = int(np.argmax(values))
    return _counted(train, _TRIED[best]), {
        "half_life": _TRIED[best],
        f"valid/{monitor.at(cut)}": values[best],
    } | budget.notes()


def _compares_times(train: Dataset) -> bool:
    """Whether the log has times, which do not only count 0, 1, 2, .. within each user."""
    return train.times is not None and not np.array_equal(train.times, places_in_rows(train.histories.lengths))


def _counted(train: Dataset, half_life: float | None) -> PopularitySearcher:
    weights = train.weights if half_life is None else _by_age(train, half_life)
    taken = interactions(train.histories, train.num_items, weights=weights)
    return PopularitySearcher(np.asarray(taken.sum(axis=0)).ravel())


def _by_age(train: Dataset, half_life: float) -> NDArray[np.float32]:
    """float32[entries], the weight of each interaction times 2^(-age / h)."""
    assert train.times is not None
    ages = (train.times.max(initial=np.iinfo(np.int64).min) - train.times).astype(np.float64)
    halvings = ages / max(half_life * ages.max(initial=0), np.finfo(np.float64).tiny)
    weights: NDArray[np.float32] = np.exp2(np.maximum(-halvings, _LEAST)).astype(np.float32)
    return weights if train.weights is None else weights * train.weights


METHOD = Method(
    name="popularity",
    summary="the most popular items, the same for every user",
    Config=Config,
    build=build,
    needs=Needs(weighs=True),
)
