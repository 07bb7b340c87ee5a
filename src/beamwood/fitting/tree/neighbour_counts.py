"""How often items are near others in the training histories, by each kind of nearness that a tree's lists can hold."""

from __future__ import annotations

from typing import NamedTuple

from scipy import sparse

from beamwood.data.dataset import Dataset
from beamwood.fitting.tree.plan import NeighbourKind
from beamwood.fitting.vectors.item_start import surroundings
from beamwood.training.budget import Budget
from beamwood.types import BoolArray

__all__ = ["KINDS", "neighbour_counts"]


class Kind(NamedTuple):
    """Whether only what comes later counts, and by which power of the steps between it counts less."""

    directed: bool
    power: float


KINDS: dict[NeighbourKind, Kind] = {
    "around": Kind(directed=False, power=0),
    "after": Kind(directed=True, power=0),
    "next": Kind(directed=True, power=2),
}
"""Where nothing speaks for another, the first: what a session holds is near all of it."""


def neighbour_counts(
    train: Dataset,
    kind: NeighbourKind,
    *,
    of_users: BoolArray | None = None,
    most: int | None = None,
    budget: Budget | None = None,
) -> sparse.csr_matrix:
    """float64[N, N], row i how often each item is near item i; see `surroundings`."""
    directed, power = KINDS[kind]
    return surroundings(train, of_users=of_users, power=power, directed=directed, most=most, budget=budget)
