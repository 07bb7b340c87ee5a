"""Presets: named groups of settings. Each is complete, and `paper` has the papers' figures."""

from functools import partial

import numpy as np
import pytest
from pydantic import ValidationError

import beamwood
from beamwood.data import Dataset, leave_one_out, read_log
from beamwood.data.markets.synthetic import MarketConfig, make_market
from beamwood.errors import InputError
from beamwood.fitting.settings import LoopSettings
from beamwood.fitting.tree.dtr import make_objective
from beamwood.fitting.tree.task import TreeTask
from beamwood.methods import METHODS, Method, load_method
from beamwood.retrieval.searchers.popularity import PopularitySearcher
from beamwood.tree import Shape, random_tree
from plans import planned
from prepared import Prepared
from real_data import real_data
from tree_cases import first_tree

EVERY = [(name, preset) for name in METHODS for preset in load_method(name).presets]
SHORT = {"loop.max_steps": 3, "loop.max_epochs": 1, "loop.evaluate_every": 2, "loop.batch_size": 8}
SHORT |= {"choose.validation_users": 5}
TREES = ("dtr", "tdm", "jtm", "otm", "plt", "din")
# Settings that make the papers' sizes slow.
SMALLER = {
    "lpo4rec": {"model.width": 16, "model.num_heads": 2},
    "sasrec": {"model.length": 20},
    "two_stage": {"examples.max_examples": 50},
}
FOLDERS = {"melt": "start.folder", "cities": "start.folder", "indexed": "start.folder", "two_stage": "start.retriever"}


@pytest.fixture(scope="module")
def split():
    market = make_market(MarketConfig(num_users=60, num_items=90, min_events=20, max_events=40), seed=1)
    return leave_one_out(Dataset.from_log(read_log(market.log), market.item_frame))


@pytest.fixture(scope="module")
def fitted(split, tmp_path_factory):
    folder = str(tmp_path_factory.mktemp("presets") / "sasrec")
    small = {"model.width": 8, "model.length": 8, "model.num_blocks": 1}
    beamwood.fit(split, "sasrec", SHORT | small, progress=False).save(folder)
    return folder


def values(method, preset="paper"):
    return load_method(method).configured(None, preset).flat()


def assert_decays_as_the_authors_program(own):
    """The schedule of DTR's study: exp((5000 - t) / 15000) after 5,000 steps of warm-up, at least 1e-6."""
    names = ("schedule", "warmup_steps", "decay_steps", "floor")
    assert [own[f"optimiser.{name}"] for name in names] == ["exponential", 5_000, 15_000, 1e-6]


def test_methods_of_papers_have_a_paper_preset():
    assert {name for name in METHODS if "paper" not in load_method(name).presets} == {
        "popularity",
        "cooccurrence",
        "transitions",
        # It has a preset for each index.
        "indexed",
    }


@pytest.mark.parametrize(("name", "preset"), EVERY)
def test_a_preset_is_a_valid_configuration(name, preset):
    method = load_method(name)
    config = method.configured(None, preset)
    assert config.given == set(method.presets[preset])
    assert config == method.Config(**config.flat())
    # It has only settings that differ from the defaults or that the paper states.
    assert config != method.Config() or name in ("melt", "cities")


@pytest.mark.parametrize(("name", "preset"), EVERY)
def test_a_preset_trains(split, fitted, tmp_path, name, preset):
    method = load_method(name)
    changes = {key: value for key, value in SHORT.items() if key in method.Config.names()} | SMALLER.get(name, {})
    if preset in ("paper-qinco", "paper-rotlex"):
        changes |= {"index.num_epochs": 1, "index.hidden": 16}
    if name in FOLDERS:
        changes[FOLDERS[name]] = fitted
    if name == "dtr":
        changes |= {"loss.estimator": "transitions"} if preset in ("paper", "program") else {}
    retriever = beamwood.fit(split, name, changes, preset=preset, **({"progress": False} if method.needs.steps else {}))
    assert retriever.metadata["preset"] == preset
    if method.needs.steps:
        assert 1 <= retriever.metadata["training"]["steps"] <= 3
    if name in TREES:
        shape = Shape(90, 2, 1) if name == "din" else Shape(2, 2, 7)
        assert retriever.searcher.tree.shape == shape
        assert retriever.metadata["training"]["tree_start"] == ("flat" if name == "din" else "category")
        assert not retriever.searcher.weights.terms
    retriever.save(tmp_path / "saved")
    loaded = beamwood.load(tmp_path / "saved")
    query = split.test.query(loaded.searcher.needs)
    assert np.array_equal(loaded.searcher.search(query, 9).items, retriever.searcher.search(query, 9).items)


def test_given_settings_override_presets():
    tdm = load_method("tdm")
    for given in (
        {"loop.max_steps": 7, "tree.branching": 4},
        {"loop": {"max_steps": 7}, "tree": {"branching": 4}},
        {"loop": LoopSettings(max_steps=7), "tree.branching": 4},
        tdm.Config(**{"loop.max_steps": 7, "tree.branching": 4}),
    ):
        config = tdm.configured(given, "paper")
        assert (config.loop.max_steps, config.tree.branching) == (7, 4)
        assert (config.loop.batch_size, config.tree.updates, config.model.width) == (100, 3, 24)
    # Even if the value is the default.
    assert tdm.configured({"optimiser.clip_norm": 5.0}, "paper").optimiser.clip_norm == 5.0
    # Normalisation is allowed only together with the preset's settings.
    assert load_method("dtr").configured({"loss.normalised": True}, "paper").loss.normalised
    with pytest.raises(InputError, match=r"loss.normalised is for loss.labels=rectified"):
        load_method("dtr").configured({"loss.normalised": True}, "paper-t")


def test_unknown_presets(split):
    with pytest.raises(InputError, match=r"the method dtr has no preset 'papers'; did you mean 'paper'\?"):
        beamwood.fit(split, "dtr", preset="papers")
    with pytest.raises(InputError, match="the method popularity has no preset 'paper'; it has none"):
        beamwood.fit(split, "popularity", preset="paper")
    config = load_method("sasrec").Config
    with pytest.raises(InputError, match=r"the preset mine of own has 'model.widht', which is none of its settings"):
        Method(name="own", summary="s", Config=config, fit=len, presets={"mine": {"model.widht": 3}})


def test_a_coupled_decay_applies_to_embeddings_too(split):
    """Adam's gradient then has decay times weight; AdamW's does not, and does not decay embeddings."""
    found = {}
    for decay in ("decoupled", "coupled"):
        changes = {"optimiser.decay": decay, "optimiser.weight_decay": 0.5, "loss.estimator": "transitions"}
        config = planned(load_method("dtr").configured(changes, "program"), split.train)
        objective = partial(make_objective, config, estimator=PopularitySearcher(np.ones(90)))
        (optimizer,) = Prepared(TreeTask(split, config, objective), seed=0).optimisers.each
        found[decay] = [
            (group["decoupled_weight_decay"], group["weight_decay"], len(group["params"]) == 1)
            for group in optimizer.param_groups
        ]
    assert found == {
        "decoupled": [(True, 0.5, False), (True, 0.0, True)],
        "coupled": [(False, 0.5, False), (False, 0.5, True)],
    }


def test_a_coordinate_that_stays_at_1_has_no_decay():
    """L2 is added behind the gradient, whose first column is 0."""
    decay = {"optimiser.decay": "coupled", "optimiser.weight_decay": 0.01}
    with pytest.raises(ValidationError, match=r"decays the coordinate that model.unit_coordinate=true keeps at 1; set"):
        load_method("dtr").Config(**decay)
    assert load_method("dtr").Config(**decay, **{"model.unit_coordinate": False}).optimiser.decay == "coupled"


def test_the_study_uses_amsgrad(split):
    """Of Adam, for all parameters; the defaults do not."""
    found = []
    for preset in ("paper-u", None):
        config = planned(load_method("dtr").configured(None, preset), split.train)
        task = Prepared(TreeTask(split, config, partial(make_objective, config, estimator=None)), seed=0)
        (optimizer,) = task.optimisers.each
        found.append({group["amsgrad"] for group in optimizer.param_groups})
    assert found == [{True}, {False}]


def test_otm_compares_as_many_nodes_as_it_has_candidates(split, monkeypatch):
    """300 candidates of a binary tree are the children of 150 nodes."""
    seen = []
    monkeypatch.setattr("beamwood.fitting.tree.fit.fit_tree", lambda _, __, objective, **___: seen.append(objective))
    otm = load_method("otm")
    otm.fit(split, otm.configured(None, "paper"))
    assert seen[0](random_tree(90, np.random.default_rng(0))).sampler.width == 150
    assert seen[0](random_tree(90, np.random.default_rng(0), branching=4)).sampler.width == 75


@pytest.mark.parametrize("name", TREES)
def test_trees_have_the_settings_of_dtr_section_6(name):
    """Sections 6.1 and 6.4: binary trees, 69 items in ten windows, width 24, batches of 100, beams of 150."""
    own = values(name)
    assert (own["tree.branching"], own["tree.shape"], own["tree.beam_width"]) == (2, "complete", 150)
    assert own["model.windows"] == [20, 20, 10, 10, 2, 2, 2, 1, 1, 1]
    assert (sum(own["model.windows"]), own["model.width"], own["model.attention_hidden"]) == (69, 24, 36)
    # The layers' input: ten windows and the node.
    assert own["model.width"] * (len(own["model.windows"]) + 1) == 264
    assert own["model.mlp"] == ([128, 64] if name == "din" else [128, 64, 24])
    assert (own["loop.batch_size"], own["optimiser.learning_rate"]) == (100, 1e-3)
    assert (own["examples.window"], own["examples.min_history"]) == ("last", 15)
    assert (own["examples.num_targets"], own["examples.horizon"]) == (1, 1)
    assert_decays_as_the_authors_program(own)


def test_differences_between_the_trees_of_section_6():
    own = {name: values(name) for name in TREES}
    assert {name: row.get("loss.num_negatives") for name, row in own.items()} == {
        "dtr": 70,
        "tdm": 6,
        "jtm": 6,
        "otm": None,
        "plt": None,
        "din": 70,
    }
    assert own["otm"]["loss.num_candidates"] == 300
    # "4 iterations", "12 iterations": the first tree and the updates, with this many steps each.
    trees = {name: row["tree.updates"] + 1 for name, row in own.items()}
    assert trees == {"dtr": 12, "tdm": 4, "jtm": 12, "otm": 1, "plt": 1, "din": 1}
    assert all(row["loop.max_steps"] == 80_000 * trees[name] for name, row in own.items())
    assert {name: row["tree.learner"] for name, row in own.items() if trees[name] > 1} == {
        "dtr": "softmax",
        "tdm": "kmeans",
        "jtm": "binary",
    }
    assert (own["dtr"]["tree.stride"], own["jtm"]["tree.stride"]) == (7, 7)


def test_the_forms_of_dtr():
    forms = {preset: values("dtr", preset) for preset in load_method("dtr").presets}
    assert {preset: (row["loss.negatives"], row["loss.labels"]) for preset, row in forms.items()} == {
        "paper": ("tree", "rectified"),
        "paper-t": ("tree", "summed"),
        "paper-u": ("uniform", "summed"),
        "program": ("tree", "one-step"),
    }
    changed = {name for name, value in forms["program"].items() if value != forms["paper"][name]}
    assert changed == {
        "tree.embeddings",
        "examples.window",
        "loss.labels",
        "loss.level_reduction",
        "optimiser.weight_decay",
        "optimiser.decay",
    }
    assert (forms["paper"]["loss.level_reduction"], forms["program"]["loss.level_reduction"]) == ("sum", "mean")


def test_lpo4recs_settings():
    own, program = values("lpo4rec"), values("lpo4rec", "program")
    sizes = ("model.num_blocks", "model.num_heads", "model.width", "model.length", "model.dropout")
    assert [own[name] for name in sizes] == [1, 16, 768, 10, 0.8]
    assert [own[f"loss.{name}"] for name in ("pi", "tau", "strength", "num_negatives")] == ["prob", 0.1, 0.5, 10]
    assert own["optimiser.warmup_steps"] == 0.1 * own["loop.max_steps"]
    assert (own["optimiser.learning_rate"], own["optimiser.weight_decay"], own["loop.batch_size"]) == (5e-4, 0, 128)
    assert (program["loss.tau"], program["loss.num_negatives"], program["optimiser.schedule"]) == (2, 5, "cosine")


def test_the_xir_studys_settings():
    own = values("two_tower")
    assert (own["model.user_tower"], own["model.width"], own["loop.batch_size"]) == ("mf", 32, 2048)
    # .95 of the rate every 5 epochs of Gowalla's 401 steps.
    steps = 5 * np.ceil(0.8 * 1_027_464 / 2048)
    assert np.exp(-steps / own["optimiser.decay_steps"]) == pytest.approx(0.95, abs=1e-3)
    assert (own["loss.mask_known"], own["loss.cache_share"], own["optimiser.weight_decay"]) == (False, 0.2, 1e-5)
    assert values("two_tower", "paper-bir") == own | {"loss.negatives": "bir"}
    program = values("two_tower", "program")
    assert (program["loss.cache_counts"], program["loss.correction"]) == ("all", "program")


def test_the_settings_of_lightgcns_program():
    own = values("lightgcn")
    assert (own["model.width"], own["model.num_layers"], own["loop.batch_size"]) == (64, 3, 2048)
    assert (own["loss.regularisation"], own["optimiser.learning_rate"], own["loop.max_epochs"]) == (1e-4, 1e-3, 1000)
    # Every ten epochs of Gowalla's 810,128 edges.
    assert own["loop.evaluate_every"] == 10 * np.ceil(810_128 / own["loop.batch_size"])


def test_the_mixture_of_the_papers():
    """Eight by four components of 64, under 128 negatives."""
    own = values("mol")
    names = ("query_components", "item_components", "component_width", "temperature", "dropout")
    assert [own[f"model.{name}"] for name in names] == [8, 4, 64, 0.05, 0.2]
    assert (own["loss.sampled_negatives"], own["loss.load_balance"]) == (128, 1e-3)


def test_tigers_codes():
    """Three of 256, twenty items of a history."""
    own = values("tiger")
    assert [own[f"model.{name}"] for name in ("num_codes", "num_words", "length")] == [3, 256, 20]


def test_jtrs_tree():
    """Ten children, leaves of fewer than 100 items, two homes, a beam of 150, and 50 negatives a level."""
    own = values("jtr")
    assert [own[f"index.{name}"] for name in ("num_children", "leaf_size", "num_homes", "num_probed")] == [
        10,
        100,
        2,
        150,
    ]
    assert (own["loss.level_negatives"], own["model.width"], own["model.length"]) == (50, 50, 200)


def test_youtube_dnn_as_dtrs_study_compares_with_it():
    """Section 6.2: 1,000 negatives, 128-64-24; and the schedule of the study."""
    own = values("youtube_dnn")
    assert [*own["model.layers"], own["model.width"]] == [128, 64, 24]
    assert (own["loss.sampled_negatives"], own["loop.batch_size"], own["model.tied"]) == (1000, 100, False)
    assert_decays_as_the_authors_program(own)


def test_guidedrecs_settings():
    """Decays of the program divided by the learning rate: table 5, whose last two entries are swapped."""
    own = values("ranker")
    rates = [own[f"optimiser.{name}learning_rate"] for name in ("", "ndcg_", "surrogate_")]
    decays = [own[f"optimiser.{name}weight_decay"] for name in ("", "ndcg_", "surrogate_")]
    assert rates == [1e-3, 1.3e-3, 2e-3]
    assert np.multiply(rates, decays) == pytest.approx([1e-5, 8e-5, 1e-6], rel=1e-3)
    # "Batch sizes were 250": lists of ten.
    assert own["loop.batch_size"] * (own["examples.num_positives"] + own["loss.num_negatives"]) == 250
    assert (own["loop.max_epochs"], own["model.width"]) == (440, 20)


def test_the_two_stage_studys_settings():
    own = values("two_stage")
    assert (own["model.width"], own["model.attention"], own["model.mlp"]) == (96, [64, 16], [200, 80])
    assert (own["loss.num_negatives"], own["choose.retriever_weight"]) == (60, 0)
    assert values("two_stage", "paper-h") == own | {"examples.pairs": "harmonised"}


def test_the_encoders_settings():
    """SASRec, FMLP-Rec and Caser as in their papers, GRU4Rec as in LPO4Rec's study: plain Adam, the next item."""
    names = {
        "sasrec": {"width": 50, "length": 200, "num_blocks": 2, "num_heads": 1, "dropout": 0.2},
        "fmlp": {"width": 64, "length": 50, "num_blocks": 2, "dropout": 0.5},
        "caser": {"length": 5, "num_vertical": 4, "num_horizontal": 16, "dropout": 0.5},
        "gru4rec": {"width": 64, "hidden": 128, "dropout": 0.3},
    }
    for name, sizes in names.items():
        own = values(name)
        assert {size: own[f"model.{size}"] for size in sizes} == sizes
        assert [own[f"optimiser.{part}"] for part in ("learning_rate", "weight_decay", "schedule")] == [
            1e-3,
            0,
            "constant",
        ]
        assert (own["start.items"], own["loss.sampled_negatives"]) == ("random", None)
        assert own["examples.horizon"] == (3 if name == "caser" else 1)


def test_the_settings_of_melt_and_cities():
    melt, cities = values("melt"), values("cities")
    assert (melt["examples.user_quantile"], melt["examples.item_quantile"]) == (0.8, 0.78)
    assert [cities[f"examples.{name}"] for name in ("reach", "max_contexts", "rare")] == [24, 10, 5]


def test_the_indexes_of_dtrs_study():
    """Section 6, and the defaults of the rivals' programs where it is silent."""
    expected = {
        "ipnsw": {"kind": "hnsw", "num_links": 16, "build_width": 100, "search_width": 150},
        # 2,000 leaves of which 1,000 are probed, six codes of four columns at width 24, sixteen codewords, T = .2.
        "scann": {"kind": "scann", "num_buckets": 2000, "num_probed": 1000, "block_width": 4, "num_codewords": 16}
        | {"threshold": 0.2, "num_reordered": 0},
        "qinco": {"kind": "qinco", "num_codes": 8, "num_codewords": 256, "num_layers": 4, "hidden": 256}
        | {"num_near": None, "rate": 1e-4},
        "rotlex": {"kind": "rotlex", "num_children": 32, "hidden": 512, "regroup_every": 20},
    }
    assert {f"paper-{name}" for name in expected} == set(load_method("indexed").presets)
    for name, row in expected.items():
        own = values("indexed", f"paper-{name}")
        assert {key: own[f"index.{key}"] for key in row} == row


@pytest.mark.real_data
def test_the_papers_tree_of_mind():
    """7,129 items: Shape(2, 2, 13), from the authors' codes if given, else at random."""
    folder = real_data("mind_dtr")
    split = leave_one_out(Dataset.from_log(read_log(folder / "interactions.parquet"), folder / "items.parquet"))
    dtr, rng = load_method("dtr"), np.random.default_rng(0)
    plan = planned(dtr.configured(None, "paper"), split.train)
    assert (plan.tree.start, plan.tree.shape) == ("random", (2, 13))
    assert first_tree(split, plan, rng).shape == Shape(2, 2, 13)
    plan = planned(dtr.configured({"tree.start": "codes:dtr_tree_code"}, "paper"), split.train)
    named = first_tree(split, plan, rng)
    assert named.shape == Shape(2, 2, 13)
    assert np.array_equal(named.leaf_of_item, split.train.item_table.frame["dtr_tree_code"].to_numpy() - 8191)
