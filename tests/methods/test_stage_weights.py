"""The weights of two stages: evaluation equals the answers, and the best weights are chosen."""

import numpy as np
import pytest

import beamwood
from beamwood.data import Dataset, disjoint_users, read_log
from beamwood.data.markets.synthetic import MarketConfig, make_market
from beamwood.errors import InputError
from beamwood.fitting import blend
from beamwood.fitting.blend import SEEN_WEIGHTS, BlendWeights, StageCandidates
from beamwood.fitting.stages import blend_of_stages
from beamwood.fitting.validation import Validation
from beamwood.methods import cooccurrence, load_method, popularity
from beamwood.retrieval.searchers.popularity import PopularitySearcher
from beamwood.retrieval.searchers.ranked import RankingSearcher
from beamwood.retrieval.searchers.scorers import restore_scorer
from beamwood.types import ItemLists

NUM_USERS, NUM_ITEMS, MONITOR = 300, 90, "both/ndcg@20"


@pytest.fixture(scope="module")
def split():
    market = make_market(MarketConfig(num_users=NUM_USERS, num_items=NUM_ITEMS, min_events=10, max_events=30), seed=1)
    return disjoint_users(Dataset.from_log(read_log(market.log)))


@pytest.fixture(scope="module")
def retriever(split):
    return cooccurrence.METHOD.fitted(split).searcher


def ranker_of(scores_N):
    """A ranker with a fixed score for each item."""
    users = np.ones((NUM_USERS + 1, 1), np.float32)
    scorer = restore_scorer({"kind": "graphrec"}, {"users": users, "items": np.float32(scores_N)[:, None]})
    return RankingSearcher(scorer)


def weights_of(split, retriever, num_candidates, weight=None, seen_weight=0.0):
    options = {"monitor": MONITOR, "first_weight": weight, "seen_weight": seen_weight}
    return StageCandidates(retriever, split.valid, num_candidates=num_candidates, **options)


@pytest.mark.parametrize("num_candidates", [5, 40, 500])
def test_evaluation_equals_the_answers_of_two_stages(split, retriever, num_candidates):
    ranker = ranker_of(np.random.default_rng(0).random(len(split.dataset.items)))
    sought = weights_of(split, retriever, num_candidates)
    weights, metrics = sought.best(ranker)
    values = []
    for given in sought.first_weights():
        alone, measured = weights_of(split, retriever, num_candidates, given).best(ranker)
        served = blend_of_stages(retriever, ranker, alone, num_candidates=num_candidates)
        assert alone == BlendWeights(given, 0)
        assert measured == pytest.approx(Validation(split.valid, 10**6, seed=0)(served))
        values.append(measured[MONITOR])
    assert metrics[MONITOR] == max(values)
    assert weights.first == sought.first_weights()[values.index(max(values))]


def test_an_uninformative_ranker_keeps_the_retrievers_order(split, retriever):
    noise = ranker_of(np.random.default_rng(1).random(len(split.dataset.items)))
    weights, metrics = weights_of(split, retriever, 40).best(noise)
    own = Validation(split.valid, 10**6, seed=0)(retriever)
    alone = weights_of(split, retriever, 40, 0.0).best(noise)[1]
    assert weights.first > 0
    assert metrics[MONITOR] >= own[MONITOR] - 1e-9
    assert metrics[MONITOR] > alone[MONITOR] + 0.02


@pytest.mark.parametrize("weight", [0.0, 0.7])
def test_seen_items_get_the_best_weight(split, retriever, weight, monkeypatch):
    ranker = ranker_of(np.random.default_rng(0).random(len(split.dataset.items)))
    weights, metrics = weights_of(split, retriever, 40, weight, None).best(ranker)
    values = {}
    for given in SEEN_WEIGHTS:
        served = blend_of_stages(retriever, ranker, BlendWeights(weight, given), num_candidates=40)
        values[given] = Validation(split.valid, 10**6, seed=0)(served)
        fixed = weights_of(split, retriever, 40, weight, given).best(ranker)
        assert fixed == (BlendWeights(weight, given), pytest.approx(values[given]))
    assert values[weights.seen]["kept/ndcg@20"] == max(each["kept/ndcg@20"] for each in values.values())
    assert metrics == pytest.approx(values[weights.seen])
    assert weights.seen != 0
    monkeypatch.setattr(blend, "_QUERIES_AT_A_TIME", 7)
    assert weights_of(split, retriever, 40, weight, None).best(ranker) == (weights, pytest.approx(metrics))


def test_truncated_histories(split, retriever):
    """Histories of long logs are truncated, so items outside the history may still be seen."""
    valid = split.valid
    cut = type(valid)(valid.users, valid.histories.last(2), valid.labels, valid.seen)
    ranker = ranker_of(np.random.default_rng(0).random(len(split.dataset.items)))
    options = {"monitor": MONITOR, "first_weight": 0.7, "seen_weight": 3.0}
    weights, metrics = StageCandidates(retriever, cut, num_candidates=40, **options).best(ranker)
    served = blend_of_stages(retriever, ranker, weights, num_candidates=40)
    assert metrics == pytest.approx(Validation(cut, 10**6, seed=0)(served))


def test_the_scale_of_scores_does_not_matter(split, retriever):
    """Weights scale with the scores, so the order is the same; constant scores keep the retriever's order."""
    scores = np.random.default_rng(0).random(len(split.dataset.items))
    chosen = {}
    for scale in (1e-3, 1.0, 1e3):
        ranker = ranker_of(scale * scores)
        weights, metrics = weights_of(split, retriever, 40, None, None).best(ranker, fitted=True)
        chosen[scale] = [weights.first / scale, weights.seen / scale, *metrics.values()]
    assert chosen[1.0][0] > 0
    assert chosen[1e-3] == pytest.approx(chosen[1.0], rel=1e-4)
    assert chosen[1e3] == pytest.approx(chosen[1.0], rel=1e-4)
    huge = ranker_of(1e12 * scores)
    weights, _ = weights_of(split, retriever, 40, None, None).best(huge, fitted=True)
    blend_of_stages(retriever, huge, weights, num_candidates=100)
    flat = ranker_of(0 * scores)
    own = Validation(split.valid, 10**6, seed=0)(retriever)
    weights, metrics = weights_of(split, retriever, 40, None, 0.0).best(flat, fitted=True)
    assert weights.first > 0
    assert metrics[MONITOR] >= own[MONITOR] - 1e-9


def test_constant_retriever_scores_keep_the_rankers_order(split):
    flat = PopularitySearcher(np.ones(len(split.dataset.items)))
    assert weights_of(split, flat, 40).first_weights() == (0.0,)


def test_two_stages_are_never_below_the_retriever_on_validation(split, tmp_path):
    cooccurrence.METHOD.fitted(split).save(tmp_path / "first")
    config = {"start.retriever": str(tmp_path / "first"), "model.width": 4, "model.attention": (4,), "model.mlp": (4,)}
    config = load_method("two_stage").configured(config | {"loop.max_steps": 3, "choose.monitor": MONITOR})
    both = load_method("two_stage").fitted(split, config, progress=False)
    measured = [
        Validation(split.valid, 10**6, seed=0)(s.searcher)[MONITOR] for s in (both, beamwood.load(tmp_path / "first"))
    ]
    assert measured[0] >= measured[1] - 1e-9
    assert both.metadata["training"]["retriever_weight"] == both.searcher.parts[0].weight
    both.save(tmp_path / "both")
    loaded = beamwood.load(tmp_path / "both")
    assert loaded.searcher.parts[0].weight == both.searcher.parts[0].weight
    assert loaded.searcher.seen_weight == both.searcher.seen_weight == both.metadata["training"]["seen_weight"]
    assert loaded.recommend(histories=[[1, 2]], k=8) == both.recommend(histories=[[1, 2]], k=8)
    study = load_method("two_stage").fitted(split, config.changed({"choose.retriever_weight": 0.0}), progress=False)
    assert study.searcher.parts[0].weight == 0


def test_without_labels_there_is_no_choice(split):
    bare = split.valid.take(np.arange(3))
    bare = type(bare)(bare.users, bare.histories, ItemLists.empty(3), bare.seen)
    with pytest.raises(InputError, match="none of the 3 validation queries has a label"):
        StageCandidates(
            popularity.METHOD.fitted(split).searcher,
            bare,
            num_candidates=5,
            monitor=MONITOR,
            first_weight=None,
            seen_weight=None,
        )
