"""Training a ranker for the candidates of a fitted retriever: the second of two stages.

Shape legend: E all examples, B examples of a batch, T targets, K candidates, M negatives, L history length. Source: the
two-stage bounds, section 4.2: TS trains on all data, H-TS on the pairs that the retriever retrieves.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Unpack

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import softplus

from beamwood.blocks import slices
from beamwood.data.dataset import Dataset
from beamwood.data.examples import windows
from beamwood.data.features import encode_context
from beamwood.data.split import Split
from beamwood.data.unseen import UnseenItems
from beamwood.errors import InputError
from beamwood.fitting.assemble import build_retriever
from beamwood.fitting.columns import context_features
from beamwood.fitting.options import TrainOptions, with_budget
from beamwood.fitting.ranking.pair_models import build_pair_model, pair_scorer, query_tensors, score_of
from beamwood.fitting.ranking.settings import StagesConfig
from beamwood.fitting.ranking.stage_measure import StageMeasure
from beamwood.fitting.run import train
from beamwood.fitting.searched_task import SearchedTask
from beamwood.fitting.stages import blend_of_stages, first_stage, stage_candidates
from beamwood.fitting.validation import CUT, Choice, check_monitor
from beamwood.models.features import feature_tensors
from beamwood.models.pair_model import PairModel
from beamwood.models.pairs import QueryTensors
from beamwood.models.scorer import PairScore
from beamwood.retrieval.retriever import Retriever
from beamwood.retrieval.searchers.candidates import num_exact
from beamwood.retrieval.searchers.ranked import RankingSearcher
from beamwood.sampling.items import candidate_negatives, other_negatives, unseen_negatives
from beamwood.steps import step, tell
from beamwood.training.budget import Budget
from beamwood.training.optimisers import Optimiser
from beamwood.training.trainable import Progress
from beamwood.types import BoolArray, IndexArray, Query, Searcher, SearchOptions, among

__all__ = ["StagesTask", "fit_stages"]

# Training histories in one search, without and with a time limit.
_SEARCHED_AT_A_TIME, _SEARCHED_UNDER_A_LIMIT = 1024, 128
_ITEMS_AT_A_TIME = 2**18
# Random numbers drawn at a time for the targets of histories.
_DRAWS_AT_A_TIME = 2**22
# The share of training pairs from which harmonising pays (two-stage bounds, the end of section 4).
_LEAST_RECALL = 0.1


@dataclass(frozen=True, slots=True)
class CandidateBatch:
    """Users with histories; `items_BC` int64: T targets, then M negatives. `log_weight_BM`: added to the scores of the
    negatives; `weights_BT`: of each pair of a history and a target.
    """

    query: QueryTensors
    items_BC: Tensor
    log_weight_BM: Tensor
    weights_BT: Tensor


class StagesTask(SearchedTask[CandidateBatch]):
    """A ranker trained on pairs of a history and a later target, with the retriever's candidates where needed.

    Loss: softmax of the target among its negatives. The scores of drawn negatives are corrected, so that they represent
    all items except the targets, or all unseen items; the retriever's candidates represent only themselves.
    """

    model: PairModel

    def __init__(
        self,
        train: Dataset,
        config: StagesConfig,
        retriever: Searcher,
        own_score: PairScore | None = None,
        *,
        tells: bool = False,
    ) -> None:
        self.score, self.tells = score_of(config, own_score), tells
        self.config, self.train, self.retriever, self.num_items = config, train, retriever, train.num_items
        self.examples = windows(train.histories, length=config.model.length + 1, min_history=1)
        if len(self.examples) == 0:
            raise InputError("no user has two interactions to train on; give a longer log")
        self.unseen = UnseenItems(train.histories, train.num_items) if config.loss.negatives == "unseen" else None
        self.trainable = np.arange(len(self.examples))
        if self.unseen is not None:
            self.trainable = np.flatnonzero(self.unseen.lengths[self.examples.users] < train.num_items)
            if len(self.trainable) == 0:
                raise InputError("every user has seen every item, so nothing is unseen; set loss.negatives=uniform")
        self.context = context_features(train, config.model.context_columns)
        self.recall: float | None = None
        self.candidates_EK: NDArray[np.int32] | None = None
        self.num_retrieved: int | None = None

    def state(self) -> dict[str, Any]:
        """The number of examples for which candidates are retrieved, None where they are not needed."""
        return {"num_retrieved": self.num_retrieved}

    def resume_from(self, state: dict[str, Any]) -> None:
        """Retrieve for as many examples again: the order of batches is that of these."""
        self.num_retrieved = state["num_retrieved"]

    def prepare(self, rng: torch.Generator, budget: Budget) -> None:
        """Draw the examples and their targets, retrieve candidates where needed, and initialise the ranker."""
        seed = rng.initial_seed()
        rows = np.random.default_rng(seed).permutation(self.trainable)[: self.config.examples.max_examples]
        self.examples = self.examples.take(rows)
        self.positions_ET = self._target_positions(np.random.default_rng(seed + 1))
        self.weights_ET = np.ones(self.positions_ET.shape, np.float32)
        if self.needs_searches(self.config):
            self._retrieve(budget)
        self.num_examples = len(self.examples)
        columns = () if self.context is None else self.context.columns
        self.model = build_pair_model(self.train, self.config, self.score, rng, columns, budget)

    def optimisers(self) -> list[Optimiser]:
        """AdamW."""
        return [Optimiser.over(self.model.parameters(), decay=self.config.optimiser.weight_decay, decoupled=True)]

    @staticmethod
    def needs_searches(config: StagesConfig) -> bool:
        """Whether training uses the retriever's candidates."""
        return config.examples.pairs != "all" or config.loss.negatives == "candidates"

    def _target_positions(self, rng: np.random.Generator) -> NDArray[np.int64]:
        """int64[E, T], the history entries that are targets: distinct ones while there are enough."""
        examples, config = self.examples, self.config.examples
        ahead_E = examples.ahead(np.arange(len(examples)), config.horizon)
        positions_ET, width = np.empty((len(examples), config.num_targets), np.int64), int(ahead_E.max())
        for rows in slices(len(examples), max(1, _DRAWS_AT_A_TIME // width)):
            ahead = ahead_E[rows, None]
            steps = np.argsort(rng.random((len(ahead), width)), axis=1)
            # Steps beyond the end are sorted last; then the others repeat in their places.
            steps = np.take_along_axis(steps, np.argsort(steps >= ahead, axis=1, kind="stable"), axis=1)
            turn = np.arange(config.num_targets)[None, :] % ahead
            positions_ET[rows] = examples.stop[rows, None] + np.take_along_axis(steps, turn, axis=1)
        return positions_ET

    def targets(self, rows: IndexArray) -> NDArray[np.int64]:
        """int64[B, T], the target items of the given examples."""
        return self.examples.source.items[self.positions_ET[rows]].astype(np.int64)

    def _retrieve(self, budget: Budget) -> None:
        """Retrieve candidates for every example, as when serving: without seen items, and with them for seen targets.

        It may take half of what is left of a limited budget; the remaining examples are left out. A resumed run has as
        many as its first part.
        """
        config, num_all = self.config, len(self.examples)
        candidates_EK, hit_ET = self._found_in_time(budget)
        self.num_retrieved = len(hit_ET)
        if self.num_retrieved < num_all:
            self._keep_examples(np.arange(self.num_retrieved))
            budget.leave_out(f"candidates are retrieved for {self.num_retrieved:,} of {num_all:,} training histories")
        self.recall = float(hit_ET.mean())
        if not hit_ET.any():
            raise InputError("the retriever finds no target of a training pair; give a better trained one")
        if config.examples.pairs == "harmonised":
            if self.tells and self.recall < _LEAST_RECALL:
                tell(_few_pairs(self.recall))
            kept = np.flatnonzero(hit_ET.any(axis=1))
            self._keep_examples(kept)
            self.weights_ET, candidates_EK = hit_ET[kept].astype(np.float32), candidates_EK[kept]
        if config.loss.negatives == "candidates":
            self.candidates_EK = candidates_EK

    def _found_in_time(self, budget: Budget) -> tuple[NDArray[np.int32], BoolArray]:
        """`_searched` for the first examples: `num_retrieved` where that is known, else as many as fit."""
        examples, until = self.examples.take(np.arange(self.num_retrieved or len(self.examples))), budget.left / 2
        lengths = examples.stop - examples.source.indptr[examples.users]
        found: list[tuple[NDArray[np.int32], BoolArray]] = []
        with step("retrieving candidates for the training histories", len(examples)) as retrieving:
            for rows in _blocks(lengths, _SEARCHED_UNDER_A_LIMIT if budget.limited else _SEARCHED_AT_A_TIME):
                if found and self.num_retrieved is None and budget.left < until:
                    break
                found.append(self._searched(rows))
                retrieving.advance(len(rows))
        items, hits = zip(*found, strict=True)
        return np.concatenate(items), np.concatenate(hits)

    def _searched(self, rows: IndexArray) -> tuple[NDArray[np.int32], BoolArray]:
        """int32[B, K], the candidates of the given examples without seen items, and bool[B, T], the targets found."""
        examples, retriever, logged = self.examples, self.retriever, self.train.context
        past = examples.source.slices(examples.source.indptr[examples.users[rows]], examples.stop[rows])
        # The context of the target event.
        frame = None if logged is None else logged[examples.stop[rows]]
        query = Query(examples.users[rows], past, encode_context(retriever.needs.context, frame, len(rows)))
        k = min(self.config.model.num_candidates, self.num_items)
        options = SearchOptions(num_exact=num_exact(k, CUT))
        targets, items = self.targets(rows), retriever.search(query, k, replace(options, excluded=past)).items
        hit = _is_retrieved(targets, items)
        # A seen target can only be found with seen items kept.
        again = np.flatnonzero(among(targets, past).any(axis=1))
        if len(again):
            hit[again] |= _is_retrieved(targets[again], retriever.search(query.take(again), k, options).items)
        return items, hit

    def _keep_examples(self, rows: IndexArray) -> None:
        """Keep only the given examples."""
        self.examples = self.examples.take(rows)
        self.positions_ET, self.weights_ET = self.positions_ET[rows], self.weights_ET[rows]

    def batch(self, rows: np.ndarray, rng: torch.Generator, progress: Progress) -> CandidateBatch:
        """The given histories and their targets with fresh negatives."""
        users, targets = self.examples.users[rows], self.targets(rows)
        negatives, log_weight = self.negatives(rows, targets, rng)
        context = None if self.context is None else feature_tensors(self.context.take(self.examples.stop[rows]))
        return CandidateBatch(
            query_tensors(Query(users, self.examples.histories(rows)), self.score, self.config.model.length, context),
            torch.from_numpy(np.concatenate([targets, negatives], axis=1)),
            torch.from_numpy(log_weight.astype(np.float32)),
            torch.from_numpy(self.weights_ET[rows]),
        )

    def negatives(
        self, rows: np.ndarray, targets: NDArray[np.int64], rng: torch.Generator
    ) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """int64[B, M], and the term added to each score; -inf masks a negative."""
        num = self.config.loss.num_negatives
        draws_BM = torch.rand((len(rows), num), generator=rng, dtype=torch.float64).numpy()
        if self.candidates_EK is not None:
            return candidate_negatives(self.candidates_EK[rows].astype(np.int64), targets, num, rng)
        if self.unseen is not None:
            return unseen_negatives(self.unseen, self.examples.users[rows], draws_BM)
        return other_negatives(self.num_items, targets, draws_BM)

    def loss(self, batch: CandidateBatch, rng: torch.Generator) -> Tensor:
        """Scalar: the weighted mean of the softmax losses."""
        scores = self.model(batch.query, batch.items_BC)
        targets_BT, negatives_BM = torch.split(
            scores, [self.config.examples.num_targets, batch.log_weight_BM.shape[1]], dim=1
        )
        # A row without a usable negative has no loss; the gradient of logsumexp over nothing would be NaN.
        some = torch.isfinite(batch.log_weight_BM).any(dim=1, keepdim=True)
        rivals_BM = torch.where(some, negatives_BM + batch.log_weight_BM, torch.zeros_like(negatives_BM))
        losses = softplus(torch.logsumexp(rivals_BM, dim=1, keepdim=True) - targets_BT)
        weights = batch.weights_BT * some
        return (losses * weights).sum() / weights.sum().clamp(min=1e-12)

    def searcher(self) -> RankingSearcher:
        """The ranker alone, with the current weights."""
        return RankingSearcher(pair_scorer(self.model, self.config))


def _few_pairs(recall: float) -> str:
    """What to know of a harmonised training whose retriever finds few targets."""
    return (
        f"the retriever finds {100 * recall:.2g} % of the training pairs, and examples.pairs=harmonised drops the "
        f"others; in the study this gains nothing below {100 * _LEAST_RECALL:.0f} %: set examples.pairs=all, or give "
        "a better retriever"
    )


def _is_retrieved(targets_BT: IndexArray, items_BK: IndexArray) -> BoolArray:
    """bool[B, T]: whether the target is among the row's items."""
    return np.stack([(items_BK == column[:, None]).any(axis=1) for column in targets_BT.T], axis=1)


def _blocks(lengths: NDArray[np.int64], at_a_time: int) -> Iterator[NDArray[np.int64]]:
    """Row numbers in order, in blocks bounded by histories and by their items."""
    start, ends = 0, np.cumsum(lengths)
    while start < len(lengths):
        room = ends[start] - lengths[start] + _ITEMS_AT_A_TIME
        stop = min(int(np.searchsorted(ends, room, side="right")), start + at_a_time)
        yield np.arange(start, max(stop, start + 1))
        start = max(stop, start + 1)


def fit_stages(
    split: Split, config: StagesConfig, *, score: PairScore | None = None, **options: Unpack[TrainOptions]
) -> Retriever:
    """Train a ranker for the retriever in `start.retriever` and put it behind it.

    The weights kept are those whose two stages together are best on `split.valid`; so is the retriever's weight
    (`choose.retriever_weight`). The largest weight tried keeps the retriever's own order, except for candidates within
    a hundredth of a standard deviation: the result is not worse than that order on validation. `time_limit` in seconds
    includes the searches for validation users and training histories; what does not fit is reduced and listed in
    `training.left_out`. `score` replaces that of `model.kind`. Errors: `InputError` without a retriever, on one fitted
    on another log or split (it may have seen the test users), on one that finds no target.
    """
    first, seed = first_stage(split, config), options.get("seed", 0)
    if config.model.context_columns and (config.examples.horizon != 1 or config.examples.num_targets > 1):
        raise InputError(
            "model.context_columns needs examples.horizon=1 and examples.num_targets=1: the context belongs to the "
            "next event alone"
        )
    options = with_budget(options)
    if options.get("progress", True) and StagesTask.needs_searches(config):
        tell("retrieving candidates for the training histories before the first step")
    task = StagesTask(split.train, config, first.searcher, score, tells=options.get("progress", True))
    check_monitor(config.choose.monitor)
    measure = StageMeasure(
        first.searcher,
        split.valid.sample(config.choose.validation_users, seed=seed),
        lambda queries: stage_candidates(first, queries, config),
        num_candidates=config.model.num_candidates,
        budget=Budget.of(options["time_limit"]),
        seed=seed,
    )
    return _trained(task, first, split, config, measure, **options)


def _trained(
    task: StagesTask,
    first: Retriever,
    split: Split,
    config: StagesConfig,
    measure: StageMeasure,
    **options: Unpack[TrainOptions],
) -> Retriever:
    """Train the ranker and put it behind the retriever."""
    choice = Choice(measure.choose, len(measure))
    training = train(
        task,
        split,
        config,
        method="two_stage",
        measure=measure,
        choice=choice,
        evaluate_start=True,
        **options,
    )
    second = task.searcher()
    chosen = choice.made_for(second)
    training |= chosen.facts()
    if task.recall is not None:
        training["retrieved_share_of_training_pairs"] = task.recall
    searcher = blend_of_stages(first.searcher, second, chosen, num_candidates=config.model.num_candidates)
    seed = options.get("seed", 0)
    return build_retriever(searcher, split, method="two_stage", config=config, seed=seed, training=training)
