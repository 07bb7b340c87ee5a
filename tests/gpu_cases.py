"""A short fit of each method that trains on a GPU, without dropout, so that all devices draw the same numbers."""

import json

import pytest

from beamwood.data import Dataset, leave_one_out, read_log
from beamwood.data.markets.synthetic import MarketConfig, make_market
from beamwood.methods import load_method
from beamwood.training.run_folder import RunFolder
from plans import SMALL_TREE, read_by

TREE = SMALL_TREE | {"tree.branching": 4, "model.dropout": 0.0, "model.light_width": 0, "examples.min_history": 2}
ONCE = {"tree.updates": 1, "tree.rollback": False}
SEQUENCE = {"model.width": 8, "model.length": 8, "model.dropout": 0.0}
TOWERS = {"model.width": 8, "model.length": 8}


def _case(method, *parts, of=""):
    """The combined settings; `of` names the tested part."""
    return pytest.param(
        (method, {key: value for part in parts for key, value in part.items()}), id=f"{method} {of}".strip()
    )


def _tower(negatives, of="", **settings):
    return _case("two_tower", TOWERS, {"loss.negatives": negatives}, settings, of=f"{negatives} {of}")


CASES = [
    _case("dtr", TREE, {"loss.num_negatives": 10}),
    _case("dtr", TREE, ONCE, {"loss.num_negatives": 10}, of="update"),
    _case("dtr", TREE, {"loss.num_negatives": 10, "optimiser.embeddings": "lazy-adam"}, of="lazy"),
    _case("dtr", TREE, {"loss.num_negatives": 10, "optimiser.bf16": True}, of="bf16"),
    _case("dtr", TREE, ONCE, {"preset": "paper", "loss.estimator": "cooccurrence"}, of="paper"),
    _case("dtr", TREE, {"preset": "program", "loss.estimator": "cooccurrence", "tree.updates": 0}, of="program"),
    _case("dtr", TREE, {"model.neighbours": "next", "model.num_neighbours": 5}, of="neighbours"),
    _case("tdm", TREE, ONCE),
    _case("jtm", TREE, ONCE),
    _case("otm", TREE),
    _case("plt", TREE),
    _case("din", TREE),
    _case("sasrec", SEQUENCE),
    _case("sasrec", SEQUENCE, {"loss.sampled_negatives": 20, "optimiser.embeddings": "lazy-adam"}, of="sampled"),
    *(_case(name, SEQUENCE) for name in ("gru4rec", "caser", "fmlp", "youtube_dnn", "mol", "tiger")),
    _case("jtr", SEQUENCE, {"index.num_children": 3, "index.leaf_size": 8, "loss.level_negatives": 2}),
    *(_tower(negatives) for negatives in ("full", "ssl", "ssl-pop", "mns", "g-tower", "bir", "xir")),
    _tower("bir", "weighted", **{"loss.form": "weighted", "loss.draw": "independent"}),
    _tower("xir", "mf", **{"model.user_tower": "mf", "optimiser.embeddings": "lazy-adam"}),
    _tower("ssl-pop", "sasrec", **{"model.user_tower": "sasrec", "model.dropout": 0.0}),
    _tower("bir", "lazy", **{"optimiser.embeddings": "lazy-adam", "model.item_columns": ("category",)}),
    _case("lightgcn", {"model.width": 8}),
    _case("ranker", {"loss.kind": "logistic", "model.graph": True, "model.item_columns": ("category",)}, of="graph"),
    *(
        _case("ranker", {"loss.kind": kind, "model.kind": "neumf"}, of=kind)
        for kind in ("bpr", "list-mle", "gumbel-ndcg", "neural-sort", "pairwise-logistic")
    ),
    _case("ranker", {"loss.kind": "guided", "model.kind": "din", "model.width": 8}, of="guided"),
    _case("two_stage", {"start.retriever": "cooccurrence", "model.width": 8, "loss.negatives": "candidates"}),
    _case("cities", {"start.folder": "sasrec", "model.dropout": 0.0, "examples.rare": 5}),
    _case("melt", {"start.folder": "sasrec"}),
]


def small_split():
    """A market of 90 items, with each user's last item for testing."""
    market = make_market(MarketConfig(num_users=60, num_items=90, min_events=10, max_events=20), seed=1)
    return leave_one_out(Dataset.from_log(read_log(market.log), market.item_frame))


def fitted(split, given, folder, *, max_steps, resume=False, **settings):
    """The retriever of a case after this many steps, and the loss of each step."""
    name, settings = given[0], given[1] | settings
    preset = settings.pop("preset", None)
    for key in settings.keys() & {"start.folder", "start.retriever"}:
        start = folder / "start"
        if not start.exists():
            short = SEQUENCE | {"loop.max_steps": 2} if settings[key] == "sasrec" else {}
            load_method(settings[key]).fitted(split, short, progress=False).save(start)
        settings[key] = str(start)
    bounds = {"loop.max_steps": max_steps, "loop.evaluate_every": 4, "loop.log_every": 1, "loop.batch_size": 16}
    run = RunFolder(folder / "run")
    options = {"progress": False, "preset": preset, "run": run, "resume": resume}
    method, given = load_method(name), settings | bounds
    retriever = method.fitted(split, given if preset else read_by(method, given), **options)
    lines = map(json.loads, run.metrics_path.read_text().splitlines())
    return retriever, [line["loss"] for line in lines if "loss" in line]
