"""Further content of the page of `beamwood evaluate`: calibration, losses of the beam, and five example users."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from beamwood.blocks import evenly
from beamwood.cli.stages import measure_margins, ranks_pairs

if TYPE_CHECKING:
    from beamwood.data import Split
    from beamwood.types import Searcher

__all__ = ["details"]

_QUERIES, _FEWEST, _SHOWN = 200, 20, 20
# The most pairs of a test user and an item that are scored.
_PAIRS = 2_000_000


def details(searcher: Searcher, split: Split, cuts: Sequence[int]) -> dict[str, Any]:
    """All three, JSON-able; None where not applicable, or where too many scores are needed."""
    from beamwood.evaluation.examples import users_shown

    margins = measure_margins(searcher, split, None)
    return {
        "data": {"users": len(split.dataset.users), "items": len(split.dataset.items), "test_users": len(split.test)},
        "calibration": measure_calibration(searcher, split),
        "beam": None if margins is None else margins.as_dict(),
        "examples": [example.as_dict() for example in users_shown(searcher, split, min(cuts[0], _SHOWN))],
    }


def measure_calibration(searcher: Searcher, split: Split) -> dict[str, Any] | None:
    """The calibration on evenly sampled test users; None where two million scores, or a tenth as many of a
    ranker, cover fewer than 20 users.
    """
    from beamwood.evaluation.calibration import calibrate

    most = min(_QUERIES, _PAIRS // (10 if ranks_pairs(searcher) else 1) // searcher.num_items)
    labelled = split.test.labelled()
    if most < _FEWEST:
        return None
    part = labelled.take(evenly(len(labelled), most))
    return calibrate(searcher, part.query(searcher.needs), part.labels).as_dict()
