"""Sums of methods, as "dtr+cooccurrence": the score of each further one is added to the first's, by two stages."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from beamwood.data.split import Split
from beamwood.errors import InputError
from beamwood.fitting.stages import put_behind
from beamwood.methods import load_method
from beamwood.methods.method import Method
from beamwood.retrieval.retriever import Retriever

__all__ = ["check_counting", "parts", "sum_of", "with_counting"]


def parts(method: Any) -> list[Method]:
    """The methods in a sum; of a single one itself. Errors: as `load_method`."""
    names = [name.strip() for name in method.split("+")] if isinstance(method, str) else [method]
    return [load_method(name) for name in names]


def check_counting(first: Method, others: Sequence[Method]) -> None:
    """Errors: a method that trains, which is to be fitted in a folder of its own."""
    for other in others:
        if other.needs.steps:
            name = other.name
            raise InputError(
                f"{name} trains, and only what counts is added while another method is fitted; fit {first.name} and "
                f"{name}, then both together with --method two_stage --retriever {first.name.upper()} --ranker "
                f"{name.upper()}"
            )


def with_counting(fitted: Retriever, others: Sequence[Method], split: Split, *, seed: int) -> Retriever:
    """The retriever with each of the counting methods behind it.

    What its training says goes with it, and as "cooccurrence/retriever_weight" what was chosen of each.
    """
    training = fitted.metadata.get("training", {})
    for other in others:
        fitted = sum_of([fitted, other.fitted(split)], split, seed=seed)
        training = training | {f"{other.name}/{key}": value for key, value in fitted.metadata["training"].items()}
        fitted.metadata["training"] = training
    return fitted


def sum_of(fitted: Sequence[Retriever], split: Split, *, seed: int) -> Retriever:
    """The first retriever with each of the others behind those before it."""
    first, *others = fitted
    for other in others:
        first = put_behind(first, other, split, seed=seed)
    return first
