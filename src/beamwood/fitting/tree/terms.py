"""The terms of a tree's score: those that a configuration asks for, and those that are given as objects."""

from __future__ import annotations

from collections.abc import Sequence

from beamwood.data.dataset import Dataset
from beamwood.fitting.tree.settings import TreeConfig
from beamwood.kernels.terms import Term
from beamwood.models.terms import Neighbours, Seen, Similarity
from beamwood.models.terms.similarity import WEIGHT, WEIGHT_BESIDE

__all__ = ["FOLDS", "terms_of"]

FOLDS = 4
"""Of users, whose own steps the terms that they are trained with leave out."""


def terms_of(config: TreeConfig, train: Dataset, more: Sequence[Term] = ()) -> tuple[Term, ...]:
    """The terms in the order in which they are added; `more` come last."""
    lengths = train.histories.lengths
    width = config.similarity_columns(train.num_items)
    count = config.neighbours_of(train.num_items, float(lengths[lengths > 0].mean()))
    terms: list[Term] = []
    if width:
        terms += [Similarity(width, WEIGHT_BESIDE if count else WEIGHT), Seen()]
    if count:
        terms.append(Neighbours(count, FOLDS))
    return (*terms, *more)
