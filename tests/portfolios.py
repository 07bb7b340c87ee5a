"""Searches for the best method of a small planted log, over few members, by a simulated clock."""

from beamwood.data import Dataset, disjoint_users, read_log
from beamwood.data.markets.synthetic import MarketConfig, make_market
from beamwood.recipes.portfolio.members import Member
from beamwood.recipes.portfolio.search import Search
from beamwood.recipes.portfolio.search_folder import SearchFolder
from beamwood.recipes.portfolio.wanted import Wanted
from beamwood.training.budget import Budget
from clocks import Ticks

COUNTING = [Member("popularity", "popularity", blends=False), Member("cooccurrence", "cooccurrence")]
COUNTING += [Member("transitions", "transitions")]
TINY = {"model.width": 4, "model.num_blocks": 1, "loop.max_steps": 10**6, "loop.evaluate_every": 5}
TINY |= {"loop.patience": 10**6, "choose.validation_users": 20}


def small_split():
    """A split of 150 users and 60 items."""
    market = make_market(MarketConfig(num_users=150, num_items=60, max_events=40), seed=0)
    return disjoint_users(Dataset.from_log(read_log(market.log)), seed=1)


def searched(split, folder, members, limit, *, clock=None, resume=False):
    """The result of a search in a folder, and the folder's state."""
    parts, budget = SearchFolder(folder, {}), Budget(limit, clock=clock or Ticks())
    with parts.locked(resume=resume, overwrite=False):
        found = Search(split, Wanted(limit, "removed/f@20"), parts, members=members, budget=budget).run()
    return found, parts


def held(split, folder, members, limit, *, clock=None, **budgets):
    """A search over these members that has not started, and its folder."""
    parts = SearchFolder(folder, {})
    wanted, budget = Wanted(limit, "removed/f@20", **budgets), Budget(limit, clock=clock or Ticks())
    return parts, lambda: Search(split, wanted, parts, members=members, budget=budget)
