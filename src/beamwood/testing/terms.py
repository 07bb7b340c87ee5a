"""The contract of terms of a tree's score: equal scores in torch and numpy, arrays as declared, whole items moved.

Shape legend: B rows, L history length, M nodes a row.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray

from beamwood.kernels.terms import Term, TermQuery
from beamwood.tree.tree import Shape

__all__ = ["TermContract"]

_SHAPE, _LENGTH = Shape(3, 4, 3), 6


class TermContract:
    """Set `term`; override `filled` if random floats leave scores at 0.

    For example:

        class TestMine(TermContract):
            term = Mine()
    """

    term: ClassVar[Term]

    def filled(self, arrays: Mapping[str, NDArray[Any]]) -> Mapping[str, NDArray[Any]]:
        """The arrays with drawn floats; integers stay as they are."""
        rng, drawn = np.random.default_rng(0), dict(arrays)
        for name, array in arrays.items():
            if array.dtype.kind == "f":
                drawn[name] = (rng.random(array.shape) + 0.1).astype(array.dtype)
        return drawn

    def held(self) -> Mapping[str, NDArray[Any]]:
        """Its arrays, filled."""
        return self.filled(self.term.arrays(_SHAPE, _LENGTH))

    def weights(self) -> dict[str, torch.Tensor]:
        """The arrays for its score, made in torch from those held in training, as a scorer makes them."""
        return dict(self.term.weights({name: torch.from_numpy(array.copy()) for name, array in self.held().items()}))

    def query(self, level: int, *, whole: bool) -> TermQuery:
        """Histories with empty places, and drawn nodes of a level or all of them."""
        rng = np.random.default_rng(level)
        leaves_BL = rng.integers(-1, _SHAPE.capacity, (5, _LENGTH))
        nodes_BM = None if whole else rng.integers(0, _SHAPE.level_size(level), (5, 4))
        return TermQuery(_SHAPE, level, leaves_BL, nodes_BM)

    def levels(self) -> range:
        """The levels on which it scores."""
        return range(_SHAPE.depth, _SHAPE.depth + 1) if self.term.leaves_only else range(1, _SHAPE.depth + 1)

    def test_arrays_are_as_declared(self) -> None:
        arrays = self.term.arrays(_SHAPE, _LENGTH)
        assert set(self.term.learned) | set(self.term.by_node) | set(self.term.by_place) <= set(arrays)
        for name in self.term.by_node:
            assert len(arrays[name]) == _SHAPE.num_nodes
        for name in self.term.by_place:
            assert len(arrays[name]) == _LENGTH
        assert self.term.name.isidentifier()

    def test_torch_and_numpy_agree(self) -> None:
        tensors = self.weights()
        arrays = {name: tensor.numpy() for name, tensor in tensors.items()}
        for level in self.levels():
            for whole in (True, False):
                query = self.query(level, whole=whole)
                given = None if query.nodes is None else torch.from_numpy(query.nodes)
                asked = TermQuery(_SHAPE, level, torch.from_numpy(query.leaves), given)
                ours = self.term.score(arrays, query)
                theirs = self.term.score(tensors, asked).numpy()
                assert np.broadcast_shapes(ours.shape, (5, 1)) == (5, ours.shape[-1])
                np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-5)

    def test_given_nodes_equal_the_whole_level(self) -> None:
        held = {name: tensor.numpy() for name, tensor in self.weights().items()}
        for level in self.levels():
            some = self.query(level, whole=False)
            every = np.broadcast_to(
                self.term.score(held, TermQuery(_SHAPE, level, some.leaves)), (5, _SHAPE.level_size(level))
            )
            assert some.nodes is not None
            expected = np.take_along_axis(every, some.nodes, axis=1)
            np.testing.assert_allclose(self.term.score(held, some), expected, rtol=1e-5, atol=1e-5)

    def test_a_move_is_undone_by_its_reverse(self) -> None:
        """From arrays that the term itself has derived, by moves that leave every item where it is."""
        if not self.term.by_node:
            return
        rng, arrays = np.random.default_rng(1), {name: array.copy() for name, array in self.held().items()}
        place = rng.permutation(_SHAPE.capacity)
        for _ in range(2):
            self.term.move(arrays, np.arange(_SHAPE.capacity), _SHAPE)
        before = {name: array.copy() for name, array in arrays.items()}
        self.term.move(arrays, place, _SHAPE)
        assert any((arrays[name] != before[name]).any() for name in self.term.by_node), "nothing was moved"
        self.term.move(arrays, np.argsort(place), _SHAPE)
        for name, array in before.items():
            np.testing.assert_allclose(arrays[name], array, rtol=1e-5, atol=1e-6)
