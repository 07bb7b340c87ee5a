"""The fit of every tree retriever: training, the light head, and the choice of the search way."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Unpack

import numpy as np

from beamwood.data.split import Split
from beamwood.fitting.assemble import build_retriever
from beamwood.fitting.blend import choice_of_seen
from beamwood.fitting.options import TrainOptions, check_part, with_budget
from beamwood.fitting.run import train
from beamwood.fitting.tree.config import TreeConfig
from beamwood.fitting.tree.light_stage import LightStage
from beamwood.fitting.tree.objective import TreeObjective
from beamwood.fitting.tree.task import TreeTask
from beamwood.fitting.validation import Choice, check_monitor
from beamwood.kernels.terms import Term
from beamwood.losses.levels import LevelLoss
from beamwood.models.terms.seen import add_weight as add_seen
from beamwood.retrieval.retriever import Retriever
from beamwood.sampling.levels import LevelSampler
from beamwood.training.budget import Budget
from beamwood.tree import Tree

__all__ = ["fit_tree"]


def fit_tree(
    split: Split,
    config: TreeConfig,
    make_objective: Callable[[Tree], TreeObjective],
    *,
    method: str,
    terms: Sequence[Term] = (),
    loss: LevelLoss | None = None,
    sampler: LevelSampler | None = None,
    **options: Unpack[TrainOptions],
) -> Retriever:
    """Train on `split.train`, keeping the weights and the tree that are best on `split.valid`.

    `make_objective` receives the initial tree, whose shape stays fixed; `terms`, `loss` and `sampler`: see
    `TreeOptions`. Errors: `InputError` where the log is too short.
    """
    check_monitor(config.choose.monitor)
    _check_parts(terms, loss, sampler)
    seed, started = options.get("seed", 0), config.start.scores == "transitions"

    def own_objective(tree: Tree) -> TreeObjective:
        objective = make_objective(tree)
        return replace(objective, loss=loss or objective.loss, sampler=sampler or objective.sampler)

    options = with_budget(options)
    budget = Budget.of(options["time_limit"])
    task = TreeTask(split, config, own_objective, terms=terms)
    light = LightStage(task, seed)
    choice = choice_of_seen(split, config.choose, seed, lambda tree, query, k: tree.apart(query, k))
    training = train(
        task, split, config, method=method, choice=choice, later=light.estimate, evaluate_start=started, **options
    )
    training = {"tree_updates": 0} | training | _facts(task) | {"seen_weight": _add_to_seen(task, choice)}
    searcher, search, training["light_head"] = light.finish(task.searcher(threads=1), budget)
    training |= budget.notes()
    fitted = build_retriever(searcher, split, method=method, config=config, seed=seed, training=training)
    return fitted if search is None else replace(fitted, metadata=fitted.metadata | {"search": search.facts()})


def _check_parts(terms: Sequence[Term], loss: LevelLoss | None, sampler: LevelSampler | None) -> None:
    """Errors: parts of a user's own method that are none."""
    are_terms = isinstance(terms, Sequence) and all(isinstance(term, Term) for term in terms)
    check_part("terms", terms, are_terms, "a sequence of objects of Term, such as (Mine(),)")
    check_part("loss", loss, isinstance(loss, LevelLoss), "LevelLoss(name, link, function)")
    check_part("sampler", sampler, callable(sampler), "a function that returns a LevelDraw for each level")


def _facts(task: TreeTask) -> dict[str, Any]:
    """Facts about a task for the training record: its examples, and how tree and scorer were initialised."""
    config, lengths = task.config, task.split.train.histories.lengths
    return {
        "examples": len(task.examples),
        "users_too_short": int(np.count_nonzero((lengths > 0) & (lengths <= config.examples.min_history))),
        "tree_start": config.tree.start,
        "node_start": config.start.scores,
        "seen_start": task.seen_start,
        "bf16": task.bf16,
    }


def _add_to_seen(task: TreeTask, choice: Choice | None) -> float:
    """Add the weight of seen items to the trained scorer, as set or chosen on validation users; returns it."""
    seen, added = task.model.scorer.held_terms().get("seen"), task.config.choose.seen_weight or 0.0
    if seen is not None:
        # A path loss adds the weight to the score of the leaf's own step only, so none is chosen for the whole path.
        if choice is not None and not task.objective.loss.link.along_path:
            added = choice.made_for(task.searcher())
        seen.change(lambda held: add_seen(held, added))
    return added
