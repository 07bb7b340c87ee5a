"""Mistakes in a custom method are reported before training: missing, misspelt or invalid parts."""

from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import polars as pl
import pytest
import torch

import beamwood
from beamwood.data import Dataset, leave_one_out, read_log
from beamwood.errors import InputError
from beamwood.fitting.method_config import MethodConfig
from beamwood.fitting.ranking.settings import PairModelSettings, StagesConfig
from beamwood.losses.levels import softmax_level
from beamwood.methods import Method, load_method
from beamwood.methods.dtr import METHOD as DTR
from beamwood.methods.ranker import METHOD as RANKER
from beamwood.methods.sasrec import METHOD as SASREC
from beamwood.methods.two_tower import METHOD as TWO_TOWER
from beamwood.models.terms import Seen
from beamwood.retrieval.searchers.popularity import PopularitySearcher
from beamwood.sampling.in_batch import InBatch
from beamwood.sampling.levels import UniformByLevel
from one_view import evaluate_view

ONE_FILE = Path(__file__).parents[1] / "one_file"
SMALL = {
    "loop.max_steps": 2,
    "loop.evaluate_every": 2,
    "choose.validation_users": 5,
    "model.width": 4,
    "tree.branching": 4,
}


@pytest.fixture(scope="module")
def split():
    rows = np.arange(240)
    frame = pl.DataFrame({"user_id": rows % 20, "item_id": (rows + rows // 20) % 30, "timestamp": rows})
    return leave_one_out(Dataset.from_log(read_log(frame)))


def built(split, give):
    method = Method("mine", "a custom part", MethodConfig, build=lambda *_: give)
    return beamwood.fit(split, method)


def test_build_must_return_a_searcher(split):
    lacking = "export, kind, needs, num_items, restore, score, search"
    with pytest.raises(
        InputError, match=f"build of mine returned a NoneType, which is no searcher: it lacks {lacking}"
    ):
        built(split, None)
    without = type("Mine", (), dict.fromkeys(("kind", "needs", "num_items", "search", "export", "restore")))
    with pytest.raises(InputError, match="build of mine returned a Mine, which is no searcher: it lacks score"):
        built(split, without())
    with pytest.raises(InputError, match="build of mine returned a searcher and a int; return the facts as a mapping"):
        built(split, (PopularitySearcher(split.train.item_counts), 5))


def test_fit_must_return_a_retriever(split):
    method = Method("mine", "a custom part", MethodConfig, fit=lambda split, config, **_: PopularitySearcher)
    with pytest.raises(
        InputError, match=r"fit of mine returned a type; return a Retriever, as of build_retriever\(\.\.\)"
    ):
        beamwood.fit(split, method)


def test_config_must_be_a_settings_class():
    for strange in ({}, dict, MethodConfig()):
        with pytest.raises(InputError, match="Config of the method mine is no class of MethodConfig; derive it from"):
            Method("mine", "a custom part", strange, build=lambda *_: None)


def test_a_group_of_an_own_config_has_the_settings_of_the_group_in_its_place():
    """The example of a ranker with another Config at hand: the fit would read settings that are not there."""
    lacking = "Strange.model is PairModelSettings, which lacks the settings of StageModelSettings; derive it from Stage"
    with pytest.raises(InputError, match=lacking):
        type(
            "Strange", (StagesConfig,), {"__annotations__": {"model": PairModelSettings}, "model": PairModelSettings()}
        )


class Mine(Seen):
    name = "mine"


@pytest.mark.parametrize(
    ("method", "parts", "message"),
    [
        (DTR, {"terms": (Mine,)}, r"terms=.* does not fit; give a sequence of objects of Term, such as \(Mine\(\),\)"),
        (DTR, {"terms": Mine()}, "terms=.* does not fit; give a sequence"),
        (DTR, {"loss": softmax_level}, r"loss=.* does not fit; give LevelLoss\(name, link, function\)"),
        (DTR, {"sampler": "uniform"}, "sampler='uniform' does not fit; give a function"),
        (
            TWO_TOWER,
            {"sampler": InBatch},
            r"sampler=.* does not fit; give an object of InBatchSampler, such as Mine\(\)",
        ),
        (SASREC, {"index": "exact"}, "index='exact' does not fit; give a class of Index"),
        (RANKER, {"loss": "hinge"}, "loss='hinge' does not fit; give a function of scores and labels"),
        (RANKER, {"score": "din"}, "score='din' does not fit; give a PairScore"),
    ],
)
def test_a_part_of_another_kind_is_refused(split, method, parts, message):
    own = replace(method, name="mine", fit=partial(method.fit, **parts))
    settings = {name: value for name, value in SMALL.items() if name in own.Config.names()}
    with pytest.raises(InputError, match=message):
        beamwood.fit(split, own, settings, progress=False)


@pytest.mark.parametrize(("method", "part"), [(DTR, "term"), (SASREC, "indexs")])
def test_a_misspelt_part_is_refused(split, method, part):
    own = replace(method, name="mine", fit=partial(method.fit, **{part: ()}))
    settings = {name: value for name, value in SMALL.items() if name in own.Config.names()}
    with pytest.raises(InputError, match=rf"option '{part}' is unknown; did you mean '{part.rstrip('s')}"):
        beamwood.fit(split, own, settings, progress=False)


def with_nodes(change):
    return lambda draws: [each if each.nodes is None else replace(each, nodes=change(each.nodes)) for each in draws]


def with_log_q(change):
    return lambda draws: [each if each.nodes is None else replace(each, log_q=change(each.log_q)) for each in draws]


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda draws: draws[:1], r"the sampler gives draws of the levels 1; give one of each of 1\.\.3, in turn"),
        (
            lambda draws: draws[::-1],
            r"the sampler gives draws of the levels 3, 2, 1; give one of each of 1\.\.3, in turn",
        ),
        (
            lambda draws: [replace(draw, log_q=None) for draw in draws],
            r"the softmax of level \d needs log_q of each node that was drawn",
        ),
        (lambda draws: None, "the sampler returned a NoneType; give a list of LevelDraw, level 1 first"),
        (lambda draws: [draw.nodes for draw in draws], "the sampler returned a list; give a list of LevelDraw"),
        (
            with_nodes(lambda nodes: nodes + 64),
            r"the nodes of level \d are 6\d to \d+, outside 0\.\.\d+; a level's own",
        ),
        (with_nodes(lambda nodes: nodes - 64), r"the nodes of level \d are -\d+ to -?\d+, outside 0\.\.\d+"),
        (
            with_nodes(lambda nodes: nodes.float()),
            r"the nodes of level \d are float32\[\d+, 2\]; give a tensor int64\[\d+, M\]",
        ),
        (with_nodes(lambda nodes: nodes.numpy()), r"the nodes of level \d are int64\[\d+, 2\]; give a tensor int64\["),
        (with_nodes(lambda nodes: nodes[0]), r"the nodes of level \d are int64\[2\]; give a tensor int64\[\d+, M\]"),
        (with_log_q(lambda log_q: log_q[:, :1]), r"log_q of level \d is float32\[\d+, 1\]; give \[\d+, 2\]"),
        (with_log_q(torch.exp), r"log_q of level \d is up to 0\.\d+; give the logarithm of each probability"),
    ],
)
def test_a_sampler_must_draw_on_every_level_with_log_q(split, spoil, message):
    def sampler(scorer, tree, *others):
        return spoil(UniformByLevel([2] * tree.shape.depth)(scorer, tree, *others))

    own = replace(DTR, name="mine", fit=partial(DTR.fit, sampler=sampler))
    with pytest.raises(InputError, match=message):
        beamwood.fit(split, own, SMALL, progress=False)


@pytest.mark.parametrize(
    ("candidates", "losses", "message"),
    [
        (lambda items: None, None, r"candidates of the sampler are a NoneType; return a tensor int64\[C\] on the CPU"),
        (lambda items: items.int(), None, r"candidates of the sampler are int32\[\d+\] on cpu; return a tensor int64"),
        (lambda items: items[:, None], None, r"candidates of the sampler are int64\[\d+, 1\] on cpu; return a tensor"),
        (lambda items: items[1:], None, "candidates of the sampler do not begin with the items of the batch; append"),
        (lambda items: items.flip(0), None, "candidates of the sampler do not begin with the items of the batch"),
        (
            lambda items: torch.cat([items, items + 30]),
            None,
            r"candidates of the sampler are \d to \d+, outside 0\.\.29; return item indices",
        ),
        (None, lambda losses: losses.sum(), r"losses of the sampler are float32\[\] on cpu; return a tensor \[\d+\]"),
        (None, lambda losses: losses.tolist(), r"losses of the sampler are a list; return a tensor \[\d+\], one value"),
    ],
)
def test_an_in_batch_sampler_must_return_candidates_and_losses(split, candidates, losses, message):
    class Wrong(InBatch):
        def candidates(self, items_B, generator):
            return (candidates or torch.clone)(super().candidates(items_B, generator))

        def losses(self, pairs, generator):
            return (losses or torch.clone)(super().losses(pairs, generator))

    own = replace(TWO_TOWER, name="mine", fit=partial(TWO_TOWER.fit, sampler=Wrong(None)))
    settings = {name: value for name, value in SMALL.items() if name in own.Config.names()}
    with pytest.raises(InputError, match=message):
        beamwood.fit(split, own, settings, progress=False)


@pytest.mark.parametrize("negatives", ["xir", "full"])
def test_an_in_batch_sampler_trains_in_place_of_the_set_one(split, negatives):
    """By a copy, so that the next fit does not begin where this one ended."""
    steps = []

    class Counted(InBatch):
        times = 0

        def losses(self, pairs, generator):
            self.times += 1
            steps.append(self.times)
            return super().losses(pairs, generator)

    own = replace(TWO_TOWER, name="mine", fit=partial(TWO_TOWER.fit, sampler=Counted(None)))
    settings = {name: value for name, value in SMALL.items() if name in own.Config.names()}
    settings["loss.negatives"] = negatives
    for _ in range(2):
        beamwood.fit(split, own, settings, progress=False)
    assert steps == [1, 2, 1, 2]


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (lambda hits: (hits.items, hits.scores), "the search answered with a tuple; give Hits"),
        (lambda hits: replace(hits, items=hits.items.astype(float)), "with items of float64; give whole numbers"),
        (lambda hits: replace(hits, items=hits.items.tolist()), "with items of list; give whole numbers"),
        (lambda hits: replace(hits, scores=hits.scores * np.nan), "with scores that are NaN"),
    ],
)
def test_a_search_must_return_hits(split, answer, message):
    whole = PopularitySearcher(split.train.item_counts)

    class Mine:
        needs = whole.needs

        def search(self, query, k, options):
            return answer(whole.search(query, k, options))

    with pytest.raises(InputError, match=message):
        evaluate_view(Mine(), split.test, ks=(5,), remove_seen=False)


def test_an_estimator_is_fitted_without_the_custom_parts(split):
    """Rectified labels use an estimator that is fitted first, with its own sampler and loss."""
    drawn = []

    def sampler(scorer, tree, *others):
        drawn.append(tree.shape.depth)
        return UniformByLevel([2] * tree.shape.depth)(scorer, tree, *others)

    own = replace(DTR, name="mine", fit=partial(DTR.fit, sampler=sampler))
    settings = SMALL | {"loss.labels": "rectified", "loss.estimator": "youtube_dnn"}
    fitted = beamwood.fit(split, own, settings, progress=False, time_limit=60)
    assert drawn
    assert fitted.metadata["method"] == "mine"


@pytest.mark.parametrize(
    ("file", "right", "wrong", "message"),
    [
        ("fading_mean", '"outer")', '"outer")[:, :, :3]', r"the encoder 'fading-mean' returned shape \[\d+, \d+, 3\]"),
        (
            "attended_product",
            ' + rows.items["bias_items"][:, :, 0]',
            "[:, :1]",
            r"the score 'attended-product' returned shape \[\d+, 1\]",
        ),
        ("trend_term", "(counts[..., 0] - counts[..., 1])", "counts", "the score of the term 'trend' has shape"),
        (
            "focal_loss",
            ".sum(dim=1)",
            ".sum()",
            r"the loss 'focal' has shape \[\]; return \[\d+\], one value a history",
        ),
        (
            "focal_loss",
            ".sum(dim=1)",
            ".sum(dim=1) * float('nan')",
            "the loss 'focal' of the initial scores is not fin",
        ),
        (
            "list_hinge",
            " / above_BKK.sum(dim=(1, 2)).clamp(min=1)",
            ".sum()",
            r"the loss has shape \[\]; return \[\d+\], one value a list",
        ),
        (
            "list_hinge",
            "terms_BKK.sum(dim=(1, 2)) / ",
            "terms_BKK.detach().sum(dim=(1, 2)) / ",
            "step 1: the loss does not depend on the model's weights; compute it from the scores by torch",
        ),
    ],
)
def test_a_part_that_returns_something_else_is_named(split, tmp_path, file, right, wrong, message):
    text = (ONE_FILE / f"{file}.py").read_text()
    before, found, after = text.rpartition(right)
    assert found
    mine = tmp_path / f"{file}.py"
    mine.write_text(before + wrong + after)
    settings = {name: value for name, value in SMALL.items() if name in load_method(str(mine)).Config.names()}
    with pytest.raises(InputError, match=message):
        beamwood.fit(split, str(mine), settings, progress=False)
