"""TIGER: items are codes of vectors, and a decoder predicts the next item of a history code by code.

Shape legend: X examples of a step, N items, D width, F columns of given vectors, S codes an item, K codewords.
Source: Rajput et al., "Recommender Systems with Generative Retrieval".
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Unpack

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from beamwood.data.split import Split
from beamwood.fitting.columns import item_table_for
from beamwood.fitting.fitted import load_fitted
from beamwood.fitting.options import TrainOptions
from beamwood.fitting.vectors.fit import fit_searched
from beamwood.fitting.vectors.item_start import transition_vectors
from beamwood.fitting.vectors.tiger_settings import TigerConfig
from beamwood.fitting.vectors.windows import WindowTask
from beamwood.models import code_decoder
from beamwood.models.encoder import Encoder
from beamwood.models.encoders import sasrec
from beamwood.models.sequence import SequenceModel
from beamwood.models.weights import declare
from beamwood.ragged import places_in_rows
from beamwood.retrieval.index.codes import Sums, residual_codes
from beamwood.retrieval.item_vectors import item_vectors
from beamwood.retrieval.retriever import Retriever
from beamwood.retrieval.searchers.coded import CodeSearcher
from beamwood.training.budget import Budget
from beamwood.types import FloatArray

__all__ = ["TigerTask", "CodedItems", "CodedModel", "fit_tiger", "item_codes", "with_collision_codes"]

# The most distances computed for the centres of codes, and the rounds of each place; more items have fewer rounds.
_DISTANCES, _ROUNDS = 2e9, 20


class CodedItems(nn.Module):
    """Item vectors [D] that are sums of the vectors of their codewords."""

    def __init__(self, codes_NS: NDArray[np.int64], counts: Sequence[int], width: int, rng: torch.Generator) -> None:
        super().__init__()
        self.codes: Tensor
        self.register_buffer("codes", torch.from_numpy(codes_NS), persistent=False)
        self.embedding_dim = width
        self.tables = list(declare(self, code_decoder.word_parameters(width, counts), rng).values())

    def forward(self, items: Tensor) -> Tensor:
        """[.., D] for item indices int64[..]."""
        codes, total = self.codes[items], torch.zeros(())
        for place, words_KD in enumerate(self.tables):
            total = total + words_KD[codes[..., place]]
        return total

    @property
    def weight(self) -> Tensor:
        """[N, D], computed at each access."""
        result: Tensor = self(torch.arange(len(self.codes)))
        return result


class CodedModel(SequenceModel):
    """A sequence encoder of coded items, and the decoder of codes."""

    def __init__(
        self,
        encoder: Encoder,
        codes_NS: NDArray[np.int64],
        *,
        width: int,
        length: int,
        dropout: float,
        sizes: sasrec.Sizes,
        generator: torch.Generator,
    ) -> None:
        super().__init__(encoder, 1, width=width, length=length, dropout=dropout, sizes=sizes, generator=generator)
        counts = [int(count) + 1 for count in codes_NS.max(axis=0)]
        self.items = CodedItems(codes_NS, counts, width, generator)  # type: ignore[assignment]
        self.weights = declare(self, code_decoder.parameters(width, counts), generator)

    @property
    def coded(self) -> CodedItems:
        """The items, whose vectors are sums."""
        items = self.items
        assert isinstance(items, CodedItems)
        return items

    def export(self) -> dict[str, NDArray[np.float32]]:
        """The arrays of the encoder, with the current item vectors."""
        mine = dict(self._declared) | {"items.weight": self.coded.weight}
        return {name: value.detach().numpy().astype(np.float32) for name, value in mine.items()}


class TigerTask(WindowTask):
    """The training of SASRec to predict the codes of the target, one after the other."""

    model: CodedModel

    def __init__(self, split: Split, config: TigerConfig) -> None:
        self.split, self.config = split, config
        super().__init__(split.train, sasrec.ENCODER, length=config.model.length, horizon=config.examples.horizon)
        self._codes_NS: NDArray[np.int64] | None = None

    def state(self) -> dict[str, Any]:
        """The codes, which depend on the time that their vectors had."""
        return {"codes": self.model.coded.codes.to("cpu", torch.int32)}

    def resume_from(self, state: dict[str, Any]) -> None:
        """Keep the codes: the trained codewords are theirs."""
        self._codes_NS = state["codes"].numpy().astype(np.int64)

    def prepare(self, rng: torch.Generator, budget: Budget) -> None:
        """Compute the codes and initialise the model; codewords of the model's width start at their centres.

        A resumed run has its codes.
        """
        model, seed = self.config.model, rng.initial_seed()
        codes_NS, centres = self._codes_NS, None
        if codes_NS is None:
            vectors = self._vectors(seed, budget) if self.config.start.codes == "vectors" else None
            generator = np.random.default_rng(seed)
            codes_NS, centres = item_codes(vectors, self.num_items, model.num_codes, model.num_words, generator)
        self.model = CodedModel(
            self.encoder,
            codes_NS,
            width=model.width,
            length=model.length,
            dropout=model.dropout,
            sizes=sasrec.Sizes.among(model),
            generator=rng,
        )
        if centres is not None and centres.shape[2] == model.width:
            with torch.no_grad():
                for table, own in zip(self.model.coded.tables, torch.from_numpy(centres), strict=False):
                    table.copy_(own[: len(table)])

    def _vectors(self, seed: int, budget: Budget) -> FloatArray:
        """float32[N, F], the vectors to quantise, of mean square length 1. Errors: a fit, or a table, without
        vectors.
        """
        start, train = self.config.start, self.split.train
        if start.folder is not None:
            fitted = load_fitted(start.folder, self.split)
            vectors: FloatArray = item_vectors(fitted.searcher, np.arange(self.num_items))
        elif start.item_column is not None:
            table = item_table_for(f"start.item_column='{start.item_column}'", train)
            vectors = table.vectors(start.item_column)
        else:
            vectors = transition_vectors(train, self.config.model.width, seed, budget)
        length = float(np.sqrt(np.square(vectors, dtype=np.float64).sum(axis=1).mean()))
        return np.asarray(vectors / max(length, 1e-9), np.float32)

    def cross_entropy(self, queries_XD: Tensor, targets_X: Tensor, rng: torch.Generator) -> Tensor:
        """[X], `- log p(c_1 .. c_S)`: at each place the softmax over all of its codewords."""
        del rng
        items, weights = self.model.coded, self.model.weights
        codes_XS, states_XD, losses_X = items.codes[targets_X], queries_XD, queries_XD.new_zeros(len(targets_X))
        for place, words_KD in enumerate(items.tables):
            logits_XK = code_decoder.logits(weights, place, states_XD, words_KD)
            losses_X = losses_X + functional.cross_entropy(logits_XK, codes_XS[:, place], reduction="none")
            if place + 1 < len(items.tables):
                states_XD = code_decoder.next_states(weights, place, states_XD, words_KD[codes_XS[:, place]])
        return losses_X

    def searcher(self) -> CodeSearcher:
        """A searcher of the current weights."""
        model = self.model
        return CodeSearcher(
            model.plain(),
            model.coded.codes.numpy(),
            [table.detach().numpy().copy() for table in model.coded.tables],
            {name: value.detach().numpy().copy() for name, value in model.weights.items()},
            beam_width=self.config.model.beam_width,
        )


def item_codes(
    vectors_NF: FloatArray | None, num_items: int, num_codes: int, num_words: int, rng: np.random.Generator
) -> tuple[NDArray[np.int64], NDArray[np.float32] | None]:
    """int64[N, S] of items, distinct, and the centres [num_codes, K, F]; without vectors, uniform random codes."""
    if vectors_NF is None:
        return with_collision_codes(rng.integers(0, num_words, (num_items, num_codes))), None
    rounds = int(np.clip(_DISTANCES / (num_items * num_words * num_codes), 2, _ROUNDS))
    coded = residual_codes(vectors_NF, num_codes, num_words, rng, rounds=rounds)
    assert isinstance(coded.decoder, Sums)
    return with_collision_codes(coded.codes.astype(np.int64)), coded.decoder.tables_MKD


def with_collision_codes(codes_NS: NDArray[np.int64]) -> NDArray[np.int64]:
    """int64[N, S], distinct codes: where items share codes, a last code is added, their rank by item index."""
    group_N = np.unique(codes_NS, axis=0, return_inverse=True)[1].ravel()
    order = np.argsort(group_N, kind="stable")
    sizes = np.bincount(group_N)
    place_N = np.empty(len(group_N), np.int64)
    place_N[order] = places_in_rows(sizes)
    return codes_NS if sizes.max() == 1 else np.column_stack([codes_NS, place_N])


def fit_tiger(split: Split, config: TigerConfig, **options: Unpack[TrainOptions]) -> Retriever:
    """Compute codes, train on `split.train`, keep the weights that are best on `split.valid`, and choose a weight for
    seen items.

    Errors: `InputError` where no user has two interactions, and on missing vectors.
    """
    task = TigerTask(split, config)
    fitted = fit_searched(task, split, config, method="tiger", **options)
    fitted.metadata["training"]["codes"] = [len(words) for words in task.model.coded.tables]
    return fitted
