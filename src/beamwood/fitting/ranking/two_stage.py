"""Two stages: a fitted retriever brings candidates, a ranker trained for it orders them.

Shape legend: B examples, T targets, K candidates, M negatives, L history length.
Source: the two-stage bounds, section 4.2: TS trains on all data, H-TS on the pairs that this retriever retrieves.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal, Unpack

import numpy as np
import polars as pl
import torch
from numpy.typing import NDArray
from pydantic import Field
from torch import Tensor, nn
from torch.nn.functional import softplus

from beamwood.data.dataset import Dataset
from beamwood.data.examples import Examples, windows
from beamwood.data.split import Split
from beamwood.data.untouched import Untouched
from beamwood.errors import InputError, nearest
from beamwood.fitting.assemble import build_retriever
from beamwood.fitting.choose import check_monitor, drawn
from beamwood.fitting.columns import context_features, tensors
from beamwood.fitting.fitted import fitted_alike
from beamwood.fitting.interpolation import Interpolation, Score
from beamwood.fitting.options import TrainOptions, with_less_time
from beamwood.fitting.ranking.pair_models import PairConfig, asked, build_pair_model, check_users_known, pair_scorer
from beamwood.fitting.run import train
from beamwood.methods import cooccurrence, ease, popularity, transitions
from beamwood.models.pairs import Asked
from beamwood.retrieval.ranked import RankingSearcher, TwoStageSearcher, retrieve
from beamwood.retrieval.retriever import Retriever
from beamwood.retrieval.scorers import PairScorer
from beamwood.retrieval.searcher_scorer import SearcherScorer
from beamwood.retrieval.stored import MOST
from beamwood.training.lazy_adam import LazyAdam
from beamwood.types import Askers, BoolArray, IndexArray, Searcher, among

__all__ = ["TRAINS", "Config", "RetrievedTask", "fit", "put_behind", "two_stage"]

TRAINS = True
"""This method trains by steps: its `fit` takes a run folder, a time limit and resume."""

# What `ranker` may name instead of a folder: nothing is trained.
_COUNTED: dict[str, Callable[[Split], Retriever]] = {
    "cooccurrence": cooccurrence.fit,
    "transitions": transitions.fit,
    "ease": ease.fit,
    "popularity": popularity.fit,
}
# The settings that count where nothing is trained.
_PUT_BEHIND = {
    "retriever",
    "ranker",
    "num_candidates",
    "retriever_weight",
    "repeat_weight",
    "monitor",
    "validation_users",
}
# Histories, and items of theirs, that the retriever is asked with at a time.
_SEARCHED_AT_A_TIME = 1024
_ITEMS_AT_A_TIME = 2**18


class Config(PairConfig):
    """Two stages; the ranker is the study's DIN, in a size that two cores train in minutes."""

    retriever: str | None = Field(None, description="folder of the fitted retriever (--retriever); required")
    ranker: str | None = Field(
        None,
        description="folder of a fitted ranker or of another retriever, or cooccurrence, transitions or ease, whose "
        "score is added (--ranker); null: a ranker is trained here",
    )
    num_candidates: int = Field(
        100, ge=1, le=MOST, description="K: what the retriever brings; the study has 40, 80, 120"
    )
    retriever_weight: float | None = Field(
        None,
        ge=0,
        le=MOST,
        description="w: candidates are ordered by the ranker's score plus w times the retriever's; null: chosen on "
        "validation users; the study's own: 0",
    )
    repeat_weight: float | None = Field(
        None,
        ge=-MOST,
        le=MOST,
        description="added to the score of a candidate that the history holds, which answers without consumed items do "
        "not see; null: chosen on validation users; the study's own: 0",
    )
    training: Literal["all", "harmonised", "weighted"] = Field(
        "all", description="on all pairs (TS), on those that this retriever retrieves (H-TS), or these above the others"
    )
    miss_weight: float = Field(0.3, gt=0, lt=1, description="training=weighted: of a pair that is not retrieved")
    negatives: Literal["unseen", "uniform", "candidates"] = Field(
        "unseen",
        description="drawn from what the user has not had, from all items, or what this retriever brings beside the "
        "targets; unseen learns for answers without consumed items, uniform for answers with them",
    )
    num_negatives: int = Field(60, ge=1)
    horizon: int = Field(10, ge=1, description="targets are among the next so many items; the study's own: 1")
    num_targets: int = Field(8, ge=1, description="drawn for each history; the study's own: 1")
    max_examples: int = Field(200_000, ge=1, description="histories to train on, drawn from all")
    context_columns: tuple[str, ...] = Field(
        (), description="columns of the log that say in which circumstances an item was taken, as name or name:kind"
    )
    model: Literal["graphrec", "neumf", "din"] = "din"
    learning_rate: float = Field(3e-3, gt=0)
    weight_decay: float = Field(0.0, ge=0, description="of AdamW: multiplied by the rate")
    schedule: Literal["constant", "linear", "cosine", "exponential"] = "linear"
    warmup_steps: int = Field(100, ge=0)
    decay_steps: int | None = Field(None, ge=1)
    batch_size: int = Field(64, ge=1)
    max_steps: int = Field(4000, ge=1)
    evaluate_every: int = Field(250, ge=1)
    patience: int = Field(8, ge=1)
    clip_norm: float = Field(5.0, gt=0)
    validation_users: int = Field(600, ge=1)
    monitor: str = "new/ndcg@20"


@dataclass(frozen=True, slots=True)
class Batch:
    """Who asks; `items_BC` int64, T targets and M negatives; `log_weight_BM` added to the negatives' scores;
    `weights_BT` of each pair of a history and a target."""

    asked: Asked
    items_BC: Tensor
    log_weight_BM: Tensor
    weights_BT: Tensor


class RetrievedTask:
    """Pairs of a history and what came soon after, with what the retriever brings for each where that matters.

    Loss: softmax of the target among its negatives; drawn ones are corrected to stand for all that could have been
    drawn (all items but the targets, or all that the user has not had), the retriever's own stand for themselves.
    """

    def __init__(self, train: Dataset, config: Config, retriever: Searcher, *, seed: int) -> None:
        self.config, self.num_items = config, train.num_items
        self.generator = torch.Generator().manual_seed(seed)
        examples = windows(train.histories, length=config.length + 1, min_history=1)
        if len(examples) == 0:
            raise InputError("no user has two interactions to train on; give a longer log")
        self.untouched = Untouched(train.histories, train.num_items) if config.negatives == "unseen" else None
        usable = np.arange(len(examples))
        if self.untouched is not None:
            usable = np.flatnonzero(self.untouched.lengths[examples.users] < train.num_items)
            if len(usable) == 0:
                raise InputError("every user has had every item, so nothing is unseen; set negatives=uniform")
        rows = np.random.default_rng(seed).permutation(usable)[: config.max_examples]
        self.examples = Examples(examples.source, examples.users[rows], examples.start[rows], examples.stop[rows])
        self.places_ET = self._places(np.random.default_rng(seed + 1))
        self.recall: float | None = None
        self.candidates_EK: NDArray[np.int32] | None = None
        self.weights_ET = np.ones(self.places_ET.shape, np.float32)
        if config.training != "all" or config.negatives == "candidates":
            self._search(retriever, train.context)
        self.num_examples = len(self.examples)
        self.context = context_features(train, config.context_columns)
        columns = () if self.context is None else self.context.columns
        self.model: nn.Module = build_pair_model(train, config, self.generator, columns, seed=seed)
        self.optimizers = [
            LazyAdam(self.model.parameters(), lr=config.learning_rate, weight_decay=config.weight_decay, decoupled=True)
        ]

    def _places(self, rng: np.random.Generator) -> NDArray[np.int64]:
        """int64[E, T], the entries of the histories that are the targets: different ones while there are enough."""
        examples, config = self.examples, self.config
        ahead = np.minimum(examples.source.indptr[examples.users + 1] - examples.stop, config.horizon)
        steps = np.argsort(rng.random((len(examples), ahead.max())), axis=1)
        # Those beyond the end go last, in which places the others start over.
        steps = np.take_along_axis(steps, np.argsort(steps >= ahead[:, None], axis=1, kind="stable"), axis=1)
        turn = np.arange(config.num_targets)[None, :] % ahead[:, None]
        return examples.stop[:, None] + np.take_along_axis(steps, turn, axis=1)

    def targets(self, rows: IndexArray) -> NDArray[np.int64]:
        """int64[B, T], the target items of the given examples."""
        return self.examples.source.items[self.places_ET[rows]].astype(np.int64)

    def _search(self, retriever: Searcher, logged: pl.DataFrame | None) -> None:
        """Ask the retriever for every example as in service: with all that the user had before, and without it.

        A target that the user had before counts as brought where a search that leaves such items in brings it.
        """
        config, examples, found, hits = self.config, self.examples, [], []
        begin = examples.source.indptr[examples.users]
        k = min(config.num_candidates, self.num_items)
        for rows in _blocks(examples.stop - begin):
            past = examples.source.slices(begin[rows], examples.stop[rows])
            # Circumstances are the next event's.
            context = None if logged is None else logged[examples.stop[rows]]
            askers, targets = Askers(examples.users[rows], past, context), self.targets(rows)
            items = retrieve(retriever, askers, k, excluded=past).items
            hit = brought(targets, items)
            # A target that was had comes back only where what was had is left in.
            again = np.flatnonzero(among(targets, past).any(axis=1))
            if len(again):
                hit[again] |= brought(targets[again], retrieve(retriever, askers.take(again), k).items)
            found.append(items)
            hits.append(hit)
        candidates_EK, hit_ET = np.concatenate(found), np.concatenate(hits)
        self.recall = float(hit_ET.mean())
        if not hit_ET.any():
            raise InputError("the retriever brings no training pair's target; give one that is better trained")
        if config.training == "harmonised":
            kept = np.flatnonzero(hit_ET.any(axis=1))
            old = self.examples
            self.examples = Examples(old.source, old.users[kept], old.start[kept], old.stop[kept])
            self.places_ET, self.weights_ET = self.places_ET[kept], hit_ET[kept].astype(np.float32)
            candidates_EK = candidates_EK[kept]
        elif config.training == "weighted":
            self.weights_ET = np.where(hit_ET, np.float32(1), np.float32(config.miss_weight))
        if config.negatives == "candidates":
            self.candidates_EK = candidates_EK

    def state(self) -> dict[str, Any]:
        return {"generator": self.generator.get_state()}

    def load_state(self, state: dict[str, Any]) -> None:
        self.generator.set_state(state["generator"])

    def batch(self, rows: np.ndarray) -> Batch:
        """The given histories and their targets with fresh negatives."""
        users, targets = self.examples.users[rows], self.targets(rows)
        negatives, log_weight = self.negatives(rows, targets)
        context = None if self.context is None else tensors(self.context.take(self.examples.stop[rows]))
        return Batch(
            asked(Askers(users, self.examples.histories(rows)), self.config, context),
            torch.from_numpy(np.concatenate([targets, negatives], axis=1)),
            torch.from_numpy(log_weight.astype(np.float32)),
            torch.from_numpy(self.weights_ET[rows]),
        )

    def negatives(self, rows: np.ndarray, targets: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """int64[B, M], and what is added to each score; -inf leaves a place out."""
        num = self.config.num_negatives
        draws = torch.rand((len(rows), num), generator=self.generator, dtype=torch.float64).numpy()
        if self.candidates_EK is None:
            if self.untouched is not None:
                free = self.untouched.num_items - self.untouched.lengths[self.examples.users[rows]]
                correction = np.log(free) - np.log(num)
                return self.untouched.draw(self.examples.users[rows], draws), np.repeat(
                    correction[:, None], num, axis=1
                )
            drawn = np.minimum((draws * self.num_items).astype(np.int64), self.num_items - 1)
            real = (drawn[:, :, None] != targets[:, None, :]).all(axis=2)
            others = self.num_items - 1 - (np.diff(np.sort(targets, axis=1), axis=1) > 0).sum(axis=1)
            correction = np.log(np.maximum(others, 1)) - np.log(np.maximum(real.sum(axis=1), 1))
            return drawn, np.where(real, correction[:, None], -np.inf)
        candidates = self.candidates_EK[rows].astype(np.int64)
        usable = candidates >= 0
        for column in targets.T:
            usable &= candidates != column[:, None]
        # Random keys put a random choice of the usable first.
        keys = torch.rand(candidates.shape, generator=self.generator, dtype=torch.float64).numpy()
        order = np.argsort(np.where(usable, keys, 2.0), axis=1)[:, :num]
        chosen, real = np.take_along_axis(candidates, order, axis=1), np.take_along_axis(usable, order, axis=1)
        return np.where(real, chosen, targets[:, :1]), np.where(real, 0.0, -np.inf)

    def loss(self, batch: Batch) -> Tensor:
        """The weighted mean of the softmax losses."""
        scores = self.model(batch.asked, batch.items_BC)
        targets_BT, negatives_BM = torch.split(scores, [self.config.num_targets, batch.log_weight_BM.shape[1]], dim=1)
        # A row without a usable negative teaches nothing; logsumexp of nothing would have the gradient NaN.
        some = torch.isfinite(batch.log_weight_BM).any(dim=1, keepdim=True)
        rivals_BM = torch.where(some, negatives_BM + batch.log_weight_BM, torch.zeros_like(negatives_BM))
        losses = softplus(torch.logsumexp(rivals_BM, dim=1, keepdim=True) - targets_BT)
        weights = batch.weights_BT * some
        return (losses * weights).sum() / weights.sum().clamp(min=1e-12)

    def scorer(self) -> PairScorer:
        """The torch-free scorer of the weights as they are now."""
        return pair_scorer(self.model, self.config)  # type: ignore[arg-type]


def brought(targets_BT: IndexArray, items_BK: IndexArray) -> BoolArray:
    """bool[B, T]: the target is among the row's items."""
    return np.stack([(items_BK == column[:, None]).any(axis=1) for column in targets_BT.T], axis=1)


def _blocks(lengths: NDArray[np.int64]) -> Iterator[NDArray[np.int64]]:
    """Row numbers in order, as many at a time as the bounds on histories and on their items allow."""
    start, ends = 0, np.cumsum(lengths)
    while start < len(lengths):
        room = ends[start] - lengths[start] + _ITEMS_AT_A_TIME
        stop = min(int(np.searchsorted(ends, room, side="right")), start + _SEARCHED_AT_A_TIME)
        yield np.arange(start, max(stop, start + 1))
        start = max(stop, start + 1)


def two_stage(
    retriever: Retriever,
    ranker: Retriever,
    *,
    num_candidates: int = 100,
    retriever_weight: float = 0.0,
    repeat_weight: float = 0.0,
) -> Retriever:
    """Put a fitted ranker, or another fitted retriever, behind a fitted retriever of the same items.

    The order is by the ranker's score plus `retriever_weight` times the retriever's, plus `repeat_weight` where the
    history holds the candidate. Errors: `InputError` where they know other items or users, or `ranker` is two stages.
    """
    if not retriever.items.ids.equals(ranker.items.ids):
        raise InputError("retriever and ranker were fitted on other items; fit both on the same log")
    second = ranker.searcher
    if isinstance(second, TwoStageSearcher):
        raise InputError("the ranker is two stages itself; give the folder of a ranker or of one retriever")
    same_users = (
        retriever.users is not None and ranker.users is not None and retriever.users.ids.equals(ranker.users.ids)
    )
    searcher = TwoStageSearcher(
        retriever.searcher,
        second.scorer if isinstance(second, RankingSearcher) else SearcherScorer(second),
        num_candidates=num_candidates,
        retriever_weight=retriever_weight,
        repeat_weight=repeat_weight,
    )
    if searcher.needs_users and not same_users:
        raise InputError("retriever and ranker were fitted on other users; fit both on the same log")
    stages = {"retriever": retriever.metadata, "ranker": ranker.metadata}
    return Retriever(
        searcher=searcher,
        items=retriever.items,
        users=retriever.users,
        histories=retriever.histories,
        categories=retriever.categories,
        metadata={name: value for name, value in retriever.metadata.items() if name in ("data", "source", "split")}
        | {
            "method": "two-stage",
            "config": {
                "num_candidates": num_candidates,
                "retriever_weight": retriever_weight,
                "repeat_weight": repeat_weight,
            },
            "training": {},
            "stages": stages,
        },
    )


def put_behind(
    first: Retriever, second: Retriever, split: Split, config: Config | None = None, *, seed: int = 0
) -> Retriever:
    """`two_stage` with the weights that are best on `split.valid`, unless `config` gives both as 0.

    Both must be fitted on the training part of this split. Errors: as `two_stage`, and without a validation label.
    """
    config = config or Config()
    both = two_stage(first, second, num_candidates=config.num_candidates)
    if config.retriever_weight == 0 and config.repeat_weight == 0:
        return both
    assert isinstance(both.searcher, TwoStageSearcher)
    score = both.searcher.score_askers
    fitted = None if isinstance(second.searcher, RankingSearcher) else score
    weights, metrics = _interpolation(first, split, config, seed, fitted).best(score)
    both = two_stage(first, second, num_candidates=config.num_candidates, **weights)
    both.metadata["training"] |= weights | {f"valid/{config.monitor}": metrics[config.monitor]}
    return both


def fit(split: Split, config: Config | None = None, **options: Unpack[TrainOptions]) -> Retriever:
    """Train a ranker for the retriever in `config.retriever` (or take `config.ranker`) and put it behind it.

    The weights kept are those whose two stages together are best on `split.valid`, and so is the retriever's weight
    beside them (`config.retriever_weight`). The largest weight tried leaves the retriever's own order but for
    candidates that it has a hundredth of a standard deviation apart: what is kept is not below that order there.
    `time_limit` in seconds covers the searches for the training histories too, which are not cut short.
    Errors: `InputError` without a retriever, on one fitted on another log or split (it may have seen the test users),
    on one that brings no target, on settings of a training where `config.ranker` leaves nothing to train.
    """
    config = config or Config()
    if config.retriever is None:
        raise InputError("two-stage needs a fitted retriever; give its folder with --retriever")
    first = fitted_alike(config.retriever, split)
    if config.ranker is not None:
        idle = sorted(config.model_fields_set - _PUT_BEHIND)
        if idle:
            raise InputError(
                f"{', '.join(idle)}: no use with ranker={config.ranker!r}, for which nothing is trained; leave them "
                "out, or leave out the ranker (--ranker) to train one"
            )
        check_monitor(config.monitor)
        counted = _COUNTED.get(config.ranker)
        if counted is None and config.ranker.isidentifier() and not os.path.exists(config.ranker):
            raise InputError(
                f"ranker={config.ranker!r} is neither a folder nor a method that counts"
                f"{nearest(config.ranker, _COUNTED)}"
            )
        second = fitted_alike(config.ranker, split) if counted is None else counted(split)
        return put_behind(first, second, split, config, seed=options.get("seed", 0))
    check_users_known(split, config)
    if config.context_columns and (config.horizon > 1 or config.num_targets > 1):
        raise InputError(
            "context_columns needs horizon=1 and num_targets=1: circumstances belong to the next event alone"
        )
    began = time.monotonic()
    if options.get("progress", True) and (config.training != "all" or config.negatives == "candidates"):
        print("asking the retriever for the training histories, before the first step", file=sys.stderr, flush=True)
    seed = options.get("seed", 0)
    interpolation = _interpolation(first, split, config, seed)
    task = RetrievedTask(split.train, config, first.searcher, seed=seed)
    options = with_less_time(options, time.monotonic() - began)

    def searcher(**weights: float) -> TwoStageSearcher:
        return TwoStageSearcher(first.searcher, task.scorer(), num_candidates=config.num_candidates, **weights)

    def measure() -> dict[str, float]:
        return interpolation.best(searcher().score_askers)[1]

    training = train(task, split, config, searcher, method="two-stage", measure=measure, evaluate_start=True, **options)
    weights, _ = interpolation.best(searcher().score_askers)
    training |= weights
    if task.recall is not None:
        training["retrieved_share_of_training_pairs"] = task.recall
    return build_retriever(searcher(**weights), split, method="two-stage", config=config, seed=seed, training=training)


def _interpolation(
    first: Retriever, split: Split, config: Config, seed: int, fitted: Score | None = None
) -> Interpolation:
    """The retriever's candidates for the validation users. Errors: a `monitor` that is not measured."""
    check_monitor(config.monitor)
    return Interpolation(
        first.searcher,
        drawn(split.valid, config.validation_users, seed=seed),
        num_candidates=config.num_candidates,
        monitor=config.monitor,
        weight=config.retriever_weight,
        repeat_weight=config.repeat_weight,
        fitted=fitted,
    )
