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
    """Options for parts of a user's own method, as `functools.partial(METHOD.fit, terms=...)`.

    `terms`: added to the score after those of the settings; loading such a folder needs them too
    (`retrieval.searchers.tree.searcher_with`). `loss`: replaces the loss of a level. `sampler`: replaces the sampler of
    the nodes on which a level is trained besides the targets.
    """

    terms: Sequence[Term]
    loss: LevelLoss
    sampler: LevelSampler
