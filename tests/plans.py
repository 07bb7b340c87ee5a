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


def read_by(method, settings):
    """The settings that a method has and reads, of those by dotted name that many methods are given in common."""
    own = {name: value for name, value in settings.items() if name in method.Config.names()}
    config = method.Config(**own)
    return {name: value for name, value in own.items() if config.without_effect([name]) is None}
