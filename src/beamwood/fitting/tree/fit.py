"""The one way in which every tree retriever is trained: task, loop, tree updates, and the retriever at the end."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Unpack

import numpy as np
import torch

from beamwood.data.split import Split
from beamwood.fitting.assemble import build_retriever
from beamwood.fitting.choose import check_monitor, drawn
from beamwood.fitting.options import TrainOptions, with_less_time
from beamwood.fitting.repeats import best_repeat_weight
from beamwood.fitting.run import train
from beamwood.fitting.tree.node_start import ItemVectors, TreeCounts, start_scorer
from beamwood.fitting.tree.repeat_start import best_repeat_start
from beamwood.fitting.tree.settings import TreeConfig
from beamwood.fitting.tree.start import start_tree, tree_name
from beamwood.fitting.tree.task import Parts, TreeTask
from beamwood.fitting.tree.update import TreeRenewal
from beamwood.kernels.terms import Term
from beamwood.losses.levels import LevelLoss
from beamwood.models.terms.seen import add_weight as add_seen
from beamwood.models.terms.seen import set_weight as set_seen
from beamwood.retrieval.retriever import Retriever
from beamwood.retrieval.tree import TreeSearcher
from beamwood.tree import Tree

__all__ = ["fit_tree", "searcher_of"]


def searcher_of(task: TreeTask, *, threads: int = 1) -> TreeSearcher:
    """A searcher of the task's weights and tree as they are now."""
    weights = task.model.scorer.export()
    return TreeSearcher(
        weights,
        task.tree,
        beam_width=task.config.tree.beam_width,
        threads=threads,
        link=task.parts.loss.link,
    )


def fit_tree(
    split: Split,
    config: TreeConfig,
    make_parts: Callable[[Tree], Parts],
    *,
    method: str,
    terms: Sequence[Term] = (),
    loss: LevelLoss | None = None,
    **options: Unpack[TrainOptions],
) -> Retriever:
    """Train on `split.train`, keeping the weights and the tree that are best on `split.valid`.

    `make_parts` is given the first tree, whose shape stays; `terms` and `loss`: see `TreeOptions`. Errors: `InputError`
    where the log is too short.
    """
    check_monitor(config.choose.monitor)
    began, seed = time.monotonic(), options.get("seed", 0)
    vectors = ItemVectors(split.train, config, seed, terms)
    tree = start_tree(split, config, np.random.default_rng(seed), vectors)
    parts = make_parts(tree)
    parts = parts if loss is None else replace(parts, loss=loss)
    task = TreeTask(split.train, tree, config, parts, seed=seed, terms=terms)
    started = config.starts_from_transitions(split.train.num_items)

    def searcher() -> TreeSearcher:
        return searcher_of(task, threads=torch.get_num_threads())

    start_scorer(task.model.scorer, TreeCounts(vectors, tree, task.folds), network=started)
    if started and task.parts.loss.link.alone:
        task.start_at_odds()
    repeats = _start_seen(task, searcher, split, seed=seed)
    # What was counted for the start may be hundreds of MiB, and is not needed again.
    del vectors
    # A catalogue of one level has no tree to learn, which is an error only where an update was asked for.
    updates = config.tree.updates and (tree.shape.depth > 1 or "tree.updates" in config.given)
    training = train(
        task,
        split,
        config,
        searcher,
        method=method,
        renewal=TreeRenewal(task, config, seed=seed) if updates else None,
        evaluate_start=started,
        **with_less_time(options, time.monotonic() - began),
    )
    lengths = split.train.histories.lengths
    training |= {
        "examples": len(task.examples),
        "users_too_short": int(np.count_nonzero((lengths > 0) & (lengths <= config.examples.min_history))),
        "tree_updates": task.renewals - task.taken_back,
        "tree_start": tree_name(config, split.train),
        "node_start": "transitions" if started else "random",
        "repeat_start": repeats,
        "bf16": task.bf16,
    }
    training["repeat_weight"] = _add_to_seen(task, searcher, split, seed=seed)
    return build_retriever(searcher_of(task), split, method=method, config=config, seed=seed, training=training)


def _start_seen(task: TreeTask, searcher: Callable[[], TreeSearcher], split: Split, *, seed: int) -> float:
    """What the score of a seen item starts from: what is set, or what validation users like best."""
    given, seen = task.config.start.seen, task.model.scorer.held_terms().get("seen")
    if seen is None:
        return given or 0.0

    def set_weight(weight: float) -> None:
        seen.change(lambda held: set_seen(held, weight))

    monitor = task.config.choose.monitor
    best = best_repeat_start(set_weight, searcher, split.valid, monitor, seed=seed) if given is None else given
    set_weight(best)
    return best


def _add_to_seen(task: TreeTask, searcher: Callable[[], TreeSearcher], split: Split, *, seed: int) -> float:
    """What is added to the score of a seen item after training: what is set, or what validation users like best."""
    choose, seen = task.config.choose, task.model.scorer.held_terms().get("seen")
    added = choose.seen_weight or 0.0
    if seen is not None:
        # A path's score is no sum that a number could be added to; it is given to the leaf's own step.
        if choose.seen_weight is None and not task.parts.loss.link.along_path:
            judged = drawn(split.valid, choose.validation_users, seed=seed)
            added = best_repeat_weight(searcher(), judged, choose.monitor)
        seen.change(lambda held: add_seen(held, added))
    return added
