"""The options of every tree method's `fit` besides those of all methods."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from beamwood.fitting.options import TrainOptions

if TYPE_CHECKING:
    from beamwood.kernels.terms import Term
    from beamwood.losses.levels import LevelLoss

__all__ = ["TreeOptions"]


class TreeOptions(TrainOptions, total=False):
    """Parts that a user's own method binds, as `functools.partial(METHOD.fit, terms=...)`.

    `terms` (none) are added to the score, after those of the settings; loading such a folder needs them, too
    (`retrieval.tree.searcher_with`). `loss` (the method's): of a level.
    """

    terms: Sequence[Term]
    loss: LevelLoss
