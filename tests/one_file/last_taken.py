"""A counting method: the number of users of both items, with the history weighted by recency."""

from scipy import sparse

from beamwood.fitting.counting import CountingConfig, GridSettings, best_of_grid, interactions
from beamwood.methods import Method


class Config(CountingConfig):
    """A grid of three decays."""

    model: GridSettings = GridSettings(decay=(0.9, 0.5, 0.1))


def build(split, config, seed, budget):
    taken = interactions(split.train.histories, split.train.num_items)
    both = sparse.csr_matrix(taken.T @ taken)
    both.setdiag(0)
    return best_of_grid(split, config, lambda: both, seed, budget)


METHOD = Method(name="last-taken", summary="how many users took both", Config=Config, build=build)
