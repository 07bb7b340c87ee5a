"""The split of a fit that will be served: all events train, except the labels of a few validation users."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from beamwood.data.dataset import Dataset
from beamwood.data.queries import Queries
from beamwood.data.split import Split
from beamwood.ragged import is_in
from beamwood.words import counted

__all__ = ["is_whole", "whole", "without_labels"]

# The share of all users who validate, within these numbers.
_SHARE, _FEWEST, _MOST = 0.01, 500, 2000
# With this the rule of such a split begins.
_RULE = "the whole log"


def whole(split: Split, *, seed: int = 0) -> Split:
    """The whole log of a split: some of its test users, drawn with `seed`, validate, all else trains, nobody tests.

    One in a hundred users validates, but at least 500, as far as there are as many test users, and at most 2,000. A
    validation user's labels are not trained on, wherever they occur in that user's history. If the split tests users
    without training data, no event of a validation user is trained on.
    """
    num = min(max(int(_SHARE * len(split.dataset.users)), _FEWEST), _MOST)
    valid = split.test.labelled().sample(num, seed=seed)
    rule = (
        f"{_RULE}: all events train, except those held back for {counted(len(valid), 'validation user')}, drawn "
        f"with seed {seed} from the test users of the split {split.name!r}; nobody tests"
    )
    train, nobody = without_labels(split, valid), split.test.take(np.empty(0, np.int64))
    return replace(split, train=train, valid=valid, test=nobody, rule=rule, report={})


def is_whole(split: Split) -> bool:
    """Whether `whole` made it."""
    return split.rule.startswith(_RULE)


def without_labels(split: Split, queries: Queries) -> Dataset:
    """The data of a split without the labels of these queries, or without their users if it tests unknown users."""
    dataset, histories = split.dataset, split.dataset.histories
    if split.tests_unknown_users:
        held = np.isin(histories.rows, queries.users)
    else:
        keys = histories.rows * dataset.num_items + histories.items
        held = is_in(keys, queries.users[queries.labels.rows] * dataset.num_items + queries.labels.items)
    return dataset.keeping(np.flatnonzero(~held), np.bincount(histories.rows[~held], minlength=len(histories)))
