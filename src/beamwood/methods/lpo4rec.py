"""LPO4Rec: a sequence model aligned with a listwise preference for tail items; and the pairwise rivals' losses.

Shape legend: B sequences, L history length, X positions of a step, N items, K negatives.
Source: "Listwise Preference Optimization for tail items" (LPO4Rec), equations 12-17.
"""

from __future__ import annotations

import copy
from typing import Literal

import torch
from pydantic import Field
from torch import Tensor

from beamwood.data.dataset import Dataset
from beamwood.data.split import Split
from beamwood.errors import InputError
from beamwood.evaluation.metrics import TailRule
from beamwood.losses.preference import dpo, lpo, orpo, s_dpo, simpo, tail_weights
from beamwood.methods import sasrec
from beamwood.methods.sasrec import Batch, SequenceTask, fit_sequence
from beamwood.methods.tree_start import load_fitted
from beamwood.models.sasrec import SasRec
from beamwood.retrieval.retriever import Retriever
from beamwood.retrieval.sequence import SequenceSearcher
from beamwood.sampling.head import head_negatives
from beamwood.training.run_folder import RunFolder

__all__ = ["TRAINS", "Config", "PreferenceTask", "fit"]

TRAINS = True
"""This method trains by steps: its `fit` takes a run folder, a time limit and resume."""

# Logits of a step, positions times items: 64 MiB in float32.
_CELLS = 2**24


class Config(sasrec.Config):
    """A preference loss beside the cross-entropy; the paper's own: pi prob, tau 0.1, strength 0.5, reweight true."""

    start: str | None = Field(None, description="folder of a fitted sasrec to align (--from); None: train from scratch")
    preference: Literal["lpo", "dpo", "s-dpo", "simpo", "orpo", "none"] = "lpo"
    pi: Literal["prob", "logit"] = Field("logit", description="what LPO compares and Gumbel noise is added to")
    tau: float = Field(1.0, gt=0, description="temperature of LPO")
    strength: float = Field(0.5, ge=0, description="lambda: weight of the preference loss")
    beta: float = Field(1.0, gt=0, description="of DPO, S-DPO and SimPO")
    gamma: float = Field(0.5, description="margin of SimPO")
    num_negatives: int = Field(10, ge=1)
    negatives: Literal["gumbel", "top", "uniform"] = "gumbel"
    reweight: bool = Field(True, description="weigh tail labels e : 1 within a batch")
    tail_of: Literal["items", "interactions"] = "items"
    tail_share: float = Field(0.2, gt=0, lt=1)


class PreferenceTask(SequenceTask):
    """As SASRec's task, with `omega (CE + strength * preference)` at up to 2^24 / N positions of a batch."""

    config: Config

    def __init__(self, train: Dataset, config: Config, *, seed: int) -> None:
        super().__init__(train, config, seed=seed)
        rule = TailRule(of=config.tail_of, share=config.tail_share)
        self.tail_N = torch.from_numpy(rule.mask(train.item_counts))
        self.reference: SasRec | None = None
        if config.start is not None:
            searcher = load_fitted(config.start, train)
            if not isinstance(searcher, SequenceSearcher):
                raise InputError(f"start='{config.start}' holds a {searcher.kind} retriever; give a fitted sasrec")
            weights = {name: torch.from_numpy(array.copy()) for name, array in searcher.encoder.arrays.items()}
            try:
                self.model.load_state_dict(weights)
            except RuntimeError as error:
                raise InputError(f"start='{config.start}' has another width, length or depth: {error}") from None
        if config.preference in ("dpo", "s-dpo"):
            if config.start is None:
                raise InputError(f"preference={config.preference} needs a reference model; give start=FOLDER (--from)")
            self.reference = copy.deepcopy(self.model).eval().requires_grad_(False)

    def loss(self, batch: Batch) -> Tensor:
        config, num_items = self.config, len(self.tail_N)
        rows, columns = torch.nonzero(batch.targets_BL >= 0, as_tuple=True)
        most = max(1, _CELLS // num_items)
        if len(rows) > most:
            kept = torch.randperm(len(rows), generator=self.generator)[:most]
            rows, columns = rows[kept], columns[kept]
        targets = batch.targets_BL[rows, columns]
        logits = self.model(batch.items_BL)[rows, columns] @ self.model.items.weight.T
        log_p = torch.log_softmax(logits, dim=1)
        losses = -log_p.gather(1, targets[:, None])[:, 0]
        if config.preference != "none":
            losses = losses + config.strength * self.preference(batch, rows, columns, targets, logits, log_p)
        if not config.reweight:
            return losses.mean()
        return (tail_weights(self.tail_N[targets]) * losses).sum()

    def preference(
        self, batch: Batch, rows: Tensor, columns: Tensor, targets: Tensor, logits: Tensor, log_p: Tensor
    ) -> Tensor:
        """[X], the preference loss of each position against head items that its user has not had."""
        config = self.config
        masked = torch.zeros_like(logits, dtype=torch.bool)
        history = batch.items_BL[rows]
        seen = (history >= 0) & (torch.arange(history.shape[1]) <= columns[:, None])
        masked.scatter_(1, torch.where(seen, history, targets[:, None]), True)
        masked.scatter_(1, targets[:, None], True)
        pi = torch.exp(log_p) if config.pi == "prob" else logits
        chosen = head_negatives(pi, ~self.tail_N, masked, config.num_negatives, self.generator, config.negatives)
        if config.preference == "lpo":
            return lpo(pi.gather(1, targets[:, None])[:, 0], pi.gather(1, chosen), tau=config.tau)
        positive, negative = log_p.gather(1, targets[:, None])[:, 0], log_p.gather(1, chosen)
        if config.preference == "simpo":
            return simpo(positive, negative, beta=config.beta, gamma=config.gamma)
        if config.preference == "orpo":
            return orpo(positive, negative)
        assert self.reference is not None
        with torch.no_grad():
            before = self.reference(batch.items_BL)[rows, columns] @ self.reference.items.weight.T
            before = torch.log_softmax(before, dim=1)
        loss = dpo if config.preference == "dpo" else s_dpo
        own, others = before.gather(1, targets[:, None])[:, 0], before.gather(1, chosen)
        return loss(positive, negative, own, others, beta=config.beta)


def fit(
    split: Split,
    config: Config | None = None,
    *,
    seed: int = 0,
    run: RunFolder | None = None,
    time_limit: float | None = None,
    resume: bool = False,
    progress: bool = True,
) -> Retriever:
    """Train or align SASRec with a preference loss, keeping the weights that are best on `split.valid`.

    Errors: `InputError` on a `start` of other items or sizes, and fewer head items than negatives.
    """
    config = config or Config()
    task = PreferenceTask(split.train, config, seed=seed)
    return fit_sequence(
        task,
        split,
        config,
        method="lpo4rec",
        seed=seed,
        run=run,
        time_limit=time_limit,
        resume=resume,
        progress=progress,
    )
