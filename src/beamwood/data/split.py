"""A data set split into training, validation and test."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from beamwood.data.dataset import Dataset
from beamwood.data.queries import Queries
from beamwood.errors import InputError
from beamwood.notebook import facts
from beamwood.types import IndexArray
from beamwood.words import counted

__all__ = ["OF_OTHERS", "Split"]

OF_OTHERS = ("users", "sessions")
"""The splits that test users without training data."""


@dataclass(frozen=True, eq=False)
class Split:
    """A data set split in three. `train` has all users and items, but only the histories that training may use.

    `name` and `options` rebuild it; `rule` states in words what may leak; `report` counts queries and users left out.
    """

    dataset: Dataset
    train: Dataset
    valid: Queries
    test: Queries
    name: str
    rule: str
    options: dict[str, Any] = field(default_factory=dict)
    report: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        num_users, num_items = len(self.dataset.users), self.dataset.num_items
        if (len(self.train.users), self.train.num_items) != (num_users, num_items):
            raise InputError(
                f"train has {len(self.train.users)} users and {self.train.num_items} items, the data set {num_users} "
                f"and {num_items}; make it of the data set, as dataset.with_histories(..)"
            )
        for part, queries in (("valid", self.valid), ("test", self.test)):
            _check_below(f"{part}.users", queries.users, num_users, "users")
            lists = {"histories": queries.histories, "labels": queries.labels, "seen": queries.seen}
            for name, held in lists.items():
                _check_below(f"{part}.{name}", held.items, num_items, "items")

    @property
    def tests_unknown_users(self) -> bool:
        """Whether no test user has training data."""
        own = self.train.histories.lengths[self.test.users]
        return self.name in OF_OTHERS or (len(own) > 0 and not own.any())

    def __repr__(self) -> str:
        valid, test = counted(len(self.valid), "validation user"), counted(len(self.test), "test user")
        return f"Split {self.name!r}: {valid} and {test}; {self.rule}"

    def _repr_html_(self) -> str:
        counts = {name.replace("_", " "): count for name, count in self.report.items()}
        return facts(f"split {self.name}", {"rule": self.rule, **counts})


def _check_below(name: str, indices: IndexArray, num_known: int, what: str) -> None:
    """Raise `InputError` for an index outside 0..num_known - 1."""
    if len(indices) and not 0 <= int(indices.min()) <= int(indices.max()) < num_known:
        raise InputError(
            f"{name} holds index {int(indices.max() if indices.max() >= num_known else indices.min())} of "
            f"{num_known} {what}; give indices of the data set, as dataset.{what}.encode(ids)"
        )
