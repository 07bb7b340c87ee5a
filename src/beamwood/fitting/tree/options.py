"""The options of every tree method's `fit` besides those of all methods."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from beamwood.fitting.options import TrainOptions

if TYPE_CHECKING:
    from beamwood.kernels.terms import Term
    from beamwood.losses.levels import LevelLoss
    from beamwood.sampling.levels import LevelSampler

__all__ = ["TreeOptions"]


class TreeOptions(TrainOptions, total=False):
    """Parts that a user's own method binds, as `functools.partial(METHOD.fit, terms=...)`.

    `terms` (none) are added to the score, behind those of the settings; who loads such a folder needs them too
    (`retrieval.tree.searcher_with`). `loss` (the method's) is that of a level, `sampler` (the method's) draws what each
    level is trained on besides the targets.
    """

    terms: Sequence[Term]
    loss: LevelLoss
    sampler: LevelSampler
