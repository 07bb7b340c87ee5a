"""The one way in which every tree retriever is trained: task, loop, tree updates, and the retriever at the end."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from beamwood.data.split import Split
from beamwood.methods.assemble import build_retriever
from beamwood.methods.tree_config import TreeConfig
from beamwood.methods.tree_renewal import TreeRenewal
from beamwood.methods.tree_start import start_tree
from beamwood.methods.tree_task import Parts, TreeTask
from beamwood.methods.validate import validation
from beamwood.retrieval.retriever import Retriever
from beamwood.retrieval.tree import TreeSearcher
from beamwood.training.loop import LoopConfig, run_loop
from beamwood.training.run_folder import RunFolder
from beamwood.tree import Tree

__all__ = ["fit_tree", "searcher_of"]


def searcher_of(task: TreeTask, *, threads: int = 1) -> TreeSearcher:
    """A searcher of the task's weights and tree as they are now."""
    weights = task.model.scorer.export()
    return TreeSearcher(
        weights, task.tree, beam_width=task.config.beam_width, threads=threads, by_path=task.parts.by_path
    )


def fit_tree(
    split: Split,
    config: TreeConfig,
    make_parts: Callable[[Tree], Parts],
    *,
    method: str,
    seed: int,
    run: RunFolder | None,
    time_limit: float | None,
    resume: bool,
    progress: bool,
) -> Retriever:
    """Train on `split.train`, keeping the weights and the tree that are best on `split.valid`.

    `make_parts` is given the first tree, whose shape stays. `time_limit` in seconds covers the training loop; the best
    model so far is returned when it ends. Errors: `InputError` where the log is too short to train on.
    """
    tree = start_tree(split.train, config, np.random.default_rng(seed))
    task = TreeTask(split.train, tree, config, make_parts(tree), seed=seed)
    loop = LoopConfig(
        max_steps=config.max_steps,
        batch_size=config.batch_size,
        evaluate_every=config.evaluate_every,
        patience=config.patience,
        monitor=f"valid/{config.monitor}",
        clip_norm=config.clip_norm,
        schedule=config.schedule,
        warmup_steps=config.warmup_steps,
        decay_steps=config.decay_steps,
        floor=config.floor,
    )
    if run is not None and (resume or not run.holds_a_run):
        settings = {"method": method, "seed": seed} | config.model_dump(mode="json")
        run.write_config(settings, resume=resume, may_differ=("max_steps", "patience"))
    result = run_loop(
        task,
        loop,
        evaluate=validation(
            lambda: searcher_of(task, threads=torch.get_num_threads()).search,
            split.valid,
            config.validation_users,
            seed=seed,
        ),
        renewal=TreeRenewal(task, config, seed=seed) if config.tree_updates else None,
        run=run,
        resume=resume,
        time_limit=time_limit,
        progress=progress,
        seed=seed,
    )
    lengths = split.train.histories.lengths
    table = split.train.item_table
    categories = table is not None and bool((table.categories >= 0).any())
    training: dict[str, Any] = {
        "steps": result.steps,
        "best_step": result.best_step,
        "stopped": result.stopped_because,
        f"valid/{config.monitor}": result.best_metric,
        "examples": task.num_examples,
        "users_too_short": int(np.count_nonzero((lengths > 0) & (lengths <= config.min_history))),
        "tree_updates": task.renewals,
        "tree_start": "random (no categories)" if config.tree == "category" and not categories else config.tree,
    }
    return build_retriever(searcher_of(task), split, method=method, config=config, seed=seed, training=training)
