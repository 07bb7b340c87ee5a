"""Trees and examples of the papers by settings: complete shapes, the authors' codes, each user's last window."""

from dataclasses import replace

import numpy as np
import polars as pl
import pytest
from scipy import sparse

import beamwood
from beamwood.data import Dataset, disjoint_users, read_log
from beamwood.data.log import ColumnNames
from beamwood.data.splits import by_boundary
from beamwood.errors import InputError
from beamwood.fitting.tree.start import pifa_item_vectors
from beamwood.methods.dtr import Config
from beamwood.tree import Shape
from beamwood.tree.pifa import pifa_vectors
from beamwood.types import Query
from plans import planned
from real_data import real_data
from tree_cases import first_tree

SMALL = {
    "tree.branching": 2,
    "model.width": 8,
    "model.attention_hidden": 8,
    "model.windows": (4, 2, 1),
    "model.mlp": (8,),
    "loop.max_steps": 4,
    "loop.evaluate_every": 2,
    "loop.batch_size": 8,
    "choose.validation_users": 5,
}
NUM_ITEMS = 90
# The leaves of a complete binary tree with seven levels have codes 127 to 254.
CODES = np.random.default_rng(3).permutation(128)[:NUM_ITEMS] + 127


@pytest.fixture(scope="module")
def split():
    rng = np.random.default_rng(0)
    rows = [(user, int(item), time) for user in range(80) for time, item in enumerate(rng.permutation(NUM_ITEMS)[:9])]
    items = pl.DataFrame({"item_id": np.arange(NUM_ITEMS), "code": CODES, "category": np.arange(NUM_ITEMS) % 5})
    items = items.with_columns(half=pl.when(pl.col("item_id") != 7).then("code"), text=pl.col("code").cast(pl.String))
    log = read_log(pl.DataFrame(rows, ["user_id", "item_id", "timestamp"], orient="row"))
    return disjoint_users(Dataset.from_log(log, items))


def bare(split):
    return replace(split, train=replace(split.train, item_table=None))


def tree_of(split, start, **more):
    return first_tree(
        split, planned(Config(**SMALL, **{"tree.start": start}, **more), split.train), np.random.default_rng(0)
    )


def test_items_are_placed_by_a_column_of_codes(split):
    tree = tree_of(split, "codes:code")
    assert tree.shape == Shape(2, 2, 7)
    assert np.array_equal(tree.leaf_of_item, CODES - 127)


@pytest.mark.parametrize(
    ("start", "says"),
    [
        ("codes:cod", r"codes:cod: the item table lacks this column; did you mean 'code'\?"),
        ("codes:", "codes:: the item table lacks this column; known: category, code"),
        ("codes:half", "1 of 90 items have no code, the first is item 7"),
        ("codes:text", "codes:text: the column is of type String; codes are whole numbers"),
        ("code:code", r"'code:code' is neither a folder nor a start"),
    ],
)
def test_invalid_codes_are_refused(split, start, says):
    with pytest.raises(InputError, match=says):
        tree_of(split, start)


def test_codes_need_a_table(split):
    with pytest.raises(InputError, match=r"tree\.start=codes:code needs an item table; give one with --items"):
        tree_of(bare(split), "codes:code")


def test_the_papers_tree_starts_from_categories_or_at_random(split):
    by_category = tree_of(split, "papers").item_of_leaf
    assert np.array_equal(by_category, tree_of(split, "category").item_of_leaf)
    at_random = tree_of(bare(split), "papers").item_of_leaf
    assert np.array_equal(at_random, tree_of(split, "random").item_of_leaf)
    assert not np.array_equal(by_category, at_random)
    for one, name in ((split, "category"), (bare(split), "random")):
        fitted = beamwood.fit(one, "dtr", SMALL | {"tree.start": "papers"}, progress=False)
        assert fitted.metadata["training"]["tree_start"] == name


def test_features_of_pifa_are_the_shares_of_a_history(split):
    """Each position counts; its features are the items before it, each 1 over their number."""
    config = planned(Config(**SMALL), split.train)
    found = pifa_item_vectors(split.train, config, np.random.default_rng(4))
    rows, targets = [], []
    for history in split.train.histories:
        for place in range(1, len(history)):
            before = history[max(0, place - 7) : place]
            rows.append(np.bincount(before, minlength=NUM_ITEMS) / len(before))
            targets.append(history[place])
    features = sparse.csr_matrix(np.array(rows, np.float32))
    expected = pifa_vectors([(features, np.array(targets))], NUM_ITEMS, NUM_ITEMS, np.random.default_rng(4))
    np.testing.assert_allclose(found, expected, atol=1e-5)


@pytest.mark.parametrize("start", ["random", "category", "transitions", "pifa"])
def test_every_start_may_be_complete(split, start):
    assert tree_of(split, start).shape == Shape(23, 2, 3)
    assert tree_of(split, start, **{"tree.shape": "complete"}).shape == Shape(2, 2, 7)
    with pytest.raises(ValueError, match=r"tree\.shape"):
        Config(**{"tree.shape": "complet"})


@pytest.mark.parametrize(
    ("method", "changes"),
    [
        ("dtr", {"tree.start": "codes:code", "tree.updates": 1}),
        ("dtr", {"tree.shape": "complete", "examples.window": "last"}),
        ("tdm", {"tree.shape": "complete", "tree.updates": 1}),
    ],
)
def test_a_short_training_trains_saves_and_loads(split, tmp_path, method, changes):
    fitted = beamwood.fit(split, method, SMALL | changes, progress=False)
    assert fitted.searcher.tree.shape == Shape(2, 2, 7)
    if "examples.window" in changes:
        assert fitted.metadata["training"]["examples"] == np.count_nonzero(split.train.histories.lengths > 1)
    fitted.save(tmp_path / "saved")
    query, loaded = Query.of(split.test.histories), beamwood.load(tmp_path / "saved")
    assert np.array_equal(loaded.searcher.search(query, 9).items, fitted.searcher.search(query, 9).items)


@pytest.mark.real_data
def test_dtr_starts_from_its_authors_own_tree():
    folder = real_data("mind_dtr")
    log = read_log(folder / "interactions.parquet", columns=ColumnNames(boundary="part"))
    split = by_boundary(Dataset.from_log(log, folder / "items.parquet"))
    tree = first_tree(
        split,
        planned(Config(**{"tree.branching": 2, "tree.start": "codes:dtr_tree_code"}), split.train),
        np.random.default_rng(0),
    )
    codes = pl.read_parquet(folder / "items.parquet").sort("item_id")["dtr_tree_code"].to_numpy()
    assert tree.shape == Shape(2, 2, 13)
    assert np.array_equal(tree.leaf_of_item, codes - 8191)
