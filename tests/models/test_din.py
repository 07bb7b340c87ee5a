"""The torch scorer equals the plain equations in values and gradients, and its export searches alike."""

import numpy as np
import pytest
import torch
from scipy import sparse
from torch.nn import functional

from beamwood.kernels.attention import attention_weights
from beamwood.kernels.reference import beam_search, score_level_plain
from beamwood.kernels.terms import sums_of_leaves
from beamwood.models.din import ATTENTION_START, DinScorer, LevelNodes
from beamwood.models.din_windows import without_empty_windows
from beamwood.models.terms import Neighbours, Seen, Similarity
from beamwood.models.terms.neighbours import all_lists, set_lists
from beamwood.models.terms.similarity import set_leaves
from beamwood.tree import random_tree

SIZES = {"width": 6, "attention_hidden": 9, "windows": (4, 3, 2, 1), "mlp": (12, 7)}


def scorer_case(*, norm="none", activation="prelu", table_limit=20, num_items=150, seed=3, similarity=0, near=0):
    generator = torch.Generator().manual_seed(seed)
    tree = random_tree(num_items, np.random.default_rng(seed))
    terms = ([Similarity(similarity), Seen()] if similarity else []) + ([Neighbours(near)] if near else [])
    model = DinScorer(tree.shape, generator=generator, terms=terms, norm=norm, activation=activation, **SIZES)
    model.table_limit = table_limit
    if similarity:
        vectors = torch.randn(tree.shape.capacity, similarity, generator=generator).numpy()
        model.terms["similarity"].change(lambda held: set_leaves(held["vectors"], vectors, tree.shape))
    if near:
        model.terms["neighbours"].change(lambda held: start_neighbours(held, tree.shape, seed))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=generator) * 0.1)
    leaves = torch.from_numpy(tree.leaves_of(np.random.default_rng(seed).integers(0, num_items, (5, 10)))).long()
    leaves[0] = -1
    leaves[1, :6] = -1
    shape = tree.shape
    levels = [LevelNodes(1, None)]
    for level in range(2, shape.depth + 1):
        levels.append(LevelNodes(level, torch.randint(shape.level_size(level), (5, 8), generator=generator)))
    return tree, model, leaves, levels


def start_neighbours(held, shape, seed):
    """Random counts, and position weights of 1."""
    counts = sparse.random_array(2 * (shape.capacity,), density=0.1, rng=seed, format="csr")
    [lists] = all_lists(held)
    set_lists(lists, counts)
    held["shares"][:] = sums_of_leaves(np.full(shape.capacity, 1 / shape.capacity), shape)
    held["places"][:] = np.log(np.expm1(1)) / 20
    held["gain"][:] = 0.5


def plain_scores(model, leaves, entry):
    """The literal equations in torch, with every pair built."""
    shape = model.shape
    offset = shape.level_offset(entry.level)
    nodes = entry.nodes
    if nodes is None:
        nodes = torch.arange(shape.level_size(entry.level)).expand(len(leaves), -1)
    history = torch.div(leaves, shape.leaves_below(entry.level), rounding_mode="floor")
    a = model.nodes.weight[offset + history.clamp(min=0)][:, None].expand(-1, nodes.shape[1], -1, -1)
    w = model.nodes.weight[offset + nodes][:, :, None].expand_as(a)
    x = functional.linear(torch.cat([a, a * w, w], -1), model.attention_in.weight, model.attention_in.bias)
    x = torch.where(x > 0, x, x * model.attention_in_act.weight)
    x = functional.linear(x, model.attention_out.weight, model.attention_out.bias)
    x = torch.where(x > 0, x, x * model.attention_out_act.weight)[..., 0] * (history >= 0)[:, None]
    z = [part.sum(2) for part in torch.split(x[..., None] * a, list(model.windows), dim=2)]
    x = torch.cat([*z, w[:, :, 0]], -1)
    for layer, act in zip(model.hidden, model.acts, strict=True):
        x = layer(x)
        x = torch.where(x > 0, x, x * act.weight)
    scores = model.output(x)[..., 0]
    terms = model.terms
    if "similarity" in terms:
        vectors = terms["similarity"].vectors[offset:]
        places = terms["similarity"].places * (history >= 0)
        scores = scores + torch.einsum("bl,blr,bmr->bm", places, vectors[history.clamp(min=0)], vectors[nodes])
        if entry.level == shape.depth:
            scores = scores + 20 * ((nodes[:, :, None] == leaves[:, None]) * terms["seen"].weights).sum(dim=2)
    if "neighbours" in terms:
        near, rows = terms["neighbours"], shape.level_offset(shape.depth) + leaves.clamp(min=0)
        above = torch.div(near.leaves[rows], shape.leaves_below(entry.level), rounding_mode="floor")
        same = nodes[:, :, None, None] == above[:, None]
        places = torch.log(1 + torch.exp(20 * near.places)) * (history >= 0)
        sums = torch.einsum("bmlk,blk,bl->bm", same.to(places.dtype), near.chances[rows], places)
        scores = scores + near.gain * torch.log(1 + sums / near.shares[offset + nodes])
    return scores


@pytest.mark.parametrize(
    ("table_limit", "similarity", "near"), [(0, 0, 0), (20, 0, 0), (10**6, 0, 0), (20, 5, 0), (20, 0, 4), (20, 3, 150)]
)
def test_values_and_gradients_equal_the_equations(table_limit, similarity, near):
    _, model, leaves, levels = scorer_case(table_limit=table_limit, similarity=similarity, near=near)
    equals_the_equations(model.double(), leaves, levels)


def test_dropout_acts_behind_the_first_layer_alone():
    """As in the authors' program; of a level's scores nothing else is dropped."""
    _, model, leaves, levels = scorer_case()
    widths = []
    model.dropout.register_forward_hook(lambda _, inputs, output: widths.append(inputs[0].shape[1]))
    model.train()(leaves, levels)
    assert set(widths) == {model.hidden[0].out_features}
    assert len(model.hidden) > 1
    assert model.hidden[1].out_features not in widths


@pytest.mark.parametrize(("empty", "kept"), [(1, 10), (4, 6), (5, 6), (8, 3), (9, 1), (10, 1)])
@pytest.mark.parametrize("table_limit", [0, 10**6])
def test_windows_beyond_all_histories_are_skipped(empty, kept, table_limit):
    _, model, leaves, levels = scorer_case(table_limit=table_limit, similarity=5, near=4)
    leaves[:, :empty] = -1
    assert without_empty_windows(model.windows, leaves).shape[1] == kept
    equals_the_equations(model.double(), leaves, levels)


def equals_the_equations(model, leaves, levels):
    gradients = []
    for scores in (model(leaves, levels), [plain_scores(model, leaves, entry) for entry in levels]):
        model.zero_grad()
        sum((s * torch.arange(s.numel()).view_as(s).cos()).sum() for s in scores).backward()
        gradients.append({name: p.grad.clone() for name, p in model.named_parameters()})
    for got, entry in zip(model(leaves, levels), levels, strict=True):
        assert torch.allclose(got, plain_scores(model, leaves, entry), rtol=1e-9, atol=1e-9)
    for name, expected in gradients[1].items():
        assert torch.allclose(gradients[0][name], expected, rtol=1e-7, atol=1e-9), name


@pytest.mark.parametrize(
    ("norm", "activation", "similarity", "near"),
    [
        ("none", "prelu", 0, 0),
        ("batch", "prelu", 0, 0),
        ("none", "relu", 0, 0),
        ("none", "relu", 7, 0),
        ("none", "relu", 7, 5),
    ],
)
def test_export_searches_like_the_model(norm, activation, similarity, near):
    tree, model, leaves, _ = scorer_case(norm=norm, activation=activation, similarity=similarity, near=near)
    shape = tree.shape
    model.train()
    for _ in range(3):
        model(leaves[1:], [LevelNodes(shape.depth, None)])
    model.eval()
    weights = model.export()
    with torch.no_grad():
        expected = model(leaves, [LevelNodes(shape.depth, None)])[0].numpy()
    nodes = np.arange(shape.capacity)[None].repeat(len(leaves), 0)
    plain = score_level_plain(weights, shape, shape.depth, leaves.numpy(), nodes)
    assert np.allclose(plain, expected, rtol=1e-4, atol=1e-5)
    found = beam_search(weights, shape, leaves.numpy(), beam_width=shape.capacity, k=5, live=tree.live_counts)
    live = np.where(tree.item_of_leaf >= 0, expected, -np.inf)
    assert np.array_equal(found.leaves, np.argsort(-live, axis=1, kind="stable")[:, :5])


def test_rows_do_not_depend_on_their_batch():
    _, model, leaves, levels = scorer_case(norm="batch")
    model.eval()
    together = model(leaves, levels)
    for row in range(len(leaves)):
        one = [LevelNodes(e.level, None if e.nodes is None else e.nodes[row : row + 1]) for e in levels]
        alone = model(leaves[row : row + 1], one)
        assert all(torch.allclose(a[0], t[row], atol=1e-6) for a, t in zip(alone, together, strict=True))


def test_unknown_norm():
    tree = random_tree(10, np.random.default_rng(0))
    with pytest.raises(ValueError, match="norm='layer' is unknown"):
        DinScorer(tree.shape, windows=(2,), norm="layer")


def test_recomputing_changes_nothing():
    _, model, leaves, levels = scorer_case(similarity=4, near=3)
    _, lean, _, _ = scorer_case(similarity=4, near=3)
    lean.recompute = True
    for dropout in (0.0, 0.3):
        gradients = []
        for scorer in (model, lean):
            scorer.dropout.p = dropout
            scorer.zero_grad()
            torch.manual_seed(4)
            scores = scorer(leaves, levels)
            sum((s * torch.arange(s.numel()).view_as(s).cos()).sum() for s in scores).backward()
            gradients.append([p.grad.clone() for p in scorer.parameters()])
        if dropout == 0:
            assert all(torch.allclose(a, b, rtol=1e-4, atol=1e-6) for a, b in zip(*gradients, strict=True))
        else:
            # Masks differ, but forward and backward of one step must have the same ones.
            torch.manual_seed(4)
            scorer.zero_grad()
            scorer.recompute = False
            parts = [scorer(leaves, [entry])[0] for entry in levels]
            sum((s * torch.arange(s.numel()).view_as(s).cos()).sum() for s in parts).backward()
            again = [p.grad.clone() for p in scorer.parameters()]
            assert all(torch.allclose(a, b, rtol=1e-4, atol=1e-6) for a, b in zip(again, gradients[1], strict=True))


def test_recomputing_needs_independent_rows():
    tree = random_tree(10, np.random.default_rng(0))
    with pytest.raises(ValueError, match="recompute=True"):
        DinScorer(tree.shape, windows=(2,), norm="batch", recompute=True)


@pytest.mark.parametrize("seed", range(4))
def test_attention_starts_as_a_plain_sum(seed):
    """For any seed, all entries of the history have weight at the start."""
    generator = torch.Generator().manual_seed(seed)
    model = DinScorer(random_tree(150, np.random.default_rng(0)).shape, windows=(2,), generator=generator)
    a, w = model.nodes.weight[None, :100], model.nodes.weight[None, 50:150]
    weights = attention_weights(a, w, torch.ones(1, 100, dtype=torch.bool), model.attention_layers)
    assert abs(weights.mean() - ATTENTION_START) < 0.05
    assert (weights > 0).float().mean() > 0.98


def test_attention_can_start_at_random():
    """The papers' form: the bias of attention's output stays zero."""
    shape = random_tree(150, np.random.default_rng(0)).shape
    assert DinScorer(shape, windows=(2,), attention_start=None).attention_out.bias.item() == 0
    assert DinScorer(shape, windows=(2,)).attention_out.bias.item() != 0
