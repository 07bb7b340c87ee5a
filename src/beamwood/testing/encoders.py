"""The contract of sequence encoders: equal results in torch and numpy, padding and order respected, no look-ahead.

Shape legend: B rows, L history length, D width, N items.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from beamwood.errors import ArtefactError
from beamwood.models.encoder import Encoder
from beamwood.models.plain_encoder import PlainEncoder
from beamwood.models.sequence import SequenceModel

__all__ = ["EncoderContract"]

_NUM_ITEMS = 40
# For float32, relative to the largest absolute value compared.
_CLOSE = 1e-6


class EncoderContract:
    """Set `encoder`, and `sizes` that fit the width; `silent`: suffixes of parameter names that never have a gradient.

    `ordered`: whether the order of a history matters to it.

    For example:

        class TestMine(EncoderContract):
            encoder = mine.ENCODER
    """

    encoder: ClassVar[Encoder]
    sizes: ClassVar[Mapping[str, Any]] = {}
    silent: ClassVar[tuple[str, ...]] = ()
    ordered: ClassVar[bool] = True
    # Neither a power of two nor even.
    width: ClassVar[int] = 15
    length: ClassVar[int] = 9

    def built(self, seed: int = 0, *, tied: bool = True, features: int | None = None) -> SequenceModel:
        """A model with random weights far from its initialisation, so that every parameter has an effect."""
        generator = torch.Generator().manual_seed(seed)
        given = None if features is None else np.random.default_rng(seed).normal(size=(_NUM_ITEMS, features))
        model = SequenceModel(
            self.encoder,
            _NUM_ITEMS,
            width=self.width,
            length=self.length,
            dropout=0.3,
            sizes=self.encoder.sizes(**self.sizes),
            tied=tied,
            features_NF=given,
            generator=generator,
        ).eval()
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(0.1 * torch.randn(parameter.shape, generator=generator))
        return model

    def histories(self, seed: int = 0) -> NDArray[np.int64]:
        """int64[B, L]: an empty history, one of each length up to L, and some more."""
        rng = np.random.default_rng(seed)
        lengths = np.concatenate([np.arange(self.length + 1), rng.integers(1, self.length + 1, 70)])
        items = rng.integers(0, _NUM_ITEMS, (len(lengths), self.length))
        return np.where(np.arange(self.length) < self.length - lengths[:, None], -1, items)

    def test_torch_and_numpy_agree(self) -> None:
        items = self.histories()
        real = (items >= 0).any(axis=1)
        for tied, features in ((True, None), (False, None), (True, 5)):
            model = self.built(tied=tied, features=features)
            plain = model.plain()
            got, expected = plain.encode(items), _last(model, items)
            _assert_close(got[real], expected[real])
            assert not got[~real].any(), "an empty history has a vector"
            assert got.dtype == np.float32
            assert np.array_equal(plain.vectors, model.output_weight.detach().numpy())

    def test_single_rows_equal_the_batch(self) -> None:
        items, plain = self.histories(), self.built().plain()
        _assert_close(np.concatenate([plain.encode(row[None]) for row in items]), plain.encode(items))

    def test_padding_is_ignored(self) -> None:
        model = self.built()
        padded = np.full((1, self.length), -1)
        padded[0, -2:] = 3, 4
        alone = _last(model, padded)
        for items in ([[3, 4]], [[-1, 3, 4]]):
            _assert_close(_last(model, np.array(items)), alone)
            _assert_close(model.plain().encode(np.array(items)), alone)

    def test_no_rows_have_no_vectors(self) -> None:
        none, model = np.zeros((0, self.length), np.int64), self.built()
        assert _last(model, none).shape == model.plain().encode(none).shape == (0, self.width)

    def test_order_matters_if_declared(self) -> None:
        model = self.built()
        one, other = _last(model, np.array([[3, 4, 5]])), _last(model, np.array([[5, 4, 3]]))
        if self.ordered:
            assert np.abs(one - other).max() > 1e-3
        else:
            _assert_close(one, other)

    def test_causal_encoders_ignore_later_items(self) -> None:
        model, items = self.built(), torch.from_numpy(self.histories(1))
        with torch.no_grad():
            vectors = model(items)
            assert vectors.shape == (len(items), self.length if self.encoder.causal else 1, self.width)
            if not self.encoder.causal:
                return
            changed = items.clone()
            changed[:, -1] = 5
            real = items[:, :-1] >= 0
            _assert_close(model(changed)[:, :-1][real].numpy(), vectors[:, :-1][real].numpy())

    def test_last_only_equals_the_last_of_all_positions(self) -> None:
        items = torch.from_numpy(self.histories(2))
        items = items[(items >= 0).any(dim=1)]
        real, generator = items >= 0, torch.Generator().manual_seed(0)
        x = torch.randn(*items.shape, self.width, generator=generator) * real[:, :, None]
        sizes = self.encoder.sizes(**self.sizes)
        with torch.no_grad():
            parameters = dict(self.built().named_parameters())
            of_all, alone = (self.encoder.forward(parameters, x, real, sizes, 0.0, last) for last in (False, True))
        _assert_close(alone[:, -1].numpy(), of_all[:, -1].numpy())

    def test_every_parameter_has_a_gradient(self) -> None:
        model = self.built().train()
        model(torch.from_numpy(self.histories(2))).square().sum().backward()
        unused = [name for name, p in model.named_parameters() if p.grad is None or not p.grad.any()]
        assert [name for name in unused if not name.endswith(self.silent)] == []

    def test_initialisation_is_reproducible(self) -> None:
        first, second = self.built().state_dict(), self.built().state_dict()
        assert all(torch.equal(value, second[name]) for name, value in first.items())
        declared = self.encoder.parameters(self.width, self.length, self.encoder.sizes(**self.sizes))
        assert {parameter.name for parameter in declared} == {name for name in first if name != "items.weight"}

    def test_invalid_arrays_are_refused(self) -> None:
        plain = self.built().plain()
        for name in plain.arrays:
            gone = {other: array for other, array in plain.arrays.items() if other != name}
            _assert_refused(plain, gone, name)
            _assert_refused(plain, plain.arrays | {name: plain.arrays[name][None]}, name)
            _assert_refused(plain, plain.arrays | {name: plain.arrays[name] * np.float32(np.nan)}, name)
        _assert_refused(plain, plain.arrays | {"stranger": np.zeros(3, np.float32)}, "stranger")


@torch.no_grad()
def _last(model: SequenceModel, items_BL: NDArray[np.int64]) -> NDArray[np.float32]:
    vectors: Tensor = model(torch.from_numpy(items_BL))[:, -1]
    array: NDArray[np.float32] = vectors.numpy()
    return array


def _assert_close(got: NDArray[np.float32], expected: NDArray[np.float32]) -> None:
    error = float(np.abs(got - expected).max(initial=0))
    bound = _CLOSE * max(1.0, float(np.abs(expected).max(initial=0)))
    assert error <= bound, f"they differ by {error:.2g}, more than {bound:.2g}"


def _assert_refused(plain: PlainEncoder, arrays: Mapping[str, NDArray[np.float32]], name: str) -> None:
    refusal = ""
    try:
        plain.replaced(arrays)
    except ArtefactError as error:
        refusal = str(error)
    assert f"'{name}'" in refusal, f"arrays with a wrong '{name}' were taken, or it is not named: {refusal}"
