"""LightGCN: vectors against dense powers of the graph, K = 0 against a plain BPR-MF, and folded-in users."""

import numpy as np
import polars as pl
import pytest
import torch

import beamwood
from beamwood.data import Dataset, disjoint_users, leave_one_out, read_log
from beamwood.data.markets.synthetic import MarketConfig, make_market
from beamwood.errors import ArtefactError, InputError
from beamwood.fitting.vectors.lightgcn import LightGcnTask
from beamwood.methods import load_method
from beamwood.models.lightgcn import Graph, GraphVectors
from beamwood.retrieval.load import restore_searcher
from beamwood.retrieval.searchers.folded import FoldedUsers
from beamwood.training.trainable import Progress
from beamwood.types import ItemLists, Query
from plans import planned
from prepared import Prepared

METHOD = load_method("lightgcn")
SHORT = {"loop.max_steps": 6, "loop.evaluate_every": 3, "loop.batch_size": 16, "choose.validation_users": 20}
SHORT |= {"model.width": 8}
NUM_ITEMS = 9
# A repeated item, a user without items, and an item (8) and a user (4) without edges.
TAKEN = ItemLists.from_lists([[0, 1, 1, 5], [2], [0, 1, 2, 3, 4, 6], [7, 6, 0], []])


@pytest.fixture(scope="module")
def dataset():
    market = make_market(MarketConfig(num_users=120, num_items=50, min_events=8, max_events=20), seed=1)
    return Dataset.from_log(read_log(market.log))


def log_of(lists):
    rows = [(user, item) for user, items in enumerate(lists) for item in items.tolist()]
    return Dataset.from_log(read_log(pl.DataFrame(rows, schema=["user", "item"], orient="row")))


def dense(taken=TAKEN, num_items=NUM_ITEMS):
    """D^-1/2 A D^-1/2 of users, then items, in loops."""
    users = len(taken)
    adjacency = np.zeros((users + num_items, users + num_items))
    for user, items in enumerate(taken):
        for item in items:
            adjacency[user, users + item] = adjacency[users + item, user] = 1
    degrees = adjacency.sum(axis=1)
    root = np.array([degree**-0.5 if degree else 0 for degree in degrees])
    return root[:, None] * adjacency * root


def averaged(table, layers, matrix=None):
    matrix = dense() if matrix is None else matrix
    return sum(np.linalg.matrix_power(matrix, k) @ table for k in range(layers + 1)) / (layers + 1)


@pytest.mark.parametrize("layers", [0, 1, 2, 3, 5])
def test_vectors_and_gradients_equal_dense_powers(layers):
    model = GraphVectors(Graph(TAKEN, NUM_ITEMS, layers), 4, torch.Generator().manual_seed(0))
    nodes = torch.tensor([[0, 5, 13], [3, 12, 5], [4, 5, 6]])
    vectors, starts = model(nodes)
    table = model.table.detach().numpy()
    np.testing.assert_allclose(vectors.detach().numpy(), averaged(table, layers)[nodes], atol=1e-6)
    assert np.array_equal(starts.detach().numpy(), table[nodes])
    weights = torch.randn(vectors.shape, generator=torch.Generator().manual_seed(1))
    (vectors * weights).sum().backward()
    spread = np.zeros_like(table)
    np.add.at(spread, nodes.numpy().ravel(), weights.numpy().reshape(-1, 4))
    np.testing.assert_allclose(model.table.grad.numpy(), averaged(spread, layers), atol=1e-6)


def test_only_training_interactions_are_edges(dataset):
    """With each split, no item that is only a validation or test label of a user is linked to the user."""
    for split in (leave_one_out(dataset), disjoint_users(dataset)):
        task = Prepared(LightGcnTask(split.train, planned(METHOD.Config(), split.train)), seed=0)
        users = len(split.train.histories)
        rows, columns = task.graph.edges.nonzero()
        below = rows < users
        found = set(zip(rows[below].tolist(), (columns[below] - users).tolist(), strict=True))
        taken = {(user, item) for user, row in enumerate(split.train.histories) for item in row.tolist()}
        assert found == taken
        for queries in (split.valid, split.test):
            if split.name == "users":
                assert not split.train.histories.lengths[queries.users].any()
            new = [
                (user, item)
                for user, items in zip(queries.users.tolist(), queries.labels, strict=True)
                for item in items.tolist()
                if (user, item) not in taken
            ]
            assert new
            assert not found & set(new)


@pytest.mark.parametrize("layers", [0, 2, 3])
def test_the_searcher_has_the_vectors(layers):
    train = log_of(TAKEN)
    config = planned(METHOD.Config(**{"model.num_layers": layers, "model.known_users": "trained"}), train)
    task = Prepared(LightGcnTask(train, config), seed=0)
    users = len(train.histories)
    expected = averaged(task.model.table.detach().numpy(), layers, dense(train.histories, train.num_items))
    searcher = task.searcher()
    np.testing.assert_allclose(searcher.vectors, expected[users:], atol=1e-6)
    query = Query(np.arange(users), train.histories)
    np.testing.assert_allclose(searcher.encode(query), expected[:users], atol=1e-6)


def test_without_layers_it_is_bpr_matrix_factorisation(dataset):
    """A plain BPR-MF with the same draws, Adam and L2 on the batch's rows gives the same vectors."""
    train = dataset
    given = {"model.num_layers": 0, "model.width": 6, "loss.regularisation": 0.3, "optimiser.learning_rate": 0.01}
    task = Prepared(LightGcnTask(train, planned(METHOD.Config(**given), train)), seed=0, learning_rate=0.01)
    users, items = (
        torch.nn.Parameter(part.clone()) for part in task.model.table.detach().split([120, train.num_items])
    )
    optimiser = torch.optim.Adam([users, items], lr=0.01)
    for step in range(12):
        state = task.rng.get_state()
        triples = task.task.batch(np.arange(32), task.rng, Progress()).nodes_B3
        task.rng.set_state(state)
        task.step(np.arange(32), number=step + 1)
        u, i, j = users[triples[:, 0]], items[triples[:, 1] - 120], items[triples[:, 2] - 120]
        loss = -torch.log(torch.sigmoid((u * i).sum(1) - (u * j).sum(1))).sum()
        loss = (loss + 0.3 / 2 * (u.norm() ** 2 + i.norm() ** 2 + j.norm() ** 2)) / 32
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    expected = torch.cat([users, items]).detach().numpy()
    np.testing.assert_allclose(task.model.table.detach().numpy(), expected, atol=2e-5)


def test_pairs_are_uniform_and_negatives_are_unseen():
    train = log_of(TAKEN)
    task = LightGcnTask(train, planned(METHOD.Config(), train))
    rng, seen = torch.Generator().manual_seed(0), {}
    num_users, num_items, draws = len(train.histories), train.num_items, 40_000
    for user, taken, other in task.batch(np.arange(draws), rng, Progress()).nodes_B3.tolist():
        seen[user, taken - num_users, other - num_users] = seen.get((user, taken - num_users, other - num_users), 0) + 1
    chi, kinds = 0.0, 0
    users = [user for user in range(num_users) if 0 < len(set(train.histories[user])) < num_items]
    for user in users:
        own = sorted(set(train.histories[user].tolist()))
        rest = [item for item in range(num_items) if item not in own]
        for taken in own:
            for other in rest:
                expected = draws / len(users) / len(own) / len(rest)
                chi += (seen.pop((user, taken, other), 0) - expected) ** 2 / expected
                kinds += 1
    assert not seen
    # Far beyond chance: the mean is kinds - 1, the standard deviation the root of twice that.
    assert abs(chi - kinds) < 5 * np.sqrt(2 * kinds)


@pytest.mark.parametrize("layers", [1, 3])
def test_a_folded_in_user_has_the_vector_of_an_inserted_user(layers):
    """With an own vector of 0, and with unchanged item vectors."""
    table = np.random.default_rng(0).normal(size=(len(TAKEN) + NUM_ITEMS, 4))
    layered = [np.linalg.matrix_power(dense(), k) @ table for k in range(layers + 1)]
    history, matrix = [6, 0, 0, 3], dense()
    degrees = np.array([sum(item in row for row in TAKEN) for item in range(NUM_ITEMS)])
    row = np.zeros(len(matrix))
    for item in set(history):
        row[len(TAKEN) + item] = (len(set(history)) * degrees[item]) ** -0.5
    expected = sum(row @ layer for layer in layered[:layers]) / (layers + 1)
    train = log_of(TAKEN)
    task = Prepared(LightGcnTask(train, planned(METHOD.Config(**{"model.num_layers": layers}), train)), seed=0)
    with torch.no_grad():
        # The log's users and items are numbered by first occurrence; 8 is not an item.
        places = [*train.users.decode(np.arange(len(train.users))), *[5 + i for i in train.items.decode(np.arange(8))]]
        task.model.table = torch.nn.Parameter(torch.from_numpy(table[np.array(places)].astype(np.float32)))
    searcher = task.searcher()
    asked = ItemLists.from_lists([train.items.encode(history), []])
    got = searcher.encode(Query.of(asked))
    np.testing.assert_allclose(got[0], expected, atol=1e-5)
    assert not got[1].any()


def test_known_users_by_vector_and_others_by_history(dataset, tmp_path):
    split = leave_one_out(dataset)
    trained = METHOD.fitted(split, SHORT | {"model.known_users": "trained"}, progress=False)
    trained.save(tmp_path / "saved")
    loaded = beamwood.load(tmp_path / "saved")
    user = dataset.users.decode(np.array([3]))[0]
    for model in (trained, loaded):
        assert model.searcher.needs.users
        by_history = model.recommend([[1, 2, 3]], k=5).item_ids
        known = model.recommend([[1, 2, 3]], users=[user], k=5).item_ids
        unknown = model.recommend([[1, 2, 3]], users=["nobody"], on_unknown="ignore", k=5).item_ids
        assert by_history == unknown != known
        # Unknown users without a history get popular items.
        assert model.recommend([[]], k=5).scores == [[0.0] * 5]
    assert loaded.recommend(users=[user], k=5) == trained.recommend(users=[user], k=5)
    asked = METHOD.fitted(split, SHORT, progress=False)
    assert not asked.searcher.needs.users
    assert np.allclose(asked.score([[1, 2]], [[5, 6]]), loaded.score([[1, 2]], [[5, 6]]))


def test_new_users_of_another_split(dataset):
    split = disjoint_users(dataset)
    for known in ("trained", "history"):
        fitted = METHOD.fitted(split, SHORT | {"model.known_users": known}, progress=False)
        query = split.test.query(fitted.searcher.needs)
        vectors = fitted.searcher.first.encode(query)
        assert vectors.any(axis=1).all()
        assert np.allclose(vectors, fitted.searcher.first.encode(Query.of(split.test.histories)))
    with pytest.raises(
        InputError, match=r"model.num_layers=0 recommends to users of the training data only.*another model.num_lay"
    ):
        METHOD.fitted(split, SHORT | {"model.num_layers": 0}, progress=False)


def test_wrong_arrays_and_logs():
    users = FoldedUsers(np.ones((4, 2), np.float32), np.ones((3, 2), np.float32))
    with pytest.raises(InputError, match=r"users holds an index outside -1\.\.2"):
        users.encode(Query(np.array([3]), ItemLists.from_lists([[1]])))
    with pytest.raises(ArtefactError, match="'users'"):
        FoldedUsers(np.ones((4, 2), np.float32), np.ones((3, 1), np.float32))
    everything = log_of(ItemLists.from_lists([[0, 1], [1, 0]]))
    with pytest.raises(InputError, match="no training user has some items but not all"):
        LightGcnTask(everything, planned(METHOD.Config(), everything))


def test_unexpected_arrays_are_refused(dataset):
    fitted = METHOD.fitted(leave_one_out(dataset), SHORT, progress=False)
    config, arrays = fitted.searcher.first.export()
    restore_searcher("vectors", config, arrays)
    with pytest.raises(ArtefactError, match="'other' is not expected beside 'items' and 'users'"):
        restore_searcher("vectors", config, arrays | {"query.other": arrays["vectors"]})
    with pytest.raises(ArtefactError, match="'items' is missing"):
        restore_searcher("vectors", config, {name: array for name, array in arrays.items() if name != "query.items"})


def test_it_learns_the_market():
    market = make_market(MarketConfig(num_users=400, num_items=90, min_events=20, max_events=60), seed=1)
    split = disjoint_users(Dataset.from_log(read_log(market.log), market.item_frame))
    given = SHORT | {
        "optimiser.learning_rate": 0.02,
        "loop.max_steps": 120,
        "loop.evaluate_every": 60,
        "loop.batch_size": 512,
        "model.width": 16,
    }
    fitted = METHOD.fitted(split, given, progress=False)
    popular = load_method("popularity").fitted(split)
    f20 = [beamwood.evaluate(each, split)["removed"].means()["f@20"] for each in (fitted, popular)]
    assert f20[0] > f20[1] + 0.005
