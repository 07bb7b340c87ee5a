"""A ranker of users' lists, by any ranking loss or by GuidedRec's learned NDCG; it searches the whole catalogue.

Shape legend: B lists, K items a list, L history length.
Source: "GuidedRec" (Rashed et al. 2021), sections 4-5; the rivals' losses as in `losses.ranking`.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, Self, Unpack

import numpy as np
import torch
from pydantic import Field, model_validator
from torch import Tensor, nn

from beamwood.data.dataset import Dataset
from beamwood.data.split import Split
from beamwood.errors import InputError
from beamwood.evaluation.sampled import sampled_validation
from beamwood.fitting.options import TrainOptions, with_less_time
from beamwood.fitting.ranking.pair_models import PairConfig, asked, build_pair_model, check_users_known, pair_scorer
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

__all__ = ["TRAINS", "Config", "GuidedTask", "ListTask", "fit"]

TRAINS = True
"""This method trains by steps: its `fit` takes a run folder, a time limit and resume."""

Loss = Literal[
    "guided",
    "logistic",
    "pairwise-logistic",
    "bpr",
    "list-mle",
    "softmax",
    "approx-ndcg",
    "gumbel-ndcg",
    "neural-sort",
]


# What the native kernel of the learned NDCG takes.
_LONGEST_LIST = 2**16
# Those that need nothing but scores and labels.
_PLAIN: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "logistic": ranking.logistic,
    "pairwise-logistic": ranking.pairwise_logistic,
    "softmax": ranking.list_softmax,
    "approx-ndcg": ranking.approx_ndcg,
    "neural-sort": ranking.neural_sort,
}


class Config(PairConfig):
    """A ranker; the defaults are GuidedRec's own for ML-100K."""

    loss: Loss = "guided"
    num_positives: int = Field(5, ge=1, description="of a list, with replacement")
    num_negatives: int = Field(5, ge=1)
    horizon: int = Field(10, ge=1, description="model=din: positives are among the next so many items")
    learning_rate: float = Field(1e-3, gt=0)
    weight_decay: float = Field(0.01, ge=0, description="of AdamW: multiplied by the rate")
    surrogate: Literal["ensemble", "mlp", "nfm1", "nfm2"] = Field(
        "ensemble", description="of loss=guided, as all down to surrogate_weight_decay"
    )
    surrogate_start: Literal["auto", "small", "wide"] = Field(
        "auto",
        description="standard deviation of its weights as drawn: small: .01, the study's; wide: 1 / sqrt(inputs) of "
        "each layer, which soon tells lists apart; auto: wide for nfm1 and model=din, small otherwise",
    )
    ndcg_at: int = Field(10, ge=1)
    beta: float = Field(1.0, gt=0, description="weight of the logistic loss")
    with_logloss: bool = Field(True, description="false: train on the predicted NDCG alone")
    leaky: bool = Field(False, description="neither detach the scores nor freeze the surrogate")
    ndcg_learning_rate: float = Field(1.3e-3, gt=0)
    ndcg_weight_decay: float = Field(0.0615, ge=0)
    surrogate_learning_rate: float = Field(2e-3, gt=0)
    surrogate_weight_decay: float = Field(5e-4, ge=0)
    batch_size: int = Field(25, ge=1, description="lists")
    max_epochs: int = Field(200, ge=1, description="an epoch draws as many positives as there are interactions")
    max_steps: int | None = Field(None, ge=1, description="besides max_epochs; the smaller counts")
    schedule: Literal["constant", "linear", "cosine", "exponential"] = "constant"
    warmup_steps: int = Field(0, ge=0)
    decay_steps: int | None = Field(None, ge=1)
    clip_norm: float | None = Field(None, gt=0)
    evaluate_every: int = Field(2000, ge=1)
    log_every: int = Field(100, ge=1)
    patience: int = Field(20, ge=1)
    validation: Literal["sampled", "full"] = Field("sampled", description="each label among 99 others, or all items")
    validation_users: int = Field(1000, ge=1)
    monitor: str = Field("sampled/ndcg@10", description="with validation=full e.g. new/ndcg@20")

    @model_validator(mode="after")
    def _a_list_fits_the_kernel(self) -> Self:
        if self.num_positives + self.num_negatives > _LONGEST_LIST:
            raise ValueError(
                f"num_positives={self.num_positives} and num_negatives={self.num_negatives} make a list of more than "
                f"{_LONGEST_LIST} items; lower one of them"
            )
        return self


@dataclass(frozen=True, slots=True)
class Batch:
    """Who asks, `items_BK` int64 and `labels_BK` float32, the positives first."""

    asked: Asked
    items_BK: Tensor
    labels_BK: Tensor


class ListTask:
    """Lists of users, all alike; for a model that looks at histories, of each position of each history."""

    def __init__(self, train: Dataset, config: Config, *, seed: int) -> None:
        self.config = config
        self.generator = torch.Generator().manual_seed(seed)
        self.ranker = build_pair_model(train, config, self.generator, seed=seed)
        counts = {"num_positives": config.num_positives, "num_negatives": config.num_negatives}
        self.sampler: ListSampler | FutureListSampler
        if config.model == "din":
            self.sampler = FutureListSampler(
                train.histories, train.num_items, length=config.length, horizon=config.horizon, **counts
            )
        else:
            self.sampler = ListSampler(train.histories, train.num_items, **counts)
        self.num_examples = len(self.sampler)
        self.optimizers = [adamw(self.ranker, config.learning_rate, config.weight_decay)]

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
        return Batch(asked(lists.askers, self.config), items, labels)

    def loss(self, batch: Batch) -> Tensor:
        """[B], the loss of each list."""
        scores, labels = self.ranker(batch.asked, batch.items_BK), batch.labels_BK
        loss = self.config.loss
        if loss == "bpr":
            positives, negatives = torch.split(scores, [self.config.num_positives, self.config.num_negatives], dim=1)
            # Each positive against the negatives in turn; more of one kind start over.
            pairs = max(self.config.num_positives, self.config.num_negatives)
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

    def __init__(self, train: Dataset, config: Config, *, seed: int) -> None:
        super().__init__(train, config, seed=seed)
        size = config.num_positives + config.num_negatives
        surrogate = NdcgSurrogate(size, form=config.surrogate, std=_surrogate_std(config), generator=self.generator)
        self.both = nn.ModuleList([self.ranker, surrogate])
        by_ndcg = adamw(self.both if config.leaky else self.ranker, config.ndcg_learning_rate, config.ndcg_weight_decay)
        by_surrogate = adamw(
            self.both if config.leaky else surrogate, config.surrogate_learning_rate, config.surrogate_weight_decay
        )
        self.optimizers = [*self.optimizers, by_ndcg, by_surrogate]
        self.guided = GuidedStep(
            self.ranker,
            surrogate,
            (self.optimizers[0], by_ndcg, by_surrogate),
            beta=config.beta,
            k=config.ndcg_at,
            with_logloss=config.with_logloss,
            leaky=config.leaky,
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


def _surrogate_std(config: Config) -> float | None:
    """As `NdcgSurrogate` takes it: on validation users nfm1 and DIN had lost most by a small start."""
    needs_wide = config.surrogate == "nfm1" or config.model == "din"
    wide = config.surrogate_start == "wide" or (config.surrogate_start == "auto" and needs_wide)
    return None if wide else 0.01


def adamw(module: nn.Module, learning_rate: float, weight_decay: float) -> LazyAdam:
    """AdamW over a module's parameters."""
    return LazyAdam(module.parameters(), lr=learning_rate, weight_decay=weight_decay, decoupled=True)


def fit(split: Split, config: Config | None = None, **options: Unpack[TrainOptions]) -> Retriever:
    """Train a ranker on `split.train`, keeping the weights that are best on `split.valid`.

    What comes back ranks the whole catalogue by itself; `two-stage` puts it behind a retriever. Errors: `InputError`
    on a split whose test users a model by user cannot know, on columns that do not exist, on users who had all items.
    """
    began, config = time.monotonic(), config or Config()
    check_users_known(split, config)
    sampled = config.validation == "sampled"
    if sampled != config.monitor.startswith("sampled/"):
        raise InputError(
            f"monitor={config.monitor} does not fit validation={config.validation}; name a metric of that protocol, "
            "e.g. sampled/ndcg@10 or new/ndcg@20"
        )
    seed = options.get("seed", 0)
    task = (GuidedTask if config.loss == "guided" else ListTask)(split.train, config, seed=seed)
    measure = None
    if sampled:
        measure = sampled_validation(
            task.searcher,
            split.valid,
            split.train.num_items,
            num_users=config.validation_users,
            seed=seed,
            monitor=config.monitor,
        )
    options = with_less_time(options, time.monotonic() - began)
    return fit_task(task, split, config, task.searcher, method="ranker", measure=measure, **options)
