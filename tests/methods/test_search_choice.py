"""The rule that chooses a way to search, on planted answers with known hits for each way."""

from dataclasses import dataclass, field
from types import SimpleNamespace

import numpy as np
import pytest

from beamwood.data.queries import Queries
from beamwood.fitting.tree.search_choice import KEPT, KEPT_LEVEL, candidate_ways, choose_ways
from beamwood.kernels.light import Way
from beamwood.training.budget import Budget
from beamwood.types import Hits, ItemLists, QueryNeeds

WANTED, OTHER = 7, 8
USERS, FULL = 1000, 500
CHEAPEST = Way("steer", 120, 80)


@dataclass
class Planted:
    """The full beam finds the label of the first 500 of 1,000 users.

    So does every way, except for `gained` additional and `lost` users, in the views of `changed`.
    """

    gained: dict[Way, int] = field(default_factory=dict)
    lost: dict[Way, int] = field(default_factory=dict)
    changed: tuple[str, ...] = ("kept", "removed")
    beam_width: int = 60
    steered: bool = True
    searches: int = 0
    needs: QueryNeeds = field(default_factory=QueryNeeds)

    @property
    def weights(self):
        return SimpleNamespace(light=object() if self.steered else None)

    def searched(self, query, k, options, way):
        self.searches += 1
        view = "kept" if options.excluded is None else "removed"
        gained, lost = ((each.get(way, 0) if view in self.changed else 0) for each in (self.gained, self.lost))
        found = (query.users >= lost) & (query.users < FULL + gained)
        items = np.full((len(query.users), k), -1, np.int32)
        items[:, 0] = np.where(found, WANTED, OTHER)
        scores = np.where(items >= 0, np.float32(0), np.float32(-np.inf))
        nodes = {"beam": 16 * way.beam_width, "cascade": 3 * way.judged, "steer": way.judged}[way.kind]
        return Hits(items, scores, np.full(len(query.users), nodes))


def queries(num=USERS):
    lists = ItemLists.from_lists([[WANTED]] * num)
    seen = ItemLists.from_lists([[3]] * num)
    return Queries(np.arange(num), seen, lists, seen)


def chosen(planted, monitor="both/f@20", **more):
    return choose_ways(planted, queries(**more), monitor)


@pytest.mark.parametrize(
    ("gained", "lost", "is_kept"),
    [
        # With an equal mean, a lower bound of -1.15 % is accepted, one of -1.62 % is not.
        (10, 10, True),
        (20, 20, False),
        # A much higher mean is not enough either: +4 % within an interval of 6 %.
        (320, 300, False),
        # With means of -.2 % and -.4 %, bounds of -1.32 % and -1.36 % are accepted, -1.62 % is not.
        (9, 10, True),
        (6, 8, True),
        (14, 16, False),
        # A mean of -.6 % is too low, although its bound is -1.04 %.
        (0, 3, False),
    ],
)
def test_a_way_is_accepted_by_its_mean_and_its_interval(gained, lost, is_kept):
    choice = chosen(Planted({CHEAPEST: gained}, {CHEAPEST: lost}))
    assert choice.ways.ladder[0] == CHEAPEST
    full, share = choice.metric[-1], (gained - lost) / FULL
    assert choice.metric[0] == pytest.approx(full * (1 + share))
    # By hand: changes of either sign, each the contribution of one user.
    spread = (((gained + lost) / USERS - ((gained - lost) / USERS) ** 2) / (USERS - 1)) ** 0.5
    assert choice.lowest[0] == pytest.approx(share - 1.2816 * spread * USERS / FULL)
    assert (choice.ways.chosen == 0) == is_kept
    if not is_kept:
        assert choice.ways.chosen == 1, "the next way loses nothing"


def test_facts_have_both_bounds_of_the_rule():
    facts = chosen(Planted()).facts()
    assert (facts["may_lose"], facts["may_lose_level"]) == (KEPT, KEPT_LEVEL) == (0.005, 0.015)
    assert facts["chosen"] == 0
    assert facts["queries"] == USERS


@pytest.mark.parametrize(
    ("monitor", "view", "is_kept"),
    [
        ("both/f@20", "kept", False),
        ("both/f@20", "removed", False),
        ("kept/f@20", "kept", False),
        ("kept/f@20", "removed", True),
        ("removed/f@20", "removed", False),
        ("removed/f@20", "kept", True),
    ],
)
def test_losses_count_in_the_views_of_the_monitor(monitor, view, is_kept):
    choice = chosen(Planted(lost={CHEAPEST: 100}, changed=(view,)), monitor)
    assert (choice.ways.chosen == 0) == is_kept
    lost = 0 if is_kept else 0.1 if monitor.startswith("both") else 0.2
    assert choice.metric[0] == pytest.approx((1 - lost) * choice.metric[-1])


def test_the_full_beam_is_chosen_if_all_others_lose():
    ways = candidate_ways(60, steered=True)
    choice = chosen(Planted(lost=dict.fromkeys(ways[:-1], 5)))
    assert choice.ways.default == ways[-1] == Way("beam", 60)
    assert choice.of_beams().ways.default == Way("beam", 60)


def test_too_few_queries_make_no_choice():
    assert chosen(Planted(), num=29).ways.default == Way("beam", 60)
    assert chosen(Planted(), num=30).ways.default == CHEAPEST


@pytest.mark.parametrize(("seconds", "judged"), [(1.0, 32), (100.0, 128), (109.0, 128), (110.0, 160), (1e6, USERS)])
def test_a_limit_ends_it_after_as_many_queries_as_time_allows(seconds, judged):
    """A search takes a second, so a block of 32 queries takes 22 s: 11 ways in two views each."""
    planted = Planted({CHEAPEST: 10}, {CHEAPEST: 10})
    budget = Budget(seconds, clock=lambda: float(planted.searches))
    choice = choose_ways(planted, queries(), "both/f@20", budget)
    assert choice.queries == judged
    assert planted.searches == 22 * -(-judged // 32)
    assert planted.searches <= max(seconds, 22)
    whole = chosen(Planted({CHEAPEST: 10}, {CHEAPEST: 10}), num=judged)
    assert choice.ways == whole.ways
    for name in ("nodes", "metric", "lowest"):
        assert getattr(choice, name) == pytest.approx(getattr(whole, name))


def asked(planted, first, num=USERS, budget=None):
    return choose_ways(planted, queries(num), "kept/f@20", budget, first=first)


def test_more_queries_are_used_only_for_undecided_ways():
    """2 losses are 1.6 % of the first 125 users, .8 % of 250, and .4 % of 500, which is accepted."""
    planted = Planted(lost={CHEAPEST: 2})
    choice = asked(planted, 125)
    assert choice.ways.chosen == 0
    assert choice.queries == 500
    assert planted.searches == 11 + 2 + 2
    assert choice.metric[0] == pytest.approx(choice.metric[-1] * (1 - 2 / 500))
    assert choice.metric[1] == choice.metric[-1]


def test_no_more_queries_are_used_if_the_first_decide():
    lossless, hopeless = Planted(), Planted(lost={CHEAPEST: 60})
    assert (asked(lossless, 125).queries, asked(lossless, 125).ways.chosen) == (125, 0)
    # Half of them are lost, so the next way, without losses, is chosen.
    assert (asked(hopeless, 125).queries, asked(hopeless, 125).ways.chosen) == (125, 1)


def test_all_queries_are_used_if_none_decide():
    """With 500 hits of 1,000 users, 3 losses are .6 %: too many, but not significantly above .5 %."""
    choice = asked(Planted(lost={CHEAPEST: 3}), 300)
    assert (choice.queries, choice.ways.chosen) == (USERS, 1)
    assert choice.metric[0] == pytest.approx(choice.metric[-1] * (1 - 3 / 500))


def test_within_a_limit_only_the_first_queries_are_used():
    planted = Planted(lost={CHEAPEST: 2})
    choice = asked(planted, 125, budget=Budget(1e6, clock=lambda: float(planted.searches)))
    assert (choice.queries, choice.ways.chosen) == (125, 1)


def test_ways_tried_for_a_beam_of_150():
    tried = candidate_ways(150, steered=True)
    assert [(way.beam_width, way.judged) for way in tried if way.kind == "steer"] == [
        (300, 80),
        (300, 120),
        (300, 200),
        (1050, 400),
    ]
    assert [(way.beam_width, way.judged) for way in tried if way.kind == "cascade"] == [
        (50, 70),
        (50, 100),
        (75, 140),
        (100, 200),
    ]
    assert [way.beam_width for way in tried if way.kind == "beam"] == [50, 100, 150]
    for width in (1, 2, 3, 7):
        for way in candidate_ways(width, steered=True):
            assert way.beam_width >= 1
            assert way.kind == "beam" or way.judged >= 1
            assert way.kind != "cascade" or way.judged >= way.beam_width
