"""The verdict of a comparison: who wins, whether so many users say so, and how many would settle it."""

from dataclasses import replace
from itertools import permutations

import numpy as np
import pytest

from beamwood.evaluation.verdict import judge, users_to_settle

RNG = np.random.default_rng(5)


def drawn(means, num_users, spread=0.2):
    """Values of methods that differ by the given means, on users who are alike but for noise."""
    user = RNG.uniform(0.2, 0.6, num_users)
    return {name: user + mean + spread * RNG.normal(size=num_users) for name, mean in means.items()}


def judged(means, num_users, simplest="counts"):
    return judge(drawn(means, num_users), "removed", "f@20", simplest)


def test_a_certain_winner_is_told_against_the_next_and_the_simplest():
    verdict = judged({"counts": 0.0, "tree": 0.3, "towers": 0.15}, 400)
    assert (verdict.winner, verdict.next.name, verdict.chosen) == ("tree", "towers", "tree")
    assert verdict.certain
    first, second, third = verdict.sentences()
    assert first == f"tree is best with seen items removed: f@20 {verdict.value:.4f}."
    assert second == f"It is {verdict.next.difference:.4f} above towers, the next, and 400 users make that certain."
    assert third.endswith("above counts, the simplest, and 400 users make that certain.")
    assert [rival.name for rival in verdict.rivals] == ["towers", "counts"]


def test_too_few_users_leave_it_open_and_the_simplest_is_to_be_used():
    verdict = judged({"counts": 0.0, "tree": 0.02}, 25)
    assert not verdict.certain
    assert verdict.chosen == "counts"
    words = " ".join(verdict.sentences())
    assert "is best" not in words
    assert "25 users do not make that certain. About " in words
    if verdict.winner == "tree":
        assert words.endswith("Use counts until then: it is simpler.")


def test_a_winner_is_certain_only_above_every_other():
    """The next may be behind by little for all, and a lower one by more for some."""
    next_best, best = np.full(40, 0.48), np.full(40, 0.5)
    varied = best - 0.03 + np.resize([0.3, -0.3], 40)
    values = {
        "counts": np.zeros(40),
        "tree": best,
        "towers": next_best + np.resize([0.001, -0.001], 40),
        "ease": varied,
    }
    verdict = judge(values, "removed", "f@20", "counts")
    assert (verdict.winner, verdict.next.name, verdict.next.certain) == ("tree", "towers", True)
    assert not verdict.certain
    assert not verdict.as_dict()["certain"]
    words = verdict.sentences()
    assert words[0].startswith("tree leads with")
    assert words[2].startswith("It is 0.0300 above ease; 40 users do not make that certain")
    assert verdict.chosen == "tree"


def test_the_simplest_may_win():
    verdict = judged({"counts": 0.3, "tree": 0.0, "towers": 0.1}, 300)
    assert verdict.sentences()[-1] == "It is the simplest method here, too."
    assert verdict.against("counts") is None
    assert verdict.chosen == "counts"


def test_no_hit_at_all_is_nothing_learned():
    verdict = judge({"counts": np.zeros(30), "tree": np.zeros(30)}, "kept", "f@5", "counts")
    assert verdict.winner is None
    assert verdict.tests == ()
    assert verdict.sentences() == [
        "Nothing was learned: with seen items kept, no method found an item of any of the 30 test users in its first 5."
    ]
    assert verdict.as_dict()["words"].startswith("Nothing was learned")


def test_no_hit_on_the_tail_says_nothing_of_what_was_learned():
    verdict = replace(judge({"counts": np.zeros(30), "tree": np.zeros(30)}, "kept", "f@5", "counts"), on_tail=True)
    assert verdict.sentences() == [
        "No method finds the tail with seen items kept: of the 30 test users with a label there none has one in the "
        "first 5."
    ]


def test_equal_methods_are_level():
    values = RNG.uniform(size=50)
    verdict = judge({"tree": values, "counts": values.copy()}, "removed", "f@20", "counts")
    assert verdict.winner == "counts"
    assert verdict.next.needed is None
    assert "they are level" in " ".join(verdict.sentences())
    assert (verdict.next.better, verdict.next.equal, verdict.next.worse) == (0, 1, 0)


def test_no_fewer_users_than_there_are_would_settle_it():
    # Many users have a little more of the one, few have much more of the other: means and ranks say two things.
    often, much = np.zeros(2000), np.zeros(2000)
    often[:235], much[400:500] = 0.05, 0.5
    few = {"a": np.array([0.4, 0.5, 0.61]), "b": np.array([0.1, 0.1, 0.1])}
    for values in ({"much": much, "often": often}, few):
        verdict = judge(values, "kept", "f@20", [*values][1])
        assert not verdict.certain
        assert verdict.next.needed is None
        words = " ".join(verdict.sentences())
        assert f"{verdict.users:,} users do not make that certain, as the tests disagree." in words
        assert "settle" not in words
    for seed in range(200):
        rng = np.random.default_rng(seed)
        size = int(rng.integers(2, 40))
        rival = judge({"a": rng.random(size) + 0.2 * rng.random(), "b": rng.random(size)}, "kept", "f@1", "b").next
        assert rival.certain or rival.needed is None or rival.needed > size


@pytest.mark.parametrize("num_often", [300, 400])
def test_ranks_that_favour_the_rival_make_nobody_certain(num_often):
    """A significant test of the other side speaks against the winner, whose mean few users make."""
    often, much = np.zeros(2000), np.zeros(2000)
    often[:num_often], much[1000:1100] = 0.05, 0.5
    verdict = judge({"much": much, "often": often}, "kept", "f@20", "often")
    assert max(verdict.tests[0].adjusted.values()) < 0.05
    assert (verdict.winner, verdict.certain, verdict.chosen) == ("much", False, "often")
    assert (verdict.next.p, verdict.next.needed) == (1.0, None)
    assert "as the tests disagree" in " ".join(verdict.sentences())


def test_each_further_rival_takes_more_users_to_settle():
    """The least p-value of m rivals is multiplied by m (Holm), so each is tested at an m-th of the level."""
    best = np.linspace(0.3, 0.7, 20)
    values = {"a": best, "b": best[::-1] - 0.02, "c": np.roll(best, 7) - 0.01}
    verdict = judge(values, "kept", "f@20", "a")
    assert [rival.name for rival in verdict.rivals] == ["c", "b"]
    for rival in verdict.rivals:
        assert rival.needed == users_to_settle(best - values[rival.name], level=0.05 / 2)
        assert rival.needed > users_to_settle(best - values[rival.name])


def test_sums_that_differ_by_rounding_are_level():
    own = np.array([0.1, 0.2, 0.7, 1 / 3, 0.6])
    for order in permutations(range(5)):
        for values in ({"a": own, "b": own[[*order]]}, {"a": own[[*order]], "b": own}):
            verdict = judge(values, "kept", "f@20", "b")
            assert verdict.winner == "b"
            assert verdict.next.difference == 0
            assert verdict.next.needed is None
            assert "they are level" in " ".join(verdict.sentences())


def test_wins_and_losses_are_counted():
    verdict = judge({"a": np.array([1.0, 0, 1, 1, 0.5]), "b": np.array([0.0, 1, 1, 0, 0])}, "removed", "f@5", "b")
    assert (verdict.next.better, verdict.next.equal, verdict.next.worse) == (0.6, 0.2, 0.2)


def test_so_many_users_do_settle_it():
    """Drawn anew with as many users as it says, about four of five comparisons are certain."""
    difference = 0.05 + 0.5 * RNG.normal(size=4000)
    needed = users_to_settle(difference)
    assert needed == pytest.approx((2.8016 * difference.std(ddof=1) / difference.mean()) ** 2, rel=0.06)
    found = 0
    for _ in range(300):
        again = RNG.choice(difference, needed)
        found += again.mean() / (again.std(ddof=1) / np.sqrt(needed)) > 1.96
    assert 0.7 < found / 300 < 0.9
    assert users_to_settle(np.zeros(9)) is None
    assert users_to_settle(np.array([0.5, 0.5, 0.5])) == 2
