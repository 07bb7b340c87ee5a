"""A ranker with a custom list loss: a margin of 1 between each positive and each negative.

Shape legend: B lists, K items a list.
"""

from dataclasses import replace
from functools import partial

from torch import relu

from beamwood.methods.ranker import METHOD as RANKER


def hinge(scores_BK, labels_BK):
    """[B]: the mean over pairs with `y_i > y_j` of `max(0, 1 - (s_i - s_j))`."""
    above_BKK = (labels_BK[:, :, None] > labels_BK[:, None, :]).to(scores_BK.dtype)
    terms_BKK = relu(1 - scores_BK[:, :, None] + scores_BK[:, None, :]) * above_BKK
    return terms_BKK.sum(dim=(1, 2)) / above_BKK.sum(dim=(1, 2)).clamp(min=1)


METHOD = replace(RANKER, name="ranker-hinge", fit=partial(RANKER.fit, loss=hinge))
