"""A scorer and its tree as one module, so that both are saved and restored together."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn

from beamwood.models.din import DinScorer
from beamwood.tree import Tree

__all__ = ["TreeModel"]


class TreeModel(nn.Module):
    """`scorer` with the tree as a buffer `item_of_leaf` int32[capacity]."""

    item_of_leaf: Tensor

    def __init__(self, scorer: DinScorer, tree: Tree) -> None:
        super().__init__()
        self.scorer = scorer
        self.register_buffer("item_of_leaf", torch.from_numpy(tree.item_of_leaf.copy()))
        self._tree, self._built_from = tree, (self.item_of_leaf, self.item_of_leaf._version)

    @property
    def tree(self) -> Tree:
        """The current tree: it changes with `replace_tree` and with every `load_state_dict`."""
        source, version = self._built_from
        # A move to another device creates a tensor with its own version counter.
        if self.item_of_leaf is not source or self.item_of_leaf._version != version:
            self._tree = Tree(self.scorer.shape, self.item_of_leaf.cpu().numpy())
            self._built_from = self.item_of_leaf, self.item_of_leaf._version
        return self._tree

    @torch.no_grad()
    def replace_tree(self, tree: Tree) -> None:
        """Assign items to other leaves; embeddings stay with their nodes, the arrays of terms move with the items."""
        assert tree.shape == self.scorer.shape
        place = np.full(tree.shape.capacity, -1)
        place[self.tree.leaf_of_item] = tree.leaf_of_item
        for term in self.scorer.held_terms().values():
            term.move(place)
        self.item_of_leaf.copy_(torch.from_numpy(tree.item_of_leaf.copy()))

    def leaf_vectors(self) -> np.ndarray[tuple[int, int], np.dtype[np.float32]]:
        """float32[N, D]: the embedding of each item's leaf, without a fixed coordinate."""
        first = self.scorer.shape.level_offset(self.scorer.shape.depth)
        vectors = self.scorer.nodes.weight.detach().cpu().numpy()[first + self.tree.leaf_of_item]
        return np.asarray(vectors[:, 1:] if self.scorer.unit_coordinate else vectors, np.float32)
