"""What settings mean for the data of a test, as `Method.fitted` plans them before it trains."""

from beamwood.fitting.plan import Facts


def planned(config, train):
    """The plan of a configuration for a data set."""
    return config.plan(Facts.of(train))
