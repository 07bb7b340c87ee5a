"""Generalisation bounds of a tree's scorer and of a ranker behind it, term by term, from a trained model's own norms.

They state how error grows with norms, items and branching. At the sizes of real models they are far above 1, like all
norm-based bounds: use them to compare models, not as guarantees. Source: two-stage bounds, theorems 4.4-4.9; DTR, lemma
1 and theorem 4.
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
    "linear_capacity",
    "mlp_capacity",
    "norms_of",
    "ranker_bound",
    "ranker_complexity",
    "retriever_bound",
    "retriever_complexity",
    "tau",
]


@dataclass(frozen=True, slots=True)
class Norms:
    """Norms of a target-attention scorer: `nodes` B_0 and `history` B_a, the largest 2-norms of a node's and a history
    entry's vector; `layers` B_1 and `attention` B_2, the largest 1-norm of a row of any matrix of the MLP and of the
    attention; `num_layers` L; `length` T, the history entries; `lipschitz` c, of the activations.

    Two-stage bounds, section 3.1, defines a matrix's 1-norm as induced, which is that of a column. The proofs bound a
    product by the largest coordinate of its vector, which needs the rows.
    """

    nodes: float
    history: float
    layers: float
    attention: float
    num_layers: int
    length: int
    lipschitz: float = 1.0


def norms_of(weights: DinWeights) -> Norms:
    """The norms of a DIN scorer. Biases do not occur in the theorems and are ignored.

    Errors: a scorer with added score terms, which no theorem covers.
    """
    if weights.terms:
        raise InputError("the bounds cover the network alone, without added score terms; fit with start.scores=random")
    largest = float(np.linalg.norm(weights.nodes, axis=1).max())
    attention = [weights.attention_in, weights.attention_out]
    slopes = [float(np.abs(layer.slope).max()) for layer in (*attention, *weights.layers)]
    return Norms(
        nodes=largest,
        history=largest,
        layers=max(_row_norm(layer.weight) for layer in weights.layers),
        attention=max(_row_norm(layer.weight) for layer in attention),
        num_layers=len(weights.layers),
        length=int(weights.windows.sum()),
        lipschitz=max(1.0, *slopes),
    )


def linear_capacity(nodes: float, inputs: float) -> float:
    """`B_lin = B_0 B_x`, of scores <x, w_v>, |w_v| <= B_0 and |x| <= B_x. Source: theorems 4.5 and 4.9."""
    return nodes * inputs


def mlp_capacity(nodes: float, inputs: float, layers: float, num_layers: int, *, lipschitz: float = 1.0) -> float:
    """`B_mlp = 2 c^(L-1) B_1^L (B_0 + B_x)`, of an MLP over (x; w_v). Source: theorems 4.6 and 4.9."""
    return 2 * lipschitz ** (num_layers - 1) * layers**num_layers * (nodes + inputs)


def attention_capacity(norms: Norms) -> float:
    """`B_ta = c^(L-1) B_1^L (B_w T + B_0)`, `B_w = c^2 B_2^2 (B_a^2 + B_a^2 B_0 + B_0 B_a)`; theorems 4.7 and 4.9."""
    squared, product = norms.history**2, norms.nodes * norms.history
    window = (norms.lipschitz * norms.attention) ** 2 * (squared + squared * norms.nodes + product)
    outer = norms.lipschitz ** (norms.num_layers - 1) * norms.layers**norms.num_layers
    return outer * (window * norms.length + norms.nodes)


def branching_term(num_items: int, branching: int) -> float:
    """`B N / sqrt(B^2 - 1)`: the factor of the complexity that a tree over N items adds; it falls as
    branching grows.

    Source: two-stage bounds, equation 16 as printed: the root of the number of pairs of nodes on a level. It leaves the
    level above the leaves out, so of N just above a power of B the factor is `sqrt((2 B^2 - 1) / (B^2 - 1)) N`.
    """
    _checked(num_items, branching)
    return branching * num_items / math.sqrt(branching**2 - 1)


def retriever_complexity(capacity: float, num_examples: int, num_items: int, branching: int) -> float:
    """An upper bound of the Rademacher complexity of the margins g_f over m examples: `4 B_model / sqrt(m)` times
    `branching_term`.

    `capacity` is B_model, of one of the three functions above. Source: theorems 4.5-4.7.
    """
    return 4 * capacity / _root(num_examples) * branching_term(num_items, branching)


def ranker_complexity(capacity: float, num_examples: int) -> float:
    """An upper bound of the Rademacher complexity of one item's scores: `B_model / sqrt(m)`.

    `capacity` is of a network over (z; w): that of `models.din_ranker` also reads z * w, which no theorem covers.
    Source: theorem 4.9.
    """
    return capacity / _root(num_examples)


def retriever_bound(losses: FloatArray, complexity: float, *, lipschitz: float, largest: float, delta: float) -> float:
    """An upper bound, with probability 1 - delta, of the share of targets that the beam misses.

    `losses` [m] are A(g_f) of each example, A at least the 0/1 loss; `lipschitz` c_A and `largest` B_A are its
    Lipschitz constant and maximum. Source: theorem 4.4.
    """
    confidence = _confidence(largest, len(losses), delta)
    return float(np.mean(losses)) + 4 * lipschitz * complexity + confidence


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
    """An upper bound, with probability 1 - delta, of the share of retrieved targets that the ranker does not put first.

    `shift` is `E |1 - P'/P|` between the pairs it ranks and those it was trained on. Source: theorem 4.8.
    """
    rivals = 4 * lipschitz * num_items * (num_candidates + 1) * complexity
    confidence = _confidence(largest, len(losses), delta)
    return shift + float(np.mean(losses)) + rivals + confidence


def filtering_shift(share: float) -> float:
    """`E |1 - P'/P| = 2 (1 - share)`, where P' is P restricted to the pairs that a retriever returns, `share` of all.

    It is the cost in theorem 4.8 of training on all pairs (TS); training on the retrieved ones alone (H-TS) avoids it.
    Errors: a share outside (0, 1].
    """
    if not 0 < share <= 1:
        raise InputError(f"share={share} is outside (0, 1]")
    return 2 * (1 - share)


def tau(num_items: int, branching: int) -> float:
    """`sqrt((2 B - 1) / (B - 1) N)`, whose square is at least the number of a tree's nodes.

    Source: DTR, equations 50 and 51. Lemma 1 prints a second root over B - 1, with which tau would grow with B,
    contrary to the paper's text.
    """
    _checked(num_items, branching)
    return math.sqrt((2 * branching - 1) / (branching - 1) * num_items)


def dtr_complexity(norms: Norms, num_examples: int, num_items: int, branching: int) -> float:
    """An upper bound of the Rademacher complexity of a DIN over a tree: `2 c^(L-1) B_1^L (B_0 + K B_w1 + K B_w2 tau) /
    sqrt(m)`.

    Source: DTR, lemma 1 as printed; K is `norms.length`. Its B_0 lacks tau, as equation 46 takes the vectors of nodes
    as given: where attention says little, the complexity may exceed it.
    """
    scale = (norms.lipschitz * norms.attention) ** 2
    of_history = scale * norms.history**2
    of_nodes = scale * norms.nodes * (norms.history**2 + norms.history)
    inner = norms.nodes + norms.length * (of_history + of_nodes * tau(num_items, branching))
    outer = norms.lipschitz ** (norms.num_layers - 1) * norms.layers**norms.num_layers
    return 2 * outer * inner / _root(num_examples)


@dataclass(frozen=True, slots=True)
class DtrTerms:
    """The five terms of DTR's theorem 4, in its order; their sum is the bound."""

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
    """An upper bound, with probability 1 - delta, of the expected loss with the correct labels.

    `loss`: the mean over examples of the sampled losses of all levels; `discrepancy` g(eps): the expected number of
    levels whose rectified label is wrong; `kl` [H]: the divergence of the sampling distribution from the softmax on
    each level, as `diagnose` measures it; `largest_score` B_M. Source: DTR, theorem 4, equation 34 as printed. Summed
    over levels, its own lemma 2 has 4 sum_j log N_j in the confidence term where equation 34 prints 8 log tau, and no
    union bound over the levels.
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
    return largest * math.sqrt(2 * math.log(2 / delta)) / _root(num_examples)


def _root(num_examples: int) -> float:
    if num_examples < 1:
        raise InputError(f"num_examples={num_examples} is below 1, and a bound is over examples; give 1 or more")
    return math.sqrt(num_examples)


def _checked(num_items: int, branching: int) -> None:
    if num_items < 1 or branching < 2:
        raise InputError(f"num_items={num_items}, branching={branching}; give 1 or more items and 2 or more branches")
