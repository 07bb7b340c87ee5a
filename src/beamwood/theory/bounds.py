"""Generalisation bounds of a tree's scorer and of a ranker behind it, term by term, from a trained model's own norms.

They say how error grows with norms, items and branching. At the sizes of real models they lie far above 1, as bounds by
norms do: they compare, they promise nothing. Source: two-stage bounds, theorems 4.4-4.9; DTR, lemma 1 and theorem 4.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from beamwood.errors import InputError
from beamwood.kernels.din import DinWeights
from beamwood.types import FloatArray

__all__ = [
    "DtrTerms",
    "Norms",
    "attention_capacity",
    "branching_term",
    "dtr_bound",
    "dtr_complexity",
    "filtering_shift",
    "norms_of",
    "ranker_bound",
    "ranker_complexity",
    "retriever_bound",
    "retriever_complexity",
    "tau",
]


@dataclass(frozen=True, slots=True)
class Norms:
    """Of a target-attention scorer: `nodes` B_0 and `history` B_a, the largest 2-norms of a node's and a history
    entry's vector; `layers` B_1 and `attention` B_2, the largest 1-norm of a row of any matrix of the MLP and of the
    attention; `num_layers` L; `length` T, the history entries; `lipschitz` c, of the activations.
    """

    nodes: float
    history: float
    layers: float
    attention: float
    num_layers: int
    length: int
    lipschitz: float = 1.0


def norms_of(weights: DinWeights) -> Norms:
    """The norms of a DIN scorer. Biases have no place in the theorems, and are left out.

    Errors: a scorer to whose score terms are added, which no theorem speaks of.
    """
    if weights.terms:
        raise InputError("the bounds are of the network alone; fit with start.scores=random, which adds nothing to it")
    largest = float(np.linalg.norm(weights.nodes, axis=1).max())
    attention = [weights.attention_in, weights.attention_out]
    every = [*attention, *weights.layers]
    slopes = [float(np.abs(layer.slope).max()) for layer in every if layer.slope is not None]
    return Norms(
        nodes=largest,
        history=largest,
        layers=max(_row_norm(layer.weight) for layer in weights.layers),
        attention=max(_row_norm(layer.weight) for layer in attention),
        num_layers=len(weights.layers),
        length=int(weights.windows.sum()),
        lipschitz=max(1.0, *slopes),
    )


def attention_capacity(norms: Norms) -> float:
    """`B_ta = c^(L-1) B_1^L (B_w T + B_0)`, `B_w = c^2 B_2^2 (B_a^2 + B_a^2 B_0 + B_0 B_a)`; theorems 4.7 and 4.9."""
    squared, product = norms.history**2, norms.nodes * norms.history
    window = (norms.lipschitz * norms.attention) ** 2 * (squared + squared * norms.nodes + product)
    outer = norms.lipschitz ** (norms.num_layers - 1) * norms.layers**norms.num_layers
    return outer * (window * norms.length + norms.nodes)


def branching_term(num_items: int, branching: int) -> float:
    """`B N / sqrt(B^2 - 1)`: what a tree over N items adds to the complexity; the less, the more branches."""
    _checked(num_items, branching)
    return branching * num_items / math.sqrt(branching**2 - 1)


def retriever_complexity(capacity: float, num_examples: int, num_items: int, branching: int) -> float:
    """At least the Rademacher complexity of the margins g_f over m examples, `4 B_model / sqrt(m)` times the term of
    `branching_term`.

    `capacity` is B_model: that of `attention_capacity`, or of scores <x, w_v> the product of both largest norms.
    Source: theorems 4.5 and 4.7.
    """
    return 4 * capacity / math.sqrt(num_examples) * branching_term(num_items, branching)


def ranker_complexity(capacity: float, num_examples: int) -> float:
    """At least the Rademacher complexity of one item's scores: `B_model / sqrt(m)`. Source: theorem 4.9."""
    return capacity / math.sqrt(num_examples)


def retriever_bound(losses: FloatArray, complexity: float, *, lipschitz: float, largest: float, delta: float) -> float:
    """With probability 1 - delta at least the share of targets that the beam misses.

    `losses` [m] A(g_f) of each example, A at least the 0/1 loss, `lipschitz` c_A and `largest` B_A its bounds. Source:
    theorem 4.4.
    """
    return float(losses.mean()) + 4 * lipschitz * complexity + _confidence(largest, len(losses), delta)


def ranker_bound(
    losses: FloatArray,
    complexity: float,
    *,
    shift: float,
    num_items: int,
    num_candidates: int,
    lipschitz: float,
    largest: float,
    delta: float,
) -> float:
    """With probability 1 - delta at least the share of retrieved targets that the ranker does not put first.

    `shift` is `E |1 - P'/P|` of what it ranks against what it was trained on. Source: theorem 4.8.
    """
    rivals = 4 * lipschitz * num_items * (num_candidates + 1) * complexity
    return shift + float(losses.mean()) + rivals + _confidence(largest, len(losses), delta)


def filtering_shift(share: float) -> float:
    """`E |1 - P'/P| = 2 (1 - share)`, P' being P among the pairs that a retriever brings, `share` of all: what training
    on all of them (TS) pays in theorem 4.8, and training on those alone (H-TS) does not."""
    if not 0 < share <= 1:
        raise InputError(f"share={share} is outside (0, 1]")
    return 2 * (1 - share)


def tau(num_items: int, branching: int) -> float:
    """`sqrt((2 B - 1) / (B - 1) N)`, whose square is at least the number of a tree's nodes.

    Source: DTR, equations 50 and 51; where lemma 1 states it, a second root stands over B - 1, with which it would grow
    with B, against the text.
    """
    _checked(num_items, branching)
    return math.sqrt((2 * branching - 1) / (branching - 1) * num_items)


def dtr_complexity(norms: Norms, num_examples: int, num_items: int, branching: int) -> float:
    """At least the Rademacher complexity of a DIN over a tree: `2 c^(L-1) B_1^L (B_0 + K B_w1 + K B_w2 tau) / sqrt(m)`.

    Source: DTR, lemma 1; K is `norms.length`.
    """
    scale = (norms.lipschitz * norms.attention) ** 2
    of_history = scale * norms.history**2
    of_nodes = scale * norms.nodes * (norms.history**2 + norms.history)
    inner = norms.nodes + norms.length * (of_history + of_nodes * tau(num_items, branching))
    outer = norms.lipschitz ** (norms.num_layers - 1) * norms.layers**norms.num_layers
    return 2 * outer * inner / math.sqrt(num_examples)


@dataclass(frozen=True, slots=True)
class DtrTerms:
    """The five terms of DTR's theorem 4, in its order, which sum to the bound."""

    empirical: float
    estimation: float
    sampling: float
    complexity: float
    confidence: float

    @property
    def total(self) -> float:
        return self.empirical + self.estimation + self.sampling + self.complexity + self.confidence


def dtr_bound(
    norms: Norms,
    *,
    loss: float,
    discrepancy: float,
    kl: FloatArray,
    largest_score: float,
    num_examples: int,
    num_items: int,
    branching: int,
    delta: float,
) -> DtrTerms:
    """With probability 1 - delta at least the expected loss with the labels that are right.

    `loss`: the mean over examples of the sampled losses of all levels; `discrepancy` g(eps), the expected number of
    levels whose rectified label is wrong; `kl` [H] of the sampling distribution from the softmax on each level, as
    `diagnose` measures it; `largest_score` B_M. Source: DTR, theorem 4, equation 34 as printed; its own lemma 2, summed
    over levels, has 4 sum_j log N_j in the confidence where it prints 8 log tau, and no union over the levels.
    """
    nodes, levels = tau(num_items, branching), len(kl)
    return DtrTerms(
        empirical=loss,
        estimation=discrepancy * (2 * largest_score + math.log(num_items)),
        sampling=float(np.sum(kl)),
        complexity=4 * nodes**2 * dtr_complexity(norms, num_examples, num_items, branching),
        confidence=_confidence(8 * math.log(nodes) + 8 * levels * largest_score, num_examples, delta / 2),
    )


def _row_norm(matrix: FloatArray) -> float:
    return float(np.abs(matrix).sum(axis=1).max())


def _confidence(largest: float, num_examples: int, delta: float) -> float:
    if not 0 < delta < 1:
        raise InputError(f"delta={delta} is outside (0, 1)")
    return largest * math.sqrt(2 * math.log(2 / delta) / num_examples)


def _checked(num_items: int, branching: int) -> None:
    if num_items < 1 or branching < 2:
        raise InputError(f"num_items={num_items}, branching={branching}; give 1 or more items and 2 or more branches")
