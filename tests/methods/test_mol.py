"""Mixture of logits: scores against loops, search against brute force, balance of gates, and saving."""

import numpy as np
import pytest
import torch

import beamwood
from beamwood.errors import ArtefactError, InputError, UnknownSearcherError
from beamwood.fitting.vectors.mol import MolTask, imbalance
from beamwood.methods import load_method
from beamwood.models import mol
from beamwood.models.ops import silu, softmax, unit
from beamwood.retrieval.load import restore_searcher
from beamwood.retrieval.searchers.mixture import MixtureSearcher
from beamwood.types import SearchOptions
from following import NUM_ITEMS, far_from_start, followed, gain_over_popularity, queries, without_gradient
from plans import planned
from prepared import Prepared

METHOD = load_method("mol")
SMALL = {"model.width": 12, "model.length": 6, "model.num_blocks": 1, "model.component_width": 5}
SMALL |= {"model.query_components": 3, "model.gate_hidden": 7, "model.dropout": 0.0, "choose.validation_users": 50}
SHORT = SMALL | {"loop.max_steps": 6, "loop.evaluate_every": 3, "loop.batch_size": 16}
SIZES = mol.Sizes(query_components=3, item_components=2, component_width=5, gate_hidden=7)


@pytest.fixture(scope="module")
def split():
    return followed()


def task_of(split, **changes):
    """A training task far from its initial values."""
    config = planned(METHOD.Config(**(SMALL | changes)), split.train)
    task = Prepared(MolTask(split.train, config), seed=0)
    return far_from_start(task)


def by_loops(weights, query, item, sizes, temperature):
    """The score of one query and one item, in float64."""

    def linear(name, x):
        return weights[f"mixture.{name}.weight"].astype(float) @ x + weights[f"mixture.{name}.bias"]

    def gate(name, x):
        hidden = linear(f"{name}.inner", x)
        return linear(f"{name}.outer", hidden / (1 + np.exp(-hidden)))

    f = linear("queries", query).reshape(sizes.query_components, -1)
    g = linear("items", item).reshape(sizes.item_components, -1)
    products = np.array([one @ other / np.linalg.norm(one) / np.linalg.norm(other) for one in f for other in g])
    mixed = gate("query_gate", query) * gate("item_gate", item) + gate("pair_gate", products)
    shares = np.exp(mixed / (1 + np.exp(-mixed)))
    return (shares / shares.sum()) @ products / temperature


def test_scores_equal_their_definition(split):
    task = task_of(split)
    searcher, query = task.searcher(), queries()
    vectors = searcher.encoder.encode(query.histories.padded(6))
    items = np.array([[3, 59, 0, -1, 17]] * len(query))
    got = searcher.score(query, items)
    for row, column in np.ndindex(got.shape):
        if items[row, column] < 0:
            assert got[row, column] == -np.inf
            continue
        item = searcher.encoder.vectors[items[row, column]]
        assert got[row, column] == pytest.approx(by_loops(searcher.weights, vectors[row], item, SIZES, 0.05), abs=2e-3)
    every = searcher.score(query, np.broadcast_to(np.arange(NUM_ITEMS), (len(query), NUM_ITEMS)))
    np.testing.assert_allclose(every[:, [3, 59, 0, 17]], got[:, [0, 1, 2, 4]], atol=1e-4)


def test_torch_and_numpy_scores_are_equal(split):
    task = task_of(split)
    searcher, query = task.searcher(), queries()
    padded = torch.from_numpy(query.histories.padded(6).astype(np.int64))
    with torch.no_grad():
        parts, gate = mol.query_parts(task.model.weights, task.model(padded)[:, -1], SIZES)
        of_items, gates = mol.item_parts(task.model.weights, task.model.output_weight, SIZES)
        scores, shares = mol.mixture_scores(
            task.model.weights, mol.component_products(parts, of_items), gate, gates, 0.05
        )
    every = np.broadcast_to(np.arange(NUM_ITEMS), (len(query), NUM_ITEMS))
    np.testing.assert_allclose(searcher.score(query, every), scores.numpy(), atol=1e-3)
    np.testing.assert_allclose(shares.sum(dim=2).numpy(), 1, atol=1e-6)
    own = mol.component_products(parts, of_items.expand(len(query), -1, -1, -1))
    np.testing.assert_allclose(own.numpy(), mol.component_products(parts, of_items).numpy(), atol=1e-6)


def test_functions_equal_those_of_torch():
    x = np.random.default_rng(0).normal(scale=30, size=(4, 5)).astype(np.float32)
    x[2] = 0
    for function in (silu, softmax, unit):
        np.testing.assert_allclose(function(x), function(torch.from_numpy(x)).numpy(), atol=1e-5)


def test_dropout_acts_on_the_gates_shares_in_training_alone(split):
    """A pair's share is left out, or divided by the rest; the shares of the balance are whole."""
    task = task_of(split)
    generator = torch.Generator().manual_seed(4)
    products, gate, gates = (torch.randn(size, generator=generator) for size in ((2, 5, 6), (2, 6), (5, 6)))
    given = (task.model.weights, products, gate, gates, 0.05)
    _, whole = mol.mixture_scores(*given)
    torch.manual_seed(8)
    scores, shares = mol.mixture_scores(*given, 0.4)
    torch.manual_seed(8)
    kept = torch.nn.functional.dropout(torch.ones(2, 5, 6), 0.4)
    assert torch.equal(shares, whole)
    assert 0 < (kept == 0).sum() < kept.numel()
    torch.testing.assert_close(scores, (whole * kept * products).sum(dim=2) / 0.05)
    losses = {}
    for dropout in (0.0, 0.5):
        own = task_of(split, **{"model.dropout": dropout})
        queries_XD, targets = torch.randn((9, 12), generator=torch.Generator().manual_seed(2)), torch.arange(9)
        for mode in (True, False):
            own.model.train(mode)
            torch.manual_seed(1)
            loss = own.task.cross_entropy(queries_XD, targets, torch.Generator().manual_seed(3))
            losses[dropout, mode] = loss.detach()
    assert torch.equal(losses[0.0, True], losses[0.0, False])
    assert torch.equal(losses[0.5, False], losses[0.0, False])
    assert not torch.allclose(losses[0.5, True], losses[0.5, False])


def test_with_one_pair_it_is_an_inner_product(split):
    one = {"model.query_components": 1, "model.item_components": 1, "model.num_candidates": None}
    searcher, query = task_of(split, **one).searcher(), queries()
    parts, _ = mol.query_parts(searcher.weights, searcher.encode(query), searcher.sizes)
    of_items, _ = mol.item_parts(searcher.weights, searcher.encoder.vectors, searcher.sizes)
    expected = parts[:, 0] @ of_items[:, 0].T / 0.05
    hits = searcher.search(query, 10)
    np.testing.assert_allclose(hits.scores, -np.sort(-expected, axis=1)[:, :10], atol=1e-4)


@pytest.mark.parametrize("index", ["exact", "hnsw"])
def test_all_candidates_equal_brute_force(split, index):
    """Ids, order and scores, with filters; more candidates never lose a result."""
    if index == "hnsw":
        pytest.importorskip("faiss", reason="faiss is not installed (pip install 'beamwood[ann]')")
    from beamwood.retrieval.index import INDEXES

    exact = task_of(split, **{"model.num_candidates": None}).searcher()
    query = queries(40)
    excluded, allowed = query.histories.distinct(), np.arange(NUM_ITEMS) % 3 > 0
    for options in (SearchOptions(), SearchOptions(excluded), SearchOptions(excluded, allowed)):
        best, recalls = exact.search(query, 10, options), []
        for count in (1, 12, NUM_ITEMS - 1, NUM_ITEMS):
            few = task_of(split, **{"model.num_candidates": count}).searcher().indexed(INDEXES[index])
            hits = few.search(query, 10, options)
            assert (hits.items >= 0).all()
            assert (np.diff(hits.scores, axis=1) <= 0).all()
            own = few.score(query, hits.items)
            np.testing.assert_allclose(hits.scores, own, atol=1e-3)
            recalls.append(np.mean([len(set(a) & set(b)) / 10 for a, b in zip(hits.items, best.items, strict=True)]))
        assert recalls == sorted(recalls)
        assert np.array_equal(hits.items, best.items)
        assert recalls[2] > 0.999


def test_recall_rises_with_the_number_of_scored_items(split):
    exact, query, found = task_of(split, **{"model.num_candidates": None}).searcher(), queries(60), {}
    best = exact.search(query, 5).items
    for count in (5, 10, 20):
        hits = task_of(split, **{"model.num_candidates": count}).searcher().search(query, 5)
        found[count] = np.mean([len(set(a) & set(b)) / 5 for a, b in zip(hits.items, best, strict=True)])
        # All products of each pair, and the mixtures.
        assert (hits.scored > SIZES.pairs * NUM_ITEMS).all()
        assert (hits.scored <= SIZES.pairs * (NUM_ITEMS + count)).all()
    assert found[5] <= found[10] <= found[20]
    assert found[20] > found[5]


def test_a_row_equals_that_in_a_batch(split, monkeypatch):
    searcher, query = task_of(split, **{"model.num_candidates": 4}).searcher(), queries()
    whole = searcher.search(query, 3)
    monkeypatch.setattr("beamwood.retrieval.searchers.mixture._BLOCK_CELLS", 1)
    alone = searcher.search(query, 3)
    assert np.array_equal(alone.items, whole.items)
    np.testing.assert_allclose(alone.scores, whole.scores, atol=1e-4)


def test_the_balance_of_gates():
    """E[H] - H(E): 0 if all gates are equal, -log P if each query has its own pair and all are used."""
    alike, idle = torch.full((3, 4, 8), 1 / 8), torch.eye(8)[torch.zeros(3, 4, dtype=torch.int64)]
    assert float(imbalance(alike)) == pytest.approx(0, abs=1e-6)
    assert float(imbalance(idle)) == pytest.approx(0, abs=1e-6)
    apart = torch.eye(8)[torch.arange(16).view(4, 4) % 8]
    assert float(imbalance(apart)) == pytest.approx(-np.log(8), abs=1e-6)


def test_the_loss_equals_loops(split):
    """The target against drawn items that are not it, which stand for all others, by the mixture's own scores."""
    task = task_of(split, **{"loss.sampled_negatives": 200, "loss.load_balance": 0.0})
    queries_XD = torch.randn((6, 12), generator=torch.Generator().manual_seed(2))
    with torch.no_grad():
        losses = task.task.cross_entropy(queries_XD, torch.arange(6), torch.Generator().manual_seed(5)).numpy()
    drawn = torch.randint(NUM_ITEMS, (200,), generator=torch.Generator().manual_seed(5)).numpy()
    assert (drawn < 6).any()
    searcher = task.searcher()
    for row, query in enumerate(queries_XD.numpy().astype(float)):
        scores = [by_loops(searcher.weights, query, item, SIZES, 0.05) for item in searcher.encoder.vectors]
        kept = drawn[drawn != row]
        rivals = np.exp(np.array(scores)[kept] - scores[row]).sum() * (NUM_ITEMS - 1) / len(kept)
        assert losses[row] == pytest.approx(np.log1p(rivals), rel=2e-3, abs=1e-3)


def test_balance_is_part_of_the_loss(split):
    losses = []
    for weight in (0.0, 0.5):
        task = task_of(split, **{"loss.load_balance": weight})
        task.rng.manual_seed(5)
        losses.append(float(task.loss(task.batch(np.arange(8))).detach()))
    assert losses[1] < losses[0]


def test_every_parameter_learns(split):
    task = task_of(split)
    assert without_gradient(task) == []


def test_it_learns_successors(split):
    given = SMALL | {"loop.max_steps": 150, "loop.evaluate_every": 75}
    assert gain_over_popularity(METHOD, split, given) > 0.2


def test_a_saved_model_gives_equal_answers_and_a_damaged_one_is_refused(split, tmp_path):
    fitted = METHOD.fitted(split, SHORT, progress=False)
    fitted.save(tmp_path / "saved")
    loaded = beamwood.load(tmp_path / "saved")
    asked = {"histories": [[1, 2, 3], [5]], "k": 5, "allowed": list(range(0, NUM_ITEMS, 2))}
    assert loaded.recommend(**asked) == fitted.recommend(**asked)
    config, arrays = fitted.searcher.first.export()
    assert isinstance(restore_searcher("mixture", config, arrays), MixtureSearcher)
    for name in arrays:
        with pytest.raises(ArtefactError):
            restore_searcher("mixture", config, {other: each for other, each in arrays.items() if other != name})
    with pytest.raises(InputError, match="there are 1 indexes of 2 components"):
        restore_searcher("mixture", config | {"indexes": config["indexes"][:1]}, arrays)
    with pytest.raises(UnknownSearcherError, match="index 'exat' is unknown"):
        restore_searcher("mixture", config | {"indexes": [{"kind": "exat", "config": {}}] * 2}, arrays)
    with pytest.raises(UnknownSearcherError, match="encoder 'sasrek' is unknown"):
        restore_searcher("mixture", config | {"encoder": "sasrek"}, arrays)


def test_wrong_items(split):
    searcher, query = task_of(split).searcher(), queries(2)
    with pytest.raises(InputError, match=r"items holds an index outside -1\.\.59"):
        searcher.score(query, np.array([[60], [1]]))
    with pytest.raises(InputError, match="give one row for each of 2 histories"):
        searcher.score(query, np.array([[1]]))
