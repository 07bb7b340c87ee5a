"""How often items are near others in the training histories, by each kind of nearness that a tree's lists can hold."""

from __future__ import annotations

from scipy import sparse

from beamwood.data.dataset import Dataset
from beamwood.fitting.neighbour_kinds import KINDS, NeighbourKind
from beamwood.fitting.vectors.item_start import surroundings
from beamwood.training.budget import Budget
from beamwood.types import BoolArray

__all__ = ["neighbour_counts"]


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
