"""A ranker of users' lists, by any ranking loss or by GuidedRec's learned NDCG; it searches the whole catalogue.

Shape legend: B lists, K items a list, L history length.
Source: "GuidedRec" (Rashed et al. 2021), sections 4-5; the rivals' losses as in `losses.ranking`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TypeAlias, Unpack

import numpy as np
import torch
from torch import Tensor, nn

from beamwood.data.dataset import Dataset
from beamwood.data.split import Split
from beamwood.errors import InputError
from beamwood.fitting.assemble import build_retriever
from beamwood.fitting.options import TrainOptions, check_part
from beamwood.fitting.ranking.pair_models import build_pair_model, pair_scorer, query_tensors, score_of
from beamwood.fitting.ranking.sampled_measure import SampledMeasure
from beamwood.fitting.ranking.settings import RankerConfig
from beamwood.fitting.run import train
from beamwood.fitting.searched_task import SearchedTask
from beamwood.losses import ranking
from beamwood.models.pair_model import PairModel
from beamwood.models.pairs import QueryTensors
from beamwood.models.scorer import PairScore
from beamwood.models.surrogate import NdcgSurrogate
from beamwood.retrieval.retriever import Retriever
from beamwood.retrieval.searchers.ranked import RankingSearcher
from beamwood.sampling.lists import FutureListSampler, LabelledLists, ListSampler
from beamwood.training.budget import Budget
from beamwood.training.guided import GuidedStep
from beamwood.training.optimisers import Optimiser
from beamwood.training.step import StepResult
from beamwood.training.trainable import Progress

__all__ = ["GuidedTask", "ListLoss", "ListTask", "fit_ranker"]

ListLoss: TypeAlias = "Callable[[Tensor, Tensor], Tensor]"
"""Loss [B] of `scores_BK` and `labels_BK`, the positives first."""

# Those that need nothing but scores and labels.
_PLAIN: dict[str, ListLoss] = {
    "logistic": ranking.logistic,
    "pairwise-logistic": ranking.pairwise_logistic,
    "softmax": ranking.list_softmax,
    "approx-ndcg": ranking.approx_ndcg,
    "neural-sort": ranking.neural_sort,
}


@dataclass(frozen=True, slots=True)
class ListBatch:
    """Users with histories, `items_BK` int64 and `labels_BK` float32, the positives first."""

    query: QueryTensors
    items_BK: Tensor
    labels_BK: Tensor


class ListTask(SearchedTask[ListBatch]):
    """Lists of all users; for a model that reads histories, of each position of each history."""

    ranker: PairModel

    def __init__(
        self,
        train: Dataset,
        config: RankerConfig,
        own_loss: ListLoss | None = None,
        own_score: PairScore | None = None,
    ) -> None:
        self.config, self.train, self.own_loss = config, train, own_loss
        self.score = score_of(config, own_score)
        self.counts = {"num_positives": config.examples.num_positives, "num_negatives": config.loss.num_negatives}
        self.sampler: ListSampler | FutureListSampler
        if self.score.reads_history:
            length, horizon = config.model.length, config.examples.horizon
            self.sampler = FutureListSampler(
                train.histories, train.num_items, length=length, horizon=horizon, **self.counts
            )
        else:
            self.sampler = ListSampler(train.histories, train.num_items, **self.counts)
        self.num_examples = len(self.sampler)

    def prepare(self, rng: torch.Generator, budget: Budget) -> None:
        """Initialise the ranker, with DIN's item vectors by `start.items`."""
        self.model = self.ranker = build_pair_model(self.train, self.config, self.score, rng, budget=budget)

    def optimisers(self) -> list[Optimiser]:
        """AdamW."""
        return [Optimiser.over(self.ranker.parameters(), decay=self.config.optimiser.weight_decay, decoupled=True)]

    def batch(self, rows: np.ndarray, rng: torch.Generator, progress: Progress) -> ListBatch:
        """A fresh list for each of the given examples."""
        lists: LabelledLists = self.sampler.sample(rows, rng)
        items, labels = torch.from_numpy(lists.items_BK), torch.from_numpy(lists.labels_BK)
        return ListBatch(query_tensors(lists.query, self.score, self.config.model.length), items, labels)

    def loss(self, batch: ListBatch, rng: torch.Generator) -> Tensor:
        """[B], the loss of each list. Errors: a loss of one's own of another shape."""
        scores, labels = self.ranker(batch.query, batch.items_BK), batch.labels_BK
        if self.own_loss is not None:
            losses = self.own_loss(scores, labels)
            if list(losses.shape) != [len(scores)]:
                raise InputError(f"the loss has shape {list(losses.shape)}; return [{len(scores)}], one value a list")
            return losses
        loss = self.config.loss.kind
        if loss == "bpr":
            positives, negatives = torch.split(scores, list(self.counts.values()), dim=1)
            # Positives and negatives are paired in turn; the fewer of the two repeat.
            pairs = max(self.counts.values())
            turn = torch.arange(pairs)
            chosen = positives[:, turn % positives.shape[1]], negatives[:, turn % negatives.shape[1]]
            return ranking.bpr(*chosen).mean(dim=1)
        if loss == "list-mle":
            return ranking.list_mle(scores, labels, rng)
        if loss == "gumbel-ndcg":
            return ranking.gumbel_approx_ndcg(scores, labels, rng)
        return _PLAIN[loss](scores, labels)

    def searcher(self) -> RankingSearcher:
        """A searcher of the current weights."""
        return RankingSearcher(pair_scorer(self.ranker, self.config))


class GuidedTask(ListTask):
    """GuidedRec: the ranker and the surrogate of its NDCG, trained by three optimisers in turn."""

    def prepare(self, rng: torch.Generator, budget: Budget) -> None:
        """Initialise ranker and surrogate."""
        super().prepare(rng, budget)
        size, form = sum(self.counts.values()), self.config.loss.surrogate
        self.surrogate = NdcgSurrogate(size, form=form, std=_surrogate_std(self.config), generator=rng)
        self.model = nn.ModuleList([self.ranker, self.surrogate])

    def optimisers(self) -> list[Optimiser]:
        """For the logistic loss, for the predicted NDCG, and for the surrogate."""
        optimiser, leaky = self.config.optimiser, self.config.loss.leaky
        by_ndcg = self.model if leaky else self.ranker
        of_surrogate = self.model if leaky else self.surrogate
        return [
            *super().optimisers(),
            Optimiser.over(
                by_ndcg.parameters(), optimiser.ndcg_learning_rate, optimiser.ndcg_weight_decay, decoupled=True
            ),
            Optimiser.over(
                of_surrogate.parameters(),
                optimiser.surrogate_learning_rate,
                optimiser.surrogate_weight_decay,
                decoupled=True,
            ),
        ]

    def step(
        self,
        batch: ListBatch,
        optimizers: Sequence[torch.optim.Optimizer],
        rng: torch.Generator,
        *,
        number: int,
        clip_norm: float | None,
    ) -> StepResult:
        """The four updates on a batch of lists."""
        loss, (by_logloss, by_ndcg, by_surrogate) = self.config.loss, optimizers
        guided = GuidedStep(
            self.ranker,
            self.surrogate,
            (by_logloss, by_ndcg, by_surrogate),
            beta=loss.logistic_weight,
            k=loss.ndcg_at,
            with_logloss=loss.with_logloss,
            leaky=loss.leaky,
        )
        result, facts = guided(
            lambda: self.ranker(batch.query, batch.items_BK), batch.labels_BK, step=number, clip_norm=clip_norm
        )
        return replace(result, facts=asdict(facts))


def _surrogate_std(config: RankerConfig) -> float | None:
    """The standard deviation that `NdcgSurrogate` takes."""
    assert config.start.surrogate != "auto", "a plan resolves it"
    return None if config.start.surrogate == "wide" else 0.01


def fit_ranker(
    split: Split,
    config: RankerConfig,
    *,
    loss: ListLoss | None = None,
    score: PairScore | None = None,
    **options: Unpack[TrainOptions],
) -> Retriever:
    """Train a ranker on `split.train`, keeping the weights that are best on `split.valid`.

    The result ranks the whole catalogue by itself; `two_stage` puts it behind a retriever. `loss` replaces that of
    `loss.kind`, `score` that of `model.kind`. Errors: `InputError` on columns that do not exist, on users who have seen
    all items.
    """
    check_part("loss", loss, callable(loss), "a function of scores and labels, [B, K] each, that returns [B]")
    choose = config.choose
    sampled = choose.protocol == "sampled"
    if sampled != choose.monitor.startswith("sampled/"):
        raise InputError(
            f"choose.monitor={choose.monitor} does not fit choose.protocol={choose.protocol}; name a metric of that "
            "protocol, e.g. sampled/ndcg@10 or removed/ndcg@20"
        )
    seed = options.get("seed", 0)
    guided = config.loss.kind == "guided" and loss is None
    task = (GuidedTask if guided else ListTask)(split.train, config, loss, score)
    measure = None
    if sampled:
        measure = SampledMeasure(
            split.valid,
            split.train.num_items,
            num_users=choose.validation_users,
            seed=seed,
            monitor=choose.monitor,
        )
    training = train(task, split, config, method="ranker", measure=measure, **options)
    return build_retriever(task.searcher(), split, method="ranker", config=config, seed=seed, training=training)
