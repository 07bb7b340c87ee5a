"""The rankers' scores by kind; each file says how one is computed of what was looked up."""

from __future__ import annotations

from beamwood.models.scorer import PairScore
from beamwood.models.scorers import din, graphrec, neumf

__all__ = ["SCORERS"]

SCORERS: dict[str, PairScore] = {
    "graphrec": graphrec.SCORE,
    "neumf": neumf.SCORE,
    "din": din.SCORE,
}
