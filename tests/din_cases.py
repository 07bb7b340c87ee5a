"""Random DIN scorers and trees for the tests of kernels and searchers."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from beamwood.kernels.din import DinWeights, Layer
from beamwood.kernels.light import LightHead, quantised
from beamwood.kernels.terms import TermArrays
from beamwood.models.terms import TERMS
from beamwood.tree import Tree, random_tree

WINDOWS = (20, 20, 10, 10, 2, 2, 2, 1, 1, 1)


def random_layer(rng: np.random.Generator, inputs: int, outputs: int, *, last: bool = False) -> Layer:
    return Layer(
        weight=rng.normal(0, inputs**-0.5, (outputs, inputs)).astype(np.float32),
        bias=rng.normal(0, 0.1, outputs).astype(np.float32),
        slope=np.ones(outputs, np.float32) if last else rng.uniform(0, 0.5, outputs).astype(np.float32),
    )


def random_weights(
    rng: np.random.Generator,
    num_nodes: int,
    *,
    width: int = 8,
    hidden: int = 12,
    windows: tuple[int, ...] = (4, 3, 2, 1),
    mlp: tuple[int, ...] = (16, 8),
    similarity: int = 0,
    neighbours: int = 0,
) -> DinWeights:
    """A random scorer. `similarity`: columns of that term, with seen weights; `neighbours`: their number per leaf."""
    sizes = [(len(windows) + 1) * width, *mlp, 1]
    terms = {}
    if similarity:
        vectors = rng.normal(0, similarity**-0.5, (num_nodes, similarity)).astype(np.float32)
        places, seen = (rng.normal(0, 1, sum(windows)).astype(np.float32) for _ in range(2))
        terms |= {"similarity": {"vectors": vectors, "places": places}, "seen": {"weights": seen}}
    if neighbours:
        listed = rng.integers(-1, num_nodes, (num_nodes, neighbours)).astype(np.int32)
        chances = rng.random((num_nodes, neighbours)).astype(np.float32) * (listed >= 0)
        shares = 0.1 + rng.random(num_nodes).astype(np.float32)
        places, gain = rng.random(sum(windows)).astype(np.float32), np.full(1, 0.7, np.float32)
        near = {"leaves": listed, "chances": chances, "shares": shares}
        terms["neighbours"] = near | {"places": places, "gain": gain}
    return DinWeights(
        nodes=rng.normal(0, 1, (num_nodes, width)).astype(np.float32),
        attention_in=random_layer(rng, 3 * width, hidden),
        attention_out=random_layer(rng, hidden, 1),
        windows=np.array(windows, np.int64),
        layers=tuple(
            random_layer(rng, sizes[i], sizes[i + 1], last=i == len(sizes) - 2) for i in range(len(sizes) - 1)
        ),
        terms={name: TermArrays(TERMS[name], arrays) for name, arrays in terms.items()},
    )


def random_light(
    rng: np.random.Generator, num_nodes: int, length: int, *, width: int = 64, hidden: int = 12
) -> LightHead:
    """A light head of small integers, so that query vectors are exact in float32 for any order of summation."""

    def whole(*size: int, most: int = 3) -> np.ndarray:
        return rng.integers(-most, most + 1, size).astype(np.float32)

    nodes, scales = quantised(rng.normal(0, 1, (num_nodes, width)).astype(np.float32))
    return LightHead(
        nodes=nodes,
        node_scales=scales,
        biases=rng.normal(0, 1, num_nodes).astype(np.float32),
        history=rng.integers(-128, 128, (num_nodes, width)).astype(np.int8),
        history_scales=2.0 ** rng.integers(-3, 1, num_nodes).astype(np.float32),
        places=whole(length),
        up=whole(hidden, width, most=1),
        up_bias=whole(hidden),
        down=whole(width, hidden, most=1),
        down_bias=whole(width),
    )


def with_term(scorer: DinWeights, name: str, **arrays: np.ndarray) -> DinWeights:
    """The scorer with other arrays in an existing term."""
    term = scorer.terms[name]
    return replace(scorer, terms=scorer.terms | {name: replace(term, arrays=term.arrays | arrays)})


def without_terms(weights: DinWeights, *names: str) -> DinWeights:
    """The scorer without some of its terms."""
    return replace(weights, terms={name: term for name, term in weights.terms.items() if name not in names})


def random_histories(rng: np.random.Generator, tree: Tree, num_rows: int, length: int) -> np.ndarray:
    """Leaves of random histories, padded on the left; the first row is empty, the second full."""
    items = rng.integers(0, tree.num_items, (num_rows, length))
    lengths = rng.integers(0, length + 1, num_rows)
    lengths[:1], lengths[1:2] = 0, length
    items[np.arange(length) < length - lengths[:, None]] = -1
    return tree.leaves_of(items)


def random_case(
    seed: int, *, num_items: int = 300, branching: int = 2, num_rows: int = 6, **sizes
) -> tuple[Tree, DinWeights, np.ndarray]:
    rng = np.random.default_rng(seed)
    tree = random_tree(num_items, rng, branching=branching)
    weights = random_weights(rng, tree.shape.num_nodes, **sizes)
    if "neighbours" in weights.terms:
        listed = weights.terms["neighbours"].arrays["leaves"]
        listed[listed >= 0] %= tree.shape.capacity
    return tree, weights, random_histories(rng, tree, num_rows, weights.history_length)
