"""Each setting that a fit accepts changes the fitted model: it is fitted with the default and with another value."""

import numpy as np
import polars as pl
import pytest

from beamwood.data import Dataset, disjoint_users, read_log
from beamwood.data.markets.synthetic import MarketConfig, make_market
from beamwood.methods import load_method

# Four steps and one validation, after which the weights are those of the last step.
BASE = {"loop.max_steps": 4, "loop.evaluate_every": 4, "loop.batch_size": 16, "optimiser.warmup_steps": 1}
NAMES = {
    "gru4rec": {},
    "caser": {},
    "fmlp": {},
    "youtube_dnn": {},
    "cities": {"examples.rare": 12},
    # From other starts the initial weights would be validated too, and kept.
    "otm": {"start.scores": "random", "tree.branching": 4, "tree.beam_width": 4, "loss.num_candidates": 12},
}
# Settings of the run's length, of a validation of all users, of speed and memory; those that only a large catalogue, a
# tree update or a start from transitions reads; indexes and folders, which have their own tests.
OTHERS = {
    *("loop.max_steps", "loop.max_epochs", "loop.evaluate_every", "loop.patience", "loop.log_every", "loop.device"),
    *("choose.validation_users", "choose.monitor", "model.recompute", "optimiser.bf16", "optimiser.embeddings"),
    *("model.similarity_width", "model.num_neighbours", "model.neighbours", "model.light_width", "tree.vectors"),
    *("tree.learner", "tree.stride", "tree.max_instances", "tree.embeddings", "tree.after_update", "tree.rollback"),
    *("start.folder", "start.scores", "start.seen", "choose.seen_weight", "optimiser.decay"),
}
# Other values, where they are not twice the number, the other boolean or the last word.
VALUES = {
    "model.length": 3,
    "model.item_column": "text",
    "model.windows": [4, 2, 1],
    "model.num_heads": 4,
    "model.dropout": 0.4,
    "tree.start": "random",
    "tree.shape": "complete",
    "tree.spare": 1.0,
    "tree.updates": 1,
    "loss.sampled_negatives": 5,
    "start.items": "random",
    "examples.horizon": 3,
    "examples.min_history": 4,
    "optimiser.learning_rate": 0.1,
    "optimiser.schedule": "constant",
    "optimiser.decay_steps": 1,
    "optimiser.floor": 0.01,
    "optimiser.clip_norm": 1e-4,
    "optimiser.weight_decay": 0.5,
    "optimiser.item_decay": 0.5,
}


@pytest.fixture(scope="module")
def split():
    market = make_market(MarketConfig(num_users=80, num_items=60, min_events=8, max_events=20), seed=1)
    texts = pl.Series("text", [[float(place % 7), float(place % 3), 1.0] for place in range(60)])
    return disjoint_users(Dataset.from_log(read_log(market.log), market.item_frame.with_columns(texts)))


@pytest.fixture(scope="module")
def sequence(split, tmp_path_factory):
    folder = tmp_path_factory.mktemp("fitted") / "sasrec"
    load_method("sasrec").fitted(split, BASE | {"model.width": 16}, progress=False).save(folder)
    return str(folder)


def another(row, name, given):
    default = given.get(name, row["default"])
    if name in VALUES:
        return VALUES[name]
    if row["choices"]:
        return next(word for word in reversed(row["choices"]) if word != default)
    if isinstance(default, bool):
        return not default
    return [8] if isinstance(default, list) else default / 2 if isinstance(default, float) and default else default * 2


def arrays(value):
    """The arrays in what a searcher exports, and its other values as text."""
    if isinstance(value, dict | list | tuple):
        for each in value.values() if isinstance(value, dict) else value:
            yield from arrays(each)
    else:
        yield value if isinstance(value, np.ndarray) else repr(value)


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_each_setting_changes_the_fit(name, split, sequence):
    method = load_method(name)
    given = BASE | NAMES[name] | ({"start.folder": sequence} if name == "cities" else {})

    def fitted(**changed):
        searcher = method.fitted(split, given | changed, progress=False, seed=0).searcher
        return list(arrays(searcher.export()))

    first, same = fitted(), []
    for setting, row in method.described().items():
        if setting not in OTHERS and not setting.startswith("index."):
            other = fitted(**{setting: another(row, setting, given)})
            if len(first) == len(other) and all(map(np.array_equal, first, other)):
                same.append(setting)
    assert same == []
