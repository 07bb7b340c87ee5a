"""A planted market, and trees in a size that trains in seconds."""

from beamwood.data import Dataset, disjoint_users, read_log
from beamwood.data.markets.synthetic import MarketConfig, make_market
from beamwood.fitting.tree.node_start import ItemVectors
from beamwood.fitting.tree.start import start_tree
from beamwood.methods import load_method
from beamwood.training.budget import Budget
from plans import SMALL_TREE, read_by

SHORT = {
    "loop.max_steps": 6,
    "optimiser.decay_steps": 6,
    "optimiser.warmup_steps": 2,
    "loop.evaluate_every": 3,
    "loop.batch_size": 16,
    "choose.validation_users": 10,
    "model.dropout": 0.1,
}


def market_split(num_users):
    market = make_market(MarketConfig(num_users=num_users, num_items=90, min_events=20, max_events=60), seed=1)
    return disjoint_users(Dataset.from_log(read_log(market.log), market.item_frame))


def configured(method, changes, **more):
    known = load_method(method)
    return known.Config(**read_by(known, SMALL_TREE | {"tree.branching": 4} | changes | more))


def first_tree(split, config, rng):
    """`start_tree` without a time limit."""
    return start_tree(split, config, rng, ItemVectors(split.train, config, 0, (), Budget()), Budget())
