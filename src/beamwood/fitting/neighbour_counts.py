"""Neighbour counts of items in the training histories, by kind of neighbourhood."""

from __future__ import annotations

from scipy import sparse

from beamwood.data.dataset import Dataset
from beamwood.fitting.neighbour_kinds import KINDS, NeighbourKind
from beamwood.fitting.vectors.item_start import neighbour_matrix
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
    """float64[N, N], in row i the counts of item i's neighbours; see `neighbour_matrix`."""
    directed, power = KINDS[kind]
    return neighbour_matrix(train, of_users=of_users, power=power, directed=directed, most=most, budget=budget)
