"""Sums of methods, as "dtr+cooccurrence": the score of each further one is added to the first's, by two stages."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from beamwood.data.split import Split
from beamwood.errors import InputError
from beamwood.methods import load_method
from beamwood.retrieval.retriever import Retriever

__all__ = ["check_counting", "parts", "sum_of", "with_counting"]


def parts(method: Any) -> list[str]:
    """The names in a sum; of a single method its own."""
    return [name.strip() for name in method.split("+")] if isinstance(method, str) else [method]


def check_counting(first: str, others: Sequence[str]) -> None:
    """Errors: an unknown name, and a method that trains, which is to be fitted in a folder of its own."""
    for name in others:
        if hasattr(load_method(name), "TRAINS"):
            raise InputError(
                f"{name} trains, and only what counts is added while another method is fitted; fit {first} and {name}, "
                f"then both together with --method two-stage --retriever {first.upper()} --ranker {name.upper()}"
            )


def with_counting(fitted: Retriever, others: Sequence[str], split: Split, *, seed: int) -> Retriever:
    """The retriever with each of the counting methods behind it.

    What its training says goes with it, and as "cooccurrence/retriever_weight" what was chosen of each.
    """
    training = fitted.metadata.get("training", {})
    for name in others:
        fitted = sum_of([fitted, load_method(name).fit(split)], split, seed=seed)
        training = training | {f"{name}/{key}": value for key, value in fitted.metadata["training"].items()}
        fitted.metadata["training"] = training
    return fitted


def sum_of(fitted: Sequence[Retriever], split: Split, *, seed: int) -> Retriever:
    """The first retriever with each of the others behind those before it."""
    first, *others = fitted
    for other in others:
        from beamwood.fitting.ranking.two_stage import put_behind

        first = put_behind(first, other, split, seed=seed)
    return first
