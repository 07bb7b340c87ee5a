"""Exact metrics, the protocol that streams them over queries, tests between methods, and reports."""

from beamwood.evaluation.metrics import Tail, TailRule
from beamwood.evaluation.protocol import PerQuery, evaluate, evaluate_both, evaluate_split

__all__ = ["PerQuery", "Tail", "TailRule", "evaluate", "evaluate_both", "evaluate_split"]
