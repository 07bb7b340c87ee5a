"""The rankers' scores by kind, each computed from looked-up vectors in one file."""

from __future__ import annotations

from beamwood.models.scorer import PairScore
from beamwood.models.scorers import din, graphrec, neumf

__all__ = ["SCORERS"]

SCORERS: dict[str, PairScore] = {
    "graphrec": graphrec.SCORE,
    "neumf": neumf.SCORE,
    "din": din.SCORE,
}
