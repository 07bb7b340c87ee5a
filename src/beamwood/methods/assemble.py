"""The last step of every method: a searcher and the training data's names become a `Retriever`."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel

from beamwood.data.split import Split
from beamwood.retrieval.retriever import Retriever
from beamwood.types import Searcher

__all__ = ["build_retriever"]

# A stored history serves recommendations by user id; a scorer looks at the latest interactions only.
_STORED_HISTORY = 200


def build_retriever(
    searcher: Searcher,
    split: Split,
    *,
    method: str,
    config: BaseModel,
    seed: int,
    training: dict[str, Any] | None = None,
) -> Retriever:
    """The retriever of a fitted method, with all users' latest 200 interactions and what it was made from."""
    dataset = split.dataset
    table = dataset.item_table
    return Retriever(
        searcher=searcher,
        items=dataset.items,
        users=dataset.users,
        histories=dataset.histories.last(_STORED_HISTORY),
        categories=None if table is None else table.category_labels,
        metadata={
            "method": method,
            "config": config.model_dump(mode="json"),
            "seed": seed,
            "data": {"fingerprint": dataset.fingerprint(), "split": split.rule, "users": len(dataset.users)},
            "training": training or {},
        },
    )
