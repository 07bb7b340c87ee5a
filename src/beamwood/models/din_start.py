"""An initialisation of the DIN scorer by which, before training, a node's score is its similarity to the history.

Shape legend: V nodes of the tree, D width.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from beamwood.models.din import DinScorer

__all__ = ["FIRST_FREE", "shift_levels", "start_as_similarity"]

FIRST_FREE = 2
"""The first coordinates of a node: 1, and its frequency; the others hold the similarity."""

# Attention to the newest entry, its decay with age, and the weight of the log frequency; chosen on validation users of
# `amazon_games_sasrec`, `ml1m` and `mind_dtr`.
_GAIN, _FADE, _FREQUENCY = 2.0, 0.6, 1.0
# The frequency coordinate is scaled to the range of embeddings, the unit that carries the score is shifted above 0, and
# the random weights are reduced.
_SCALE, _LIFT, _QUIET = 0.1, 1.0, 0.1


@torch.no_grad()
def start_as_similarity(scorer: DinScorer, directions_VD: Tensor, log_frequency_V: Tensor) -> None:
    """Make `score(node) = 2 sum_l .6^age(l) attention(a_l, node) + log_frequency(node)` + a constant + random weights.

    If one of the scorer's terms is a similarity, it replaces the first part, which the MLP then has to learn. Attention
    is `attention_start` plus 1.25 times the product of the two nodes' directions (a quarter of the sum where it is
    below 0: its PReLU); the entries of a window have the mean age of its places. `directions_VD` float32 [V, D - 2], a
    zero row where unknown (such a node keeps its random embedding); `log_frequency_V` float32[V], around 0 on each
    level. Two units of attention and one of each layer of the MLP carry this to the output; the others keep their
    random weights, reduced to a tenth. Needs `unit_coordinate`, as a window then holds the sum of its attention
    weights.
    """
    assert scorer.unit_coordinate, "a window holds no sum of attention weights"
    width, nodes = scorer.nodes.embedding_dim, scorer.nodes.weight
    known = directions_VD.any(dim=1)
    nodes[known, FIRST_FREE:] = directions_VD[known]
    nodes[:, 1] = _SCALE * log_frequency_V

    for unit, sign in ((0, 1.0), (1, -1.0)):
        # PReLU(x) - PReLU(-x) is linear in x.
        scorer.attention_in.weight[unit] = 0
        scorer.attention_in.weight[unit, width + FIRST_FREE : 2 * width] = sign
        scorer.attention_in.bias[unit] = 0
        scorer.attention_out.weight[0, unit] = sign
    scorer.attention_out.weight[0, 2:] *= _QUIET
    scorer.centre_attention()

    gain = 0.0 if any(module.term.likens for module in scorer.held_terms().values()) else _GAIN
    first, *others = [layer for layer in scorer.hidden if isinstance(layer, nn.Linear)]
    first.weight[0] = 0
    ends = list(itertools.accumulate(scorer.windows))
    for window, (end, size) in enumerate(zip(ends, scorer.windows, strict=True)):
        first.weight[0, window * width] = gain / _GAIN * _FADE ** (ends[-1] - end + (size - 1) / 2)
    first.weight[0, len(scorer.windows) * width + 1] = _FREQUENCY / _SCALE / _GAIN
    first.bias[0] = _LIFT
    for layer in others:
        layer.weight[0] = 0
        layer.weight[1:, 0] *= _QUIET
        layer.weight[0, 0], layer.bias[0] = 1, 0
    scorer.output.weight[0, 1:] *= _QUIET
    scorer.output.weight[0, 0] = _GAIN


@torch.no_grad()
def shift_levels(scorer: DinScorer, shifts: Sequence[float]) -> None:
    """Add `shifts[h - 1]` to the scores of level h, of a scorer initialised by `start_as_similarity`.

    The lowest goes to the scorer's constant, the differences of the others to the frequency coordinate.
    """
    lowest = min(shifts)
    scorer.output.bias.add_(lowest)
    for level, shift in enumerate(shifts, start=1):
        first, size = scorer.shape.level_offset(level), scorer.shape.level_size(level)
        scorer.nodes.weight[first : first + size, 1] += _SCALE * (shift - lowest) / _FREQUENCY
