"""Pair models by hand, against plain references, and their torch-free scorers; unknown users, missing columns."""

import tracemalloc

import numpy as np
import polars as pl
import pytest
import torch
from pydantic import ValidationError

from beamwood.data.features import encode_columns, encode_context, fit_columns
from beamwood.errors import ArtefactError
from beamwood.fitting.vectors.item_start import start_from
from beamwood.models.din_ranker import DinRanker
from beamwood.models.features import FeatureEncoder
from beamwood.models.graphrec import GraphRec
from beamwood.models.pair_model import PairModel
from beamwood.models.pairs import QueryTensors
from beamwood.models.scorers import din, neumf
from beamwood.retrieval.searchers import scorers
from beamwood.retrieval.searchers.scorers import context_encoder, restore_scorer
from beamwood.types import ItemLists

USERS, ITEMS, LENGTH = 7, 11, 5
HISTORIES = ItemLists.from_lists([[3, 4], [], [1, 2, 3, 4, 5, 6], [10]])


def generator():
    return torch.Generator().manual_seed(0)


def features(rows, seed):
    rng = np.random.default_rng(seed)
    frame = pl.DataFrame(
        {
            "kind": [None if r == 1 else "ab"[r % 2] + ("|c" if r % 3 == 0 else "") for r in range(rows)],
            "size": [None if r == 2 else float(x) for r, x in enumerate(rng.normal(size=rows))],
            "given": [rng.normal(size=3).tolist() for _ in range(rows)],
        }
    )
    return encode_columns(fit_columns(frame, frame.columns), frame).with_missing_row()


def neumf_model(**columns):
    sizes = neumf.Sizes(factors=4, layers=(6, 3))
    return PairModel(neumf.SCORE, USERS, ITEMS, width=4, sizes=sizes, generator=generator(), **columns)


def din_model(width, attention, **options):
    sizes = din.Sizes(attention=attention, mlp=(8, 3))
    return DinRanker(USERS, ITEMS, width=width, sizes=sizes, generator=generator(), **options)


def models(with_columns):
    columns = {"user_features": features(USERS, 1), "item_features": features(ITEMS, 2)} if with_columns else {}
    graph = ItemLists.from_lists([[0, 1, 1], [2], [], [5, 6, 7], [0], [10], [3]])
    built = {
        "graphrec": GraphRec(USERS, ITEMS, width=7, generator=generator(), **columns),
        "graphrec, graph": GraphRec(USERS, ITEMS, width=7, graph=graph, generator=generator(), **columns),
        "neumf": neumf_model(**columns),
        "din": din_model(7, (5, 4), **columns),
        "din, one layer": din_model(7, (5,), **columns),
    }
    for model in built.values():
        with torch.no_grad():  # Far from the initial values, so that every term matters.
            for parameter in model.parameters():
                parameter.add_(0.5 * torch.randn(parameter.shape, generator=generator()))
    return built


def assert_close(got, expected):
    """Equal within float32 precision, relative to the largest value."""
    assert np.abs(got - expected).max() <= 1e-6 * max(1, np.abs(expected).max())


@pytest.mark.parametrize("with_columns", [False, True])
@pytest.mark.parametrize("name", ["graphrec", "graphrec, graph", "neumf", "din", "din, one layer"])
def test_the_torch_free_scorer_equals_the_model(name, with_columns):
    model = models(with_columns)[name].eval()
    users, items = np.array([0, 6, -1, 3]), np.random.default_rng(0).integers(0, ITEMS, (4, 9))
    query = QueryTensors(torch.from_numpy(users), torch.from_numpy(HISTORIES.padded(LENGTH).astype(np.int64)))
    expected = model(query, torch.from_numpy(items)).detach().numpy()
    config, arrays = model.export()
    scorer = restore_scorer(config | {"history_length": LENGTH}, arrays)
    assert_close(scorer.score(users, HISTORIES, items), expected)
    assert scorer.num_items == ITEMS
    assert scorer.needs_users == (not name.startswith("din") or with_columns)
    assert not scorer.needs_users or scorer.num_users == USERS


@pytest.mark.parametrize("cells", [1, 300, 2000])
@pytest.mark.parametrize("name", ["neumf", "din", "din, one layer"])
def test_scores_do_not_depend_on_blocks(monkeypatch, name, cells):
    config, arrays = models(True)[name].export()
    scorer = restore_scorer(config | {"history_length": LENGTH}, arrays)
    users, items = np.array([0, 6, -1, 3]), np.random.default_rng(0).integers(0, ITEMS, (4, 19))
    whole = scorer.score(users, HISTORIES, items)
    monkeypatch.setattr(scorers, "_BLOCK_CELLS", cells)
    assert_close(scorer.score(users, HISTORIES, items), whole)


@pytest.mark.parametrize("name", ["neumf", "din"])
def test_memory_of_a_scorer_does_not_grow_with_the_candidates(monkeypatch, name):
    monkeypatch.setattr(scorers, "_BLOCK_CELLS", 2**14)
    config, arrays = models(False)[name].export()
    scorer = restore_scorer(config | {"history_length": LENGTH}, arrays)

    def peak(count):
        items = np.broadcast_to(np.arange(count) % ITEMS, (1, count))
        tracemalloc.start()
        scorer.score(np.array([0]), HISTORIES.take([0]), items)
        held = tracemalloc.get_traced_memory()[1] - 4 * count  # the scores themselves
        tracemalloc.stop()
        return held

    few = peak(4_000)
    assert few > 4 * 2**13
    assert peak(40_000) < 1.2 * few


def test_graphrec_keeps_both_signs():
    model = models(False)["graphrec"]
    query = QueryTensors(torch.tensor([2, 5]), torch.empty((2, 0), dtype=torch.int64))
    items = torch.tensor([[0, 1, 2], [3, 4, 10]])
    a = (model.users(query.users_B) + model.user_bias)[:, None, :]
    b = model.items(items) + model.item_bias
    both = torch.relu(a) * torch.relu(b) + torch.relu(-a) * torch.relu(-b)
    torch.testing.assert_close(model(query, items), both.sum(dim=2))


def test_graphrec_scores_the_catalogue_by_products():
    config, weights = models(False)["graphrec"].export()
    scorer = restore_scorer(config, weights)
    users = np.array([0, 3, -1])
    every = np.broadcast_to(np.arange(ITEMS), (3, ITEMS))
    nobody = ItemLists.empty(3)
    expected = scorer.score(users, nobody, every.copy())
    np.testing.assert_allclose(scorer.score(users, nobody, every), expected, rtol=1e-5, atol=1e-6)


def test_graph_features_equal_loops():
    model = models(False)["graphrec, graph"]
    graph = model.user_graph
    neighbours = {0: [0, 1], 1: [2], 3: [5, 6, 7]}
    vectors = graph(torch.tensor([[0, 1], [3, 2]]))
    for place, user in (((0, 0), 0), ((0, 1), 1), ((1, 0), 3)):
        expected = graph.vectors[neighbours[user]].sum(dim=0) + len(neighbours[user]) / 3 * graph.degree
        torch.testing.assert_close(vectors[place], expected)
    assert torch.equal(vectors[1, 1], torch.zeros(7))
    assert torch.equal(graph(torch.tensor([-1])), torch.zeros((1, 7)))


def test_neumf_by_hand():
    model = models(False)["neumf"]
    scores = model(QueryTensors(torch.tensor([1]), torch.empty((1, 0), dtype=torch.int64)), torch.tensor([[4]]))
    table = {name: each.ids.weight for name, each in model.tables.items()}
    product = table["product_users"][1] * table["product_items"][4]
    x = torch.cat([table["users"][1], table["items"][4]])
    for layer in model.hidden.children():
        x = torch.relu(layer.weight @ x + layer.bias)
    expected = model.output.weight[0] @ torch.cat([product, x]) + model.output.bias[0]
    torch.testing.assert_close(scores[0, 0], expected)


@pytest.mark.parametrize("cells", [1, 150, 2**19])
@pytest.mark.parametrize("layers", [(5, 4), (5,)])
def test_din_attention_equals_the_plain_concatenation(layers, cells, monkeypatch):
    monkeypatch.setattr("beamwood.models.din_ranker._BLOCK_CELLS", cells)
    model = din_model(6, layers)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.5 * torch.randn(parameter.shape, generator=generator()))
    a, w = torch.randn(5, 4, 6, generator=generator()), torch.randn(5, 3, 6, generator=generator())
    present = torch.tensor([[False, True, True, True], *[[True, True, True, True]] * 4])
    x = torch.cat(
        [
            a[:, None].expand(5, 3, 4, 6),
            a[:, None] * w[:, :, None],
            w[:, :, None].expand(5, 3, 4, 6),
        ],
        dim=3,
    )
    for layer in model.attention.children():
        x = x @ layer.weight.T + layer.bias
        x = torch.where(x >= 0, x, x * layer.slope)
    expected = (x @ model.attention_out.weight[0] + model.attention_out.bias) * present[:, None, :]
    torch.testing.assert_close(model.weights(a, w, present), expected)


def test_din_ignores_padding():
    model = models(False)["din"].eval()
    items = torch.tensor([[1, 2, 3]])
    short = QueryTensors(torch.tensor([-1]), torch.tensor([[4, 5]]))
    padded = QueryTensors(torch.tensor([-1]), torch.tensor([[-1, -1, 4, 5]]))
    torch.testing.assert_close(model(short, items), model(padded, items))


def test_an_unknown_user_has_the_unknown_embedding():
    model = models(True)["graphrec"]
    table = model.users
    missing = table.rows(torch.tensor([USERS]))
    torch.testing.assert_close(table(torch.tensor([-1])), table.ids.weight[-1:] + missing)


def test_context_adds_to_the_user_vector():
    frame = pl.DataFrame({"hour": [0, 5, 9], "device": ["tv", "phone", None]})
    columns = fit_columns(frame, ["hour", "device"])
    cells = {
        name: torch.from_numpy(a.astype(np.int64) if a.dtype == np.int32 else a)
        for name, a in encode_columns(columns, frame).arrays.items()
    }
    users, items = np.array([0, 1, 2]), np.array([[1, 2], [3, 4], [5, 6]])
    histories = ItemLists.from_lists([[1], [2, 3], []])
    for build in ("graphrec", "neumf", "din"):
        if build == "din":
            model = din_model(6, (5, 4), context_columns=columns).eval()
        elif build == "neumf":
            model = neumf_model(context_columns=columns)
        else:
            model = GraphRec(USERS, ITEMS, width=20, context_columns=columns, generator=generator())
        query = QueryTensors(
            torch.from_numpy(users), torch.from_numpy(histories.padded(LENGTH).astype(np.int64)), cells
        )
        expected = model(query, torch.from_numpy(items)).detach().numpy()
        config, arrays = model.export()
        context = model.context(cells).detach().numpy()
        scorer = restore_scorer(config | {"history_length": LENGTH}, arrays)
        assert scorer.width == context.shape[1]
        assert_close(scorer.score(users, histories, items, context), expected)
        encoder = context_encoder(scorer)
        assert_close(encoder.encode(encode_context(columns, frame, 3), 3), context)
        nothing = pl.DataFrame({"hour": [None], "device": [None]}, schema={"hour": pl.Int64, "device": pl.String})
        np.testing.assert_allclose(encoder.encode(None, 1), encoder.encode(encode_context(columns, nothing, 1), 1))


@pytest.mark.parametrize(
    ("sizes", "widths"),
    [(din.Sizes, {"attention": (0,)}), (din.Sizes, {"mlp": (4, 0)}), (neumf.Sizes, {"layers": (0,)})],
)
def test_layers_without_units_are_refused(sizes, widths):
    """A folder with such sizes, and arrays to match, cannot answer."""
    with pytest.raises(ValidationError, match="greater than or equal to 1"):
        sizes(**widths)


def test_encoder_equals_loops():
    frame = pl.DataFrame({"kind": ["a|b", "b", None], "size": [1.0, None, 3.0]})
    columns = fit_columns(frame, ["kind", "size"])
    encoder = FeatureEncoder(columns, 4, std=1.0, generator=generator())
    arrays = encode_columns(columns, frame).arrays
    got = encoder({"kind": torch.from_numpy(arrays["kind"].astype(np.int64)), "size": torch.from_numpy(arrays["size"])})
    kinds, sizes = encoder.weights
    expected = torch.stack(
        [
            (kinds[1] + kinds[2]) / 2 - sizes[0],
            kinds[2] + sizes[1],
            kinds[0] + sizes[0],
        ]
    )
    torch.testing.assert_close(got, expected)


def test_a_damaged_scorer_is_refused():
    config, arrays = models(False)["neumf"].export()
    del arrays["output.bias"]
    with pytest.raises(ArtefactError, match=r"array 'output.bias' is missing"):
        restore_scorer(config, arrays)
    with pytest.raises(ArtefactError, match="kind 'neumv' is unknown; did you mean 'neumf'"):
        restore_scorer(config | {"kind": "neumv"}, arrays)


@pytest.mark.parametrize("layers", [(5, 4), (5,)])
def test_the_initialisation_of_din(layers):
    drawn = din_model(6, layers)
    model = din_model(6, layers, attention_start=0.3)
    vectors = torch.randn(ITEMS, 6, generator=generator())
    vectors[4] = 0
    start_from([model.items.ids], vectors)
    model.centre_attention()
    known = torch.arange(ITEMS) != 4
    assert torch.equal(model.items.ids.weight[:-1][known], vectors[known])
    assert torch.equal(model.items.ids.weight[[4, -1]], drawn.items.ids.weight[[4, -1]])
    assert torch.equal(next(model.attention.children()).weight, next(drawn.attention.children()).weight)
    # The mean of all ordered pairs is near that of an item and the next, and exact for these.
    a_ND = model.items(torch.arange(ITEMS))[:, None]
    following = model.weights(a_ND, a_ND.roll(1, 0), torch.ones(ITEMS, 1, dtype=torch.bool))
    assert following.mean().item() == pytest.approx(0.3, abs=1e-5)
    assert drawn.attention_out.bias.item() == 0
