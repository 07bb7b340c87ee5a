"""The contract of indexes over item vectors: recall, filters, full rows, deterministic and batch-independent answers.

Shape legend: B rows, N items, D width, k results.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
import pytest
from numpy.typing import NDArray

from beamwood.retrieval.index import Index, IndexInputs, IndexSettings, settings_of
from beamwood.retrieval.products import best_products, products
from beamwood.types import BoolArray, ItemLists, SearchOptions, among

__all__ = ["IndexContract"]

_ROWS = 20


class _ForeignSettings(IndexSettings):
    """The settings of another index."""


class IndexContract:
    """Set `index`, the class; `recall`: the least mean share of the exact 10 best that it must find.

    `settings`: used instead of defaults that take long; `exhaustive`: settings with which it equals exact search;
    `efforts`: settings of increasing search effort; `exact_scores`: whether its scores are the exact products.

    For example:

        class TestMine(IndexContract):
            index = MyIndex
    """

    index: ClassVar[type[Index]]
    recall: ClassVar[float] = 0.9
    settings: ClassVar[Mapping[str, Any]] = {}
    exhaustive: ClassVar[Mapping[str, Any] | None] = None
    efforts: ClassVar[Sequence[Mapping[str, Any]]] = ()
    exact_scores: ClassVar[bool] = True
    num_items: ClassVar[int] = 3000
    width: ClassVar[int] = 16

    def vectors(self) -> NDArray[np.float32]:
        """float32[N, D]."""
        return np.random.default_rng(0).normal(size=(self.num_items, self.width)).astype(np.float32)

    def queries(self) -> NDArray[np.float32]:
        """float32[B, D]."""
        return np.random.default_rng(1).normal(size=(_ROWS, self.width)).astype(np.float32)

    def built(self, vectors: NDArray[np.float32] | None = None, **changes: Any) -> Index:
        """The index of the vectors, or of others."""
        inputs = IndexInputs(seed=0, queries=lambda: np.random.default_rng(5).normal(size=(400, self.width)))
        settings = settings_of(self.index, {**self.settings, **changes})
        return self.index(self.vectors() if vectors is None else vectors, settings, inputs)

    def found(self, built: Index) -> float:
        """The share of the exact 10 best that it finds, its recall."""
        queries = self.queries()
        exact, ours = best_products(queries, self.vectors(), 10), built.search(queries, 10)
        return float(np.mean([len({*o} & {*e}) / 10 for o, e in zip(ours.items, exact.items, strict=True)]))

    def filters(self) -> tuple[ItemLists, BoolArray]:
        """Filters: no excluded items in the first row, more in each following row; four fifths of the items allowed."""
        rng = np.random.default_rng(2)
        rows = [np.sort(rng.permutation(self.num_items)[: 5 * row]) for row in range(_ROWS)]
        return ItemLists.from_lists(rows), rng.random(self.num_items) < 0.8

    def test_recall_against_exact_search(self) -> None:
        queries, vectors, (excluded, allowed) = self.queries(), self.vectors(), self.filters()
        built = self.built()
        for options in (SearchOptions(), SearchOptions(excluded), SearchOptions(excluded, allowed)):
            found = built.search(queries, 10, options)
            exact = best_products(queries, vectors, 10, excluded=options.excluded, allowed=options.allowed)
            shares = [len(set(ours) & set(theirs)) / 10 for ours, theirs in zip(found.items, exact.items, strict=True)]
            assert np.mean(shares) >= self.recall, f"{np.mean(shares):.3f} of the best are found"
            if self.exact_scores:
                assert np.allclose(found.scores, products(queries, vectors, found.items), atol=1e-4)
            assert (np.diff(found.scores, axis=1) <= 0).all(), "the best do not come first"
            assert all(len(set(row)) == 10 for row in found.items), "an item is found twice"
            assert (found.scored >= 10).all()
            assert not among(found.items, excluded).any() or options.excluded is None, "an excluded item is found"
            assert allowed[found.items].all() or options.allowed is None, "an item is found that is not allowed"

    def test_rows_are_full_while_items_are_allowed(self) -> None:
        queries, built, rng = self.queries(), self.built(), np.random.default_rng(3)
        for count in (0, 1, 7, self.num_items // 2):
            allowed = np.zeros(self.num_items, bool)
            shown = np.sort(rng.permutation(self.num_items)[:count])
            allowed[shown] = True
            banned = ItemLists.from_lists([shown[:row] for row in range(_ROWS)])
            found = built.search(queries, 12, SearchOptions(banned, allowed))
            real = found.items >= 0
            assert real.sum(axis=1).tolist() == [min(12, max(0, count - row)) for row in range(_ROWS)]
            assert np.array_equal(real, np.sort(real, axis=1)[:, ::-1]), "what is missing stands last"
            assert np.array_equal(real, np.isfinite(found.scores))

    def test_k_may_exceed_the_number_of_items(self) -> None:
        vectors = self.vectors()[:40]
        found = self.built(vectors).search(self.queries(), 50)
        assert np.array_equal(np.sort(found.items[:, :40], axis=1), np.tile(np.arange(40), (_ROWS, 1)))
        assert (found.items[:, 40:] == -1).all()

    def test_an_empty_batch_is_accepted(self) -> None:
        found = self.built().search(self.queries()[:0], 5)
        assert found.items.shape == found.scores.shape == (0, 5)

    def test_ties_go_to_the_lower_index(self) -> None:
        vectors = np.repeat(self.vectors()[:100], 3, axis=0)
        found = self.built(vectors).search(self.queries(), 9)
        ties = found.scores[:, 1:] == found.scores[:, :-1]
        assert ties.any(), "nothing is tied: the case shows nothing"
        assert (np.diff(found.items.astype(int), axis=1)[ties] > 0).all()

    def test_a_filter_of_another_size_is_refused(self) -> None:
        built, queries = self.built(), self.queries()
        excluded = ItemLists.empty(_ROWS + 1)
        for options in (SearchOptions(excluded), SearchOptions(allowed=np.ones(self.num_items + 1, bool))):
            refused = False
            try:
                built.search(queries, 5, options)
            except ValueError:
                refused = True
            assert refused, "a filter of another size was taken"

    def test_settings_of_another_class_are_refused(self) -> None:
        with pytest.raises(ValueError, match=r"settings is of the class _ForeignSettings; give \w+Settings, or None"):
            self.index(self.vectors(), _ForeignSettings())

    def test_a_saved_copy_gives_equal_results(self) -> None:
        vectors, queries, (excluded, allowed) = self.vectors(), self.queries(), self.filters()
        built = self.built()
        config, arrays = built.export()
        again = self.index.restore(vectors.copy(), config, {name: array.copy() for name, array in arrays.items()})
        for options in (SearchOptions(), SearchOptions(excluded, allowed)):
            ours, theirs = built.search(queries, 10, options), again.search(queries, 10, options)
            assert np.array_equal(ours.items, theirs.items)
            assert np.array_equal(ours.scores, theirs.scores)
            assert np.array_equal(ours.scored, theirs.scored)

    def test_building_is_deterministic(self) -> None:
        (ours, own), (theirs, other) = (self.built().export() for _ in range(2))
        assert ours == theirs
        assert own.keys() == other.keys()
        assert all(np.array_equal(own[name], other[name]) for name in own)

    def test_single_rows_equal_the_batch(self) -> None:
        queries, built, (excluded, allowed) = self.queries(), self.built(), self.filters()
        for options in (SearchOptions(excluded), SearchOptions(excluded, allowed)):
            together = built.search(queries, 10, options)
            for row in range(0, _ROWS, 6):
                alone = built.search(queries[row : row + 1], 10, options.take(np.array([row])))
                assert np.array_equal(alone.items[0], together.items[row])
                assert alone.scored[0] == together.scored[row]

    def test_full_effort_is_exact(self) -> None:
        """Items and their order; and renumbering the items changes nothing."""
        if self.exhaustive is None:
            pytest.skip("it has no settings with which it is exact")
        queries, vectors, (excluded, allowed) = self.queries(), self.vectors(), self.filters()
        order = np.random.default_rng(4).permutation(len(vectors))
        built, turned = self.built(**self.exhaustive), self.built(vectors[order], **self.exhaustive)
        for options in (SearchOptions(), SearchOptions(excluded, allowed)):
            exact = best_products(queries, vectors, 10, excluded=options.excluded, allowed=options.allowed)
            found = built.search(queries, 10, options)
            assert np.array_equal(found.items, exact.items)
            np.testing.assert_allclose(found.scores, exact.scores, rtol=1e-4, atol=1e-5)
        assert np.array_equal(order[turned.search(queries, 10).items], built.search(queries, 10).items)

    def test_more_effort_finds_more(self) -> None:
        if len(self.efforts) < 2:
            pytest.skip("it has no settings of effort")
        made = [self.built(**changes) for changes in self.efforts]
        shares = [self.found(built) for built in made]
        scored = [float(built.search(self.queries(), 10).scored.mean()) for built in made]
        assert scored == sorted(scored)
        assert scored[-1] > scored[0]
        assert shares == sorted(shares)
        assert shares[-1] > shares[0]
