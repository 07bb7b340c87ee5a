"""A light head trained during the fit, on the nodes that the fit samples, against one distilled after the fit.

python -m benchmarks.light_head LOG [--steps 1000] [--users 600] [--histories 1500 3000 6000] [--rows 64 16]
                                 [--json]

`dtr` is trained once, as the suite's `main/LOG/dtr/0`; neither variant changes that training. "Inside": in each step
the head learns the scorer's softmax over the sampled nodes. "After": the head is distilled from a number of histories,
from random weights or from those of the training. A row has the head's processor seconds, and on validation users F@20
(mean of both views, relative to the full beam) and overlap@20 of a steered search that scores 100 or 200 leaves.

Shape legend: B histories, L history length, M nodes a row.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import kl_div

from beamwood.data.queries import Queries
from beamwood.evaluation.protocol import evaluate_both
from beamwood.fitting.plan import Facts
from beamwood.fitting.run import train
from beamwood.fitting.tree.dtr import make_objective
from beamwood.fitting.tree.light import Distillation
from beamwood.fitting.tree.objective import ScoredLevel, TreeBatch
from beamwood.fitting.tree.search_choice import FixedWay
from beamwood.fitting.tree.task import TreeTask
from beamwood.kernels.light import LightHead, Way
from beamwood.kernels.terms import TermQuery
from beamwood.methods import load_method
from beamwood.models.light_head import LightModule
from beamwood.retrieval.searchers.tree import TreeSearcher
from beamwood.training.budget import Budget
from beamwood.training.lazy_adam import LazyAdam
from beamwood.training.loop_config import LAZY_FROM
from beamwood.training.schedule import Schedule
from benchmarks.logs import data_folder, split_of
from benchmarks.measure import one_thread, print_results
from benchmarks.suite import Suite

WAYS = {"100": Way("steer", 300, 100), "200": Way("steer", 300, 200)}
RATE, K = 3e-3, 20


class Spent:
    """Accumulates the processor seconds of marked parts."""

    seconds = 0.0

    @contextmanager
    def counting(self) -> Iterator[None]:
        began = time.process_time()
        yield
        self.seconds += time.process_time() - began


class Inside:
    """A light head that learns in each training step from the first `rows` of the batch."""

    def __init__(self, task: TaughtTask, rows: int) -> None:
        self.task, self.rows, self.spent, self.taught = task, rows, Spent(), 0
        shape, length = task.tree.shape, task.model.scorer.history_length
        generator, width = torch.Generator().manual_seed(0), task.config.model.light_width
        self.head = LightModule(shape, length, width, generator=generator, sparse=shape.num_nodes >= LAZY_FROM)
        similar = task.model.scorer.export().terms.get("similarity")
        if similar is not None:
            self.head.start(similar.arrays["vectors"], similar.arrays["places"])
        self.own = LazyAdam(self.head.parameters(), lr=RATE)
        self.schedule = Schedule(kind="cosine", warmup_steps=task.steps // 5)

    def teach(self, batch: TreeBatch, levels: list[ScoredLevel]) -> None:
        """One step of the head on the KL divergence from the scorer's softmax over the sampled nodes of each level."""
        task, first = self.task, slice(self.rows)
        self.taught += 1
        self.own.param_groups[0]["lr"] = self.schedule.learning_rate(self.taught, RATE, task.steps)
        total = torch.zeros(())
        leaves_BL, folds_B = batch.leaves_BL[first], None if batch.folds_B is None else batch.folds_B[first]
        for draw, scores_BM, targets_BT, _ in levels:
            nodes_BM, target_BM = draw.scored(targets_BT), scores_BM[first].detach().log_softmax(1)
            if nodes_BM is None:
                nodes_BM = torch.arange(target_BM.shape[1]).expand_as(scores_BM)
            nodes_BM = nodes_BM[first]
            own_BM = self.head(leaves_BL, draw.level, nodes_BM)
            own_BM = own_BM + task.added(TermQuery(task.tree.shape, draw.level, leaves_BL, nodes_BM, folds_B))
            gaps = kl_div(own_BM.log_softmax(1), target_BM, log_target=True, reduction="none")
            total = total + gaps.sum(dim=1).mean()
        total.backward()  # type: ignore[no-untyped-call]
        self.own.step()
        self.own.zero_grad()


class TaughtTask(TreeTask):
    """A tree's task whose steps also train light heads; the scorer is not affected."""

    steps: int
    rows: tuple[int, ...]

    def prepare(self, rng: torch.Generator, budget: Budget) -> None:
        super().prepare(rng, budget)
        self.inside = {rows: Inside(self, rows) for rows in self.rows}
        # The heads are saved with the best weights.
        self.model.add_module("heads", torch.nn.ModuleList(each.head for each in self.inside.values()))

    def scored(self, batch: TreeBatch) -> list[ScoredLevel]:
        levels = super().scored(batch)
        if torch.is_grad_enabled():
            for each in self.inside.values():
                with each.spent.counting():
                    each.teach(batch, levels)
        return levels

    @torch.no_grad()
    def added(self, query: TermQuery) -> Tensor | float:
        """The scores that the sparse terms add to the nodes."""
        is_leaf, terms = query.level == self.tree.shape.depth, self.model.scorer.held_terms().values()
        parts = [module(query) for module in terms if module.term.sparse and (is_leaf or not module.term.leaves_only)]
        return sum(parts, 0.0)


def f20_and_found(searcher: TreeSearcher, queries: Queries, way: Way) -> tuple[float, np.ndarray[Any, Any]]:
    """F@20, averaged over both views, and the items found with seen items kept."""
    by = FixedWay(searcher, way)
    views = [found.means()[f"f@{K}"] for found in evaluate_both(by, queries, ks=(K,)).values()]
    return float(np.mean(views)), by.search(queries.query(searcher.needs), K).items


def rows_of_heads(task: TaughtTask, counts: list[int]) -> Iterator[tuple[str, LightHead, float]]:
    """For each variant its name, the trained head and its processor seconds."""
    searcher, length = task.searcher(threads=1), task.model.scorer.history_length
    for each in task.inside.values():
        yield f"inside, {each.rows} rows", each.head.export(), each.spent.seconds
    rows = np.random.default_rng(0).permutation(len(task.examples))
    for count in counts:
        leaves_BL = task.tree.leaves_of(task.examples.histories(rows[:count]).padded(length))
        for before in (None, *list(task.inside.values())[: int(count == min(counts))]):
            study = Distillation(searcher.weights, task.tree, width=task.config.model.light_width, seed=0)
            if before is not None:
                study.module.load_state_dict(before.head.state_dict())
            spent = Spent()
            with spent.counting():
                head = study.learn(leaves_BL)
            name = "after" if before is None else f"inside, {before.rows} rows, then"
            yield f"{name} {count}", head, spent.seconds + (0.0 if before is None else before.spent.seconds)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("log")
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--users", type=int, default=600)
    parser.add_argument("--rows", type=int, nargs="+", default=[64, 16])
    parser.add_argument("--histories", type=int, nargs="+", default=[1500, 3000, 6000])
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    one_thread()
    torch.set_num_threads(1)
    root = Path(__file__).resolve().parents[1]
    split = split_of(Suite.read(root / "benchmarks/suite.toml").logs[options.log], data_folder(root))
    config = load_method("dtr").Config(
        **{"loop.max_steps": options.steps, "loop.evaluate_every": 200, "loop.patience": 3}
    )
    config = config.plan(Facts.of(split.train))
    task = TaughtTask(split, config, lambda tree: make_objective(config, tree, None))
    task.steps, task.rows = options.steps, tuple(options.rows)
    began = time.process_time()
    training = train(task, split, config, method="dtr", evaluate_start=True, progress=False)
    judged = split.valid.labelled()
    queries, searcher = judged.sample(options.users, seed=0), task.searcher(threads=1)
    training_s = time.process_time() - began - sum(each.spent.seconds for each in task.inside.values())
    full, best = f20_and_found(searcher, queries, Way("beam", searcher.beam_width))
    results: dict[str, Any] = {"training_s": training_s, "best_step": float(training["best_step"]), "full": full}
    for name, head, seconds in rows_of_heads(task, options.histories):
        lit = TreeSearcher(replace(searcher.weights, light=head), task.tree, beam_width=searcher.beam_width)
        row = {"seconds": seconds}
        for judges, way in WAYS.items():
            value, found = f20_and_found(lit, queries, way)
            same = [len(np.intersect1d(one, other)) / K for one, other in zip(found, best, strict=True)]
            row |= {f"f@20 {judges}": value / full, f"overlap {judges}": float(np.mean(same))}
        results[name] = row
        print(name, row, flush=True)
    print_results(results, as_json=options.json)


if __name__ == "__main__":
    main()
