"""Exact metrics, streamed evaluation over queries, calibration, and significance tests."""

from beamwood.evaluation.protocol import evaluate_both, evaluate_split
from beamwood.evaluation.results import PerQuery
from beamwood.evaluation.tail import Tail, TailRule

__all__ = ["PerQuery", "Tail", "TailRule", "evaluate_both", "evaluate_split"]
