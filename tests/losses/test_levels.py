"""The losses of a level against the papers' sums in loops, for each way in which its nodes are drawn."""

import math

import pytest
import torch

from beamwood.errors import InputError
from beamwood.losses.levels import LEVEL_LOSSES, LevelDraw

SIZE, ROWS, TARGETS = 9, 5, 3
SOFTMAX, BINARY = (LEVEL_LOSSES[name].loss for name in ("softmax", "binary"))


def softplus(x):
    return math.log1p(math.exp(x))


@pytest.fixture
def case():
    """Scores of all nodes, targets (two of row 0 are one node), labels, and nodes with items; 4 and 7 have none."""
    generator = torch.Generator().manual_seed(0)
    scores = torch.randn(ROWS, SIZE, generator=generator, dtype=torch.float64)
    live = torch.ones(SIZE, dtype=torch.bool)
    live[[4, 7]] = False
    nodes = torch.nonzero(live)[:, 0]
    targets = nodes[torch.randint(len(nodes), (ROWS, TARGETS), generator=generator)]
    targets[0, 1] = targets[0, 0]
    labels = torch.rand(ROWS, TARGETS, generator=generator) < 0.6
    labels[0, 1] = labels[0, 0]
    drawn = nodes[torch.randint(len(nodes), (ROWS, 6), generator=generator)]
    return scores, targets, labels, live, drawn


def scored(draw, scores, targets):
    nodes = draw.scored(targets)
    return scores if nodes is None else torch.gather(scores, 1, nodes)


def test_a_whole_level_by_softmax(case):
    """DTR, equation 18: `-z log(exp(o+) / sum over the level)`, nodes without items left out."""
    scores, targets, labels, live, _ = case
    losses = SOFTMAX(LevelDraw(2, None), scores, targets, labels, live)
    for row in range(ROWS):
        total = sum(math.exp(scores[row, n]) for n in range(SIZE) if live[n])
        for t, target in enumerate(targets[row].tolist()):
            expected = -math.log(math.exp(scores[row, target]) / total) if labels[row, t] else 0.0
            assert losses[row, t].item() == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("known", [True, False])
def test_drawn_nodes_by_softmax(case, known):
    """Equations 20-21: negatives `exp(o - ln(M q))`, equal draws dropped, and q that of the nodes that are left."""
    scores, targets, labels, _, drawn = case
    log_q_of = torch.log_softmax(torch.randn(SIZE, generator=torch.Generator().manual_seed(2)).double(), 0)
    draw = LevelDraw(2, drawn, log_q_of[drawn], log_q_of[targets] if known else None)
    losses = SOFTMAX(draw, scored(draw, scores, targets), targets, labels, None)
    for row in range(ROWS):
        for t, target in enumerate(targets[row].tolist()):
            kept = [n for n in drawn[row].tolist() if n != target]
            share = 1 - math.exp(log_q_of[target]) if known else 1.0
            rivals = sum(math.exp(scores[row, n]) / (len(kept) * math.exp(log_q_of[n]) / share) for n in kept)
            own = math.exp(scores[row, target])
            expected = -math.log(own / (own + rivals)) if labels[row, t] else 0.0
            assert losses[row, t].item() == pytest.approx(expected, rel=1e-9)
    with pytest.raises(InputError, match="needs log_q"):
        SOFTMAX(LevelDraw(2, drawn), scores, targets, labels, None)
    # The first columns of such scores are no targets.
    with pytest.raises(InputError, match="the softmax of level 2 needs the score of each target"):
        SOFTMAX(LevelDraw(2, drawn, log_q_of[drawn], targets_included=True), scores, targets, labels, None)


@pytest.mark.parametrize("loss", [SOFTMAX, BINARY])
def test_draws_that_do_not_count_change_nothing(case, loss):
    scores, targets, labels, _, drawn = case
    log_q_of = torch.log_softmax(torch.randn(SIZE, generator=torch.Generator().manual_seed(2)).double(), 0)
    real = torch.tensor([[True] * 4 + [False] * 2]).expand(ROWS, -1)
    whole = LevelDraw(2, drawn, log_q_of[drawn], log_q_of[targets], real=real)
    short = LevelDraw(2, drawn[:, :4], log_q_of[drawn[:, :4]], log_q_of[targets])
    ours, theirs = (loss(draw, scored(draw, scores, targets), targets, labels, None) for draw in (whole, short))
    torch.testing.assert_close(ours, theirs)


def test_a_node_wise_loss_refuses_labels_that_are_weights(case):
    scores, targets, labels, live, _ = case
    with pytest.raises(InputError, match=r"labels of bool, not torch\.float32; set loss\.normalised=false"):
        BINARY(LevelDraw(2, None), scores, targets, labels.float(), live)


def by_nodes(scores, targets, labels, negatives):
    """Equation 8 of one row: the targets by their labels, every negative as one."""
    total = 0.0
    for target, label in zip(targets, labels, strict=True):
        total += softplus(-scores[target]) if label else softplus(scores[target])
    return total + sum(softplus(scores[n]) for n in negatives)


@pytest.mark.parametrize("apart", [False, True])
def test_a_whole_level_node_by_node(case, apart):
    """Negatives are the nodes of no target; with targets apart, for each target all others."""
    scores, targets, labels, live, _ = case
    losses = BINARY(LevelDraw(2, None, targets_apart=apart), scores, targets, labels, live)
    for row in range(ROWS):
        s, own = scores[row].tolist(), targets[row].tolist()
        negatives = [n for n in range(SIZE) if live[n] and n not in own]
        if apart:
            negatives = [n for target in own for n in range(SIZE) if live[n] and n != target]
        assert losses[row].item() == pytest.approx(by_nodes(s, own, labels[row], negatives) / TARGETS, rel=1e-9)


def test_drawn_nodes_node_by_node(case):
    """TDM: the draws of a level are shared by the targets, and none of these is a negative."""
    scores, targets, labels, _, drawn = case
    real = torch.rand(drawn.shape, generator=torch.Generator().manual_seed(3)) < 0.8
    for mask in (None, real):
        draw = LevelDraw(2, drawn, real=mask)
        losses = BINARY(draw, scored(draw, scores, targets), targets, labels, None)
        for row in range(ROWS):
            s, own = scores[row].tolist(), targets[row].tolist()
            kept = [n for m, n in enumerate(drawn[row].tolist()) if n not in own and (mask is None or mask[row, m])]
            assert losses[row].item() == pytest.approx(by_nodes(s, own, labels[row], kept) / TARGETS, rel=1e-9)


def test_siblings_node_by_node(case):
    """PLT: what is a sibling of one target counts, even where it is another target."""
    scores, targets, labels, _, drawn = case
    real = torch.rand(drawn.shape, generator=torch.Generator().manual_seed(3)) < 0.8
    draw = LevelDraw(2, drawn, real=real, targets_apart=True)
    losses = BINARY(draw, scored(draw, scores, targets), targets, labels, None)
    for row in range(ROWS):
        kept = drawn[row][real[row]].tolist()
        expected = by_nodes(scores[row].tolist(), targets[row].tolist(), labels[row], kept) / TARGETS
        assert losses[row].item() == pytest.approx(expected, rel=1e-9)


def test_the_nodes_of_a_beam_node_by_node(case):
    """OTM: each node of the beam once, by its pseudo label; a target outside has no part in it."""
    scores, targets, labels, _, _ = case
    beam = torch.tensor([[0, 1, 2, 3, 5]]).expand(ROWS, -1)
    real = torch.tensor([[True, True, False, True, True]]).expand(ROWS, -1)
    draw = LevelDraw(2, beam, real=real, targets_included=True)
    losses = BINARY(draw, scored(draw, scores, targets), targets, labels, None)
    outside = 0
    for row in range(ROWS):
        positive = {n for n, z in zip(targets[row].tolist(), labels[row].tolist(), strict=True) if z}
        outside += len(positive - {0, 1, 3, 5})
        expected = sum(softplus(-scores[row, n] if n in positive else scores[row, n]) for n in (0, 1, 3, 5))
        assert losses[row].item() == pytest.approx(expected / TARGETS, rel=1e-9)
    assert outside
