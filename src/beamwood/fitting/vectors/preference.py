"""LPO4Rec: any sequence encoder aligned with a listwise preference for tail items; and the pairwise rivals' losses.

Shape legend: B sequences, L history length, X examples of a step, N items, K negatives.
Source: "Listwise Preference Alignment Optimization for Tail Item Recommendation" (LPO4Rec), equations 12-17.
"""

from __future__ import annotations

import copy
from typing import Unpack

import torch
from torch import Tensor

from beamwood.blocks import slices
from beamwood.data.split import Split
from beamwood.errors import InputError
from beamwood.evaluation.tail import TailRule
from beamwood.fitting.vectors.fit import fit_vectors
from beamwood.fitting.vectors.options import VectorOptions
from beamwood.fitting.vectors.preference_settings import PreferenceConfig
from beamwood.fitting.vectors.sequence_start import ContinuedTask
from beamwood.fitting.vectors.windows import WindowBatch
from beamwood.losses.preference import dpo, lpo, orpo, s_dpo, simpo, tail_weights
from beamwood.losses.softmax import BLOCK_CELLS
from beamwood.models.sequence import SequenceModel
from beamwood.retrieval.retriever import Retriever
from beamwood.sampling.head import Pi, head_negatives, num_draws
from beamwood.training.budget import Budget

__all__ = ["PreferenceTask", "fit_preference"]


class PreferenceTask(ContinuedTask):
    """The encoder's task with the loss `omega (CE + strength * preference)` for each example."""

    config: PreferenceConfig
    reference: SequenceModel | None

    def __init__(self, split: Split, config: PreferenceConfig) -> None:
        loss = config.loss
        if loss.sampled_negatives is not None and loss.compares_probabilities:
            which = "loss.preference=orpo" if loss.preference == "orpo" else "loss.pi=prob"
            raise InputError(f"loss.sampled_negatives is not for {which}, which compares exact probabilities; set null")
        if loss.preference in ("dpo", "s-dpo") and config.start.folder is None:
            raise InputError(
                f"loss.preference={loss.preference} needs a reference model; give start.folder=FOLDER (--from)"
            )
        super().__init__(split, config)
        self.reference = None
        rule = TailRule(of=loss.tail_of, share=loss.tail_share)
        self.tail_N = torch.from_numpy(rule.tail(split.train).mask)

    def prepare(self, rng: torch.Generator, budget: Budget) -> None:
        """As the encoder's task; for DPO and S-DPO the initial model is also the reference."""
        super().prepare(rng, budget)
        if self.config.loss.preference in ("dpo", "s-dpo"):
            self.reference = copy.deepcopy(self.model).eval().requires_grad_(False)

    def loss(self, batch: WindowBatch, rng: torch.Generator) -> Tensor:
        """The mean of cross-entropy plus `loss.strength` times the preference loss, or their weighted sum for tail
        items.
        """
        config = self.config.loss
        rows, columns = torch.nonzero(batch.targets_BL >= 0, as_tuple=True)
        targets = batch.targets_BL[rows, columns]
        queries = self.model(batch.items_BL)[rows, columns]
        losses = self.cross_entropy(queries, targets, rng)
        if config.preference != "none":
            losses = losses + config.strength * self.preference(batch, rows, columns, queries, losses, rng)
        if not config.reweight:
            return losses.mean()
        return (tail_weights(self.tail_N[targets], alpha_tail=config.reweight_strength) * losses).sum()

    def preference(
        self,
        batch: WindowBatch,
        rows: Tensor,
        columns: Tensor,
        queries_XD: Tensor,
        cross_entropy_X: Tensor,
        rng: torch.Generator,
    ) -> Tensor:
        """[X], the preference loss of each example against head items that are not in its window so far."""
        config, targets = self.config.loss, batch.targets_BL[rows, columns]
        positive = (queries_XD * self.model.output_vectors(targets)).sum(dim=1)
        # The cross-entropy is the logarithm of the softmax's denominator, less the target's logit. Where it is sampled,
        # nothing depends on the denominator.
        total = cross_entropy_X + positive if config.sampled_negatives is None else torch.zeros_like(positive)
        chosen = self.negatives(batch, rows, columns, queries_XD.detach(), total.detach(), rng)
        negative = _products(self.model, queries_XD, chosen)
        if config.preference == "lpo":
            return lpo(self.pi(positive, total), self.pi(negative, total[:, None]), tau=config.tau)
        if config.preference == "simpo":
            return simpo(positive, negative, beta=config.beta, gamma=config.gamma)
        if config.preference == "orpo":
            return orpo(positive - total, negative - total[:, None])
        assert self.reference is not None
        with torch.no_grad():
            before = self.reference(batch.items_BL)[rows, columns]
            own, others = (_products(self.reference, before, each) for each in (targets[:, None], chosen))
        # Both losses are of differences, in which the denominators cancel.
        loss = dpo if config.preference == "dpo" else s_dpo
        return loss(positive, negative, own[:, 0], others, beta=config.beta)

    def pi(self, logits: Tensor, total: Tensor) -> Tensor:
        """LPO's pi, of the shape of `logits`; `total`: the logarithm of the softmax's denominator."""
        pi = self.config.loss.pi
        if pi == "logit":
            return logits
        return torch.exp(logits - total) if pi == "prob" else logits - total

    @torch.no_grad()
    def negatives(
        self,
        batch: WindowBatch,
        rows: Tensor,
        columns: Tensor,
        queries_XD: Tensor,
        total_X: Tensor,
        rng: torch.Generator,
    ) -> Tensor:
        """int64[X, K] head items, none of them the target or in the history; the catalogue is scored in blocks."""
        config, targets, history = self.config.loss, batch.targets_BL[rows, columns], batch.items_BL[rows]
        newest = columns + batch.items_BL.shape[1] - batch.targets_BL.shape[1]
        seen = (history >= 0) & (torch.arange(history.shape[1]) <= newest[:, None])
        banned = torch.cat([torch.where(seen, history, targets[:, None]), targets[:, None]], dim=1)
        # A probability is at most 1, so a few proposals can be scored instead of the catalogue.
        ceiling = 1.0 if config.pi == "prob" else None
        few = config.negatives == "uniform" or (config.negatives == "gumbel" and ceiling is not None)
        cells = num_draws(config.num_negatives) * queries_XD.shape[1] if few else self.num_items
        chosen = []
        for part in slices(len(queries_XD), BLOCK_CELLS // cells):
            pi = self.pi_of(queries_XD[part], total_X[part, None])
            draw = (~self.tail_N, banned[part], config.num_negatives, rng, config.negatives, ceiling)
            chosen.append(head_negatives(pi, *draw))
        return torch.cat(chosen)

    def pi_of(self, queries_RD: Tensor, total_R1: Tensor) -> Pi:
        """The pi of some rows, for `head_negatives`."""
        model = self.model

        def pi(rows: Tensor, items: Tensor | None) -> Tensor:
            queries = queries_RD[rows]
            logits = queries @ model.output_weight.T if items is None else _products(model, queries, items)
            return self.pi(logits, total_R1[rows])

        return pi


def _products(model: SequenceModel, queries_XD: Tensor, items_XK: Tensor) -> Tensor:
    """[X, K], the logit of each given item."""
    return torch.einsum("xd,xkd->xk", queries_XD, model.output_vectors(items_XK))


def fit_preference(split: Split, config: PreferenceConfig, **options: Unpack[VectorOptions]) -> Retriever:
    """Train or align an encoder with a preference loss, keeping the weights that are best on `split.valid`.

    Errors: `InputError` on a `start.folder` of another log, split or size, and fewer head items than negatives.
    """
    # The fitted start does not compete: alignment gives up a little of all users' metric for that of tail items.
    return fit_vectors(PreferenceTask(split, config), split, config, method="lpo4rec", **options)
