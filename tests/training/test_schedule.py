"""Learning rates against values computed by hand, and their bounds."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from beamwood.errors import InputError
from beamwood.training.schedule import Schedule


def test_the_schedule_of_dtr_equals_rates_computed_by_hand():
    schedule = Schedule(kind="exponential", warmup_steps=5_000, decay_steps=15_000, floor=1e-6)
    rate = lambda step: schedule.learning_rate(step, 1e-3)  # noqa: E731
    assert rate(1) == pytest.approx(1e-3 / 5000)
    assert rate(2500) == pytest.approx(5e-4)
    assert rate(5000) == 1e-3
    assert rate(20_000) == pytest.approx(1e-3 * math.exp(-1))
    assert rate(500_000) == 1e-6


def test_cosine_and_linear_end_with_the_run():
    cosine, linear = Schedule(kind="cosine", warmup_steps=10), Schedule(kind="linear", warmup_steps=10, floor=0.01)
    assert cosine.learning_rate(10, 2.0, 110) == 2.0
    assert cosine.learning_rate(60, 2.0, 110) == pytest.approx(1.0)
    assert cosine.learning_rate(110, 2.0, 110) == pytest.approx(0.0)
    assert linear.learning_rate(35, 2.0, 110) == pytest.approx(1.5)
    assert linear.learning_rate(1000, 2.0, 110) == 0.01
    assert Schedule().learning_rate(7, 2.0) == 2.0


@given(
    st.sampled_from(["constant", "exponential", "cosine", "linear"]),
    st.integers(0, 50),
    st.integers(1, 100),
    st.floats(0, 2),
)
def test_the_rate_rises_once_and_stays_within_its_bounds(kind, warmup, decay, floor):
    schedule = Schedule(kind=kind, warmup_steps=warmup, decay_steps=decay, floor=floor)
    rates = [schedule.learning_rate(step, 1.0) for step in range(1, 300)]
    start = max(warmup - 1, 0)
    assert rates[:start] == sorted(rates[:start])
    assert rates[start:] == sorted(rates[start:], reverse=True)
    assert max(rates) <= 1.0
    assert min(rates[start:]) >= min(floor, 1.0)


def test_a_decay_of_unknown_length_is_an_error():
    with pytest.raises(InputError, match=r"'cosine' needs decay_steps; set it, or set max_steps or max_epochs$"):
        Schedule(kind="cosine").check(None)
    with pytest.raises(InputError, match=r"'exponential' needs decay_steps; set it$"):
        Schedule(kind="exponential").check(100)
    Schedule(kind="cosine").check(100)
    Schedule().check(None)
