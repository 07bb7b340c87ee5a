"""Plans: the facts about a data set from which automatic settings are resolved.

`MethodConfig.plan(facts)` runs before fitting. Methods receive the plan, and the artefact stores both.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from beamwood.training.loop_config import LAZY_FROM, EmbeddingOptimiser

if TYPE_CHECKING:
    from beamwood.data.dataset import Dataset

__all__ = ["MAX_TRANSITION_ITEMS", "Facts", "Start", "embeddings_of", "start_of"]

MAX_TRANSITION_ITEMS = 2_000_000
"""The most items for which start "auto" is "transitions": for more, the vectors take over a GiB."""

Start = Literal["auto", "random", "transitions"]
"""How vectors are initialised: at random, or from transition counts of the training histories."""


@dataclass(frozen=True, slots=True)
class Facts:
    """The facts about training data that plans depend on; `mean_history`: the mean length of non-empty histories."""

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
    """The resolved `start`; `possible`: whether the model can start from transitions."""
    if start == "auto":
        return "transitions" if possible and num_items <= MAX_TRANSITION_ITEMS else "random"
    return start


def embeddings_of(kind: EmbeddingOptimiser, *rows: int) -> EmbeddingOptimiser:
    """The resolved `optimiser.embeddings` for tables with so many rows; "large" where it differs between them."""
    if kind != "auto":
        return kind
    large = [each >= LAZY_FROM for each in rows]
    return "lazy-adam" if all(large) else "large" if any(large) else "adam"
