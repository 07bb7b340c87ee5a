"""EASE's closed form against its optimisation problem, in blocks, with few items and few neighbours."""

import numpy as np
import pytest
from scipy import sparse

from beamwood.data import Dataset, disjoint_users, read_log
from beamwood.data.markets.synthetic import MarketConfig, make_market
from beamwood.errors import InputError
from beamwood.methods import ease, load_method
from beamwood.retrieval.retriever import Retriever
from beamwood.training.budget import Budget


@pytest.fixture(scope="module")
def split():
    market = make_market(MarketConfig(num_users=300, num_items=60, max_events=40), seed=1)
    return disjoint_users(Dataset.from_log(read_log(market.log), market.item_frame))


def taken_by(num_users, num_items):
    return sparse.csr_matrix(np.random.default_rng(num_items).random((num_users, num_items)) < 0.2, dtype=float)


def test_solves_its_problem(monkeypatch):
    """The gradient of |X - X B|^2 + lambda |B|^2 vanishes off the diagonal (equation 5), in blocks or whole."""
    taken = taken_by(50, 11)
    whole = ease.weights(taken, regularisation=2.0, num_neighbours=11, max_solved=1000).toarray()
    products = (taken.T @ taken).toarray()
    gradient = (products + 2 * np.eye(11)) @ whole - products
    assert np.allclose(gradient[~np.eye(11, dtype=bool)], 0, atol=1e-5)
    assert (np.diag(whole) == 0).all()
    assert whole.min() < 0 < whole.max()
    monkeypatch.setattr(ease, "_BLOCK_ROWS", 3)
    assert np.allclose(
        ease.weights(taken, regularisation=2.0, num_neighbours=11, max_solved=1000).toarray(), whole, atol=1e-7
    )


@pytest.mark.parametrize(("users", "items"), [(50, 300), (150, 200), (3, 200), (1, 150)])
@pytest.mark.parametrize("regularisation", [1e-3, 2.0, 1000.0])
def test_solving_over_users_equals_solving_over_items(users, items, regularisation, monkeypatch):
    """Both give the same matrix for binary and weighted data, in blocks, with users without items."""
    taken = taken_by(users, items)
    taken.data *= np.random.default_rng(users).random(taken.nnz) * 3
    taken = sparse.vstack([taken, sparse.csr_matrix((4, items))]).tocsr()
    monkeypatch.setattr(ease, "_BLOCK_ROWS", 64)
    found = {}
    for few_users in (True, False):
        with monkeypatch.context() as patched:
            patched.setattr(ease, "_has_few_users", lambda _, few=few_users: few)
            found[few_users] = ease.weights(
                taken, regularisation=regularisation, num_neighbours=items, max_solved=1000
            ).toarray()
    assert np.abs(found[False]).max() > 1e-3 / max(regularisation, 1)
    assert np.allclose(found[True], found[False], rtol=1e-3, atol=1e-5 / max(regularisation, 1))


@pytest.mark.parametrize("weighted", [False, True])
def test_items_that_are_not_solved_together_are_close_to_exact(weighted):
    """Sixty items of ninety are rare, as in a log: their weights for items of a common user are close, others are 0."""
    rng = np.random.default_rng(3)
    taken = sparse.csr_matrix(rng.random((3000, 90)) < np.where(np.arange(90) < 30, 0.2, 0.01), dtype=float)
    if weighted:
        taken.data *= rng.random(taken.nnz) * 2
    options = {"regularisation": 100.0, "num_neighbours": 90}
    exact = ease.weights(taken, **options, max_solved=90).toarray()
    found = ease.weights(taken, **options, max_solved=30).toarray()
    alone = ease.weights(taken[:, :30], **options, max_solved=90).toarray()
    assert np.allclose(found[:30, :30], alone, rtol=1e-4, atol=1e-6)
    shared = (taken.T @ taken).toarray() > 0
    for part in (np.s_[:30, 30:], np.s_[30:, :30], np.s_[30:, 30:]):
        assert shared[part].any()
        assert not shared[part].all()
        assert not found[part][~shared[part]].any()
        near = exact[part][shared[part]]
        assert np.abs(near).max() > 1e-3
        assert np.abs(found[part][shared[part]] - near).max() < 0.1 * np.abs(near).max()
    assert not np.diag(found).any()


def test_one_item_beside_those_solved_together_is_exact():
    taken = taken_by(200, 12)
    exact = ease.weights(taken, regularisation=5.0, num_neighbours=12, max_solved=12).toarray()
    found = ease.weights(taken, regularisation=5.0, num_neighbours=12, max_solved=11).toarray()
    shared = (taken.T @ taken).toarray()[:, 11] > 0
    assert np.count_nonzero(shared) > 6
    assert np.allclose(found[shared, 11], exact[shared, 11], rtol=1e-4, atol=1e-6)
    assert not found[~shared, 11].any()


@pytest.mark.parametrize("max_solved", [5, 30])
def test_what_the_solved_items_explain_is_the_same_gathered_or_whole(max_solved, monkeypatch):
    taken = taken_by(60, 90)
    found = []
    for gathered in (0, 10**9):
        monkeypatch.setattr(ease, "_GATHERED", gathered)
        found.append(ease.weights(taken, regularisation=20.0, num_neighbours=90, max_solved=max_solved).toarray())
    assert np.allclose(*found, rtol=1e-4, atol=1e-6)
    assert np.count_nonzero(found[0][max_solved:, max_solved:]) > 100


def test_approximate_weights_do_not_depend_on_blocks(monkeypatch):
    taken = taken_by(50, 31)
    whole = ease.weights(taken, regularisation=20.0, num_neighbours=31, max_solved=10).toarray()
    monkeypatch.setattr(ease, "_BLOCK_ROWS", 7)
    blocks = ease.weights(taken, regularisation=20.0, num_neighbours=31, max_solved=10).toarray()
    assert np.allclose(blocks, whole, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(("users", "items"), [(400, 90), (60, 300)])
def test_single_precision_gives_the_same_matrix_and_serves_only_enough_regularisation(users, items, monkeypatch):
    taken = taken_by(users, items)
    for regularisation, dtype in ((300.0, np.float32), (1e-3, np.float64)):
        assert ease._inverse(taken, regularisation).dtype == dtype
    single = ease.weights(taken, regularisation=5.0, num_neighbours=items, max_solved=1000).toarray()
    monkeypatch.setattr(ease, "_FLOAT32_RATIO", 0)
    double = ease.weights(taken, regularisation=5.0, num_neighbours=items, max_solved=1000).toarray()
    assert 0 < np.abs(single - double).max() < 1e-5 * np.abs(double).max()


def test_few_users_need_no_inverse_over_items(monkeypatch):
    def inverse(rows, regularisation, real=ease._inverse):
        sizes.append(rows.shape[0])
        return real(rows, regularisation)

    monkeypatch.setattr(ease, "_inverse", inverse)
    for users, items, expected in [(20, 400, 20), (400, 20, 20)]:
        sizes = []
        ease.weights(taken_by(users, items), regularisation=2.0, num_neighbours=items, max_solved=1000)
        assert sizes == [expected]


def test_a_limit_leaves_out_items_that_take_too_long(split, monkeypatch):
    """Five items take a tenth of a second here, so all sixty would take too long."""
    monkeypatch.setattr(ease, "_TRIED", 5)
    ticks = iter(np.arange(0, 1e6, 0.1))
    budget = Budget(20.0, clock=lambda: float(next(ticks)))
    searcher, _ = ease.build(split, ease.Config(**{"model.regularisation": 50.0}), 0, budget)
    weighted = np.count_nonzero(np.abs(searcher.similarity.toarray()).sum(axis=1))
    assert 5 <= weighted < 60
    assert any("of 60 items get weights" in said for said in budget.left_out)


def test_keeps_the_largest_weights_of_either_sign():
    taken = taken_by(50, 11)
    whole = ease.weights(taken, regularisation=2.0, num_neighbours=11, max_solved=1000).toarray()
    kept = ease.weights(taken, regularisation=2.0, num_neighbours=3, max_solved=1000).toarray()
    for row, all_of_it in zip(kept, whole, strict=True):
        largest = np.argsort(-np.abs(all_of_it))[:3]
        assert set(np.flatnonzero(row)) == set(largest)
        assert np.array_equal(row[largest], all_of_it[largest])


def test_of_equal_weights_no_more_are_kept():
    alike = sparse.csr_matrix(np.repeat(taken_by(50, 2).toarray(), 20, axis=1))
    kept = ease.weights(alike, regularisation=2.0, num_neighbours=3, max_solved=1000)
    assert (np.diff(kept.indptr) == 3).all()


def test_few_items_have_weights(split):
    config = ease.Config(
        **{"model.max_items": 20, "model.regularisation": (50.0,), "model.decay": (0.9,), "model.seen": ("counted",)}
    )
    retriever = load_method("ease").fitted(split, config)
    similarity = retriever.searcher.similarity.toarray()
    weighted = np.flatnonzero(np.abs(similarity).sum(axis=1))
    counts = split.train.item_counts
    assert set(weighted) <= set(np.argsort(-counts, kind="stable")[:20])
    assert len(weighted) > 15


def test_learns_cooccurring_items_and_is_saved(split, tmp_path):
    from one_view import evaluate_view

    retriever = load_method("ease").fitted(split)
    ours = evaluate_view(retriever.searcher, split.test, ks=(20,), remove_seen=True).means()["f@20"]
    popular = load_method("popularity").fitted(split)
    assert ours > evaluate_view(popular.searcher, split.test, ks=(20,), remove_seen=True).means()["f@20"]
    assert retriever.metadata["training"]["regularisation"] in (300.0, 1000.0)
    retriever.save(tmp_path / "ease")
    again = Retriever.load(tmp_path / "ease")
    assert again.recommend(users=[1], k=5).item_ids == retriever.recommend(users=[1], k=5).item_ids


@pytest.mark.parametrize(
    "wrong",
    [
        {"model.regularisation": ()},
        {"model.regularisation": 0},
        {"model.max_items": 0},
        {"model.max_items": 10**7},
        {"model.decay": 1.5},
    ],
)
def test_wrong_settings(split, wrong):
    import beamwood

    with pytest.raises(InputError, match=next(iter(wrong))):
        beamwood.fit(split, "ease", wrong)
