"""The planted market of tastes: its probabilities match its log."""

import numpy as np
import pytest
from pydantic import ValidationError
from scipy import stats

from beamwood.data import ColumnNames, Dataset, leave_one_out, read_log
from beamwood.data.markets.taste_optimum import TasteOptimum, next_probabilities
from beamwood.data.markets.tastes import SIZES, TasteConfig, make_taste_market
from beamwood.types import ItemLists, Query, SearchOptions
from one_view import evaluate_view

SMALL = {
    "num_items": 240,
    "num_users": 400,
    "items_per_taste": 10,
    "num_contexts": 3,
    "min_events": 5,
    "max_events": 20,
}
# Two tastes of two items in each of two contexts, so short histories recur.
TOY = TasteConfig(
    num_items=8,
    num_users=150_000,
    items_per_taste=2,
    num_contexts=2,
    tastes_per_context=1,
    partners=(1.0,),
    min_events=4,
    max_events=4,
    stay=0.6,
)


@pytest.fixture(scope="module")
def market():
    return make_taste_market(TasteConfig(**SMALL), seed=1)


def lists(rows):
    lengths = [len(row) for row in rows]
    indptr = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    return ItemLists(indptr, np.concatenate(rows).astype(np.int32))


def histories_of(market):
    items = market.log["item_id"].to_numpy()
    counts = market.log.group_by("user_id").len().sort("user_id")["len"].to_numpy()
    return ItemLists(np.concatenate([[0], np.cumsum(counts)]).astype(np.int64), items.astype(np.int32))


def test_events_follow_the_formula(market):
    config = market.config
    assert np.array_equal(np.sort(market.items_SR.ravel()), np.arange(240))
    assert (market.items_SR[market.taste_of, market.rank_of] == np.arange(240)).all()
    assert market.weights[0] / market.weights[3] == pytest.approx(4)
    for tastes in market.tastes_UCK.reshape(len(market.tastes_UCK), -1):
        assert len(set(tastes.tolist())) == 6
    assert (market.tastes_UCK % 3 == np.arange(3)[None, :, None]).all()
    for item, partners in enumerate(market.partners_NM):
        assert len({*partners.tolist(), item}) == 4
    items, users = (market.log[name].to_numpy() for name in ("item_id", "user_id"))
    context = market.log["context"].to_numpy()
    same = users[1:] == users[:-1]
    pairs = (market.partners_NM[items[:-1]] == items[1:, None]).any(axis=1)
    assert pairs[same].mean() == pytest.approx(config.pair_share, abs=0.02)
    assert (context[1:] == context[:-1])[same].mean() == pytest.approx(0.85 + 0.15 / 3, abs=0.02)
    by_taste = np.concatenate([[True], ~(pairs & same)])
    own = market.tastes_UCK[users, context]
    assert (own == market.taste_of[items][:, None]).any(axis=1)[by_taste].all()


def test_equal_seeds_give_equal_markets(market):
    assert make_taste_market(TasteConfig(**SMALL), seed=1).log.equals(market.log)
    assert not make_taste_market(TasteConfig(**SMALL), seed=2).log.equals(market.log)


@pytest.mark.parametrize("known", [True, False])
def test_rows_are_probabilities(market, known):
    histories = histories_of(market)
    some = ItemLists.take(histories, np.arange(50))
    found = next_probabilities(market, some, np.zeros(50, np.int64) if known else None)
    assert np.allclose(found.sum(axis=1), 1)
    assert (found >= 0).all()


@pytest.mark.parametrize("known", [True, False])
def test_next_items_have_the_stated_frequencies(known):
    """A chi-square test of the last of four events, given the first three and, if known, the context."""
    market = make_taste_market(TOY, seed=3)
    items = market.log["item_id"].to_numpy().reshape(-1, 4)
    context = market.log["context"].to_numpy().reshape(-1, 4)[:, 3]
    keys = np.concatenate([items[:, :3], context[:, None] if known else 0 * context[:, None]], axis=1)
    kinds, of, counts = np.unique(keys, axis=0, return_inverse=True, return_counts=True)
    p_values = []
    for kind in np.argsort(-counts)[:40]:
        rows = of.ravel() == kind
        given = np.array([kinds[kind, 3]]) if known else None
        p = next_probabilities(market, lists([kinds[kind, :3]]), given)[0]
        seen = np.bincount(items[rows, 3], minlength=8)
        assert seen[p == 0].sum() == 0
        kept = p > 0
        p_values.append(stats.chisquare(seen[kept], counts[kind] * p[kept]).pvalue)
    assert min(p_values) > 1e-4
    assert np.mean(p_values) == pytest.approx(0.5, abs=0.2)


def test_no_method_is_above_the_optimum_and_its_hits_are_as_expected(market):
    frame = market.log
    dataset = Dataset.from_log(read_log(frame, columns=ColumnNames(context=("context",))))
    split = leave_one_out(dataset)
    queries = split.test.take(np.arange(len(split.test)))
    # Ids equal indices if every item has an event.
    assert dataset.items.ids.to_list() == list(range(240))
    values = {}
    for knows in (False, True):
        optimum = TasteOptimum(market, knows_context=knows)
        values[knows] = evaluate_view(optimum, queries, ks=(20,), remove_seen=False).values["hit_rate@20"]
        query = queries.query(optimum.needs)
        contexts = query.context["context"] if knows else None
        p = np.sort(next_probabilities(market, queries.histories, contexts), axis=1)[:, -20:].sum(axis=1)
        error = np.sqrt((p * (1 - p)).sum()) / len(p)
        assert values[knows].mean() == pytest.approx(p.mean(), abs=4 * error)
    assert values[True].mean() > values[False].mean()


def test_search_agrees_with_scores_and_exclusions(market):
    histories = histories_of(market).take(np.arange(6))
    optimum, query = TasteOptimum(market), Query.of(histories)
    every = np.tile(np.arange(240), (6, 1))
    scores = optimum.score(query, every)
    hits = optimum.search(query, 15)
    order = np.argsort(-next_probabilities(market, histories), axis=1, kind="stable")[:, :15]
    assert np.array_equal(hits.items, order)
    assert np.allclose(hits.scores, np.take_along_axis(scores, order, axis=1))
    allowed = np.zeros(240, bool)
    allowed[:7] = True
    hits = optimum.search(query, 15, SearchOptions(excluded=histories, allowed=allowed))
    for row in range(6):
        wanted = set(range(7)) - set(histories[row].tolist())
        assert set(hits.items[row].tolist()) - {-1} == wanted


def test_sizes_are_those_of_the_documentation():
    assert {name: (size.num_items, size.num_users) for name, size in SIZES.items()} == {
        "small": (10_000, 10_000),
        "large": (1_000_000, 100_000),
    }


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"max_events": 3}, "max_events=3 is below min_events=5"),
        ({"num_items": 250}, "num_items=250 is not a multiple of 30"),
        ({"tastes_per_context": 9}, "tastes_per_context=9 is above the 8"),
        ({"partners": (0.5, 0.3)}, "sum to 1"),
    ],
)
def test_invalid_configurations_are_refused(wrong, message):
    with pytest.raises(ValidationError, match=message):
        TasteConfig(**SMALL | wrong)
