"""Exact metrics, the protocol that streams them over queries, tests between methods, and reports."""

from beamwood.evaluation.metrics import TailRule
from beamwood.evaluation.protocol import PerQuery, evaluate, evaluate_both

__all__ = ["PerQuery", "TailRule", "evaluate", "evaluate_both"]
