"""Exact metrics, streamed evaluation over queries, calibration, and significance tests."""

from beamwood.evaluation.metrics import Tail, TailRule
from beamwood.evaluation.protocol import PerQuery, evaluate, evaluate_both, evaluate_split

__all__ = ["PerQuery", "Tail", "TailRule", "evaluate", "evaluate_both", "evaluate_split"]
