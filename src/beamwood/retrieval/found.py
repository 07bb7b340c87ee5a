"""The results of a search for a single row, without empty places."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from beamwood.errors import unsound_score
from beamwood.types import Hits

__all__ = ["found_of"]


def found_of(hits: Hits) -> tuple[NDArray[np.int32], list[float]]:
    """int32[at most k], the items of the only row, best first, and their scores.

    Errors: `ArtefactError` where a score is not a number.
    """
    items = hits.items[0]
    count = len(items) if items[-1] >= 0 else int(np.count_nonzero(items >= 0))
    # Faster on a list than on a short array.
    scores: list[float] = hits.scores[0, :count].tolist()
    if not all(map(math.isfinite, scores)):
        raise unsound_score()
    return items[:count], scores
