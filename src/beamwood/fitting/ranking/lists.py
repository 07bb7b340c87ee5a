"""A ranker of users' lists, by any ranking loss or by GuidedRec's learned NDCG; it searches the whole catalogue.

Shape legend: B lists, K items a list, L history length.
Source: "GuidedRec" (Rashed et al. 2021), sections 4-5; the rivals' losses as in `losses.ranking`.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Unpack

import numpy as np
import torch
from torch import Tensor, nn

from beamwood.data.dataset import Dataset
from beamwood.data.split import Split
from beamwood.errors import InputError
from beamwood.evaluation.sampled import sampled_validation
from beamwood.fitting.options import TrainOptions, with_less_time
from beamwood.fitting.ranking.pair_models import asked, build_pair_model, pair_scorer
from beamwood.fitting.ranking.settings import RankerConfig
from beamwood.fitting.run import fit_task
from beamwood.losses import ranking
from beamwood.models.pairs import Asked
from beamwood.models.surrogate import NdcgSurrogate
from beamwood.retrieval.ranked import RankingSearcher
from beamwood.retrieval.retriever import Retriever
from beamwood.sampling.lists import FutureListSampler, Lists, ListSampler
from beamwood.training.guided import GuidedFacts, GuidedStep
from beamwood.training.lazy_adam import LazyAdam
from beamwood.training.step import StepResult

__all__ = ["GuidedTask", "ListTask", "fit_ranker"]

# Those that need nothing but scores and labels.
_PLAIN: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "logistic": ranking.logistic,
    "pairwise-logistic": ranking.pairwise_logistic,
    "softmax": ranking.list_softmax,
    "approx-ndcg": ranking.approx_ndcg,
    "neural-sort": ranking.neural_sort,
}


@dataclass(frozen=True, slots=True)
class Batch:
    """Who asks, `items_BK` int64 and `labels_BK` float32, the positives first."""

    asked: Asked
    items_BK: Tensor
    labels_BK: Tensor


class ListTask:
    """Lists of users, all alike; for a model that looks at histories, of each position of each history."""

    def __init__(self, train: Dataset, config: RankerConfig, *, seed: int) -> None:
        self.config = config
        self.generator = torch.Generator().manual_seed(seed)
        self.ranker = build_pair_model(train, config, self.generator, seed=seed)
        examples, optimiser = config.examples, config.optimiser
        self.counts = {"num_positives": examples.num_positives, "num_negatives": config.loss.num_negatives}
        self.sampler: ListSampler | FutureListSampler
        if config.model.kind == "din":
            self.sampler = FutureListSampler(
                train.histories, train.num_items, length=config.model.length, horizon=examples.horizon, **self.counts
            )
        else:
            self.sampler = ListSampler(train.histories, train.num_items, **self.counts)
        self.num_examples = len(self.sampler)
        self.optimizers = [adamw(self.ranker, optimiser.peak, optimiser.weight_decay)]

    @property
    def model(self) -> nn.Module:
        return self.ranker

    def state(self) -> dict[str, Any]:
        return {"generator": self.generator.get_state()}

    def load_state(self, state: dict[str, Any]) -> None:
        self.generator.set_state(state["generator"])

    def batch(self, rows: np.ndarray) -> Batch:
        """A fresh list of each of the given examples."""
        lists: Lists = self.sampler.sample(rows, self.generator)
        items, labels = torch.from_numpy(lists.items_BK), torch.from_numpy(lists.labels_BK)
        return Batch(asked(lists.query, self.config), items, labels)

    def loss(self, batch: Batch) -> Tensor:
        """[B], the loss of each list."""
        scores, labels = self.ranker(batch.asked, batch.items_BK), batch.labels_BK
        loss = self.config.loss.kind
        if loss == "bpr":
            positives, negatives = torch.split(scores, list(self.counts.values()), dim=1)
            # Each positive against the negatives in turn; more of one kind start over.
            pairs = max(self.counts.values())
            turn = torch.arange(pairs)
            chosen = positives[:, turn % positives.shape[1]], negatives[:, turn % negatives.shape[1]]
            return ranking.bpr(*chosen).mean(dim=1)
        if loss == "list-mle":
            return ranking.list_mle(scores, labels, self.generator)
        if loss == "gumbel-ndcg":
            return ranking.gumbel_approx_ndcg(scores, labels, self.generator)
        return _PLAIN[loss](scores, labels)

    def searcher(self) -> RankingSearcher:
        """A searcher of the weights as they are now."""
        return RankingSearcher(pair_scorer(self.ranker, self.config))


class GuidedTask(ListTask):
    """GuidedRec: the ranker and the surrogate of its NDCG, moved by three optimisers in turn."""

    def __init__(self, train: Dataset, config: RankerConfig, *, seed: int) -> None:
        super().__init__(train, config, seed=seed)
        size, loss, optimiser = sum(self.counts.values()), config.loss, config.optimiser
        surrogate = NdcgSurrogate(size, form=loss.surrogate, std=_surrogate_std(config), generator=self.generator)
        self.both = nn.ModuleList([self.ranker, surrogate])
        by_ndcg = adamw(
            self.both if loss.leaky else self.ranker, optimiser.ndcg_learning_rate, optimiser.ndcg_weight_decay
        )
        by_surrogate = adamw(
            self.both if loss.leaky else surrogate, optimiser.surrogate_learning_rate, optimiser.surrogate_weight_decay
        )
        self.optimizers = [*self.optimizers, by_ndcg, by_surrogate]
        self.guided = GuidedStep(
            self.ranker,
            surrogate,
            (self.optimizers[0], by_ndcg, by_surrogate),
            beta=loss.logistic_weight,
            k=loss.ndcg_at,
            with_logloss=loss.with_logloss,
            leaky=loss.leaky,
        )
        self.noted: list[list[float]] = []

    @property
    def model(self) -> nn.Module:
        return self.both

    def update(self, batch: Batch, *, step: int, clip_norm: float | None) -> StepResult:
        """The four moves on a batch of lists."""
        result, facts = self.guided(
            lambda: self.ranker(batch.asked, batch.items_BK), batch.labels_BK, step=step, clip_norm=clip_norm
        )
        self.noted.append([facts.predicted_ndcg, facts.true_ndcg, facts.surrogate_loss, facts.logloss])
        return result

    def facts(self) -> dict[str, float]:
        """Means over the steps since the last call, by the names of `GuidedFacts`."""
        means = np.mean(self.noted, axis=0) if self.noted else np.full(len(GuidedFacts.__slots__), np.nan)
        self.noted = []
        return {name: float(mean) for name, mean in zip(GuidedFacts.__slots__, means, strict=True)}

    def state(self) -> dict[str, Any]:
        return super().state() | {"noted": torch.tensor(self.noted, dtype=torch.float64).reshape(-1, 4)}

    def load_state(self, state: dict[str, Any]) -> None:
        super().load_state(state)
        self.noted = state["noted"].tolist()


def _surrogate_std(config: RankerConfig) -> float | None:
    """As `NdcgSurrogate` takes it: on validation users nfm1 and DIN had lost most by a small start."""
    needs_wide = config.loss.surrogate == "nfm1" or config.model.kind == "din"
    wide = config.start.surrogate == "wide" or (config.start.surrogate == "auto" and needs_wide)
    return None if wide else 0.01


def adamw(module: nn.Module, learning_rate: float, weight_decay: float) -> LazyAdam:
    """AdamW over a module's parameters."""
    return LazyAdam(module.parameters(), lr=learning_rate, weight_decay=weight_decay, decoupled=True)


def fit_ranker(split: Split, config: RankerConfig, **options: Unpack[TrainOptions]) -> Retriever:
    """Train a ranker on `split.train`, keeping the weights that are best on `split.valid`.

    What comes back ranks the whole catalogue by itself; `two_stage` puts it behind a retriever. Errors: `InputError`
    on columns that do not exist, on users who had all items.
    """
    began, choose = time.monotonic(), config.choose
    sampled = choose.protocol == "sampled"
    if sampled != choose.monitor.startswith("sampled/"):
        raise InputError(
            f"choose.monitor={choose.monitor} does not fit choose.protocol={choose.protocol}; name a metric of that "
            "protocol, e.g. sampled/ndcg@10 or new/ndcg@20"
        )
    seed = options.get("seed", 0)
    task = (GuidedTask if config.loss.kind == "guided" else ListTask)(split.train, config, seed=seed)
    measure = None
    if sampled:
        measure = sampled_validation(
            task.searcher,
            split.valid,
            split.train.num_items,
            num_users=choose.validation_users,
            seed=seed,
            monitor=choose.monitor,
        )
    options = with_less_time(options, time.monotonic() - began)
    return fit_task(task, split, config, task.searcher, method="ranker", measure=measure, **options)
