"""Training any sequence encoder by softmax over the catalogue, such as SASRec.

Shape legend: B sequences, L history length, X examples of a step, D width, M negatives of a step.

Source: Kang and McAuley, "Self-Attentive Sequential Recommendation", with the full softmax that later work found better
(the paper's own loss is binary, with one negative).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TypeVar, Unpack

import torch
from torch import Tensor

from beamwood.data.dataset import Dataset
from beamwood.data.split import Split
from beamwood.errors import InputError
from beamwood.fitting.columns import item_table_for
from beamwood.fitting.vectors.fit import fit_vectors
from beamwood.fitting.vectors.item_start import start_from_transitions
from beamwood.fitting.vectors.options import VectorOptions
from beamwood.fitting.vectors.settings import SequenceConfig, WindowConfig
from beamwood.fitting.vectors.windows import WindowTask
from beamwood.losses.softmax import catalogue_softmax, shared_softmax
from beamwood.models.sequence import ProjectedItems, SequenceModel
from beamwood.retrieval.retriever import Retriever
from beamwood.retrieval.searchers.vectors import VectorSearcher, sequence_searcher
from beamwood.training.budget import Budget
from beamwood.training.lazy_adam import sparse_gradients
from beamwood.training.optimisers import Optimiser, ParameterGroup

__all__ = ["SequenceTask", "build_model", "fit_sequence"]

Model = TypeVar("Model", bound=SequenceModel)


class SequenceTask(WindowTask):
    """The softmax loss over the catalogue, or over samples of it, on windows of histories."""

    def __init__(self, train: Dataset, config: WindowConfig) -> None:
        super().__init__(train, config.encoder, length=config.model.length, horizon=config.examples.horizon)
        self.config = config

    def prepare(self, rng: torch.Generator, budget: Budget) -> None:
        """Initialise the encoder, with item vectors by `start.items`."""
        config = self.config
        self.model = self.build(rng)
        # The full softmax updates every item.
        if config.loss.sampled_negatives is not None:
            sparse_gradients(self.model, config.optimiser.embeddings)
        self.start_items(rng.initial_seed(), budget)

    def build(self, rng: torch.Generator) -> SequenceModel:
        """The model of the configuration with random weights."""
        return build_model(self.train, self.config, rng)

    def optimisers(self) -> list[Optimiser]:
        """AdamW; item vectors may have another weight decay."""
        optimiser, of_items = self.config.optimiser, list(self.model.item_parameters())
        known, decay = set(of_items), optimiser.weight_decay
        others = [each for each in self.model.parameters() if each not in known]
        assert optimiser.item_decay is not None, "a plan has one"
        return [
            Optimiser(
                [ParameterGroup(others, decay=decay), ParameterGroup(of_items, decay=optimiser.item_decay)],
                betas=(0.9, 0.98),
                decoupled=True,
            )
        ]

    def start_items(self, seed: int, budget: Budget) -> None:
        """Initialise the item vectors by `config.start.items`."""
        assert self.config.start.items != "auto", "a plan resolves it"
        if self.config.start.items == "transitions":
            items, outputs = self.model.items, self.model.outputs
            if isinstance(items, ProjectedItems):
                raise InputError(
                    "start.items=transitions is for vectors of the items' own; leave out model.item_column or it"
                )
            start_from_transitions([items] if outputs is None else [items, outputs], self.train, seed, budget)

    def cross_entropy(self, queries_XD: Tensor, targets_X: Tensor, rng: torch.Generator) -> Tensor:
        """[X], the softmax loss over the catalogue, or over the target and the step's negatives."""
        count = self.config.loss.sampled_negatives
        assert count != "auto", "a plan resolves it"
        if count is None:
            return catalogue_softmax(queries_XD, self.model.output_weight, targets_X)
        negatives = torch.randint(self.num_items, (count,), generator=rng).to(targets_X.device)
        positive_X = (queries_XD * self.model.output_vectors(targets_X)).sum(dim=1)
        negative_XM = queries_XD @ self.model.output_vectors(negatives).T
        return shared_softmax(positive_X, negative_XM, targets_X, negatives, -math.log(self.num_items))

    def searcher(self) -> VectorSearcher:
        """A searcher of the current weights."""
        return sequence_searcher(self.model.plain())


def build_model(
    train: Dataset,
    config: WindowConfig,
    generator: torch.Generator,
    make: Callable[..., Model] = SequenceModel,  # type: ignore[assignment]
) -> Model:
    """The model of a configuration, of class `make`. Errors: a `model.item_column` that the item table lacks."""
    features, column = None, config.model.item_column
    if column is not None:
        features = item_table_for(f"model.item_column='{column}'", train).vectors(column)
    model, encoder = config.model, config.encoder
    return make(
        encoder,
        train.num_items,
        width=model.width,
        length=model.length,
        dropout=model.dropout,
        sizes=encoder.sizes.among(model),
        tied=model.tied,
        features_NF=features,
        generator=generator,
    )


def fit_sequence(split: Split, config: SequenceConfig, **options: Unpack[VectorOptions]) -> Retriever:
    """Train the encoder of `config` on `split.train`, keeping the weights that are best on `split.valid`.

    Errors: `InputError` where nobody has two interactions.
    """
    return fit_vectors(SequenceTask(split.train, config), split, config, method=config.encoder.name, **options)
