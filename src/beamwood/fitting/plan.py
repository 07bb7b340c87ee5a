"""What settings mean for a data set: the facts by which each automatic value becomes a plain one, once.

`Settings.plan(facts)` does that before anything is fitted. What is fitted gets the plan, and the artefact holds both.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from beamwood.training.loop_config import LAZY_FROM, EmbeddingOptimiser

if TYPE_CHECKING:
    from beamwood.data.dataset import Dataset
    from beamwood.data.split import Queries

__all__ = ["AHEAD", "LARGEST", "Facts", "Start", "embeddings_of", "horizon_of", "start_of"]

LARGEST = 2_000_000
"""Items up to which a start "auto" means "transitions": the vectors take more than a GiB beyond."""

AHEAD = 10
"""How far ahead targets are where many items are asked for."""

Start = Literal["auto", "random", "transitions"]
"""Where vectors start: at random, or from what follows what in the training histories."""


@dataclass(frozen=True, slots=True)
class Facts:
    """What a plan looks at in the data.

    `mean_history`: the training interactions of a user with any, in the mean; `mean_labels`: the items that a
    validation query asks for, in the mean, 0 where nobody asks.
    """

    num_users: int
    num_items: int
    mean_history: float = 0.0
    has_categories: bool = False
    mean_labels: float = 0.0

    @classmethod
    def of(cls, train: Dataset, valid: Queries | None = None) -> Facts:
        """Those of training data, and of the validation queries where there are any."""
        lengths, table = train.histories.lengths, train.item_table
        some = lengths[lengths > 0]
        return cls(
            num_users=len(train.users),
            num_items=train.num_items,
            mean_history=float(some.mean()) if len(some) else 0.0,
            has_categories=table is not None and bool((table.categories >= 0).any()),
            mean_labels=float(valid.labels.lengths.mean()) if valid is not None and len(valid) else 0.0,
        )


def start_of(start: Start, num_items: int, *, possible: bool = True) -> Literal["random", "transitions"]:
    """What `start` means where such a start is `possible`."""
    if start == "auto":
        return "transitions" if possible and num_items <= LARGEST else "random"
    return start


def horizon_of(horizon: int | None, *, next_alone: bool) -> int:
    """How far ahead targets are: a model is trained on what it is asked for, the next item or those that follow."""
    if horizon is None:
        return 1 if next_alone else AHEAD
    return horizon


def embeddings_of(kind: EmbeddingOptimiser, *rows: int) -> EmbeddingOptimiser:
    """What `optimiser.embeddings` means for tables of so many rows; "large" where they differ."""
    if kind != "auto":
        return kind
    large = [each >= LAZY_FROM for each in rows]
    return "lazy-adam" if all(large) else "large" if any(large) else "adam"
