"""The contract of methods: described settings, lists as requested, and the same answers after saving and loading."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

from beamwood.data.dataset import Dataset
from beamwood.data.log import read_log
from beamwood.data.markets.synthetic import MarketConfig, make_market
from beamwood.data.split import Split
from beamwood.data.splits import SPLITS
from beamwood.kernels.mixtures import Mixtures
from beamwood.methods import Method
from beamwood.methods.reload import searchers_of
from beamwood.retrieval.item_vectors import part_with
from beamwood.retrieval.new_items.added import with_items
from beamwood.retrieval.retriever import Retriever
from beamwood.retrieval.searchers.tree import TreeSearcher
from beamwood.types import Query, SearchOptions

__all__ = ["MethodContract"]

_K = 7


class MethodContract:
    """Set `method`, and `settings` that make its training short; `split_name` if it needs known users.

    For example:

        class TestMine(MethodContract):
            method = mine.METHOD
            settings = {"loop.max_steps": 6, "loop.evaluate_every": 3}
    """

    method: ClassVar[Method]
    settings: ClassVar[Mapping[str, Any]] = {}
    split_name: ClassVar[str] = "leave-one-out"

    @pytest.fixture(scope="class")
    @classmethod
    def split(cls) -> Split:
        """A small market, in which every item has a category."""
        market = make_market(MarketConfig(num_users=150, num_items=60, min_events=5, max_events=14), seed=1)
        return SPLITS[cls.split_name](Dataset.from_log(read_log(market.log), market.item_frame), seed=1)

    @pytest.fixture(scope="class")
    @classmethod
    def retriever(cls, split: Split) -> Retriever:
        """The method, fitted."""
        return cls.fitted(split)

    @classmethod
    def fitted(cls, split: Split, seed: int = 0, **options: Any) -> Retriever:
        """A fit that takes a moment."""
        more: dict[str, Any] = {"progress": False} if cls.method.needs.steps else {}
        return cls.method.fitted(split, dict(cls.settings), seed=seed, **more, **options)

    def query(self, split: Split, retriever: Retriever) -> Query:
        """All test users, as a query of this method's searcher."""
        return split.test.query(retriever.searcher.needs)

    def test_settings_are_described(self) -> None:
        for name, row in self.method.described().items():
            assert row["description"], f"{name} has no description"
            assert len(row["description"].split()) <= 20, f"{name} is described in more than 20 words"
        assert self.method.summary

    def test_presets_are_settings(self) -> None:
        for values in self.method.presets.values():
            self.method.Config(**values)

    def test_lists_satisfy_the_request(self, split: Split, retriever: Retriever) -> None:
        """k items once each, best first, none that is excluded or not allowed; fewer only where fewer may be shown."""
        query, searcher = self.query(split, retriever), retriever.searcher
        seen, allowed = split.test.seen, np.arange(searcher.num_items) % 4 == 0
        for options in (SearchOptions(), SearchOptions(excluded=seen), SearchOptions(seen, allowed)):
            hits = searcher.search(query, _K, options)
            assert hits.items.shape == (len(query), _K)
            for row in range(len(query)):
                items = hits.items[row][hits.items[row] >= 0]
                assert len(set(items.tolist())) == len(items)
                assert np.all(np.diff(hits.scores[row][: len(items)]) <= 0)
                shown = allowed if options.allowed is not None else np.ones_like(allowed)
                if options.excluded is not None:
                    assert not np.isin(items, seen[row]).any()
                    shown = shown & ~np.isin(np.arange(len(allowed)), seen[row])
                assert shown[items].all()
                assert len(items) == min(_K, int(shown.sum()))

    def test_single_rows_equal_the_batch(self, split: Split, retriever: Retriever) -> None:
        query = self.query(split, retriever).take(np.arange(4))
        whole = retriever.searcher.search(query, _K)
        for row in range(4):
            alone = retriever.searcher.search(query.take(np.array([row])), _K)
            np.testing.assert_allclose(alone.scores[0], whole.scores[row], rtol=1e-4, atol=1e-5)

    def test_score_equals_search(self, split: Split, retriever: Retriever) -> None:
        query = self.query(split, retriever).take(np.arange(4))
        hits = retriever.searcher.search(query, 3)
        np.testing.assert_allclose(retriever.searcher.score(query, hits.items), hits.scores, rtol=1e-4, atol=1e-5)

    def test_a_saved_copy_gives_equal_results(self, split: Split, retriever: Retriever, tmp_path: Path) -> None:
        retriever.save(tmp_path / "saved")
        own = searchers_of(self.method, tmp_path / "saved") if self.method.searchers else {}
        again = Retriever.load(tmp_path / "saved", searchers=own)
        query = self.query(split, retriever)
        ours, theirs = (each.searcher.search(query, _K) for each in (retriever, again))
        assert np.array_equal(ours.items, theirs.items)
        assert np.array_equal(ours.scores, theirs.scores)

    def test_a_new_item_like_a_known_one_scores_equally(self, split: Split, retriever: Retriever) -> None:
        """Except scores by path, which depend on the ancestors."""
        searcher, twin, known = retriever.searcher, 3, retriever.searcher.num_items
        query = self.query(split, retriever)
        query = query.take(np.flatnonzero([twin not in row for row in query.histories])[:8])
        extended = with_items(searcher, Mixtures.of([{twin: 1.0}]))
        assert np.array_equal(np.sort(extended.search(query, known + 1).items), np.tile(np.arange(known + 1), (8, 1)))
        ours, theirs = extended.score(query, np.tile(np.array([known, twin]), (8, 1))).T
        tree = part_with(searcher, TreeSearcher)
        if not isinstance(tree, TreeSearcher) or not tree.link.along_path:
            np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-5)

    def test_new_items_that_are_all_empty_mixtures_come_last(self, split: Split, retriever: Retriever) -> None:
        known, query = retriever.searcher.num_items, self.query(split, retriever).take(np.arange(4))
        hits = with_items(retriever.searcher, Mixtures.of([{}, {}])).search(query, known + 2)
        assert np.array_equal(np.sort(hits.items[:, :known]), np.tile(np.arange(known), (4, 1)))
        assert np.array_equal(hits.items[:, known:], np.tile([known, known + 1], (4, 1)))

    def test_no_items_have_no_scores(self, split: Split, retriever: Retriever) -> None:
        query = self.query(split, retriever).take(np.arange(4))
        assert retriever.searcher.score(query, np.empty((4, 0), np.int32)).shape == (4, 0)

    def test_fits_are_reproducible(self, split: Split, retriever: Retriever) -> None:
        arrays, again = (each.searcher.export()[1] for each in (retriever, self.fitted(split)))
        assert arrays.keys() == again.keys()
        assert all(np.array_equal(arrays[name], again[name]) for name in arrays)

    def test_a_resumed_run_equals_an_uninterrupted_one(
        self, split: Split, retriever: Retriever, tmp_path: Path
    ) -> None:
        if not self.method.needs.steps:
            pytest.skip("it does not train by steps")
        from beamwood.training.run_folder import RunFolder

        whole = dict(self.settings)
        half = whole | {"loop.max_steps": max(1, int(whole["loop.max_steps"]) // 2)}
        run = RunFolder(tmp_path / "run")
        self.method.fitted(split, half, run=run, progress=False)
        parts = self.method.fitted(split, whole, run=RunFolder(tmp_path / "run"), resume=True, progress=False)
        ours, theirs = retriever.searcher.export()[1], parts.searcher.export()[1]
        assert all(np.array_equal(ours[name], theirs[name]) for name in ours)
