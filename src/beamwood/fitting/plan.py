"""Plans: the facts about a data set by which each automatic setting is resolved, once.

`MethodConfig.plan(facts)` runs before fitting. Methods receive the plan, and the artefact stores both.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from beamwood.training.loop_config import LAZY_FROM, EmbeddingOptimiser

if TYPE_CHECKING:
    from beamwood.data.dataset import Dataset

__all__ = ["LARGEST", "Facts", "Start", "embeddings_of", "start_of"]

LARGEST = 2_000_000
"""The most items for which start "auto" means "transitions": beyond, the vectors take more than a GiB."""

Start = Literal["auto", "random", "transitions"]
"""The initial vectors: random, or from transition counts of the training histories."""


@dataclass(frozen=True, slots=True)
class Facts:
    """The facts about training data that a plan reads; `mean_history`: the mean length of non-empty histories."""

    num_users: int
    num_items: int
    mean_history: float = 0.0
    has_categories: bool = False

    @classmethod
    def of(cls, train: Dataset) -> Facts:
        """The facts of a data set."""
        lengths, table = train.histories.lengths, train.item_table
        some = lengths[lengths > 0]
        return cls(
            num_users=len(train.users),
            num_items=train.num_items,
            mean_history=float(some.mean()) if len(some) else 0.0,
            has_categories=table is not None and bool((table.categories >= 0).any()),
        )


def start_of(start: Start, num_items: int, *, possible: bool = True) -> Literal["random", "transitions"]:
    """The resolved `start`, where starting from transitions is `possible`."""
    if start == "auto":
        return "transitions" if possible and num_items <= LARGEST else "random"
    return start


def embeddings_of(kind: EmbeddingOptimiser, *rows: int) -> EmbeddingOptimiser:
    """The resolved `optimiser.embeddings` for tables with these row counts; "large" where it differs."""
    if kind != "auto":
        return kind
    large = [each >= LAZY_FROM for each in rows]
    return "lazy-adam" if all(large) else "large" if any(large) else "adam"
