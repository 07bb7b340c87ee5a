"""Proposition 4.3: a target is found if and only if its margin is not negative; and the level of its loss."""

import json

import numpy as np
import pytest

from beamwood.errors import InputError
from beamwood.kernels.links import LINKS
from beamwood.retrieval.searchers.tree import TreeSearcher
from beamwood.theory.diagnostics import diagnose
from beamwood.theory.margin import margin_report, target_margins
from beamwood.types import ItemLists, Query, SearchOptions
from din_cases import random_case


@pytest.fixture(
    params=[
        (2, "softmax", 0),
        (4, "softmax", 0),
        (16, "softmax", 0),
        (4, "path", 0),
        (4, "softmax", 9),
        (4, "softmax", 4),
    ]
)
def case(request):
    branching, link, similarity = request.param
    fixed = {"similarity": similarity, "neighbours": similarity // 3}
    tree, weights, _ = random_case(2, num_items=150, branching=branching, num_rows=1, **fixed)
    rng = np.random.default_rng(0)
    histories = ItemLists.from_lists([rng.integers(0, 150, n) for n in rng.integers(0, 14, 40)])
    labels = ItemLists.from_lists([np.sort(rng.permutation(150)[:12]) for _ in range(40)])
    return TreeSearcher(weights, tree, beam_width=7, link=LINKS[link]), histories, labels


def test_a_target_is_found_if_its_margin_is_not_negative(case):
    searcher, histories, labels = case
    margins = target_margins(searcher, histories, labels)
    beam = searcher.beam(Query.of(histories), 7)
    found = (beam.items[labels.rows] == labels.items[:, None]).any(axis=1)
    assert found.any()
    assert not found.all()
    assert np.array_equal(margins.found, found)
    assert np.array_equal(margins.margin >= 0, found)
    assert np.array_equal(margins.margin, margins.by_level.min(axis=1))
    assert np.array_equal(margins.lost_on == 0, found)


def test_the_level_of_the_loss_is_the_first_negative_one(case):
    searcher, histories, labels = case
    margins = target_margins(searcher, histories, labels)
    for row, level in enumerate(margins.lost_on):
        before = margins.by_level[row, : level - 1] if level else margins.by_level[row]
        assert (before >= 0).all()
        assert level == 0 or margins.by_level[row, level - 1] < 0


def test_a_wide_beam_loses_nothing(case):
    searcher, histories, labels = case
    margins = target_margins(searcher, histories, labels, beam_width=200)
    assert margins.found.all()
    assert (margins.by_level == np.inf).all(), "no level has as many candidates as the beam is wide"


@pytest.mark.parametrize("k", [3, 7, 11])
def test_a_search_for_k_without_excluded_items(case, k):
    """The found share is that of a search; the shares lost on each level are the rest."""
    searcher, histories, labels = case
    rng = np.random.default_rng(1)
    subtree = searcher.tree.item_of_leaf[:20]  # Nothing is lost.
    excluded = ItemLists.from_lists([np.append(rng.permutation(150)[:40], subtree[subtree >= 0]) for _ in range(40)])
    margins = target_margins(searcher, histories, labels, k=k, excluded=excluded)
    hits = searcher.beam(Query.of(histories), k, SearchOptions(excluded))
    found = (hits.items[labels.rows] == labels.items[:, None]).any(axis=1)
    assert found.any()
    assert np.array_equal(margins.found, found)
    assert np.array_equal(margins.margin >= 0, found)
    report = margin_report(searcher, histories, labels, k=k, excluded=excluded)
    assert (report.queries, report.targets, report.k, report.beam_width) == (40, 480, k, max(7, k))
    assert report.found == found.mean()
    assert np.allclose(report.lost, [(margins.lost_on == level).mean() for level in range(1, len(report.lost) + 1)])
    assert np.isclose(sum(report.lost), 1 - report.found)
    assert report.way == searcher.ways.default
    json.dumps(report.as_dict(), allow_nan=False)


def test_the_report_summarises_margins(case):
    searcher, histories, labels = case
    report, margins = diagnose(searcher, histories, labels, k=5), target_margins(searcher, histories, labels)
    assert report.margin["found"] == margins.found.mean()
    assert report.margin["q50"] == np.median(margins.margin[np.isfinite(margins.margin)])


def test_wrong_rows(case):
    searcher, histories, labels = case
    with pytest.raises(InputError, match="40 histories and 1 rows of excluded items"):
        target_margins(searcher, histories, labels, excluded=ItemLists.empty(1))
    with pytest.raises(InputError, match="40 histories and 39 rows of labels"):
        target_margins(searcher, histories, labels.take(np.arange(39)))
    with pytest.raises(InputError, match="none of the 40 queries has a label"):
        margin_report(searcher, histories, ItemLists.empty(40))


def test_items_beyond_the_catalogue_and_widths_below_one_are_refused(case):
    searcher, histories, labels = case
    beyond = ItemLists(np.arange(41), np.full(40, 150))
    for wrong, words in (
        ({"labels": beyond}, "labels hold index 150 of 150 items"),
        ({"histories": beyond}, "histories hold index 150"),
        ({"excluded": beyond}, "excluded items hold index 150"),
        ({"k": 0}, "k=0 is below 1"),
        ({"beam_width": 0}, "beam_width=0 is below 1"),
        ({"beam_width": 2.5}, r"beam_width=2\.5 does not fit \(float\)"),
    ):
        with pytest.raises(InputError, match=words):
            target_margins(searcher, **({"histories": histories, "labels": labels} | wrong))
