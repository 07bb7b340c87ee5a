"""The contract of rankers' scores: one answer in torch and numpy, of each row and item alone, and blind to padding.

Shape legend: B rows, L history length, M items a row, D width.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray

from beamwood.errors import ArtefactError
from beamwood.models.pair_model import PairModel
from beamwood.models.pairs import QueryTensors
from beamwood.models.scorer import PairScore
from beamwood.retrieval.searchers.scorers import PlainScorer
from beamwood.types import ItemLists

__all__ = ["PairScoreContract"]

_USERS, _ITEMS = 9, 40
# For float32, relative to the largest absolute value compared.
_CLOSE = 1e-5


class PairScoreContract:
    """Set `score`, and `sizes` that fit the width; `silent`: suffixes of parameter names that never have a gradient.

    For example:

        class TestMine(PairScoreContract):
            score = mine.SCORE
    """

    score: ClassVar[PairScore]
    sizes: ClassVar[Mapping[str, Any]] = {}
    silent: ClassVar[tuple[str, ...]] = ()
    # Neither a power of two nor even.
    width: ClassVar[int] = 7
    length: ClassVar[int] = 5

    def built(self, seed: int = 0) -> PairModel:
        """A model with random weights far from its initialisation, so that every parameter has an effect."""
        generator = torch.Generator().manual_seed(seed)
        sizes = self.score.sizes(**self.sizes)
        model = PairModel(self.score, _USERS, _ITEMS, width=self.width, sizes=sizes, generator=generator).eval()
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(0.3 * torch.randn(parameter.shape, generator=generator))
        return model

    def plain(self, model: PairModel) -> PlainScorer:
        """The torch-free scorer of a model."""
        config, arrays = model.export()
        config |= {"history_length": self.length} if self.score.reads_history else {}
        return PlainScorer(self.score, config, arrays)

    def query(self, seed: int = 0) -> tuple[NDArray[np.int64], ItemLists, NDArray[np.int64]]:
        """Users, an unknown one too, with an empty history, one of each length up to 2 L, and items int64[B, M]."""
        rng = np.random.default_rng(seed)
        histories = ItemLists.from_lists([rng.integers(0, _ITEMS, length) for length in range(2 * self.length)])
        users = rng.integers(-1, _USERS, len(histories))
        users[0] = -1
        return users, histories, rng.integers(0, _ITEMS, (len(histories), 6))

    def tensors(self, users: NDArray[np.int64], histories: ItemLists, length: int) -> QueryTensors:
        """What the torch model reads, histories padded to `length`."""
        padded = torch.from_numpy(histories.padded(length).astype(np.int64))
        return QueryTensors(torch.from_numpy(users), padded)

    def test_torch_and_numpy_agree(self) -> None:
        model, (users, histories, items) = self.built(), self.query()
        with torch.no_grad():
            expected = model(self.tensors(users, histories, self.length), torch.from_numpy(items)).numpy()
        got = self.plain(model).score(users, histories, items)
        assert got.dtype == np.float32
        assert np.isfinite(got).all()
        _assert_close(got, expected)

    def test_single_pairs_equal_the_batch(self) -> None:
        scorer, (users, histories, items) = self.plain(self.built()), self.query(1)
        whole = scorer.score(users, histories, items)
        rows = [np.array([row]) for row in range(len(users))]
        _assert_close(np.concatenate([scorer.score(users[r], histories.take(r), items[r]) for r in rows]), whole)
        columns = [scorer.score(users, histories, items[:, [at]]) for at in range(items.shape[1])]
        _assert_close(np.concatenate(columns, axis=1), whole)

    def test_padding_is_ignored(self) -> None:
        model, (users, histories, items) = self.built(), self.query(2)
        recent = histories.last(self.length)
        with torch.no_grad():
            short, long = (
                model(self.tensors(users, recent, length), torch.from_numpy(items)).numpy()
                for length in (self.length, 2 * self.length)
            )
        _assert_close(long, short)

    def test_catalogue_equals_forward(self) -> None:
        scorer, (users, histories, _) = self.plain(self.built()), self.query(3)
        every = np.broadcast_to(np.arange(_ITEMS), (len(users), _ITEMS))
        _assert_close(scorer.score(users, histories, every), scorer.score(users, histories, every.copy()))

    def test_every_parameter_has_a_gradient(self) -> None:
        model, (users, histories, items) = self.built().train(), self.query(4)
        model(self.tensors(users, histories, self.length), torch.from_numpy(items)).square().sum().backward()
        unused = [name for name, p in model.named_parameters() if p.grad is None or not p.grad.any()]
        assert [name for name in unused if not name.endswith(self.silent)] == []

    def test_initialisation_is_reproducible(self) -> None:
        first, second = self.built().state_dict(), self.built().state_dict()
        assert all(torch.equal(value, second[name]) for name, value in first.items())

    def test_memory_is_declared(self) -> None:
        assert self.score.held(self.width, self.score.sizes(**self.sizes), self.length) >= 1

    def test_invalid_arrays_are_refused(self) -> None:
        scorer = self.plain(self.built())
        for name, array in scorer.arrays.items():
            self._assert_refused({other: each for other, each in scorer.arrays.items() if other != name}, name)
            self._assert_refused(scorer.arrays | {name: array[None]}, name)
            self._assert_refused(scorer.arrays | {name: array * np.float32(np.nan)}, name)
        self._assert_refused(scorer.arrays | {"stranger": np.zeros(3, np.float32)}, "stranger")

    def _assert_refused(self, arrays: dict[str, NDArray[Any]], name: str) -> None:
        refusal = ""
        try:
            PlainScorer(self.score, self.plain(self.built()).config, arrays)
        except ArtefactError as error:
            refusal = str(error)
        assert f"'{name}'" in refusal, f"arrays with a wrong '{name}' were taken, or it is not named: {refusal}"


def _assert_close(got: NDArray[np.float32], expected: NDArray[np.float32]) -> None:
    error = float(np.abs(got - expected).max(initial=0))
    bound = _CLOSE * max(1.0, float(np.abs(expected).max(initial=0)))
    assert error <= bound, f"they differ by {error:.2g}, more than {bound:.2g}"
