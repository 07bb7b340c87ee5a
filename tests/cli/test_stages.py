"""`evaluate` on two stages: the same results in JSON, text and the page, and always valid JSON."""

import json
from dataclasses import asdict
from types import SimpleNamespace

import numpy as np
import pytest

from beamwood.cli.main import main
from beamwood.cli.output import print_json
from beamwood.cli.stages import cut_in_words, margins_in_words, ranks_pairs
from beamwood.data.markets.synthetic import MarketConfig, make_market
from beamwood.evaluation.stages import at_cut
from beamwood.kernels.light import Way
from beamwood.report.evaluate import evaluation_page
from beamwood.retrieval.searchers.blend import Blend, Part
from beamwood.retrieval.searchers.popularity import PopularitySearcher
from beamwood.retrieval.searchers.ranked import RankingSearcher
from beamwood.theory.margin import MarginReport

TREE = {
    "model.width": 4,
    "model.attention_hidden": 4,
    "model.windows": [4, 2, 1],
    "model.mlp": [8, 4],
    "examples.min_history": 2,
    "loop.max_steps": 4,
    "tree.branching": 3,
    "tree.beam_width": 20,
}
BOTH = {
    "model.width": 6,
    "model.length": 8,
    "model.attention": [6, 4],
    "model.mlp": [8, 4],
    "loop.max_steps": 4,
    "model.num_candidates": 30,
    "examples.max_examples": 300,
}


def test_a_ranker_is_known_behind_a_retriever_and_a_sum_of_counts_is_none():
    counted, ranker = (
        PopularitySearcher(np.ones(3)),
        RankingSearcher(SimpleNamespace(num_items=3, num_users=2, needs_users=True, config={})),
    )
    assert ranks_pairs(ranker)
    assert ranks_pairs(Blend([Part(counted), Part(ranker)], num_candidates=3))
    assert not ranks_pairs(Blend([Part(counted), Part(counted)], num_candidates=3))


@pytest.mark.parametrize(
    ("way", "expected"),
    [
        (Way("beam", 20), "the tree brings 9 items in a beam of 20: 8 labels of 5 queries, 0.2500 found"),
        (
            Way("steer", 64, 40),
            "of 8 labels of 5 queries a full beam of 20 would find 0.2500 in 9 items (this tree is searched by steer)",
        ),
        (
            Way("beam", 10),
            "of 8 labels of 5 queries a full beam of 20 would find 0.2500 in 9 items (this tree is searched by a beam "
            "of 10)",
        ),
    ],
)
def test_margins_are_said_to_be_those_of_a_full_beam(way, expected):
    margins = MarginReport(5, 8, 20, 9, 0.25, (0.5, 0.25), {}, way)
    assert margins_in_words(margins)[0] == f"  {expected}; lost on level 1 0.5000, 2 0.2500"


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -np.inf])
def test_documents_are_valid_json(value, capsys):
    with pytest.raises(ValueError, match="not JSON compliant"):
        print_json({"a": [value]})
    assert capsys.readouterr().out == ""


def test_an_undefined_bound(capsys):
    """Both retrieved labels are ranked below position 1, so two stages find nothing, whatever is missed."""
    cut = at_cut(1, np.array([2, 3, 0]), np.array([1, 2, 0]), np.ones(3, bool), np.array([1, 4, 5]))
    print_json(asdict(cut))
    assert json.loads(capsys.readouterr().out)["bound"] is None
    assert "worse than the ranker alone (its error 0.6667)" in cut_in_words(cut)[1]
    assert "bound" not in cut_in_words(cut)[1]


def test_every_report_has_both_stages(tmp_path, capsys):
    """JSON, text and page: the decomposition, the sampled protocol, and the levels at which the tree loses."""
    market = make_market(MarketConfig(num_users=300, num_items=150, min_events=10, max_events=30), seed=1)
    market.log.write_parquet(tmp_path / "log.parquet")
    log = [str(tmp_path / "log.parquet"), "--out"]
    for out, method, settings in (("tree", "dtr", TREE), ("both", "two_stage", BOTH)):
        settings = [part for key, value in settings.items() for part in ("--set", f"{key}={json.dumps(value)}")]
        behind = ["--retriever", str(tmp_path / "tree")] if out == "both" else []
        assert main(["fit", *log, str(tmp_path / out), "--method", method, *settings, *behind]) == 0
    page, evaluate = tmp_path / "page.html", ["evaluate", str(tmp_path / "both"), "--k", "5,10", "--sampled", "20"]
    capsys.readouterr()
    assert main([*evaluate, "--one-stage-queries", "4", "--html", str(page), "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    stages, margin = document["stages"], document["stages"]["margin"]
    assert stages["one_stage_queries"] == 4
    # Both use all test users and the same tree: it finds what two stages do not miss.
    assert (margin["queries"], margin["targets"], margin["k"]) == (stages["queries"], stages["pairs"], 30)
    assert np.isclose(margin["found"], stages["ceiling"])
    assert np.isclose(margin["found"] + sum(margin["lost"]), 1)
    assert 0 < margin["found"] < 1
    assert set(margin["quantiles"]) == {"q05", "q25", "q50", "q75", "q95"}
    figures = [stages["miss"], *margin["lost"], *margin["quantiles"].values()]
    figures += [cut[name] for cut in stages["cuts"] for name in ("rank_error", "total_error", "one_stage_error")]
    on_page = [*figures, *document["sampled"]["metrics"].values()]
    assert all(f"{figure:.4f}" in page.read_text() for figure in on_page)
    steered = document["beam"] | {"way": asdict(Way("steer", 64, 40))}
    assert "This tree is searched by" not in page.read_text()
    assert "This tree is searched by steer instead.<" in evaluation_page(document | {"beam": steered})
    assert main([*evaluate, "--one-stage-queries", "4"]) == 0
    words = capsys.readouterr().out
    assert all(f"{figure:.4f}" in words for figure in figures)
    assert "the ranker alone on 4 of these queries" in words
    assert main([*evaluate, "--one-stage-queries", "0"]) == 0
    assert "the ranker alone (" not in capsys.readouterr().out
    assert main(["evaluate", str(tmp_path / "tree"), "--one-stage-queries", "4"]) == 2
    assert "is for two stages" in capsys.readouterr().err
