"""ROTLEX: buckets of items, and two levels of nodes that find them, learned together from queries.

    loss = - sum over levels, mean over a query's 10 nearest items, of log softmax(encode(q) . nodes)[its bucket]

Shape legend: N items, D width, H hidden width, K children of a node, C = K^2 buckets, Q queries, k results.
Source: "ROTLEX" (KDD 2025), by the paper and the authors' program.
"""

from __future__ import annotations

import math
import time
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from beamwood.blocks import slices
from beamwood.errors import ArtefactError
from beamwood.kernels.arrays import check_floats, linear_shapes, shape_of
from beamwood.models.ops import linear, silu
from beamwood.retrieval.index.buckets import Buckets, best_inside
from beamwood.retrieval.index.contract import IndexInputs, IndexSettings, by_row, check_installed, own_settings
from beamwood.retrieval.index.fields import Hidden, NumChildren, NumEpochs, NumProbed, Rate, StoredProbes, probed_of
from beamwood.retrieval.index.kmeans import kmeans, nearest_centres
from beamwood.retrieval.products import best_products
from beamwood.retrieval.stored import MOST
from beamwood.types import FloatArray, Hits, SearchOptions

__all__ = ["RotlexIndex", "RotlexSettings", "bucket_parents", "capped_buckets", "strongest"]

# The nearest items a query is trained to find, those that vote on an item's bucket, and the buckets that an item may
# choose from.
_NEAREST, _SAYING, _CHOICES = 10, 15, 5
# The capacity of a bucket relative to the mean; the most training queries and items.
_ROOM, _MOST = 1.5, 20_000
_BATCH = 128
# Shares of buckets held at a time (128 MiB).
_BLOCK_CELLS = 2**25
_ENCODERS = ("query", "item")


class RotlexSettings(IndexSettings):
    """The nodes, the encoder of queries, and the training."""

    num_probed: NumProbed = None
    num_children: NumChildren = None
    hidden: Hidden = 128
    num_epochs: NumEpochs = 30
    regroup_every: int = Field(10, ge=1, le=MOST, description="rotlex: epochs between bucket updates")
    rate: Rate = None


class RotlexIndex:
    """K x K buckets by learned nodes; a query opens the `num_probed` whose nodes have the largest products with it.

    Built with torch (the extra `train`), from queries of training users and from items as queries; searched without.
    """

    kind: ClassVar[str] = "rotlex"
    Settings: ClassVar[type[IndexSettings]] = RotlexSettings
    modules: ClassVar[tuple[str, ...]] = ("torch",)
    trains: ClassVar[bool] = True

    def __init__(
        self, vectors_ND: FloatArray, settings: IndexSettings | None = None, inputs: IndexInputs = IndexInputs()
    ) -> None:
        check_installed(RotlexIndex)
        given = own_settings(RotlexSettings, settings)
        self.vectors = np.ascontiguousarray(vectors_ND, np.float32)
        trained = _Training(self.vectors, given, inputs)
        trained.run()
        self.buckets, self.arrays = Buckets.of(trained.bucket_N, trained.num_buckets), trained.exported()
        self.num_probed = probed_of(given.num_probed, trained.num_buckets)

    def search(self, queries_BD: FloatArray, k: int, options: SearchOptions = SearchOptions()) -> Hits:
        """See `Index`; `scored` counts products with nodes and with items."""
        return by_row(self._row, len(self.vectors), queries_BD, k, options)

    def _row(self, query_D: FloatArray, k: int, options: SearchOptions) -> Hits:
        hidden = query_D[None]
        for layer in ("first", "second"):
            hidden = silu(linear(hidden, self.arrays, layer))
        order_C = np.argsort(-(self.arrays["nodes"] @ hidden[0]), kind="stable")
        hits = best_inside(self.buckets, self.vectors, query_D, order_C, self.num_probed, k, options)
        return Hits(hits.items, hits.scores, hits.scored + len(self.buckets))

    def export(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """Nodes, the encoder of queries, and the items of each bucket."""
        return {"num_probed": self.num_probed}, self.arrays | self.buckets.arrays()

    @classmethod
    def restore(cls, vectors_ND: FloatArray, config: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> Self:
        restored = cls.__new__(cls)
        restored.num_probed = StoredProbes.model_validate(config).num_probed
        restored.vectors = np.ascontiguousarray(vectors_ND, np.float32)
        count, hidden = shape_of(arrays, "nodes", 2)
        shapes = linear_shapes("first", vectors_ND.shape[1], hidden) | linear_shapes("second", hidden, hidden)
        shapes["nodes"] = (count, hidden)
        check_floats(arrays, shapes)
        restored.arrays = {name: np.ascontiguousarray(arrays[name], np.float32) for name in shapes}
        strangers = set(arrays) - {*shapes, "bucket_starts", "bucket_items"}
        if strangers:
            raise ArtefactError(f"the array '{min(strangers)}' is unknown to the index")
        restored.buckets = Buckets.restore(arrays, len(vectors_ND), count)
        return restored


def strongest(wishes_NC: FloatArray) -> tuple[NDArray[np.int64], FloatArray]:
    """int64[N, E] the most wanted buckets of each item, 5 of C, and [N, E] how much each is wanted."""
    most = min(_CHOICES, wishes_NC.shape[1])
    chosen_NE = np.argpartition(-wishes_NC, most - 1, axis=1)[:, :most]
    return chosen_NE, np.take_along_axis(wishes_NC, chosen_NE, axis=1)


def capped_buckets(
    chosen_NE: NDArray[np.int64], wishes_NE: FloatArray, old_N: NDArray[np.int32], room: int
) -> NDArray[np.int32]:
    """int32[N], for each item one of its `strongest` buckets, with at most `room` new items in each.

    The strongest wishes are granted first; an item without a granted wish keeps its bucket.
    """
    num_items, most = chosen_NE.shape
    items, buckets = np.repeat(np.arange(num_items), most), chosen_NE.ravel()
    new_N, taken = np.full(num_items, -1, np.int32), [0] * (int(buckets.max(initial=-1)) + 1)
    order = np.lexsort((buckets, items, -wishes_NE.ravel()))
    for item, bucket in zip(items[order].tolist(), buckets[order].tolist(), strict=True):
        if new_N[item] < 0 and taken[bucket] < room:
            new_N[item] = bucket
            taken[bucket] += 1
    return np.where(new_N < 0, old_N, new_N)


def bucket_parents(liking_CK: FloatArray) -> NDArray[np.int64]:
    """int64[C], the parent of each of C = K^2 buckets, K for each parent, by the strongest affinity first."""
    num_buckets, num_parents = liking_CK.shape
    parent_C, taken = np.full(num_buckets, -1, np.int64), [0] * num_parents
    for place in np.argsort(-liking_CK.ravel(), kind="stable").tolist():
        bucket, parent = divmod(place, num_parents)
        if parent_C[bucket] < 0 and taken[parent] < num_buckets // num_parents:
            parent_C[bucket] = parent
            taken[parent] += 1
    return parent_C


class _Training:
    """Weights, buckets and examples during training: lists of queries, each with its 15 nearest items."""

    def __init__(self, vectors: NDArray[np.float32], settings: RotlexSettings, inputs: IndexInputs) -> None:
        import torch

        self.settings, self.vectors, self.began, self.seconds = settings, vectors, time.monotonic(), inputs.seconds
        self.rng = np.random.default_rng(inputs.seed)
        self.generator = torch.Generator().manual_seed(inputs.seed)
        self.num_children = settings.num_children or min(141, max(2, round(math.sqrt(len(vectors) / 25))))
        self.num_buckets = self.num_children**2
        # Encoders read vectors of about length 1 a column.
        self.scale = 1 / max(float(np.sqrt(np.square(vectors).mean())), 1e-12)
        queries = np.empty((0, vectors.shape[1]), np.float32) if inputs.queries is None else inputs.queries()
        queries = np.asarray(queries, np.float32)[:_MOST]
        self.some = np.sort(self.rng.permutation(len(vectors))[:_MOST])
        self.examples = {"query": queries, "item": vectors[self.some]}
        k = min(_SAYING, len(vectors))
        self.nearest = {name: best_products(each, vectors, k).items for name, each in self.examples.items()}
        self._place()
        self._draw(vectors.shape[1], settings.hidden)

    def _place(self) -> None:
        """Initial buckets by k-means, which has a quarter of the time, and their parents by k-means of the centres."""
        centres = kmeans(
            self.vectors, self.num_buckets, self.rng, seconds=None if self.seconds is None else self.seconds / 4
        )
        self.bucket_N = nearest_centres(self.vectors, centres)[0]
        padded = np.zeros((self.num_buckets, self.vectors.shape[1]), np.float32)
        padded[: len(centres)] = centres
        upper = kmeans(padded, self.num_children, self.rng)
        # One parent at a time: all differences at once are C x K x D numbers, gigabytes for large catalogues.
        apart = np.stack([np.square(padded - each).sum(axis=1) for each in upper], axis=1)
        self.parent_C = bucket_parents(
            -np.pad(apart, ((0, 0), (0, self.num_children - len(upper))), constant_values=np.inf)
        )

    def _draw(self, width: int, hidden: int) -> None:
        import torch

        def drawn(*shape: int) -> Any:
            return (torch.randn(shape, generator=self.generator) * shape[-1] ** -0.5).requires_grad_()

        self.weights: dict[str, Any] = {
            "lower": drawn(self.num_buckets, hidden),
            "upper": drawn(self.num_children, hidden),
        }
        self.means: dict[str, Any] = {}
        for name in _ENCODERS:
            for layer, inputs in (("first", width), ("second", hidden)):
                own = f"{name}.{layer}"
                self.weights[f"{own}.weight"] = drawn(hidden, inputs)
                self.weights[f"{own}.bias"] = torch.zeros(hidden, requires_grad=True)
                self.weights[f"{own}.gain"] = torch.ones(hidden, requires_grad=True)
                self.weights[f"{own}.shift"] = torch.zeros(hidden, requires_grad=True)
                self.means[f"{own}.mean"], self.means[f"{own}.variance"] = torch.zeros(hidden), torch.ones(hidden)

    def encoded(self, name: str, x: Any, *, training: bool) -> Any:
        """[B, H]: two linear maps, each with batch normalisation and SiLU."""
        from torch.nn import functional

        x = x * self.scale
        for layer in ("first", "second"):
            own = f"{name}.{layer}"
            w, gain, shift = self.weights[f"{own}.weight"], self.weights[f"{own}.gain"], self.weights[f"{own}.shift"]
            x = functional.linear(x, w, self.weights[f"{own}.bias"])
            mean, variance = self.means[f"{own}.mean"], self.means[f"{own}.variance"]
            x = functional.silu(functional.batch_norm(x, mean, variance, gain, shift, training, 0.1))
        return x

    def run(self) -> None:
        """All epochs, or as many as there is time for; then buckets are as they were trained for."""
        import torch

        optimiser = torch.optim.Adam(self.weights.values(), lr=self.settings.rate or 3e-3)
        for epoch in range(self.settings.num_epochs):
            if epoch and epoch % self.settings.regroup_every == 0:
                self._regroup()
            for name, rows in self._batches():
                optimiser.zero_grad()
                self.loss(name, rows).backward()
                optimiser.step()
                if self.seconds is not None and time.monotonic() - self.began > self.seconds:
                    return

    def loss(self, name: str, rows: NDArray[np.int64]) -> Any:
        """Scalar: over both levels, the mean of `- log softmax` of the buckets of each query's nearest items."""
        import torch

        hidden = self.encoded(name, torch.from_numpy(self.examples[name][rows]), training=True)
        buckets = self.bucket_N[self.nearest[name][rows, :_NEAREST]].astype(np.int64)
        total = 0.0
        for nodes, targets in (("lower", buckets), ("upper", self.parent_C[buckets])):
            log_odds = (hidden @ self.weights[nodes].T).log_softmax(dim=1)
            total = total - log_odds.gather(1, torch.from_numpy(targets)).mean()
        return total

    def _batches(self) -> list[tuple[str, NDArray[np.int64]]]:
        """Rows of both kinds, in a random order; batch normalisation needs two."""
        batches = []
        for name in _ENCODERS:
            order = self.rng.permutation(len(self.examples[name]))
            batches += [(name, order[batch]) for batch in slices(len(order), _BATCH)]
        return [batches[place] for place in self.rng.permutation(len(batches)) if len(batches[place][1]) > 1]

    def _odds(self, name: str, vectors: NDArray[np.float32], nodes: str) -> NDArray[np.float32]:
        """float32[B, nodes], the softmax over the nodes of a level."""
        import torch

        with torch.no_grad():
            hidden = self.encoded(name, torch.from_numpy(vectors), training=False)
            odds: NDArray[np.float32] = (hidden @ self.weights[nodes].T).softmax(dim=1).numpy()
        return odds

    def _regroup(self) -> None:
        """Move items to the buckets that their queries, and they themselves, are assigned to.

        In blocks of items: N x C shares of millions of items fit no memory.
        """
        liking_CK = np.zeros((self.num_buckets, self.num_children), np.float32)
        wishes = []
        for items in slices(len(self.vectors), _BLOCK_CELLS // self.num_buckets):
            lower_NC, upper_NK = (self._shares(items, nodes) for nodes in ("lower", "upper"))
            wishes.append(strongest(lower_NC))
            liking_CK += lower_NC.T @ upper_NK
        chosen_NE, wishes_NE = (np.concatenate(each) for each in zip(*wishes, strict=True))
        room = math.ceil(_ROOM * len(self.vectors) / self.num_buckets)
        self.bucket_N = capped_buckets(chosen_NE, wishes_NE, self.bucket_N, room)
        self.parent_C = bucket_parents(liking_CK)

    def _shares(self, items: slice, nodes: str) -> NDArray[np.float32]:
        """float32[n, nodes], for some items the mean softmax of each as a query and of the queries it is nearest to."""
        nearest = self.nearest["query"]
        rows, places = np.nonzero((nearest >= items.start) & (nearest < items.stop))
        own = nearest[rows, places] - items.start
        shares = self._odds("item", self.vectors[items], nodes)
        queries, at = np.unique(rows, return_inverse=True)
        if len(queries):
            np.add.at(shares, own, self._odds("query", self.examples["query"][queries], nodes)[at])
        shares /= (1 + np.bincount(own, minlength=len(shares)))[:, None].astype(np.float32)
        return shares

    def exported(self) -> dict[str, NDArray[np.float32]]:
        """The arrays for search: the nodes of the buckets, and the encoder of queries with its normalisation folded in.

        Without training queries, the items' own encoder encodes queries.
        """
        name = "query" if len(self.examples["query"]) > 1 else "item"
        arrays = {"nodes": self.weights["lower"].detach().numpy().copy()}
        for layer in ("first", "second"):
            own = {
                part: self.weights[f"{name}.{layer}.{part}"].detach() for part in ("weight", "bias", "gain", "shift")
            }
            gain = own["gain"] / (self.means[f"{name}.{layer}.variance"] + 1e-5).sqrt()
            scale = self.scale if layer == "first" else 1.0
            arrays[f"{layer}.weight"] = (own["weight"] * gain[:, None] * scale).numpy().copy()
            arrays[f"{layer}.bias"] = (
                ((own["bias"] - self.means[f"{name}.{layer}.mean"]) * gain + own["shift"]).numpy().copy()
            )
        return arrays
