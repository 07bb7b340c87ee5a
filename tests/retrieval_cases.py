"""A retriever over a small tree with item columns of every type, and brute force to compare its answers with."""

import datetime as dt
from dataclasses import replace

import numpy as np
import polars as pl

from beamwood.data import Vocabulary
from beamwood.kernels.din import DinWeights, Layer
from beamwood.kernels.light import Way
from beamwood.kernels.terms import TermArrays
from beamwood.models.terms import TERMS
from beamwood.retrieval.columns.item_columns import ItemColumns
from beamwood.retrieval.retriever import Retriever
from beamwood.retrieval.searchers.queries import HistoryMean, UserVectors
from beamwood.retrieval.searchers.tree import TreeSearcher
from beamwood.retrieval.searchers.vectors import VectorSearcher
from beamwood.retrieval.searchers.ways import Ways
from beamwood.tree import random_tree
from beamwood.types import ItemLists
from din_cases import random_light


def item_frame(num_items, seed=0):
    """Item columns: one or two categories, a price with gaps, a brand, a stock flag and a day."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 5, (num_items, 2))
    days = rng.integers(0, 300, num_items).tolist()
    return pl.DataFrame(
        {
            "category": ["|".join(f"c{label}" for label in dict.fromkeys(row)) for row in labels.tolist()],
            "price": [None if n % 7 == 0 else float(n % 40) for n in rng.permutation(num_items).tolist()],
            "brand": [None if n % 11 == 0 else f"brand {n % 6}" for n in range(num_items)],
            "stock": (rng.random(num_items) < 0.5).tolist(),
            "since": [dt.date(2026, 1, 1) + dt.timedelta(days=day) for day in days],
        }
    )


def layer(rng, inputs, outputs):
    weight = rng.normal(0, inputs**-0.5, (outputs, inputs)).astype(np.float32)
    return Layer(weight, rng.normal(0, 0.1, outputs).astype(np.float32), np.full(outputs, 0.3, np.float32))


def tree_searcher(num_items, seed=0, *, beam_width=8, width=4, steered=False):
    """A searcher of a random tree. `steered`: with a light head and a ladder of three ways to search."""
    rng = np.random.default_rng(seed)
    tree = random_tree(num_items, rng)
    nodes = rng.normal(0, 1, (tree.shape.num_nodes, width)).astype(np.float32)
    vectors = rng.normal(0, 1, (tree.shape.num_nodes, 6)).astype(np.float32)
    places = rng.normal(0, 0.1, 4).astype(np.float32)
    terms = {"similarity": TermArrays(TERMS["similarity"], {"vectors": vectors, "places": places})}
    layers = layer(rng, 3 * width, 6), layer(rng, 6, 1)
    weights = DinWeights(nodes, layer(rng, 3 * width, 5), layer(rng, 5, 1), np.array([3, 1], np.int64), layers, terms)
    if not steered:
        return TreeSearcher(weights, tree, beam_width=beam_width)
    light = random_light(rng, len(nodes), weights.history_length, width=8)
    ladder = Way("steer", beam_width, 4), Way("cascade", beam_width, beam_width + 4), Way("beam", beam_width)
    return TreeSearcher(replace(weights, light=light), tree, beam_width=beam_width, ways=Ways(ladder, 1))


def vector_searcher(num_items, seed=0):
    rng = np.random.default_rng(seed)
    vectors = rng.normal(size=(num_items, 8)).astype(np.float32)
    return VectorSearcher(HistoryMean(vectors, length=9), vectors)


def user_searcher(num_items, num_users=20):
    """A searcher that knows users alone."""
    rng = np.random.default_rng(0)
    users, items = rng.normal(size=(num_users, 4)), rng.normal(size=(num_items, 4)).astype(np.float32)
    return VectorSearcher(UserVectors(users), items)


def retriever_of(searcher, *, text=True, num_users=30, seed=0):
    rng, num_items = np.random.default_rng(seed), searcher.num_items
    numbers = rng.permutation(num_items * 3)[:num_items]
    ids = pl.Series([f"item {n}" for n in numbers]) if text else pl.Series(numbers)
    histories = ItemLists.from_lists([rng.integers(0, num_items, user % 12) for user in range(num_users)])
    columns = ItemColumns.of(item_frame(num_items, seed))
    return Retriever(searcher, Vocabulary(ids), Vocabulary(pl.Series(range(num_users))), histories, columns)
