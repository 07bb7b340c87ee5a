"""What a search found for one row, without the places that stayed empty."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from beamwood.errors import unsound_score
from beamwood.types import Hits

__all__ = ["found_of"]


def found_of(hits: Hits, row: int) -> tuple[NDArray[np.int32], list[float]]:
    """int32[at most k], the items of a row that are there, best first, and their scores.

    Errors: `ArtefactError` where a score is no number.
    """
    items = hits.items[row]
    count = len(items) if items[-1] >= 0 else int(np.count_nonzero(items >= 0))
    # Of a list this is quicker than of an array of twenty.
    scores: list[float] = hits.scores[row, :count].tolist()
    if not all(map(math.isfinite, scores)):
        raise unsound_score()
    return items[:count], scores
