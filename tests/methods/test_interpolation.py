"""The weight of the retriever's score: what is measured is what two stages answer, and the best is taken."""

import numpy as np
import pytest

import beamwood
from beamwood.data import Dataset, disjoint_users, read_log
from beamwood.data.synthetic import MarketConfig, make_market
from beamwood.errors import InputError
from beamwood.fitting.choose import validation
from beamwood.fitting.interpolation import Interpolation
from beamwood.fitting.repeats import REPEAT_WEIGHTS
from beamwood.methods import cooccurrence, load_method, popularity
from beamwood.retrieval.popularity import PopularitySearcher
from beamwood.retrieval.ranked import TwoStageSearcher
from beamwood.retrieval.scorers import restore_scorer
from beamwood.types import ItemLists

NUM_USERS, NUM_ITEMS, MONITOR = 300, 90, "both/ndcg@20"


@pytest.fixture(scope="module")
def split():
    market = make_market(MarketConfig(num_users=NUM_USERS, num_items=NUM_ITEMS, min_events=10, max_events=30), seed=1)
    return disjoint_users(Dataset.from_log(read_log(market.log)))


@pytest.fixture(scope="module")
def retriever(split):
    return cooccurrence.METHOD.fitted(split).searcher


def scorer_of(scores_N):
    """A ranker with one score an item, whoever asks."""
    users = np.ones((NUM_USERS + 1, 1), np.float32)
    return restore_scorer({"kind": "graphrec"}, {"users": users, "items": np.float32(scores_N)[:, None]})


def interpolation(split, retriever, num_candidates, weight=None, repeat_weight=0.0):
    options = {"num_candidates": num_candidates, "monitor": MONITOR, "weight": weight, "repeat_weight": repeat_weight}
    return Interpolation(retriever, split.valid, **options)


@pytest.mark.parametrize("num_candidates", [5, 40, 500])
def test_what_is_measured_is_what_two_stages_answer(split, retriever, num_candidates):
    scorer = scorer_of(np.random.default_rng(0).random(len(split.dataset.items)))
    sought = interpolation(split, retriever, num_candidates)
    searcher = TwoStageSearcher(retriever, scorer, num_candidates=num_candidates)
    weights, metrics = sought.best(searcher.ranker)
    values = []
    for given in sought.weights:
        alone, measured = interpolation(split, retriever, num_candidates, given).best(searcher.ranker)
        served = TwoStageSearcher(retriever, scorer, num_candidates=num_candidates, retriever_weight=given)
        assert alone == {"retriever_weight": given, "repeat_weight": 0}
        assert measured == pytest.approx(validation(lambda s=served: s, split.valid, 10**6, seed=0)())
        values.append(measured[MONITOR])
    assert metrics[MONITOR] == max(values)
    assert weights["retriever_weight"] == sought.weights[values.index(max(values))]


def test_a_ranker_that_knows_nothing_leaves_the_retrievers_order(split, retriever):
    noise = scorer_of(np.random.default_rng(1).random(len(split.dataset.items)))
    searcher = TwoStageSearcher(retriever, noise, num_candidates=40)
    weights, metrics = interpolation(split, retriever, 40).best(searcher.ranker)
    own = validation(lambda: retriever, split.valid, 10**6, seed=0)()
    alone = interpolation(split, retriever, 40, 0.0).best(searcher.ranker)[1]
    assert weights["retriever_weight"] > 0
    assert metrics[MONITOR] >= own[MONITOR] - 1e-9
    assert metrics[MONITOR] > alone[MONITOR] + 0.02


@pytest.mark.parametrize("weight", [0.0, 0.7])
def test_what_was_had_gets_the_best_of_its_weights(split, retriever, weight):
    scorer = scorer_of(np.random.default_rng(0).random(len(split.dataset.items)))
    plain = TwoStageSearcher(retriever, scorer, num_candidates=40)
    weights, metrics = interpolation(split, retriever, 40, weight, None).best(plain.ranker)
    values = {}
    for given in REPEAT_WEIGHTS:
        options = {"retriever_weight": weight, "repeat_weight": given}
        served = TwoStageSearcher(retriever, scorer, num_candidates=40, **options)
        values[given] = validation(lambda s=served: s, split.valid, 10**6, seed=0)()
        fixed = interpolation(split, retriever, 40, weight, given).best(plain.ranker)
        assert fixed == (options, pytest.approx(values[given]))
    assert values[weights["repeat_weight"]]["all/ndcg@20"] == max(each["all/ndcg@20"] for each in values.values())
    assert metrics == pytest.approx(values[weights["repeat_weight"]])
    assert weights["repeat_weight"] != 0


def test_the_scale_of_a_fitted_models_scores_says_nothing(split, retriever):
    """Weights grow with the scores, so that the order chosen is the same; scores alike leave the retriever's order."""
    scores = np.random.default_rng(0).random(len(split.dataset.items))
    chosen = {}
    for scale in (1e-3, 1.0, 1e3):
        ranker = TwoStageSearcher(retriever, scorer_of(scale * scores), num_candidates=40).ranker
        options = {"num_candidates": 40, "monitor": MONITOR, "weight": None, "repeat_weight": None}
        weights, metrics = Interpolation(retriever, split.valid, **options, fitted=ranker).best(ranker)
        chosen[scale] = [*(weight / scale for weight in weights.values()), *metrics.values()]
    assert chosen[1.0][0] > 0
    assert chosen[1e-3] == pytest.approx(chosen[1.0], rel=1e-4)
    assert chosen[1e3] == pytest.approx(chosen[1.0], rel=1e-4)
    huge = TwoStageSearcher(retriever, scorer_of(1e12 * scores), num_candidates=40)
    weights, _ = Interpolation(retriever, split.valid, **options, fitted=huge.ranker).best(huge.ranker)
    TwoStageSearcher(retriever, huge.scorer, **weights)
    flat = TwoStageSearcher(retriever, scorer_of(0 * scores), num_candidates=40).ranker
    own = validation(lambda: retriever, split.valid, 10**6, seed=0)()
    weights, metrics = Interpolation(retriever, split.valid, **(options | {"repeat_weight": 0.0}), fitted=flat).best(
        flat
    )
    assert weights["retriever_weight"] > 0
    assert metrics[MONITOR] >= own[MONITOR] - 1e-9


def test_scores_that_do_not_differ_leave_the_rankers(split):
    flat = PopularitySearcher(np.ones(len(split.dataset.items)))
    assert interpolation(split, flat, 40).weights == (0.0,)


def test_two_stages_are_never_below_the_retriever_on_validation(split, tmp_path):
    cooccurrence.METHOD.fitted(split).save(tmp_path / "first")
    config = {"start.retriever": str(tmp_path / "first"), "model.width": 4, "model.attention": (4,), "model.mlp": (4,)}
    config = load_method("two_stage").configured(config | {"loop.max_steps": 3, "choose.monitor": MONITOR})
    both = load_method("two_stage").fitted(split, config, progress=False)
    measured = [
        validation(lambda s=s: s.searcher, split.valid, 10**6, seed=0)()[MONITOR]
        for s in (both, beamwood.load(tmp_path / "first"))
    ]
    assert measured[0] >= measured[1] - 1e-9
    assert both.metadata["training"]["retriever_weight"] == both.searcher.retriever_weight
    both.save(tmp_path / "both")
    loaded = beamwood.load(tmp_path / "both")
    assert loaded.searcher.retriever_weight == both.searcher.retriever_weight
    assert loaded.searcher.repeat_weight == both.searcher.repeat_weight == both.metadata["training"]["repeat_weight"]
    assert loaded.recommend(histories=[[1, 2]], k=8) == both.recommend(histories=[[1, 2]], k=8)
    study = load_method("two_stage").fitted(split, config.changed({"choose.retriever_weight": 0.0}), progress=False)
    assert study.searcher.retriever_weight == 0


def test_without_labels_there_is_nothing_to_choose_by(split):
    bare = split.valid.take(np.arange(3))
    bare = type(bare)(bare.users, bare.histories, ItemLists.empty(3), bare.consumed)
    with pytest.raises(InputError, match="none of the 3 validation queries has a label"):
        Interpolation(
            popularity.METHOD.fitted(split).searcher,
            bare,
            num_candidates=5,
            monitor=MONITOR,
            weight=None,
            repeat_weight=None,
        )
