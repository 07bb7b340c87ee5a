"""Mistakes in a custom method are reported before training: missing, misspelt or invalid parts."""

from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import polars as pl
import pytest

import beamwood
from beamwood.data import Dataset, leave_one_out, read_log
from beamwood.errors import InputError
from beamwood.evaluation.protocol import evaluate
from beamwood.fitting.method_config import MethodConfig
from beamwood.methods import Method, load_method
from beamwood.methods.dtr import METHOD as DTR
from beamwood.methods.sasrec import METHOD as SASREC
from beamwood.retrieval.searchers.popularity import PopularitySearcher
from beamwood.sampling.levels import UniformByLevel

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


@pytest.mark.parametrize(("method", "part"), [(DTR, "term"), (SASREC, "indexs")])
def test_a_misspelt_part_is_refused(split, method, part):
    own = replace(method, name="mine", fit=partial(method.fit, **{part: ()}))
    settings = {name: value for name, value in SMALL.items() if name in own.Config.names()}
    with pytest.raises(InputError, match=rf"option '{part}' is unknown; did you mean '{part.rstrip('s')}"):
        beamwood.fit(split, own, settings, progress=False)


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
    ],
)
def test_a_sampler_must_draw_on_every_level_with_log_q(split, spoil, message):
    def sampler(scorer, tree, *others):
        return spoil(UniformByLevel([2] * tree.shape.depth)(scorer, tree, *others))

    own = replace(DTR, name="mine", fit=partial(DTR.fit, sampler=sampler))
    with pytest.raises(InputError, match=message):
        beamwood.fit(split, own, SMALL, progress=False)


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
        evaluate(Mine(), split.test, ks=(5,), remove_seen=False)


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
    ],
)
def test_a_part_that_returns_another_shape_is_named(split, tmp_path, file, right, wrong, message):
    text = (ONE_FILE / f"{file}.py").read_text()
    before, found, after = text.rpartition(right)
    assert found
    mine = tmp_path / f"{file}.py"
    mine.write_text(before + wrong + after)
    settings = {name: value for name, value in SMALL.items() if name in load_method(str(mine)).Config.names()}
    with pytest.raises(InputError, match=message):
        beamwood.fit(split, str(mine), settings, progress=False)
