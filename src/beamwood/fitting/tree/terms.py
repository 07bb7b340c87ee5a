"""The terms that are added to a tree's score: those of the settings, and those given as objects."""

from __future__ import annotations

from collections.abc import Sequence

from beamwood.fitting.neighbour_kinds import is_directed
from beamwood.fitting.tree.config import TreeConfig
from beamwood.kernels.terms import Term
from beamwood.models.terms import Neighbours, Seen, Similarity
from beamwood.models.terms.similarity import WEIGHT, WEIGHT_BESIDE

__all__ = ["FOLDS", "LATEST", "terms_of"]

FOLDS = 4
"""The number of folds of users: a user is trained without the counts of the user's own fold."""

LATEST = 20
"""The number of latest history items whose neighbours count, for directed kinds."""


def terms_of(config: TreeConfig, more: Sequence[Term] = ()) -> tuple[Term, ...]:
    """The terms in the order in which they are added; `more` come last."""
    width, count = config.model.similarity_width, config.model.num_neighbours
    assert width is not None, "a plan has one"
    assert count is not None, "a plan has one"
    terms: list[Term] = []
    if width:
        terms += [Similarity(width, WEIGHT_BESIDE if count else WEIGHT), Seen()]
    if count:
        latest = LATEST if is_directed(config.model.neighbours) else None
        terms.append(Neighbours(count, FOLDS, latest))
    return (*terms, *more)
