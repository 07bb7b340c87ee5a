"""`compare` in Python: methods by name, and fitted retrievers."""

import numpy as np
import pytest

import beamwood
from beamwood.data import disjoint_users
from beamwood.data.markets.synthetic import MarketConfig, make_market
from beamwood.errors import InputError, NotSavedError
from beamwood.evaluation.cost import measure_cost
from beamwood.evaluation.significance import paired_comparisons
from beamwood.fitting.stages import two_stage
from beamwood.recipes.portfolio.find import find
from beamwood.recipes.portfolio.members import Member

# Popularity, as if the time had not been enough.
SHORTENED = """
from dataclasses import replace
from beamwood.methods import Method, load_method

POPULARITY = load_method("popularity")

def fit(split, config, **options):
    fitted = POPULARITY.fitted(split, config, **options)
    training = {"left_out": ["2 of 3 settings tried", "64 of 90 users judge"]}
    return replace(fitted, metadata=fitted.metadata | {"training": training})

METHOD = Method(name="shortened", summary="popularity", Config=POPULARITY.Config, fit=fit)
"""


@pytest.fixture(scope="module")
def dataset():
    market = make_market(MarketConfig(num_users=120, num_items=40, min_events=6, max_events=12), seed=2)
    return beamwood.Dataset.from_log(beamwood.read_log(market.log))


@pytest.fixture(scope="module")
def split(dataset):
    return beamwood.splits.leave_one_out(dataset)


@pytest.fixture(scope="module")
def fitted(split):
    return {"far": beamwood.fit(split, "ease"), "near": beamwood.fit(split, "ease", {"model.length": 1})}


def test_retrievers_are_compared_like_methods(split, fitted):
    """Two settings of one method under given names; figures and tests equal those of the same retrievers."""
    compared = beamwood.compare(split, fitted, ks=(5, 10))
    assert list(compared.results) == ["far", "near"]
    values = {name: beamwood.evaluate(each, split, ks=(5,))["kept"].values["f@5"] for name, each in fitted.items()}
    assert all(np.array_equal(compared.results[name]["kept"].values["f@5"], values[name]) for name in fitted)
    winner = compared.verdicts["kept"].winner
    expected = paired_comparisons(values, winner, np.random.default_rng(0))
    assert compared.verdicts["kept"].tests == tuple(expected)


def test_a_method_added_later_is_in_the_verdict(split, fitted):
    compared = beamwood.compare(split, fitted, ks=(5,))
    assert "popularity" not in repr(compared)
    compared.add("popularity", beamwood.fit(split, "popularity").searcher)
    for verdict in compared.verdicts.values():
        assert {verdict.winner, *(rival.name for rival in verdict.rivals)} == {"far", "near", "popularity"}


def test_another_metric_can_be_chosen(split, fitted):
    compared = beamwood.compare(split, fitted, ks=(5, 10))
    assert compared.verdicts_by("f@5") == compared.verdicts
    verdict = compared.verdicts_by("ndcg@10")["removed"]
    assert verdict.metric == "ndcg@10"
    means = {name: views["removed"].means()["ndcg@10"] for name, views in compared.results.items()}
    assert verdict.winner == max(means, key=means.get)
    with pytest.raises(InputError, match=r"metric='ndcg@20' was not measured; did you mean 'ndcg@10'\?"):
        compared.verdicts_by("ndcg@20")


def test_the_tail_of_a_comparison_without_one_is_refused(split, fitted):
    with pytest.raises(InputError, match="the tail was not measured; compare with tail="):
        _ = beamwood.compare(split, fitted, ks=(5,)).tail_verdicts


def test_the_simplest_is_known_by_what_a_fitted_model_is_made_of(split, fitted, tmp_path):
    """Blends and indexes record no steps of their own; a time that none of them records is a dash."""
    pytest.importorskip("torch")
    said: list[str] = []
    tower = beamwood.fit(split, "two_tower", {"loop.max_steps": 2}, progress=False)
    tower.save(tmp_path / "tower")
    blend = two_stage(tower, fitted["far"])
    index = beamwood.fit(split, "indexed", {"start.folder": str(tmp_path / "tower")})
    counted = two_stage(fitted["far"], fitted["near"])
    three = two_stage(counted, beamwood.fit(split, "popularity"))
    compared = beamwood.compare(
        split, {"blend": blend, "index": index, "three": three, "counted": counted}, ks=(5,), say=said.append
    )
    assert compared.simplest == "counted"
    assert compared.seconds == {"index": index.metadata["training"]["seconds"]}
    assert next(line for line in said if line.startswith("counted ")).endswith(" –")
    trained = beamwood.compare(split, {"index": index, "blend": blend, "tower": tower}, ks=(5,))
    assert trained.simplest == "tower"


def test_retrievers_of_another_split_are_refused(dataset, split, fitted):
    """They may have been trained on the test users."""
    other = beamwood.splits.disjoint_users(dataset)
    with pytest.raises(InputError, match="near was fitted on another split"):
        beamwood.compare(split, fitted | {"near": beamwood.fit(other, "ease")})
    with pytest.raises(InputError, match=r"far is a str; give the result of beamwood\.fit or beamwood\.load"):
        beamwood.compare(split, {"far": "ease", "near": fitted["near"]})


def test_fit_options_are_refused_for_fitted_retrievers(split, fitted):
    for option in ({"seed": 3}, {"preset": "paper"}, {"time_limit": 5}):
        with pytest.raises(InputError, match="apply to fits, and these retrievers are fitted already"):
            beamwood.compare(split, fitted, **option)


def test_a_split_without_test_users_is_refused(split, fitted):
    nobody = beamwood.data.Split(
        split.dataset, split.train, split.valid, split.test.take(np.zeros(0, int)), split.name, split.rule
    )
    with pytest.raises(InputError, match="the split leaves 0 test users, too few for a test"):
        beamwood.compare(nobody, fitted)


def test_what_a_fit_left_out_is_told(dataset, split, tmp_path):
    own, said = tmp_path / "shortened.py", []
    own.write_text(SHORTENED)
    beamwood.compare(split, [str(own), "popularity"], say=said.append)
    assert {"shortened: 2 of 3 settings tried", "shortened: 64 of 90 users judge"} <= set(said)
    members = [Member("popularity", "popularity"), Member("shortened", str(own))]
    find(disjoint_users(dataset), time_limit=60, members=members, say=said.append)
    line = next(line for line in said if line.startswith("shortened: removed/f@"))
    assert line.endswith(" s; 2 of 3 settings tried; 64 of 90 users judge")


FAILING = SHORTENED.replace("shortened", "NAME").replace("    fitted =", "    ERROR\n    fitted =")


def test_a_method_that_fails_leaves_the_others_compared(split, tmp_path, monkeypatch):
    """By a loss that is not finite, too little memory, or while it is blended or measured. A full disk ends all."""
    said: list[str] = []
    errors = {
        "apart": "InputError('the loss is nan')",
        "large": "MemoryError",
        "wide": 'RuntimeError("can\'t allocate memory")',
        "full": "NotSavedError('full')",
        "bug": "RuntimeError('a bug')",
    }
    for name, error in errors.items():
        lines = "from beamwood.errors import InputError, NotSavedError\n" + FAILING.replace("ERROR", f"raise {error}")
        (tmp_path / f"{name}.py").write_text(lines.replace("NAME", name))
    failing = [str(tmp_path / "apart.py"), str(tmp_path / "large.py"), str(tmp_path / "wide.py")]
    monkeypatch.setattr("beamwood.recipes.comparison.measure_cost", _too_large_for("popularity"))
    named = ["popularity", *failing, "transitions", "ease", "ease+cooccurrence"]
    monkeypatch.setattr("beamwood.methods.sums.put_behind", _raising(InputError("no weight")))
    compared = beamwood.compare(split, named, ks=(5,), say=said.append)
    assert list(compared.results) == list(compared.costs) == ["transitions", "ease"]
    assert compared.left_out == {
        "apart": "the loss is nan",
        "large": "there is too little memory",
        "wide": "there is too little memory (can't allocate memory)",
        "popularity": "there is too little memory",
        "ease+cooccurrence": "no weight",
    }
    assert "apart is left out: the loss is nan" in said
    assert compared.document()["left_out"] == compared.left_out
    with pytest.raises(InputError, match="fewer than two methods are left: the loss is nan"):
        beamwood.compare(split, ["ease", failing[0]])
    with pytest.raises(NotSavedError, match="full"):
        beamwood.compare(split, ["popularity", "ease", str(tmp_path / "full.py")])
    with pytest.raises(RuntimeError, match="a bug"):
        beamwood.compare(split, ["popularity", "ease", str(tmp_path / "bug.py")])


def _raising(error):
    def raising(*_, **__):
        raise error

    return raising


def _too_large_for(kind):
    def measured(searcher, *rest):
        if searcher.kind == kind:
            raise MemoryError
        return measure_cost(searcher, *rest)

    return measured


def test_a_time_limit_covers_the_weights_of_a_sum(split, monkeypatch):
    """They are chosen on as many validation users as fit it, which is said."""
    assert len(split.valid) > 64
    said = []
    monkeypatch.setattr("beamwood.fitting.stages.estimated_seconds", lambda *_: 1e9)
    compared = beamwood.compare(split, ["ease", "ease+cooccurrence"], time_limit=600, say=said.append)
    assert list(compared.results) == ["ease", "ease+cooccurrence"]
    few = f"ease+cooccurrence: the weights of a sum are chosen on 64 of {len(split.valid)} validation users"
    assert few in said
