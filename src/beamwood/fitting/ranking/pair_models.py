"""The rankers' models by name, built for a data set, and what a step asks them.

Shape legend: B rows, L history length.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from beamwood.data.dataset import Dataset
from beamwood.data.features import FeatureColumn
from beamwood.data.split import Split
from beamwood.errors import InputError
from beamwood.fitting.columns import item_features, user_features
from beamwood.fitting.settings import HistoryLength, LayerWidth, MethodConfig
from beamwood.fitting.vectors.item_start import Start, starts_from_transitions, transition_vectors
from beamwood.models.din_ranker import DinRanker
from beamwood.models.graphrec import GraphRec
from beamwood.models.neumf import NeuMf
from beamwood.models.pairs import Asked
from beamwood.retrieval.scorers import PairScorer, restore_scorer
from beamwood.training.lazy_adam import EmbeddingOptimizer, sparse_gradients
from beamwood.types import Askers

__all__ = ["AnyPairModel", "PairConfig", "asked", "build_pair_model", "check_users_known", "pair_scorer"]

AnyPairModel = GraphRec | NeuMf | DinRanker


class PairConfig(MethodConfig):
    """What a ranker looks at, and its size."""

    model: Literal["graphrec", "neumf", "din"] = Field(
        "graphrec", description="din looks at histories, the others at who"
    )
    width: LayerWidth | None = Field(None, description="null: 20 (graphrec), 8 (neumf), 64 (din; the study: 96)")
    length: HistoryLength = Field(69, description="latest history items that din looks at")
    attention: tuple[LayerWidth, ...] = Field(
        (36,), min_length=1, description="layers of din's attention; the study's, 64 and 16, take six times as long"
    )
    mlp: tuple[LayerWidth, ...] = Field(
        (128, 64), min_length=1, description="layers of din above it; the study: 200, 80"
    )
    item_start: Start = Field(
        "auto",
        description="where din's item vectors start: at random (the study's), or from what follows what in the "
        "training histories; auto: the latter up to two million items",
    )
    attention_start: float | None = Field(0.3, description="din's attention at first; null: as drawn (the study's)")
    item_columns: tuple[str, ...] = Field((), description="columns of the item table, as name or name:kind")
    user_columns: tuple[str, ...] = Field((), description="columns of the user table, as name or name:kind")
    embedding_optimizer: EmbeddingOptimizer = "auto"
    graph: bool = Field(False, description="graphrec: also the neighbours in the graph of interactions")


def build_pair_model(
    train: Dataset,
    config: PairConfig,
    generator: torch.Generator,
    context: Sequence[FeatureColumn] = (),
    *,
    seed: int = 0,
) -> AnyPairModel:
    """The model of a configuration; `seed` is that of where item vectors start.

    Errors: columns of a table that was not given, `graph` or `item_start=transitions` for another model.
    """
    items, users = item_features(train, config.item_columns), user_features(train, config.user_columns)
    shared: dict[str, Any] = {"item_features": items, "user_features": users}
    shared |= {"generator": generator, "context_columns": context}
    num_users, num_items = len(train.users), len(train.items)
    if config.graph and config.model != "graphrec":
        raise InputError(f"graph=true is for model=graphrec, not for {config.model}")
    if config.item_start == "transitions" and config.model != "din":
        raise InputError(f"item_start=transitions is for model=din, not for {config.model}")
    model: AnyPairModel
    if config.model == "graphrec":
        graph = train.histories if config.graph else None
        model = GraphRec(num_users, num_items, width=config.width or 20, graph=graph, **shared)
    elif config.model == "neumf":
        model = NeuMf(num_users, num_items, factors=config.width or 8, **shared)
    else:
        shared |= {"attention": config.attention, "mlp": config.mlp, "attention_start": config.attention_start}
        width = config.width or 64
        model = DinRanker(num_items, width=width, **shared)
        if starts_from_transitions(config.item_start, num_items, possible=True):
            model.start_from(torch.from_numpy(transition_vectors(train, width, seed)))
    sparse_gradients(model, config.embedding_optimizer)
    return model


def check_users_known(split: Split, config: PairConfig) -> None:
    """Errors: a model that learns a vector a user, tested on users that training does not have."""
    if config.model != "din" and split.name == "users":
        raise InputError(
            f"model={config.model} knows the users of training only, but --split users tests on others; use --split "
            "leave-one-out, time or boundary, or model=din"
        )


def asked(askers: Askers, config: PairConfig, context: Mapping[str, Tensor] | None = None) -> Asked:
    """The askers as tensors, `context` encoded; models that look at no history get none."""
    length = config.length if config.model == "din" else 0
    histories = np.empty((len(askers), 0), np.int64) if length == 0 else askers.histories.padded(length)
    return Asked(torch.from_numpy(askers.users), torch.from_numpy(histories.astype(np.int64)), dict(context or {}))


def pair_scorer(model: AnyPairModel, config: PairConfig) -> PairScorer:
    """The torch-free scorer of the weights as they are now."""
    settings, arrays = model.export()
    if config.model == "din":
        settings = settings | {"history_length": config.length}
    return restore_scorer(settings, {name: array.copy() for name, array in arrays.items()})
