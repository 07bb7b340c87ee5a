"""SASRec under a mixture of logits instead of one inner product, by sampled softmax.

Shape legend: X examples of a step, M negatives of a step, D width, P pairs of components.
Source: Zhai et al., "Revisiting Neural Retrieval on Accelerators"; Ding and Zhai, "Retrieval with Learned Similarities"
(the loss that keeps gates in balance).
"""

from __future__ import annotations

import functools
import math
from typing import Any, Unpack

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from beamwood.data.split import Split
from beamwood.fitting.vectors.fit import fit_vectors
from beamwood.fitting.vectors.mol_settings import MolConfig
from beamwood.fitting.vectors.options import VectorOptions
from beamwood.fitting.vectors.sequence import SequenceTask, build_model
from beamwood.losses.softmax import shared_softmax
from beamwood.models import mol
from beamwood.models.sequence import SequenceModel
from beamwood.models.weights import declare
from beamwood.retrieval.retriever import Retriever
from beamwood.retrieval.searchers.mixture import MixtureSearcher

__all__ = ["MixtureModel", "MolTask", "fit_mol", "imbalance"]


class MixtureModel(SequenceModel):
    """A sequence encoder, and the parameters of a mixture of logits over its vectors and those of the items."""

    def __init__(self, *given: Any, mixture: mol.Sizes, width: int, **more: Any) -> None:
        super().__init__(*given, width=width, **more)
        self.weights = declare(self, mol.parameters(width, mixture), more.get("generator"))

    def export_mixture(self) -> dict[str, NDArray[np.float32]]:
        """The mixture's own arrays, by the names of `models.mol.parameters`."""
        return {name: value.detach().cpu().numpy().copy() for name, value in self.weights.items()}


class MolTask(SequenceTask):
    """The training of SASRec under a mixture, against negatives that the examples of a step share."""

    model: MixtureModel
    config: MolConfig

    def build(self, rng: torch.Generator) -> MixtureModel:
        """SASRec and the mixture."""
        make = functools.partial(MixtureModel, mixture=self.sizes)
        return build_model(self.train, self.config, rng, make)

    @property
    def sizes(self) -> mol.Sizes:
        """The mixture's sizes among the settings."""
        return mol.Sizes.among(self.config.model)

    def cross_entropy(self, queries_XD: Tensor, targets_X: Tensor, rng: torch.Generator) -> Tensor:
        """[X], the sampled softmax of the mixture, plus the penalty of unbalanced gates."""
        model, own = self.model, self.config.model
        count = self.config.loss.sampled_negatives
        assert count is not None, "a mixture is trained on samples"
        negatives = torch.randint(self.num_items, (count,), generator=rng).to(targets_X.device)
        parts, gate = mol.query_parts(model.weights, queries_XD, self.sizes)
        dropout = own.dropout if model.training else 0.0
        scores, shares = [], []
        for items in (targets_X, negatives):
            of_items, gate_of_items = mol.item_parts(model.weights, model.output_vectors(items), self.sizes)
            if items is targets_X:
                of_items, gate_of_items = of_items[:, None], gate_of_items[:, None]
            products = mol.component_products(parts, of_items)
            each = mol.mixture_scores(model.weights, products, gate, gate_of_items, own.temperature, dropout)
            scores.append(each[0])
            shares.append(each[1])
        losses_X = shared_softmax(scores[0][:, 0], scores[1], targets_X, negatives, -math.log(self.num_items))
        if self.config.loss.load_balance == 0:
            return losses_X
        return losses_X + self.config.loss.load_balance * imbalance(torch.cat(shares, dim=1))

    def searcher(self) -> MixtureSearcher:  # type: ignore[override]
        """A searcher of the current weights."""
        own = self.config.model
        return MixtureSearcher(
            self.model.plain(),
            self.model.export_mixture(),
            self.sizes,
            temperature=own.temperature,
            num_candidates=own.num_candidates,
        )


def imbalance(shares_XMP: Tensor) -> Tensor:
    """The mean entropy of gates over that of their mean, `E[H(pi)] - H(E[pi])`: low where each query has its own few
    pairs, and all pairs are used. Natural logarithms.
    """

    def entropy(shares: Tensor) -> Tensor:
        return -(shares * torch.log(shares.clamp(min=1e-9))).sum(dim=-1)

    return entropy(shares_XMP).mean() - entropy(shares_XMP.flatten(0, 1).mean(dim=0))


def fit_mol(split: Split, config: MolConfig, **options: Unpack[VectorOptions]) -> Retriever:
    """Train on `split.train`, keeping the weights that are best on `split.valid`.

    Errors: `InputError` where no user has two interactions.
    """
    return fit_vectors(MolTask(split.train, config), split, config, method="mol", **options)
