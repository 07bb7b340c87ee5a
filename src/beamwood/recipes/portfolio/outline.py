"""The facts about a log that decide which methods a search tries."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from beamwood.data.split import Split
from beamwood.words import counted

__all__ = ["Outline"]


@dataclass(frozen=True, slots=True)
class Outline:
    """The numbers of `rows`, `users` and `items` of a log, and further facts.

    `repeats`: the share of training rows whose user had seen the item; `length`: the median length of non-empty
    training histories; `timed`: whether rows have times; `validation_users`: the number of validation users.
    """

    rows: int
    users: int
    items: int
    repeats: float
    length: float
    timed: bool
    validation_users: int

    @classmethod
    def of(cls, split: Split) -> Outline:
        """The outline of a split's log."""
        histories, lengths = split.train.histories, split.train.histories.lengths
        rows, some = len(histories.items), lengths[lengths > 0]
        return cls(
            rows=len(split.dataset.histories.items),
            users=len(split.dataset.users),
            items=len(split.dataset.items),
            repeats=1 - len(histories.distinct().items) / rows if rows else 0.0,
            length=float(np.median(some)) if len(some) else 0.0,
            timed=split.dataset.times is not None,
            validation_users=len(split.valid),
        )

    @property
    def can_train(self) -> bool:
        """Whether any user has two rows to train on."""
        return self.length >= 2 or self.rows >= 2 * self.users

    def words(self) -> str:
        """The outline in one line."""
        times = "with times" if self.timed else "without times"
        rows, users, items = counted(self.rows, "row"), counted(self.users, "user"), counted(self.items, "item")
        return (
            f"{rows} of {users} and {items}, {times}; half of the training histories have {self.length:g} rows or "
            f"more, {self.repeats:.0%} of the rows repeat an item"
        )

    def as_dict(self) -> dict[str, Any]:
        """The outline, JSON-able."""
        return asdict(self)
