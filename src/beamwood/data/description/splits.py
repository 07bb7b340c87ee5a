"""The sizes of each split of a log."""

from __future__ import annotations

from typing import Any

from beamwood.data.dataset import Dataset
from beamwood.data.splits import SPLITS
from beamwood.errors import InputError

__all__ = ["chosen_split", "describe_splits"]


def describe_splits(dataset: Dataset, *, sampled: bool) -> dict[str, dict[str, Any]]:
    """By split the rows and users for training, validation and test, or its error; "boundary" only with a column.

    A sample of the users says nothing of the items without a training row: their number is None.
    """
    return {
        name: _left(dataset, name, sampled) for name in SPLITS if name != "boundary" or dataset.in_history is not None
    }


def chosen_split(splits: dict[str, dict[str, Any]]) -> str | None:
    """The log's own split, else the first that can be made; None where none can."""
    order = dict.fromkeys(["boundary", *splits])
    return next((name for name in order if name in splits and "error" not in splits[name]), None)


def _left(dataset: Dataset, name: str, sampled: bool) -> dict[str, Any]:
    try:
        split = SPLITS[name](dataset)
    except InputError as error:
        return {"error": str(error)}
    return {
        "train_rows": len(split.train.histories.items),
        "valid_users": len(split.valid),
        "test_users": len(split.test),
        "test_labels": len(split.test.labels.items),
        "labels_seen_before": split.test.labels_seen,
        "labels_without_training_rows": None if sampled else split.test.labels_outside(split.train.histories),
    }
