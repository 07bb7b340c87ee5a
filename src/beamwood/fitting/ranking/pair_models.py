"""The pair models by name, built for a data set, and their input tensors.

Shape legend: B rows, L history length.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from torch import Tensor

from beamwood.data.dataset import Dataset
from beamwood.data.features import FeatureColumn
from beamwood.errors import InputError
from beamwood.fitting.columns import item_features, user_features
from beamwood.fitting.options import check_part
from beamwood.fitting.ranking.settings import PairConfig
from beamwood.fitting.vectors.item_start import start_from_transitions
from beamwood.models.din_ranker import DinRanker
from beamwood.models.graphrec import GraphRec
from beamwood.models.pair_model import PairInputs, PairModel
from beamwood.models.pairs import QueryTensors
from beamwood.models.scorer import PairScore
from beamwood.models.scorers import SCORERS, din, graphrec, neumf
from beamwood.retrieval.searchers.scorers import PlainScorer
from beamwood.training.budget import Budget
from beamwood.training.lazy_adam import sparse_gradients
from beamwood.types import Query

__all__ = ["build_pair_model", "pair_scorer", "query_tensors", "score_of"]

# The width of NeuMF's first layer is half of its inputs, 16 in the paper's smallest form.
_NEUMF_WIDTH = 8


def score_of(config: PairConfig, own: PairScore | None) -> PairScore:
    """The score that is trained: `own`, or that of `model.kind`. Errors: `own` is no score."""
    check_part("score", own, isinstance(own, PairScore), "a PairScore")
    return SCORERS[config.model.kind] if own is None else own


def build_pair_model(
    train: Dataset,
    config: PairConfig,
    score: PairScore,
    generator: torch.Generator,
    context: Sequence[FeatureColumn] = (),
    budget: Budget | None = None,
) -> PairModel:
    """The model of a score; initial item vectors depend on the generator's seed.

    Errors: columns of a table that was not given, `model.graph` or `start.items=transitions` for another model.
    """
    own, start = config.model, config.start
    assert own.width is not None, "a plan has one"
    assert start.items != "auto", "a plan resolves it"
    if own.graph and score is not graphrec.SCORE:
        raise InputError(f"model.graph=true is for model.kind=graphrec, not for {score.kind}; leave it out")
    if start.items == "transitions" and not score.reads_history:
        raise InputError(f"start.items=transitions is for model.kind=din, not for {score.kind}; leave it out")
    counts = len(train.users), train.num_items
    inputs: PairInputs = {
        "item_features": item_features(train, own.item_columns),
        "user_features": user_features(train, own.user_columns),
        "context_columns": context,
        "generator": generator,
    }
    model: PairModel
    if score is graphrec.SCORE:
        model = GraphRec(*counts, width=own.width, graph=train.histories if own.graph else None, **inputs)
    elif score is din.SCORE:
        sizes = din.Sizes.among(own)
        model = DinRanker(*counts, width=own.width, sizes=sizes, attention_start=start.attention, **inputs)
    elif score is neumf.SCORE:
        model = PairModel(score, *counts, width=_NEUMF_WIDTH, sizes=neumf.Sizes(factors=own.width), **inputs)
    else:
        model = PairModel(score, *counts, width=own.width, sizes=score.sizes.among(own), **inputs)
    if start.items == "transitions":
        start_from_transitions([model.items.ids], train, generator.initial_seed(), budget)
        if isinstance(model, DinRanker):
            model.centre_attention()
    sparse_gradients(model, config.optimiser.embeddings)
    return model


def query_tensors(
    query: Query, score: PairScore, length: int, context: Mapping[str, Tensor] | None = None
) -> QueryTensors:
    """The query as tensors, the last `length` items of each history and the encoded `context`.

    A score that reads no history gets none.
    """
    length = length if score.reads_history else 0
    histories = np.empty((len(query), 0), np.int64) if length == 0 else query.histories.padded(length)
    return QueryTensors(
        torch.from_numpy(query.users), torch.from_numpy(histories.astype(np.int64)), dict(context or {})
    )


def pair_scorer(model: PairModel, config: PairConfig) -> PlainScorer:
    """The torch-free scorer of the current weights."""
    settings, arrays = model.export()
    if model.score.reads_history:
        settings = settings | {"history_length": config.model.length}
    return PlainScorer(model.score, settings, {name: array.copy() for name, array in arrays.items()})
