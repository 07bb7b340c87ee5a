"""Item vectors initialised from transitions."""

import itertools
import math
from dataclasses import replace

import numpy as np
import polars as pl
import pytest
import torch
from scipy import sparse

from beamwood.blocks import evenly
from beamwood.data import Dataset, leave_one_out, read_log
from beamwood.errors import InputError, TimeLimitError
from beamwood.fitting import plan
from beamwood.fitting.start_cache import caching
from beamwood.fitting.vectors import item_start
from beamwood.fitting.vectors.item_start import neighbour_matrix, transition_vectors
from beamwood.fitting.vectors.sequence import SequenceTask
from beamwood.methods import load_method
from beamwood.methods.sasrec import Config
from beamwood.training.budget import Budget
from clocks import Clock, Ticks
from plans import planned
from prepared import Prepared


@pytest.fixture(scope="module")
def split():
    """Histories within one of two groups of 20 items; item 40 occurs only last, so training never has it."""
    rng = np.random.default_rng(0)
    rows = [(u, int(i) + 20 * (u % 2), t) for u in range(120) for t, i in enumerate(rng.permutation(20)[:8])]
    rows += [(200, 0, 0), (200, 1, 1), (200, 2, 2), (200, 3, 3), (200, 40, 4)]
    log = pl.DataFrame(rows, schema=["user_id", "item_id", "timestamp"], orient="row")
    return leave_one_out(Dataset.from_log(read_log(log)))


def test_items_of_a_group_point_the_same_way(split):
    group = np.array([int(i) // 20 for i in split.train.items.ids])
    vectors = transition_vectors(split.train, 2, seed=0)
    assert not vectors[group == 2].any()
    vectors, group = vectors[group < 2], group[group < 2]
    np.testing.assert_allclose(vectors @ vectors.T, group[:, None] == group, atol=1e-3)


def test_the_products_are_the_best_approximation_of_their_rank(split):
    """Compared with numpy's decomposition of the dense matrix, up to the rows' lengths."""
    counts = neighbour_matrix(split.train).toarray()
    root = np.sqrt(counts.sum(axis=1) + counts.sum(axis=1).mean())
    values, basis = np.linalg.eigh(counts / root[:, None] / root)
    expected = basis[:, -5:] * np.sqrt(values[-5:])
    norms = np.linalg.norm(expected, axis=1, keepdims=True)
    expected = np.divide(expected, norms, out=np.zeros_like(expected), where=norms > 1e-6)
    got = transition_vectors(split.train, 5, seed=3)
    np.testing.assert_allclose(got @ got.T, expected @ expected.T, atol=1e-2)


GROUPS = np.kron(np.diag([1, 1, 2, 2, 3, 3]), np.ones((50, 50)))


@pytest.mark.parametrize(("dense", "rank"), [(GROUPS, 2), (GROUPS, 4), (GROUPS, 6), (None, 2), (None, 16), (None, 41)])
def test_both_exact_solvers_agree(chain, monkeypatch, dense, rank):
    """Up to signs, and to rotation where eigenvalues are equal; no rank here divides equal ones."""
    matrix = neighbour_matrix(chain) if dense is None else sparse.csr_matrix(dense)
    matrix = (matrix / np.abs(matrix.sum(axis=1)).max()).astype(np.float32)
    monkeypatch.setattr(item_start, "_DENSE_PER_VECTOR", 300)
    results = []
    for most in (0, 300):
        monkeypatch.setattr(item_start, "_DENSE", most)
        first, again = (
            item_start.leading_eigenvectors(matrix, rank, np.random.default_rng(3), exact=True) for _ in range(2)
        )
        for one, other in zip(first, again, strict=True):
            np.testing.assert_array_equal(one, other)
        values, basis = first
        np.testing.assert_allclose(basis.T @ basis, np.eye(rank), atol=1e-4)
        results.append((values, basis @ (basis * values).T))
    for one, other in zip(*results, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-3)


@pytest.mark.parametrize(("per_vector", "most", "dense"), [(20, 300, 1), (19, 300, 0), (20, 299, 0), (40, 8000, 1)])
def test_the_matrix_is_dense_where_that_is_faster(chain, monkeypatch, per_vector, most, dense):
    """300 items and 15 vectors: 20 items a vector."""
    monkeypatch.setattr(item_start, "_DENSE_PER_VECTOR", per_vector)
    monkeypatch.setattr(item_start, "_DENSE", most)
    made = []
    for name in ("largest_eigenvectors", "eigsh"):
        whole = getattr(item_start, name)
        monkeypatch.setattr(
            item_start,
            name,
            lambda *given, name=name, whole=whole, **more: made.append(name) or whole(*given, **more),
        )
    transition_vectors(chain, 15, seed=0)
    assert made == [["eigsh", "largest_eigenvectors"][dense]]


@pytest.mark.parametrize(("tried", "left_out"), [(30, "1000 s"), (100, "27 s")])
def test_the_time_of_a_dense_matrix_is_cubic(chain, monkeypatch, tried, left_out):
    """300 items take 1,000 or 27 times the part that is tried, for which this clock has a second."""
    monkeypatch.setattr(item_start, "_TRIED", tried)
    ticks = itertools.count()
    budget = Budget(4 * float(left_out.split()[0]), clock=lambda: float(next(ticks)))
    transition_vectors(chain, 16, seed=0, budget=budget)
    assert budget.left_out == [f"items start from 4 rounds of products: exact eigenvectors take {left_out}"]
    again = Budget(5000, clock=lambda: float(next(ticks)))
    transition_vectors(chain, 16, seed=0, budget=again)
    assert not again.left_out


@pytest.mark.parametrize("power", [0, 1])
def test_pairs_of_long_histories_have_less_weight(power):
    rng = np.random.default_rng(4)
    lists = [rng.integers(0, 9, length).tolist() for length in (2, 5, 14, 30, 1)]
    expected = np.zeros((9, 9))
    for row in lists:
        for i, first in enumerate(row):
            for j in range(i + 1, min(i + 11, len(row))):
                if row[j] != first:
                    expected[first, row[j]] += (j - i) ** -power / np.sqrt(len(row))
    users, times = (
        np.concatenate(part) for part in zip(*[([u] * len(r), range(len(r))) for u, r in enumerate(lists)], strict=True)
    )
    log = pl.DataFrame({"user": users, "item": np.concatenate(lists), "timestamp": times})
    data = Dataset.from_log(read_log(log))
    order = np.array([int(item) for item in data.items.ids])
    got = np.zeros((9, 9))
    got[np.ix_(order, order)] = neighbour_matrix(data, power=power).toarray()
    np.testing.assert_allclose(got, expected + expected.T, rtol=1e-6)
    kept = neighbour_matrix(data, power=power, of_users=np.arange(len(lists)) == 0).toarray()
    assert np.count_nonzero(kept) == 2 * (lists[0][0] != lists[0][1])


@pytest.fixture
def chain():
    """600 users walk on a ring of 300 items, so that eigenvalues decrease slowly."""
    rng = np.random.default_rng(0)
    steps = np.cumsum(rng.integers(0, 8, (600, 20)), axis=1) + rng.integers(0, 300, (600, 1))
    rows = {
        "user": np.repeat(np.arange(600), 20),
        "item": steps.ravel() % 300,
        "timestamp": np.tile(np.arange(20), 600),
    }
    return Dataset.from_log(read_log(pl.DataFrame(rows)))


def test_a_few_products_approximate_a_large_catalogue(chain, monkeypatch):
    """The residual of each vector outside the approximate span, with few products and with none."""
    exact = transition_vectors(chain, 16, seed=0)
    monkeypatch.setattr(item_start, "_EXACT", 299)
    got = transition_vectors(chain, 16, seed=0)
    assert got.dtype == np.float32
    drawn = np.random.default_rng(1).normal(size=exact.shape)
    missed = [1 - (np.linalg.qr(basis)[0].T @ exact / np.linalg.norm(exact, axis=0)) ** 2 for basis in (got, drawn)]
    near, far = (np.clip(1 - (1 - part).sum(axis=0), 0, 1).mean() for part in missed)
    assert near < 0.05 < 0.5 < far
    np.testing.assert_allclose(np.linalg.norm(got, axis=1), 1, rtol=1e-5)
    np.testing.assert_array_equal(got, transition_vectors(chain, 16, seed=0))
    assert not np.array_equal(got, transition_vectors(chain, 16, seed=1))


def test_approximate_vectors_of_separate_groups_are_exact(split, monkeypatch):
    """The matrix has few nonzero eigenvalues, so most columns add nothing."""
    exact = transition_vectors(split.train, 2, seed=0)
    monkeypatch.setattr(item_start, "_EXACT", 1)
    got = transition_vectors(split.train, 2, seed=0)
    np.testing.assert_allclose(got @ got.T, exact @ exact.T, atol=1e-3)
    assert transition_vectors(split.train, 64, seed=0).shape == (len(split.train.items), 64)


def test_dependent_columns_become_0():
    columns = np.random.default_rng(0).normal(size=(50, 4)).astype(np.float32)
    columns[:, 3] = columns[:, 0] - columns[:, 1]
    result = item_start.orthonormal(columns)
    gram = np.sort(np.diag(result.T @ result))
    np.testing.assert_allclose(gram, [0, 1, 1, 1], atol=1e-4)
    np.testing.assert_allclose(result @ (result.T @ columns), columns, atol=1e-4)


@pytest.mark.parametrize("encoder", ["sasrec", "gru4rec"])
@pytest.mark.parametrize("tied", [True, False])
def test_a_model_is_initialised_with_them(split, encoder, tied):
    settings = {"model.width": 8, "model.length": 8, "model.tied": tied}
    configs = [load_method(encoder).Config(**settings, **{"start.items": start}) for start in ("random", "transitions")]
    drawn, task = (Prepared(SequenceTask(split.train, planned(own, split.train)), seed=1) for own in configs)
    vectors = torch.from_numpy(transition_vectors(split.train, 8, seed=1))
    known = vectors.any(dim=1)
    assert 0 < int((~known).sum()) < 3
    for table, before in ((task.model.items, drawn.model.items), (task.model.outputs, drawn.model.outputs)):
        if table is not None:
            assert torch.equal(table.weight[known], vectors[known])
            assert torch.equal(table.weight[~known], before.weight[~known])


def test_they_exist_for_a_catalogue_smaller_than_the_width(split):
    assert transition_vectors(split.train, 64, seed=0).shape == (len(split.train.items), 64)


def test_initialisation_is_reproducible_if_few_items_have_neighbours():
    """Most items have no successor, so one vector spans few directions and the method must draw others."""
    rows = [(u, item, t) for u in range(2) for t, item in enumerate(range(10))]
    rows += [(2 + item, item, 0) for item in range(10, 200)]
    train = Dataset.from_log(read_log(pl.DataFrame(rows, schema=["user", "item", "timestamp"], orient="row")))
    first, *others = (transition_vectors(train, 9, seed=0) for _ in range(3))
    for again in others:
        np.testing.assert_array_equal(again, first)


def test_given_vectors_exclude_it():
    frame = pl.DataFrame({"user": [0] * 4 + [1] * 4, "item": [0, 1, 2, 3, 1, 0, 3, 2], "timestamp": [0, 1, 2, 3] * 2})
    items = pl.DataFrame({"item": [0, 1, 2, 3], "text": [[0.1, 0.2]] * 4})
    split = leave_one_out(Dataset.from_log(read_log(frame), items))
    config = Config(**{"model.width": 4, "model.length": 4, "model.item_column": "text", "start.items": "transitions"})
    with pytest.raises(InputError, match=r"leave out model.item_column or it"):
        load_method("sasrec").fitted(split, config, progress=False)


@pytest.mark.parametrize("item_decay", [None, 0.0])
def test_item_vectors_can_be_exempt_from_weight_decay(split, item_decay):
    config = Config(
        **{
            "model.width": 8,
            "model.length": 8,
            "model.tied": False,
            "optimiser.learning_rate": 0.1,
            "optimiser.weight_decay": 0.5,
            "optimiser.item_decay": item_decay,
        }
    )
    task = Prepared(SequenceTask(split.train, planned(config, split.train)), seed=1, learning_rate=0.1)
    before = {name: value.clone() for name, value in task.model.state_dict().items()}
    for parameter in task.model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    task.optimisers.each[0].step()
    for name, value in task.model.state_dict().items():
        spared = item_decay == 0 and name in ("items.weight", "outputs.weight")
        torch.testing.assert_close(value, before[name] * (1 if spared else 0.95))


def test_it_is_the_default_up_to_a_catalogue_size(split, monkeypatch):
    config = {"model.width": 8, "model.length": 8}
    asked, unasked = (
        Prepared(SequenceTask(split.train, planned(Config(**config | more), split.train)), seed=1)
        for more in ({"start.items": "transitions"}, {})
    )
    assert torch.equal(unasked.model.items.weight, asked.model.items.weight)
    monkeypatch.setattr(plan, "MAX_TRANSITION_ITEMS", len(split.train.items) - 1)
    drawn, large = (
        Prepared(SequenceTask(split.train, planned(Config(**config | more), split.train)), seed=1)
        for more in ({"start.items": "random"}, {})
    )
    assert torch.equal(large.model.items.weight, drawn.model.items.weight)


def test_small_separate_groups_do_not_use_up_the_coordinates():
    """Six isolated pairs of items, and two groups of forty: two coordinates separate the groups."""
    rng = np.random.default_rng(0)
    rows = [(u, int(i) + 40 * (u % 2), t) for u in range(200) for t, i in enumerate(rng.permutation(40)[:8])]
    rows += [(1000 + pair, 100 + 2 * pair + t, t) for pair in range(6) for t in range(2)]
    log = pl.DataFrame(rows, schema=["user_id", "item_id", "timestamp"], orient="row")
    train = Dataset.from_log(read_log(log))
    number = np.array([int(i) for i in train.items.ids])
    vectors = transition_vectors(train, 2, seed=0)[number < 80]
    group = number[number < 80] // 40
    np.testing.assert_allclose(vectors @ vectors.T, group[:, None] == group, atol=0.05)


@pytest.mark.parametrize("share", [0.9, 0.5, 0.2])
def test_a_long_log_is_sampled_by_users(split, monkeypatch, share):
    """As many users as the limit allows: every second one would halve a log that is barely too long."""
    histories = split.train.histories
    monkeypatch.setattr(item_start, "_INTERACTIONS", int(share * len(histories.items)))
    monkeypatch.setattr(item_start, "_PER_ITEM", 0)
    some = evenly(len(histories), math.ceil(share * len(histories)))
    fewer = replace(split.train, histories=histories.take(some))
    got = transition_vectors(split.train, 8, seed=0)
    monkeypatch.undo()
    np.testing.assert_array_equal(got, transition_vectors(fewer, 8, seed=0))


def test_a_limit_stops_the_products_of_a_large_catalogue(split, monkeypatch):
    """A round takes ten seconds; that of the last product is as long."""
    clock, basis = Clock(0.0), item_start.orthonormal

    def slow(columns):
        clock.now += 10
        return basis(columns)

    monkeypatch.setattr(item_start, "_EXACT", 0)
    monkeypatch.setattr(item_start, "orthonormal", slow)
    with pytest.raises(TimeLimitError, match=r"time_limit=30 s is below 50 s"):
        transition_vectors(split.train, 4, seed=0, budget=Budget(30, clock=clock))
    assert clock.now == 10
    transition_vectors(split.train, 4, seed=0, budget=Budget(50, clock=clock))


def test_the_time_of_vectors_is_known_before_they_are_made(split, monkeypatch):
    clock = Ticks(1.0)
    assert item_start.least_vector_seconds(split.train, 4, 0, clock) == 0.0
    monkeypatch.setattr(item_start, "_TIMED", 10)
    monkeypatch.setattr(item_start, "_TIMED_PAIRS", 100)
    lengths = split.train.histories.lengths
    pairs = sum(max(length - gap, 0) for length in lengths.tolist() for gap in range(1, 11))
    least = item_start.least_vector_seconds(split.train, 4, 0, clock)
    assert least == pytest.approx(5 * (pairs / 100 + len(split.train.items) / 10))
    with caching():
        transition_vectors(split.train, 8, seed=0)
        assert item_start.least_vector_seconds(split.train, 4, 0, clock) == 0.0
        assert item_start.least_vector_seconds(split.train, 9, 0, clock) > 0
        assert item_start.least_vector_seconds(split.train, 4, 1, clock) > 0
