"""Search with a sequence encoder: a history becomes a vector, every item is scored by inner product; without torch.

Shape legend: B rows, N items, D width, M items a row.
"""

from __future__ import annotations

from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from beamwood.errors import InputError
from beamwood.kernels.transformer import TransformerEncoder
from beamwood.retrieval.vector import best_products, products
from beamwood.types import BoolArray, Hits, IndexArray, ItemLists

__all__ = ["SequenceSearcher"]


class SequenceSearcher:
    """The k items whose vectors have the largest inner product with the encoded history, all items scored."""

    kind: ClassVar[str] = "sasrec"

    def __init__(self, encoder: TransformerEncoder) -> None:
        self.encoder = encoder

    @property
    def num_items(self) -> int:
        return len(self.encoder.vectors)

    def encode(self, histories: ItemLists) -> NDArray[np.float32]:
        """float32[B, D], the vector of each history; zeros for an empty one."""
        if len(histories.items) and int(histories.items.max()) >= self.num_items:
            raise InputError(f"a history holds item index {int(histories.items.max())} of {self.num_items} items")
        return self.encoder.encode(histories.padded(self.encoder.length))

    def search(
        self, histories: ItemLists, k: int, *, excluded: ItemLists | None = None, allowed: BoolArray | None = None
    ) -> Hits:
        """The k best items of each row by brute force; see `types.Searcher`."""
        return best_products(self.encode(histories), self.encoder.vectors, k, excluded=excluded, allowed=allowed)

    def score(self, histories: ItemLists, items_BM: IndexArray) -> NDArray[np.float32]:
        """float32[B, M], the score of each given item; -inf where the item index is -1."""
        return products(self.encode(histories), self.encoder.vectors, items_BM)

    def export(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        arrays = dict(self.encoder.arrays)
        arrays["vectors"] = arrays.pop("items.weight")
        return {"num_heads": self.encoder.num_heads}, arrays

    @classmethod
    def restore(cls, config: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> Self:
        named = {("items.weight" if name == "vectors" else name): array for name, array in arrays.items()}
        return cls(TransformerEncoder(named, num_heads=config["num_heads"]))
