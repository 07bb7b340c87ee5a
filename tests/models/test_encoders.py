"""What every sequence encoder owes: a twin without torch, indifference to padding, order, and no look ahead."""

import numpy as np
import pytest
import torch

from beamwood.errors import ArtefactError
from beamwood.models.encoders import build_encoder
from beamwood.retrieval.load import restore_searcher
from beamwood.retrieval.sequence import ENCODERS, SequenceSearcher, UserBranch
from beamwood.types import ItemLists, Query

LENGTH, NUM_ITEMS = 9, 40
SIZES = {"width": 12, "length": LENGTH, "dropout": 0.3, "num_blocks": 2, "num_heads": 3, "hidden": 10}
SIZES |= {"num_vertical": 3, "num_horizontal": 5}


def build(name, seed=0, **options):
    generator = torch.Generator().manual_seed(seed)
    model = build_encoder(name, NUM_ITEMS, **SIZES, **options, generator=generator).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn(parameter.shape, generator=generator))
    return model


def searcher_of(model):
    sizes = {"sasrec": {"num_heads": 3}, "gru4rec": {"length": LENGTH}}.get(model.name, {})
    return SequenceSearcher(ENCODERS[model.name](model.export(), **sizes))


@pytest.fixture(params=sorted(ENCODERS))
def model(request):
    return build(request.param)


def histories(seed, rows=8, length=LENGTH):
    rng = np.random.default_rng(seed)
    items = rng.integers(0, NUM_ITEMS, (rows, length))
    real = np.concatenate([[0, 1, length], rng.integers(1, length + 1, rows - 3)])
    items[np.arange(length) < length - real[:, None]] = -1
    return items


@torch.no_grad()
def last(model, items):
    return model(torch.as_tensor(items))[:, -1].numpy()


@pytest.mark.parametrize("features", [None, 5])
@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("name", sorted(ENCODERS))
def test_the_searcher_gives_the_models_scores_and_survives_saving(name, tied, features):
    given = None if features is None else np.random.default_rng(3).normal(size=(NUM_ITEMS, features))
    model = build(name, tied=tied, features_NF=given)
    items = histories(0)
    query = Query.of(ItemLists.from_lists([row[row >= 0] for row in items]))
    searcher = searcher_of(model)
    real = query.histories.lengths > 0
    expected = last(model, items) @ model.output_weight.detach().numpy().T
    every = np.broadcast_to(np.arange(NUM_ITEMS), (len(items), NUM_ITEMS))
    assert np.allclose(searcher.score(query, every)[real], expected[real], atol=1e-4)
    assert not searcher.encode(query)[~real].any()
    one = np.concatenate([searcher.encode(query.take(np.array([row]))) for row in range(len(query))])
    assert np.allclose(one, searcher.encode(query), atol=1e-5)
    config, arrays = searcher.export()
    assert np.array_equal(arrays["vectors"], model.output_weight.detach().numpy())
    again = restore_searcher("sequence", config, arrays)
    assert np.array_equal(again.search(query, 7).items, searcher.search(query, 7).items)


def test_padding_does_not_matter(model):
    padded = np.full((1, LENGTH), -1)
    padded[0, -2:] = [3, 4]
    assert np.allclose(last(model, padded), last(model, [[3, 4]]), atol=1e-5)
    assert np.allclose(last(model, padded), last(model, [[-1, 3, 4]]), atol=1e-5)
    encoder = searcher_of(model).encoder
    assert np.allclose(encoder.encode(np.array([[3, 4]])), last(model, padded), atol=1e-5)


def test_order_matters(model):
    assert np.abs(last(model, [[3, 4, 5]]) - last(model, [[5, 4, 3]])).max() > 1e-3


def test_only_the_latest_items_count(model):
    lists = ItemLists.from_lists([np.arange(LENGTH + 3), np.arange(3, LENGTH + 3)])
    vectors = searcher_of(model).encode(Query.of(lists))
    assert np.allclose(vectors[0], vectors[1], atol=1e-6)


def test_causal_encoders_do_not_look_ahead(model):
    items = torch.from_numpy(histories(1))
    with torch.no_grad():
        vectors = model(items)
        assert vectors.shape[1] == (LENGTH if model.causal else 1)
        if not model.causal:
            return
        changed = items.clone()
        changed[:, -1] = 5
        real = items[:, :-1] >= 0
        assert torch.allclose(vectors[:, :-1][real], model(changed)[:, :-1][real], atol=1e-6)
        if model.name == "gru4rec":
            # SASRec's positions count from the window's end, a recurrence has none.
            for stop in range(1, LENGTH + 1):
                assert torch.allclose(vectors[2, stop - 1], model(items[2:3, :stop])[0, -1], atol=1e-5)


def test_every_parameter_learns(model):
    model.train()
    model(torch.from_numpy(histories(2, rows=20))).square().sum().backward()
    unused = [name for name, p in model.named_parameters() if p.grad is None or not p.grad.any()]
    assert [name for name in unused if "key.bias" not in name] == []


def test_artefacts_from_before_there_were_encoders_load():
    searcher = searcher_of(build("sasrec"))
    config, arrays = searcher.export()
    old = restore_searcher("sasrec", {"num_heads": config["num_heads"]}, arrays)
    query = Query.of(ItemLists.from_lists([[1, 2, 3]]))
    assert np.array_equal(old.encode(query), searcher.encode(query))
    with pytest.raises(ArtefactError, match="did you mean 'caser'"):
        restore_searcher("sequence", config | {"encoder": "casr"}, arrays)
    with pytest.raises(ArtefactError, match="'positions' is missing"):
        restore_searcher("sequence", config, {name: array for name, array in arrays.items() if name != "positions"})


def test_the_user_branch_is_for_short_histories(model):
    plain = searcher_of(model)
    rng = np.random.default_rng(0)
    branch = UserBranch(rng.normal(size=(12, 12)).astype(np.float32), rng.normal(size=12).astype(np.float32), 2)
    config, arrays = SequenceSearcher(plain.encoder, branch).export()
    searcher = restore_searcher("sequence", config, arrays)
    lists = ItemLists.from_lists([[], [1], [2, 3], [4, 5, 6]])
    before, after = plain.encode(Query.of(lists)), searcher.encode(Query.of(lists))
    expected = before[1:3] + before[1:3] @ branch.weight.T + branch.bias
    assert np.allclose(after[1:3], expected, atol=1e-5)
    assert np.array_equal(after[[0, 3]], before[[0, 3]])
