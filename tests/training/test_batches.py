"""Every row once per epoch, in an order that can be resumed at any batch."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from beamwood.errors import InputError
from beamwood.training.batches import BatchOrder


@given(st.integers(1, 200), st.integers(1, 60), st.integers(0, 30), st.integers(0, 5))
def test_epochs_are_permutations_and_resume_is_exact(num_rows, batch_size, taken, seed):
    order = BatchOrder(num_rows, batch_size, np.random.default_rng(seed))
    batches = [order.next() for _ in range(3 * order.batches_per_epoch)]
    for epoch in range(3):
        part = batches[epoch * order.batches_per_epoch : (epoch + 1) * order.batches_per_epoch]
        assert sorted(np.concatenate(part).tolist()) == list(range(num_rows))
        sizes = {len(batch) for batch in part}
        assert max(sizes) <= batch_size
        assert max(sizes) - min(sizes) <= 1

    first = BatchOrder(num_rows, batch_size, np.random.default_rng(seed))
    for _ in range(taken):
        first.next()
    second = BatchOrder(num_rows, batch_size, np.random.default_rng(99))
    second.load_state(first.state())
    for _ in range(2 * order.batches_per_epoch + 1):
        np.testing.assert_array_equal(first.next(), second.next())
    assert (first.epoch, first.position) == (second.epoch, second.position)


def test_each_epoch_has_another_order():
    order = BatchOrder(100, 100, np.random.default_rng(0))
    assert order.next().tolist() != order.next().tolist()


def test_invalid_arguments_and_a_state_of_other_data_are_errors():
    with pytest.raises(InputError, match="nothing to train on"):
        BatchOrder(0, 5, np.random.default_rng(0))
    with pytest.raises(InputError, match="batch_size=0"):
        BatchOrder(5, 0, np.random.default_rng(0))
    state = BatchOrder(10, 5, np.random.default_rng(0)).state()
    with pytest.raises(InputError, match="num_rows=10, this run has 11"):
        BatchOrder(11, 5, np.random.default_rng(0)).load_state(state)
