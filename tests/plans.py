"""Settings for tests, resolved for a data set as `Method.fitted` does before training."""

from beamwood.fitting.plan import Facts

SMALL_TREE = {
    "model.width": 8,
    "model.attention_hidden": 8,
    "model.windows": (8, 4, 2, 1),
    "model.mlp": (16, 8),
    "examples.min_history": 2,
    "optimiser.bf16": False,
}


def planned(config, train):
    """The resolved configuration for a data set."""
    return config.plan(Facts.of(train))
