"""Sums of methods, such as "dtr+cooccurrence": the weighted score of each further method is added to the first's."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from beamwood.data.split import Split
from beamwood.errors import InputError
from beamwood.fitting.fitted import method_of
from beamwood.fitting.options import limit_of
from beamwood.fitting.ranking.settings import StagesConfig
from beamwood.fitting.stages import put_behind
from beamwood.methods import load_method
from beamwood.methods.arguments import checked_options
from beamwood.methods.method import Method
from beamwood.retrieval.retriever import Retriever
from beamwood.training.budget import Budget

__all__ = ["add_counting", "add_fitted", "blend_in_turn", "check_counting", "first_budget", "fit_sum", "parts"]

# The first method's share of a time limit, and the share of the rest that counting may take.
_FIRST, _COUNTING = 0.75, 0.5


def parts(method: Any) -> list[Method]:
    """The methods of a sum, one for a single method. Errors: as `load_method`; a sum with an empty part."""
    names = [name.strip() for name in method.split("+")] if isinstance(method, str) else [method]
    if len(names) > 1 and not all(names):
        raise InputError(f"method '{method}' has a '+' without a method on one side; write a sum as dtr+ease")
    return [load_method(name) for name in names]


def check_counting(first: Method, others: Sequence[Method]) -> None:
    """Errors: one of the other methods is trained; those have to be fitted separately."""
    for other in others:
        if other.needs.steps or not other.needs.alone:
            name = other.name
            raise InputError(
                f"{name} is trained, and a sum adds counting methods only; fit {first.name} and "
                f"{name}, then both together with --method two_stage --retriever {first.name.upper()} --ranker "
                f"{name.upper()}"
            )


def first_budget(budget: Budget, first: Method, others: Sequence[Method]) -> Budget:
    """The budget of the first method: all, or a share where there are others, which counts a resumed run in it."""
    return budget.share(_FIRST, first.name) if others else budget


def fit_sum(first: Method, others: Sequence[Method], split: Split, config: Any, **options: Any) -> Retriever:
    """Fit the first method with these settings and options, then add the others, within one time limit."""
    if not others:
        return first.fitted(split, config, **options)
    own = {name: value for name, value in options.items() if name != "preset"}
    budget = Budget.of(checked_options(first.fit, own).get("time_limit"))
    fitted = first.fitted(split, config, **options | {"time_limit": first_budget(budget, first, others)})
    return add_counting(fitted, others, split, seed=options.get("seed", 0), budget=budget)


def add_counting(
    fitted: Retriever, others: Sequence[Method], split: Split, *, seed: int, budget: Budget | None = None
) -> Retriever:
    """Fit the counting methods, and blend each of them with the fitted retriever.

    The training record of `fitted` is kept; the weights for each method are added to it, as
    "cooccurrence/retriever_weight". All methods share the rest of `budget`; skipped work is listed in
    `training.left_out`.
    """
    budget = budget or Budget()
    for number, other in enumerate(others):
        counted = other.fitted(split, **_limited(budget, other, len(others) - number))
        fitted = add_fitted(fitted, counted, split, seed=seed, budget=budget)
    return replace(fitted, metadata=fitted.metadata | limit_of(budget))


def add_fitted(
    fitted: Retriever,
    other: Retriever,
    split: Split,
    config: StagesConfig | None = None,
    *,
    seed: int,
    budget: Budget,
) -> Retriever:
    """Blend a fitted retriever with another (`put_behind`), with both in its training record."""
    both = put_behind(fitted, other, split, config, seed=seed, budget=budget)
    weights = {f"{method_of(other)}/{key}": value for key, value in both.metadata["training"].items()}
    both.metadata["training"] = fitted.metadata.get("training", {}) | weights | budget.notes()
    return both


def _limited(budget: Budget, other: Method, waiting: int) -> dict[str, Any]:
    """The options of a counting method: its share of the limit, of which `waiting` methods, itself included, take
    theirs.
    """
    if not budget.limited:
        return {}
    return {"time_limit": budget.share_of_rest(_COUNTING / waiting, other.name)}


def blend_in_turn(fitted: Sequence[Retriever], split: Split, *, seed: int, budget: Budget | None = None) -> Retriever:
    """The first of these retrievers, blended with each of the others in turn; `budget`: of choosing the weights."""
    first, *others = fitted
    for other in others:
        first = put_behind(first, other, split, seed=seed, budget=budget)
    return first
