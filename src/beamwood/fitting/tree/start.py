"""The initial tree of a training, by name."""

from __future__ import annotations

import os

import numpy as np
import polars as pl
from scipy import sparse

from beamwood.blocks import slices
from beamwood.data.dataset import Dataset
from beamwood.data.examples import windows
from beamwood.data.split import Split
from beamwood.errors import InputError, nearest
from beamwood.fitting.columns import item_table_for
from beamwood.fitting.fitted import load_fitted, method_of
from beamwood.fitting.tree.config import TreeConfig
from beamwood.fitting.tree.node_start import TREE_WIDTH, ItemVectors
from beamwood.fitting.tree.settings import ORDERS
from beamwood.retrieval.item_vectors import part_with
from beamwood.retrieval.searchers.tree import TreeSearcher
from beamwood.retrieval.searchers.vectors import VectorSearcher
from beamwood.training.budget import Budget, Clock
from beamwood.tree import Tree, category_tree, flat_tree, kmeans_tree, random_tree, tree_of_codes
from beamwood.tree.build import cut_seconds
from beamwood.tree.pifa import pifa_vectors
from beamwood.types import FloatArray, IndexArray

__all__ = ["start_tree", "tree_seconds"]

_STARTS = ("auto", "papers", *ORDERS, "flat")
_CODES, _CLUSTERED = "codes:", ("transitions", "pifa", "kmeans")
# The fewest instances from which PIFA vectors are computed, if there are so many, and the instances in a block.
_INSTANCES, _BLOCK = 200_000, 16_384


def start_tree(
    split: Split, config: TreeConfig, rng: np.random.Generator, vectors: ItemVectors, budget: Budget
) -> Tree:
    """The initial tree, by `config.tree.start`.

    "transitions": balanced k-means on `vectors` from transition counts; "pifa": balanced k-means on the histories that
    precede each item; "category": by the item table's categories; "random"; "kmeans": on the vectors of the fitted
    method `config.tree.vectors`; "codes:COLUMN": by that column of the item table (`tree_of_codes`); "flat": a single
    level; else the folder of a fitted tree retriever of the same log and split. `config.tree.shape`: of a tree that is
    built from an order of items. Errors: `InputError` where the start lacks an input, `TimeLimitError` once it is
    certain to exceed `budget`.
    """
    train, tree = split.train, config.tree
    start, num_items = tree.start, train.num_items
    assert start not in ("auto", "papers"), "a plan resolves it"
    if start == "flat":
        return flat_tree(num_items)
    if start.startswith(_CODES):
        return tree_of_codes(_codes_of(train, start.removeprefix(_CODES)), branching=tree.branching)
    if start not in ORDERS:
        return _fitted_tree(start, split, tree.branching)
    shape = tree.shape_of(num_items)
    if start == "category":
        return category_tree(_category_codes(train), rng, shape=shape)
    if start == "random":
        return random_tree(num_items, rng, shape=shape)
    cuts = tree_seconds(config, num_items, budget.clock) if budget.limited and budget.refuses else 0.0
    with budget.reserving(cuts):
        vectors_ND = _vectors_of(split, config, rng, vectors)
    began = budget.clock()
    return kmeans_tree(vectors_ND, rng, shape=shape, report=lambda done, all: budget.require_rest(done, all, began))


def tree_seconds(config: TreeConfig, num_items: int, clock: Clock) -> float:
    """The estimated seconds that `start_tree` takes at least for k-means on given vectors; 0 for other trees."""
    return cut_seconds(num_items, TREE_WIDTH, clock) if config.tree.start in _CLUSTERED else 0.0


def _vectors_of(split: Split, config: TreeConfig, rng: np.random.Generator, vectors: ItemVectors) -> FloatArray:
    """float32[N, D], the vectors of the items that are clustered."""
    if config.tree.start == "transitions":
        return vectors(TREE_WIDTH)
    if config.tree.start == "pifa":
        return pifa_item_vectors(split.train, config, rng)
    if config.tree.vectors is None:
        raise InputError(
            "tree.start=kmeans needs tree.vectors=FOLDER of a fitted method with item vectors; or use tree.start=pifa"
        )
    return _fitted_item_vectors(config.tree.vectors, split)


def _category_codes(train: Dataset) -> IndexArray:
    """int[N], the category of each item, -1 for none. Errors: no item has one."""
    if train.item_table is None or not bool((train.item_table.categories >= 0).any()):
        raise InputError(
            "tree.start=category needs items with a category; give --items with that column, or use tree.start=pifa"
        )
    return train.item_table.categories


def _codes_of(train: Dataset, column: str) -> IndexArray:
    """int64[N], a column of the item table, -1 for null. Errors: a missing column, another type than integers."""
    frame = item_table_for(f"tree.start={_CODES}{column}", train).frame
    if column not in frame.columns:
        raise InputError(
            f"tree.start={_CODES}{column}: the item table lacks this column{nearest(column, frame.columns)}"
        )
    cells = frame[column]
    if not cells.dtype.is_integer():
        raise InputError(
            f"tree.start={_CODES}{column}: the column is of type {cells.dtype}; codes are whole numbers, those of a "
            "node's children branching * code + 1 to branching * code + branching, and the root's 0"
        )
    codes: IndexArray = cells.cast(pl.Int64, strict=False).fill_null(-1).to_numpy()
    return codes


def _fitted_tree(folder: str, split: Split, branching: int) -> Tree:
    """The tree of a fitted retriever's folder. Errors: no such folder, no tree, another branching."""
    if not os.path.isdir(folder):
        raise InputError(f"tree.start='{folder}' is neither a folder nor a start{nearest(folder, _STARTS)}")
    fitted = load_fitted(folder, split)
    searcher = part_with(fitted.searcher, TreeSearcher)
    if searcher is None:
        raise InputError(f"tree.start='{folder}' holds {method_of(fitted)}, which has no tree; give one of dtr")
    shape = searcher.tree.shape
    if shape.depth > 1 and shape.branching != branching:
        raise InputError(f"the tree in '{folder}' has branching={shape.branching}; set tree.branching to that")
    return searcher.tree


def _fitted_item_vectors(folder: str, split: Split) -> FloatArray:
    """float32[N, D], the item vectors of a fitted retriever. Errors: a method without any."""
    fitted = load_fitted(folder, split)
    searcher = part_with(fitted.searcher, VectorSearcher)
    if searcher is None:
        raise InputError(
            f"tree.vectors='{folder}' holds {method_of(fitted)}, which has no item vectors; give one that has, such as "
            "sasrec"
        )
    return searcher.vectors


def pifa_item_vectors(train: Dataset, config: TreeConfig, rng: np.random.Generator) -> FloatArray:
    """[N, 64], PIFA vectors: an instance's features are its history items, each 1 over the history's length.

    A long log is sampled evenly, ten instances an item on average, as neighbouring windows are nearly equal.
    """
    num_items = train.num_items
    examples = windows(train.histories, length=sum(config.model.windows) + 1, min_history=1)
    rows = np.arange(0, len(examples), max(1, len(examples) // max(_INSTANCES, 10 * num_items)))

    def block(rows: IndexArray) -> tuple[sparse.csr_matrix, IndexArray]:
        histories = examples.histories(rows)
        weights = np.repeat(1 / np.maximum(histories.lengths, 1), histories.lengths).astype(np.float32)
        shape = (len(rows), num_items)
        return sparse.csr_matrix((weights, histories.items, histories.indptr), shape), examples.targets(rows)

    return pifa_vectors((block(rows[part]) for part in slices(len(rows), _BLOCK)), num_items, num_items, rng)
