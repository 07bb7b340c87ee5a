"""The native core refuses arguments that do not fit before it reads them."""

import numpy as np
import pytest

from beamwood import kernels
from din_cases import random_case, random_light
from kernels.test_search import LIVE, native_only


def bad_lights(num_nodes, length):
    """The arrays of a light head, of which one is invalid."""
    good = [*random_light(np.random.default_rng(0), num_nodes, length).arrays().values()]
    for place, array in enumerate(good):
        bad = [array[1:], array.astype(np.float64)]
        # Arrays with a row per node are mapped, and checked when an answer needs them.
        if array.dtype != np.float32:
            bad.append(array[:, :0])
        elif len(array) != num_nodes:
            bad.append(np.full_like(array, np.nan))
        for each in bad:
            yield (*good[:place], each, *good[place + 1 :])


@native_only
def test_the_native_core_checks_its_arguments():
    module = kernels.native()
    tree, weights, histories = random_case(1)
    shape = (tree.shape.root_fanout, tree.shape.branching, tree.shape.depth)
    layers = [(part.weight, part.bias, part.slope) for part in (weights.attention_in, weights.attention_out)]
    layers += [(layer.weight, layer.bias, layer.slope) for layer in weights.layers]
    good = [
        weights.nodes,
        layers,
        weights.windows,
        shape,
        "v2" if "v2" in LIVE["levels"] else "generic",
        "float32",
        False,
        8,
        None,
        None,
        None,
        1,
    ]
    history = np.ascontiguousarray(histories, np.int32)
    searcher = module.Searcher(*good)
    vectors, places = np.ones((len(weights.nodes), 3), np.float32), np.ones(weights.history_length, np.float32)
    listed, shares = np.full((len(weights.nodes), 3), 2, np.int32), np.ones(len(weights.nodes), np.float32)
    # Node indices in lists are checked before any read.
    listed[0], listed[1] = -(2**31), 2**31 - 1
    module.Searcher(*good[:8], (vectors, places, places), (listed, vectors, shares, places, 1.0), None, 1).beam(
        history, 4, 4, list(tree.live_counts), np.zeros(len(history) + 1, np.int64), np.empty(0, np.int32)
    )
    bad_arguments = [
        (0, weights.nodes.astype(np.float64)),
        (0, np.asfortranarray(weights.nodes)),
        (0, weights.nodes[:-1]),
        (1, layers[:2]),
        (1, layers[:-1]),
        (1, [layers[1], *layers[1:]]),
        (2, np.array([0, 10])),
        (2, np.empty(0, np.int64)),
        (3, (0, 2, 3)),
        (3, (2, 1, 3)),
        (3, (2, 2, 60)),
        (4, "v9"),
        (5, "float16"),
        (7, -1),
        (7, 1 << 20),
        (8, (vectors[1:], places, places)),
        (8, (vectors[:, :0], places, places)),
        (8, (vectors, places[1:], places)),
        (8, (vectors, places, places[1:])),
        (8, (vectors.astype(np.float64), places, places)),
        (8, (np.asfortranarray(vectors), places, places)),
        (8, (vectors, np.full_like(places, np.inf), places)),
        (8, (vectors, places, np.full_like(places, np.inf))),
        (9, (listed[1:], vectors, shares, places, 1.0)),
        (9, (listed, vectors[1:], shares, places, 1.0)),
        (9, (listed[:, :0], vectors[:, :0], shares, places, 1.0)),
        (9, (listed, vectors[:, 1:], shares, places, 1.0)),
        (9, (listed, vectors, shares[1:], places, 1.0)),
        (9, (listed, vectors, shares, places[1:], 1.0)),
        (9, (listed.astype(np.int64), vectors, shares, places, 1.0)),
        (9, (listed, vectors, shares, np.full_like(places, np.nan), 1.0)),
        (9, (listed, vectors, shares, places, np.nan)),
        *((10, bad) for bad in bad_lights(len(weights.nodes), weights.history_length)),
        (11, 0),
        (11, 10**6),
    ]
    for place, bad in bad_arguments:
        with pytest.raises((ValueError, TypeError)):
            module.Searcher(*good[:place], bad, *good[place + 1 :])
    live, indptr, none = list(tree.live_counts), np.zeros(len(history) + 1, np.int64), np.empty(0, np.int32)
    good = [history, 4, 4, live, indptr, none]
    searcher.beam(*good)
    bad_arguments = [
        (0, np.full_like(history, tree.shape.capacity)),
        (0, np.full_like(history, -2)),
        (0, history.astype(np.int64)),
        (0, np.asfortranarray(history)),
        (0, np.ascontiguousarray(history[:, 1:])),
        (1, 0),
        (2, 0),
        (2, 2**40),
        (3, live[1:]),
        (3, live[:1]),
        (3, [*live, live[-1]]),
        (3, [*live[:-1], live[-1][:-1]]),
        (4, indptr[1:]),
        (4, indptr + 1),
        (5, np.array([tree.shape.capacity], np.int32)),
    ]
    for place, bad in bad_arguments:
        with pytest.raises((ValueError, TypeError)):
            searcher.beam(*good[:place], bad, *good[place + 1 :])
    offsets = np.zeros(len(history))
    for call, bad in [
        (searcher.steered, (history, (4, 4, False, False), 4, live, indptr, none)),
        (searcher.visit, (history, 4, True, 8, offsets, live)),
        (searcher.visit, (history, 4, False, 1, offsets, live)),
        (searcher.visit, (history, 4, False, 8, offsets + 1, live)),
        (searcher.visit, (history, 4, False, 8, offsets[1:], live)),
        (searcher.steered, (history, (4, 4, False, False), 4, live[:-1], indptr, none)),
        (searcher.visit, (history, 4, False, 8, offsets, live[:-1])),
        (searcher.exact, (history, 4, live[:-1], indptr, none)),
        (searcher.score, (history, tree.shape.depth, np.zeros((1, 1), np.int32))),
        (searcher.score, (history, 0, np.zeros((len(history), 1), np.int32))),
        (searcher.score, (history, tree.shape.depth + 1, np.zeros((len(history), 1), np.int32))),
        (searcher.score, (history, 1, np.full((len(history), 1), tree.shape.level_size(1), np.int32))),
    ]:
        with pytest.raises((ValueError, TypeError)):
            call(*bad)
