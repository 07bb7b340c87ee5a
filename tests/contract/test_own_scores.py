"""A custom score in a two-stage model: trained, saved, and loaded with its record."""

import runpy
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

import beamwood
from beamwood.data import Dataset, leave_one_out, read_log
from beamwood.data.markets.synthetic import MarketConfig, make_market
from beamwood.errors import ArtefactError, InputError
from beamwood.methods.two_stage import METHOD as TWO_STAGE
from beamwood.models.scorers import SCORERS
from beamwood.retrieval.retriever import Retriever
from beamwood.retrieval.searchers.ranked import RankingSearcher, searcher_with

SCORE = runpy.run_path(str(Path(__file__).parent.parent / "one_file" / "attended_product.py"))["SCORE"]


def test_it_ranks_the_candidates_of_a_retriever(tmp_path):
    make_market(MarketConfig(num_users=150, num_items=50), seed=1).log.write_parquet(tmp_path / "log.parquet")
    split = leave_one_out(Dataset.from_log(read_log(tmp_path / "log.parquet")))
    beamwood.fit(split, "cooccurrence").save(tmp_path / "first")
    method = replace(TWO_STAGE, fit=partial(TWO_STAGE.fit, score=SCORE), needs=replace(TWO_STAGE.needs, users={}))
    settings = {"start.retriever": str(tmp_path / "first"), "model.width": 8, "loop.max_steps": 4}
    settings |= {"loop.evaluate_every": 2, "choose.validation_users": 20, "model.num_candidates": 10}
    fitted = beamwood.fit(split, method, method.Config(**settings))
    fitted.save(tmp_path / "both")
    with pytest.raises(ArtefactError, match="scorer kind 'attended-product' is unknown"):
        beamwood.load(tmp_path / "both")
    own = {RankingSearcher.kind: searcher_with(SCORE)}
    again = Retriever.load(tmp_path / "both", searchers=own)
    asked = [[1, 2, 3], [4]]
    assert again.recommend(histories=asked, k=5).item_ids == fitted.recommend(histories=asked, k=5).item_ids


def test_a_name_that_is_taken_is_refused():
    with pytest.raises(InputError, match=r"names of scores \['din'\] are taken"):
        searcher_with(SCORERS["din"])
    with pytest.raises(InputError, match="are taken"):
        searcher_with(SCORE, SCORE)
