"""QINCo: residual codes, whose codewords a network adapts to the vector decoded so far; all vectors are scored.

    f(c | x') = x' + z_L,  z_0 = c + W [c; x'] + b,  z_l = z_{l-1} + A_l relu(B_l z_{l-1})

Shape legend: N items, D width, M codes, K codewords, L layers, H hidden width, B rows, A candidates, k results.
Source: Huijben et al., "Residual Quantization with Implicit Neural Codebooks"; of its successor, QINCo2, the candidates
that are nearest by plain codewords. Written from the formulas alone.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from beamwood.blocks import slices
from beamwood.kernels.arrays import check_floats, shape_of
from beamwood.models.ops import Array, relu
from beamwood.retrieval.index.codes import Codes, Sums, residual_codes
from beamwood.retrieval.index.contract import IndexInputs, IndexSettings, by_row, check_installed, own_settings
from beamwood.retrieval.index.fields import Hidden, NumCodewords, NumEpochs, Rate
from beamwood.retrieval.products import best_products
from beamwood.retrieval.stored import StoredConfig
from beamwood.types import FloatArray, Hits, SearchOptions

__all__ = ["QincoDecoder", "QincoIndex", "QincoSettings", "decode_step"]

# The most training vectors, rows a step, and passes without gain before the learning rate falls to a tenth.
_MOST, _BATCH, _PATIENCE = 20_000, 256, 10
_ROWS = 1024


class QincoSettings(IndexSettings):
    """The codes, the network, and its training."""

    num_codes: int = Field(8, ge=1, le=64, description="qinco: M, codes per vector, one byte each")
    num_codewords: NumCodewords = None
    num_layers: int = Field(2, ge=0, le=64, description="qinco: L, layers of the network of each code")
    hidden: Hidden = 128
    num_near: int | None = Field(
        8,
        ge=1,
        le=256,
        description="qinco: nearest plain codewords that are tried; null: all",
    )
    num_epochs: NumEpochs = 30
    rate: Rate = None


class _Stored(StoredConfig):
    num_layers: int = Field(ge=0, le=64)
    scale: float = Field(gt=0)


def decode_step(weights: Mapping[str, Array], place: int, num_layers: int, words: Array, so_far: Array) -> Array:
    """[.., D], the decoded vector after a code at that place, from its codewords [.., D] and the vector before it."""
    joined = words @ weights[f"{place}.by_word"].T + so_far @ weights[f"{place}.by_sum"].T
    z = words + joined + weights[f"{place}.bias"]
    for layer in range(num_layers):
        z = z + relu(z @ weights[f"{place}.{layer}.inner"].T) @ weights[f"{place}.{layer}.outer"].T
    return so_far + z


@dataclass(frozen=True, slots=True)
class QincoDecoder:
    """Decodes codes step by step. `weights` by name, for numpy or for torch; "words" is [M, K, D]."""

    weights: Mapping[str, Array]
    num_layers: int
    scale: float

    @property
    def shape(self) -> tuple[int, int, int]:
        """See `codes.Decoder`."""
        num_codes, num_words, width = self.weights["words"].shape
        return num_codes, num_words, width

    def decode(self, codes_BM: NDArray[np.uint8]) -> NDArray[np.float32]:
        """See `codes.Decoder`."""
        decoded = np.zeros((len(codes_BM), self.shape[2]), np.float32)
        for place, column in enumerate(codes_BM.T):
            decoded = decode_step(self.weights, place, self.num_layers, self.weights["words"][place][column], decoded)
        return (decoded * np.float32(self.scale)).astype(np.float32)


def shapes_of(num_codes: int, num_words: int, width: int, num_layers: int, hidden: int) -> dict[str, tuple[int, ...]]:
    """The shape of each array of a network."""
    shapes: dict[str, tuple[int, ...]] = {"words": (num_codes, num_words, width)}
    for place in range(num_codes):
        shapes |= {f"{place}.by_word": (width, width), f"{place}.by_sum": (width, width), f"{place}.bias": (width,)}
        for layer in range(num_layers):
            shapes |= {f"{place}.{layer}.inner": (hidden, width), f"{place}.{layer}.outer": (width, hidden)}
    return shapes


class QincoIndex:
    """Codes of one byte and a network that decodes them; at the first search all vectors are decoded and cached.

    Scores are products with decoded vectors. Built with torch (the extra `train`), searched without.
    """

    kind: ClassVar[str] = "qinco"
    Settings: ClassVar[type[IndexSettings]] = QincoSettings
    modules: ClassVar[tuple[str, ...]] = ("torch",)
    trains: ClassVar[bool] = True

    def __init__(
        self, vectors_ND: FloatArray, settings: IndexSettings | None = None, inputs: IndexInputs = IndexInputs()
    ) -> None:
        check_installed(QincoIndex)
        given = own_settings(QincoSettings, settings)
        trained = _Training(np.ascontiguousarray(vectors_ND, np.float32), given, inputs)
        trained.run()
        self.codes = trained.coded()

    @cached_property
    def decoded(self) -> NDArray[np.float32]:
        """float32[N, D], the decoded vectors."""
        return self.codes.decoded()

    def search(self, queries_BD: FloatArray, k: int, options: SearchOptions = SearchOptions()) -> Hits:
        """See `Index`; all decoded vectors are scored."""
        return by_row(self._row, len(self.codes), queries_BD, k, options)

    def _row(self, query_D: FloatArray, k: int, options: SearchOptions) -> Hits:
        return best_products(query_D[None], self.decoded, k, excluded=options.excluded, allowed=options.allowed)

    def export(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """The codes and the network."""
        decoder = self.codes.decoder
        assert isinstance(decoder, QincoDecoder)
        config = {"num_layers": decoder.num_layers, "scale": decoder.scale}
        return config, {"codes": self.codes.codes} | dict(decoder.weights)

    @classmethod
    def restore(cls, vectors_ND: FloatArray, config: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> Self:
        restored, stored = cls.__new__(cls), _Stored.model_validate(config)
        num_codes, num_words, _ = shape_of(arrays, "words", 3)
        hidden = shape_of(arrays, "0.0.inner", 2)[0] if stored.num_layers else 1
        shapes = shapes_of(num_codes, num_words, vectors_ND.shape[1], stored.num_layers, hidden)
        check_floats(arrays, shapes)
        weights = {name: np.ascontiguousarray(arrays[name], np.float32) for name in shapes}
        shape_of(arrays, "codes", 2)
        restored.codes = Codes(arrays["codes"], QincoDecoder(weights, stored.num_layers, stored.scale))
        restored.codes.check_rows(len(vectors_ND))
        return restored


class _Training:
    """Codewords from residual quantisation and a network that starts as the identity, trained together."""

    def __init__(self, vectors: NDArray[np.float32], settings: QincoSettings, inputs: IndexInputs) -> None:
        import torch

        self.settings, self.began, self.seconds = settings, time.monotonic(), inputs.seconds
        self.rng = np.random.default_rng(inputs.seed)
        self.scale = max(float(np.abs(vectors).max()), 1e-12)
        self.vectors = vectors / np.float32(self.scale)
        self.some = self.vectors[np.sort(self.rng.permutation(len(vectors))[:_MOST])]
        start = residual_codes(self.some, settings.num_codes, settings.num_codewords or 256, self.rng)
        assert isinstance(start.decoder, Sums)
        self.plain = torch.from_numpy(start.decoder.tables_MKD.copy())
        shapes = shapes_of(*start.decoder.shape, settings.num_layers, settings.hidden)
        generator = torch.Generator().manual_seed(inputs.seed)
        self.weights: dict[str, Any] = {"words": self.plain.clone().requires_grad_()}
        for name, shape in shapes.items():
            if name.endswith("inner"):
                drawn = torch.randn(shape, generator=generator) * shape[-1] ** -0.5
                self.weights[name] = drawn.requires_grad_()
            elif name != "words":
                self.weights[name] = torch.zeros(shape, requires_grad=True)

    def steps(self, x: Any) -> Iterator[tuple[Any, Any]]:
        """For each place the codes [B] nearest to x, and the decoded vectors [B, D]."""
        import torch

        so_far, plain = torch.zeros_like(x), torch.zeros_like(x)
        for place in range(self.settings.num_codes):
            words = self.weights["words"][place]
            with torch.no_grad():
                tried = self._tried(place, x - plain)
                before = so_far[:, None].expand(-1, tried.shape[1], -1)
                candidates = decode_step(self.weights, place, self.settings.num_layers, words[tried], before)
                best = (candidates - x[:, None]).square().sum(dim=2).argmin(dim=1)
                codes = tried.gather(1, best[:, None])[:, 0]
                plain = plain + self.plain[place][codes]
            so_far = decode_step(self.weights, place, self.settings.num_layers, words[codes], so_far)
            yield codes, so_far

    def _tried(self, place: int, left: Any) -> Any:
        """[B, A], the candidate codewords: the nearest plain ones to the residual."""
        import torch

        num_words = self.plain.shape[1]
        if self.settings.num_near is None or self.settings.num_near >= num_words:
            return torch.arange(num_words).expand(len(left), -1)
        away = self.plain[place].square().sum(dim=1) - 2 * left @ self.plain[place].T
        return away.topk(self.settings.num_near, dim=1, largest=False).indices

    def run(self) -> None:
        """All passes, or as many as fit the time limit; the best weights are kept."""
        import torch

        optimiser = torch.optim.Adam(self.weights.values(), lr=self.settings.rate or 1e-3)
        best, kept, waited = float("inf"), self._copy(), 0
        for _ in range(self.settings.num_epochs):
            before, total = self._copy(), self._passed(optimiser)
            if total is None:
                break
            # The error was measured along the pass, so the weights at its start are as good an estimate as any.
            if total < best:
                best, kept, waited = total, before, 0
                continue
            waited += 1
            if waited % _PATIENCE == 0:
                for group in optimiser.param_groups:
                    group["lr"] /= 10
        self._keep_better(kept)

    def _passed(self, optimiser: Any) -> float | None:
        """The summed squared error of a pass, None where the time ran out before its end."""
        import torch

        order, total = self.rng.permutation(len(self.some)), 0.0
        for batch in slices(len(order), _BATCH):
            x = torch.from_numpy(self.some[order[batch]])
            errors = [(x - decoded).square().sum(dim=1).mean() for _, decoded in self.steps(x)]
            loss = torch.stack(errors).sum()
            optimiser.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimiser.step()
            total += float(errors[-1].detach()) * len(x)
            if self.seconds is not None and time.monotonic() - self.began > self.seconds:
                return None
        return total

    def _copy(self) -> dict[str, Any]:
        return {name: value.detach().clone() for name, value in self.weights.items()}

    def _keep_better(self, other: dict[str, Any]) -> None:
        """Keep whichever of the current and the other weights decodes better."""
        import torch

        x = torch.from_numpy(self.some[:8192])
        errors, own = [], self._copy()
        for weights in (own, other):
            self.weights = weights
            with torch.no_grad():
                *_, (_, decoded) = self.steps(x)
            errors.append(float((x - decoded).square().sum()))
        self.weights = own if errors[0] <= errors[1] else other

    def coded(self) -> Codes:
        """The codes of all vectors, and their decoder."""
        import torch

        codes = np.empty((len(self.vectors), self.settings.num_codes), np.uint8)
        with torch.no_grad():
            for rows in slices(len(codes), _ROWS):
                found = [column for column, _ in self.steps(torch.from_numpy(self.vectors[rows]))]
                codes[rows] = torch.stack(found, dim=1).numpy()
        weights = {name: value.detach().numpy().copy() for name, value in self.weights.items()}
        return Codes(codes, QincoDecoder(weights, self.settings.num_layers, self.scale))
