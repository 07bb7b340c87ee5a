"""What settings mean for a data set: the facts by which each automatic value becomes a plain one, once.

`Settings.plan(facts)` does that before anything is fitted. What is fitted gets the plan, and the artefact holds both.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from beamwood.training.loop_config import LAZY_FROM, EmbeddingOptimiser

if TYPE_CHECKING:
    from beamwood.data.dataset import Dataset

__all__ = ["LARGEST", "Facts", "Start", "embeddings_of", "start_of"]

LARGEST = 2_000_000
"""Items up to which a start "auto" means "transitions": the vectors take more than a GiB beyond."""

Start = Literal["auto", "random", "transitions"]
"""Where vectors start: at random, or from what follows what in the training histories."""


@dataclass(frozen=True, slots=True)
class Facts:
    """What a plan looks at in the training data; `mean_history`: the interactions of a user with any, in the mean."""

    num_users: int
    num_items: int
    mean_history: float = 0.0
    has_categories: bool = False

    @classmethod
    def of(cls, train: Dataset) -> Facts:
        """Those of a data set."""
        lengths, table = train.histories.lengths, train.item_table
        some = lengths[lengths > 0]
        return cls(
            num_users=len(train.users),
            num_items=train.num_items,
            mean_history=float(some.mean()) if len(some) else 0.0,
            has_categories=table is not None and bool((table.categories >= 0).any()),
        )


def start_of(start: Start, num_items: int, *, possible: bool = True) -> Literal["random", "transitions"]:
    """What `start` means where such a start is `possible`."""
    if start == "auto":
        return "transitions" if possible and num_items <= LARGEST else "random"
    return start


def embeddings_of(kind: EmbeddingOptimiser, *rows: int) -> EmbeddingOptimiser:
    """What `optimiser.embeddings` means for tables of so many rows; "large" where they differ."""
    if kind != "auto":
        return kind
    large = [each >= LAZY_FROM for each in rows]
    return "lazy-adam" if all(large) else "large" if any(large) else "adam"
