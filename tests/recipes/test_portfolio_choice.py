"""The decisions of a search on synthetic results; nothing is fitted."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from beamwood.recipes.portfolio.choice import (
    SHORTEST,
    Candidate,
    Contender,
    Look,
    Next,
    best_within,
    halving_rounds,
    next_blend,
    next_look,
    shortest,
    why_lower,
)

COUNTING = [Contender("popularity", trains=False), Contender("ease", trains=False)]
TRAINED = [Contender(name) for name in ("tree", "towers", "attention", "recurrent")]
COUNTED = [Look("popularity", 0.1, ended=True), Look("ease", 0.2, ended=True)]


def played(values, seconds, *, contenders=TRAINED, before=COUNTED, take=lambda step: step.seconds, ended=()):
    """The looks of a whole search whose contenders have `values[name]`, a number or a list, after each look."""
    looks, steps, left, spent = list(before), [], seconds, 0.0
    while (step := next_look([*COUNTING, *contenders], looks, left, spent)) is not None:
        own = values[step.name]
        number = sum(look.name == step.name for look in looks)
        value = own[min(number, len(own) - 1)] if isinstance(own, list) else own
        looks.append(Look(step.name, value, ended=step.name in ended))
        steps.append(step)
        used = take(step)
        assert 0 < step.seconds <= left + 1e-6
        left, spent = left - used, spent + used
        assert len(steps) < 100
    return steps, left


def test_counting_methods_come_first_and_once():
    step = next_look([*COUNTING, *TRAINED], [], 900.0)
    assert step.name == "popularity"
    assert step.seconds < 900 / 5
    assert next_look([*COUNTING, *TRAINED], COUNTED[:1], 900.0).name == "ease"
    assert next_look([*COUNTING, *TRAINED], COUNTED, 900.0).name == "tree"


def test_the_first_method_is_fitted_for_any_limit():
    assert next_look([*COUNTING, *TRAINED], [], -3.0).name == "popularity"
    assert next_look([*COUNTING, *TRAINED], COUNTED[:1], -3.0) is None
    assert next_look(TRAINED, [], -3.0) is None


def test_a_failed_counting_method_is_not_tried_again():
    looks = [Look("popularity", 0.1, ended=True), Look("ease", None, ended=True)]
    assert next_look(COUNTING, looks, 900.0) is None


def test_rounds_halve():
    assert halving_rounds(1) == [1]
    assert halving_rounds(4) == [4, 2, 1]
    assert halving_rounds(6) == [6, 3, 2, 1]


def test_the_better_half_continues_with_equal_shares_of_a_round():
    steps, left = played({"tree": 0.2, "towers": 0.4, "attention": 0.3, "recurrent": 0.1}, 1200.0)
    names = [step.name for step in steps]
    assert names[:4] == ["tree", "towers", "attention", "recurrent"]
    assert sorted(names[4:6]) == ["attention", "towers"]
    assert names[6] == "towers"
    assert len(names) == 7
    assert [step.seconds for step in steps] == pytest.approx([100] * 4 + [200] * 2 + [400])
    assert left == pytest.approx(0)


def test_unused_time_of_a_round_goes_to_the_others():
    values = {"tree": 0.2, "towers": 0.4, "attention": 0.3, "recurrent": 0.1}
    quick = {"towers": 10.0}
    steps, _ = played(values, 1200.0, take=lambda step: quick.get(step.name, step.seconds), ended={"towers"})
    assert [step.name for step in steps] == ["tree", "towers", "attention", "recurrent", "attention", "attention"]
    # Two looks of 100 s planned, 10 s used by the second: the two others of the round share the rest of their 200 s.
    assert [step.seconds for step in steps[:4]] == pytest.approx([100, 100, 109, 109])
    # The second round needs one of its two looks only, and the third the rest of the time.
    assert [step.seconds for step in steps[4:]] == pytest.approx([872 / 3, 2 * 872 / 3])


def test_short_searches_try_fewer_methods_instead_of_shorter_looks():
    values = dict.fromkeys(("tree", "towers", "attention", "recurrent"), 0.2)
    steps, _ = played(values, 4 * SHORTEST)
    assert {step.name for step in steps} == {"tree", "towers"}
    assert all(step.seconds >= SHORTEST - 1e-6 for step in steps)


def test_a_single_look_may_be_half_of_the_shortest():
    """What counting leaves of a short limit has no other use."""
    assert next_look(TRAINED, [], SHORTEST - 1) == Next("tree", SHORTEST - 1)
    assert next_look([*COUNTING, *TRAINED], COUNTED, SHORTEST / 2) == Next("tree", SHORTEST / 2)
    assert next_look(TRAINED, [], SHORTEST / 2 - 1) is None
    # A first look that failed leaves too little for another.
    assert next_look(TRAINED, [Look("tree", None, ended=True)], SHORTEST / 2, SHORTEST / 2) is None


def test_looks_may_be_shorter_on_small_logs():
    assert shortest(1_000_000) == shortest(50_000_000) == SHORTEST
    assert shortest(10) == shortest(100_000) == pytest.approx(SHORTEST / 3)
    assert SHORTEST / 3 < shortest(300_000) < SHORTEST
    steps = [next_look(TRAINED, [], 4 * SHORTEST)]
    steps += [next_look(TRAINED, [], 4 * SHORTEST, 0.0, least) for least in (SHORTEST, SHORTEST / 3)]
    assert [step.name for step in steps] == ["tree"] * 3
    # Two rounds with two methods, or three with four.
    assert [step.seconds for step in steps] == pytest.approx([SHORTEST, SHORTEST, SHORTEST / 3])
    assert next_look(TRAINED, [], SHORTEST / 2, 0.0, SHORTEST / 3).name == "tree"


def test_methods_without_a_gain_are_dropped():
    values = {"tree": None, "towers": 0.4, "attention": 0.3, "recurrent": 0.1}
    steps, _ = played(values, 1200.0)
    assert [step.name for step in steps].count("tree") == 1
    assert steps[-1].name == "towers"


def test_a_method_with_too_little_time_gets_its_required_time_once():
    looks = [*COUNTED, Look("tree", None, ended=True, needs=100.0)]
    step = next_look(TRAINED, looks, 900.0)
    assert (step.name, step.seconds) == ("tree", 150.0)
    assert next_look(TRAINED, looks, 200.0).name != "tree"
    again = [*looks, Look("tree", None, ended=True, needs=300.0)]
    assert next_look(TRAINED, again, 900.0).name == "towers"


def test_an_early_best_counts():
    """A contender that got worse keeps its best value."""
    values = {"tree": [0.5, 0.1, 0.1], "towers": 0.4, "attention": 0.3, "recurrent": 0.1}
    steps, _ = played(values, 1200.0)
    assert [step.name for step in steps][-1] == "tree"


def test_two_looks_without_a_gain_end_it():
    looks = [*COUNTED, *(Look("tree", value) for value in (0.3, 0.3, 0.2))]
    assert next_look(TRAINED[:1], looks, 900.0) is None
    assert next_look(TRAINED[:1], looks[:-1], 900.0).name == "tree"


@given(
    st.lists(st.floats(0, 1), min_size=6, max_size=6),
    st.floats(1, 5000),
    st.integers(0, 6),
    st.sets(st.integers(0, 5)),
)
def test_no_search_exceeds_its_limit_or_skips_the_best(values, seconds, count, ended):
    contenders = [Contender(f"m{place}") for place in range(count)]
    named = {f"m{place}": value for place, value in enumerate(values)}
    steps, left = played(named, seconds, contenders=contenders, ended={f"m{place}" for place in ended})
    assert left >= -1e-6
    looked = [step.name for step in steps]
    if looked:
        best = max(set(looked), key=lambda name: named[name])
        most = max(map(looked.count, looked))
        assert (
            looked.count(best) == most
            or best in {f"m{place}" for place in ended}
            or named[best] in [named[name] for name in looked if looked.count(name) == most]
        )


def values_of(**singles):
    return {(name,): value for name, value in singles.items()}


def test_blends_try_the_best_with_each_other_method_then_a_third_then_the_second_best():
    values = values_of(tree=0.4, ease=0.3, towers=0.2, popularity=0.1)
    firsts = {"tree", "ease", "towers"}
    gains = {("tree", "ease"): 0.45, ("tree", "towers"): 0.41, ("tree", "popularity"): 0.4}
    tried = []
    while (names := next_blend(values, firsts)) is not None:
        tried.append(names)
        values[names] = gains.get(names, 0.35)
    assert tried[:3] == [("tree", "ease"), ("tree", "towers"), ("tree", "popularity")]
    assert tried[3:5] == [("tree", "ease", "towers"), ("tree", "ease", "popularity")]
    assert {names[0] for names in tried[5:]} == {"ease"}
    assert len(tried) == len(set(tried))
    assert max(map(len, tried)) == 3


def test_second_parts_alternate_counting_and_trained_methods_with_its_own_method_last():
    values = values_of(tree=0.5, gentle=0.45, towers=0.4, attention=0.35, ease=0.3, cooccurrence=0.2)
    contenders = [Contender("tree", method="dtr"), Contender("gentle", method="dtr"), Contender("towers", method="t")]
    contenders += [Contender("attention", method="a"), Contender("ease", False, "e"), Contender("cooccurrence", False)]
    tried = []
    while (names := next_blend(values, {"tree"}, (), contenders)) is not None:
        tried.append(names)
        values[names] = 0.6 if names == ("tree", "towers") else 0.1
    assert [names[1] for names in tried[:5]] == ["ease", "towers", "cooccurrence", "attention", "gentle"]
    assert [names[2] for names in tried[5:]] == ["ease", "attention", "cooccurrence", "gentle"]
    assert all(names[:2] == ("tree", "towers") for names in tried[5:])


def test_no_third_part_for_a_pair_without_a_gain():
    values = values_of(tree=0.4, ease=0.3) | {("tree", "ease"): 0.4, ("ease", "tree"): 0.39}
    assert next_blend(values, {"tree", "ease"}) is None


def test_failed_blends_are_not_tried_again():
    values = values_of(tree=0.4, ease=0.3)
    assert next_blend(values, {"tree"}) == ("tree", "ease")
    assert next_blend(values, {"tree"}, [("tree", "ease")]) is None


def candidate(name, values, ms=1.0, mb=1.0):
    return Candidate(tuple(name.split("+")), np.asarray(values, float), ms, mb)


def test_a_blend_has_to_be_clearly_above_its_parts():
    rng = np.random.default_rng(0)
    base = rng.random(400)
    noise = rng.normal(0, 0.5, 400)
    noise -= noise.mean()
    error = noise.std(ddof=1) / 20
    single = candidate("tree", base)
    assert best_within([single, candidate("tree+ease", base + noise + 0.4 * error)]).name == "tree"
    assert best_within([single, candidate("tree+ease", base + noise + 0.6 * error)]).name == "tree+ease"
    assert best_within([single, candidate("tree+ease", base)]).name == "tree"


def test_a_blend_of_uncertain_gain_hides_no_certain_one():
    rng = np.random.default_rng(0)
    base, noise = rng.random(400), rng.normal(0, 0.5, 400)
    noise -= noise.mean()
    error = noise.std(ddof=1) / 20
    single, certain = candidate("ease", base), candidate("ease+tree", base + 0.1 * noise + 0.2 * error)
    assert best_within([single, certain]).name == "ease+tree"
    assert best_within([single, certain, candidate("ease+popularity", base + noise + 0.4 * error)]).name == "ease+tree"


def test_budgets_limit_the_choice():
    slow, fast = candidate("tree", [0.4, 0.5], ms=3.0, mb=10), candidate("ease", [0.2, 0.1], ms=0.5, mb=90)
    assert best_within([slow, fast]).name == "tree"
    assert best_within([slow, fast], milliseconds=2).name == "ease"
    assert best_within([slow, fast], megabytes=20).name == "tree"
    assert best_within([slow, fast], milliseconds=2, megabytes=20) is None


def test_ties_choose_the_first():
    assert best_within([candidate("ease", [0.5, 0.5]), candidate("tree", [0.5, 0.5])]).name == "ease"


def test_time_left_after_a_long_look_may_not_suffice_for_another():
    """A tree's initialisation used up the time: neither the second method nor another look at the first fits."""
    contenders = [Contender("dtr"), Contender("two_tower")]
    took = [Look("dtr", 0.3)]
    assert next_look(contenders, took, 60.0, 120.0, 30.0) == Next("two_tower", 20.0)
    assert next_look(contenders, took, 25.0, 155.0, 30.0) is None
    # Time for one look goes to the method known to be good.
    assert next_look(contenders, [*took, Look("two_tower", 0.2)], 40.0, 140.0, 30.0) == Next("dtr", 40.0)


def test_a_best_below_the_one_before_it_has_a_reason():
    tree, blend = candidate("tree", [0.2]), candidate("tree+ease", [0.21])
    assert why_lower(blend, tree) == ""
    assert why_lower(tree, blend) == "tree+ease has 0.2100, too little more for its cost"
