"""A custom term and a custom level loss, each in one file that the package does not refer to."""

import runpy
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest
import torch

import beamwood
from beamwood.data import Dataset, disjoint_users, read_log
from beamwood.errors import ArtefactError, InputError
from beamwood.kernels.links import LINKS
from beamwood.kernels.terms import TermQuery
from beamwood.models.din import DinScorer
from beamwood.models.terms import TERMS, Seen
from beamwood.retrieval.searchers.tree import TreeSearcher
from beamwood.training.run_folder import RunFolder
from beamwood.tree import Shape
from beamwood.types import Query
from one_view import evaluate_view
from resumed import assert_same_arrays

FILES = Path(__file__).parents[1] / "one_file"
TERM, LOSS = str(FILES / "trend_term.py"), str(FILES / "focal_loss.py")
SMALL = {
    "model.width": 8,
    "model.attention_hidden": 8,
    "model.mlp": (16, 8),
    "model.windows": (4, 2, 1),
    "model.similarity_width": 8,
    "model.num_neighbours": 8,
    "tree.branching": 4,
    "tree.beam_width": 12,
    "loop.max_steps": 12,
    "loop.evaluate_every": 6,
    "loop.batch_size": 16,
    "optimiser.warmup_steps": 2,
    "optimiser.learning_rate": 0.02,
    "choose.validation_users": 20,
}
FIXED = ("model.similarity_width", "model.num_neighbours")
by_numpy = pytest.mark.filterwarnings("ignore:no native form is known")


@pytest.fixture(scope="module")
def split():
    """Users have the items of their group of 16, each in another order."""
    rng = np.random.default_rng(0)
    rows = [(u, int(i) + 16 * (u % 5), t) for u in range(150) for t, i in enumerate(rng.permutation(16)[:9])]
    return disjoint_users(
        Dataset.from_log(read_log(pl.DataFrame(rows, ["user_id", "item_id", "timestamp"], orient="row")))
    )


@by_numpy
@pytest.mark.parametrize("file", [TERM, LOSS])
def test_it_is_trained_updated_saved_and_loaded(split, tmp_path, file):
    retriever = beamwood.fit(split, file, SMALL | {"tree.updates": 1}, progress=False)
    assert retriever.metadata["training"]["tree_updates"] == 1
    assert "f@20" in evaluate_view(retriever.searcher, split.test, ks=(20,), remove_seen=False).means()
    retriever.save(tmp_path / "saved")
    users = retriever.users.ids.head(5)
    before = retriever.recommend(users=users, k=5)
    assert beamwood.load(tmp_path / "saved", method=file).recommend(users=users, k=5) == before


@by_numpy
@pytest.mark.parametrize("file", [TERM, LOSS])
def test_it_is_resumed_bit_for_bit(split, tmp_path, file):
    """From a random start, which is not a candidate for the best checkpoint, so trained weights are compared."""
    config = {name: value for name, value in SMALL.items() if name not in FIXED}
    config |= {"tree.updates": 0, "start.scores": "random", "optimiser.decay_steps": 10}
    run = RunFolder(tmp_path / "run")
    whole = beamwood.fit(split, file, config, progress=False)
    beamwood.fit(split, file, config | {"loop.max_steps": 6}, run=run, progress=False)
    resumed = beamwood.fit(split, file, config, run=run, resume=True, progress=False)
    assert resumed.metadata["training"]["best_step"] > 0
    assert_same_arrays(whole, resumed)


def test_a_folder_with_a_custom_term_does_not_load_without_its_file(split, tmp_path):
    with pytest.warns(UserWarning, match="no native form is known of the term 'trend': the tree is searched by numpy"):
        retriever = beamwood.fit(split, TERM, SMALL, progress=False)
    retriever.save(tmp_path / "saved")
    with pytest.raises(ArtefactError, match=r"a term 'trend', which is unknown.*trend_term\.py, which is not run"):
        beamwood.load(tmp_path / "saved")
    assert retriever.searcher.searched_by == "numpy: no native form is known of the term 'trend'"
    assert list(retriever.searcher.weights.terms) == ["similarity", "seen", "neighbours", "trend"]


@by_numpy
def test_a_custom_term_is_learned_moves_with_the_items_and_is_part_of_answers(split):
    retriever = beamwood.fit(split, TERM, SMALL | {"tree.updates": 1}, progress=False)
    weights, tree = retriever.searcher.weights, retriever.searcher.tree
    counts, weight = (weights.terms["trend"].arrays[name] for name in ("counts", "weight"))
    train, shape = split.train, tree.shape
    late = np.bincount(train.histories.last(2).items, minlength=train.num_items)
    for level in range(1, shape.depth + 1):
        nodes = shape.ancestors(tree.leaf_of_item, level)
        expected = [np.bincount(nodes, each, shape.level_size(level)) for each in (late, train.item_counts)]
        own = counts[shape.level_offset(level) :][: shape.level_size(level)]
        np.testing.assert_array_equal(own, np.stack(expected, axis=1))
    plain = {name: term for name, term in weights.terms.items() if name != "trend"}
    without = TreeSearcher(replace(weights, terms=plain), tree)
    items = np.arange(train.num_items)[None]
    query = Query.of(split.test.histories.take(np.arange(1)))
    more = retriever.searcher.score(query, items) - without.score(query, items)
    np.testing.assert_allclose(more[0], weight * (np.log1p(late) - np.log1p(train.item_counts)), atol=1e-4)


def test_training_scores_equal_answer_scores():
    """For every term, on whole levels and given nodes, by tensors and by arrays."""
    trend = runpy.run_path(TERM)["Trend"]()
    shape, rng = Shape(3, 4, 3), np.random.default_rng(0)
    scorer = DinScorer(shape, width=4, windows=(3, 2, 1), mlp=(8,), terms=[trend, Seen()])
    held = scorer.terms["trend"]
    held.change(lambda arrays: arrays["counts"].__setitem__(slice(None), rng.random((shape.num_nodes, 2))))
    held.change(lambda arrays: arrays["weight"].fill(0.7))
    part = held.export()
    leaves, nodes = rng.integers(-1, shape.capacity, (5, 6)), rng.integers(0, 3, (5, 4))
    for level in (1, 2, 3):
        for some in (None, nodes):
            given = None if some is None else torch.from_numpy(some)
            ours = held(TermQuery(shape, level, torch.from_numpy(leaves), given))
            theirs = part.score(TermQuery(shape, level, leaves, some))
            np.testing.assert_allclose(ours.detach(), theirs, rtol=1e-5, atol=1e-6)
            held.weight.grad = None
            ours.sum().backward()
            np.testing.assert_allclose(held.weight.grad, theirs.sum() / 0.7, rtol=1e-4)


def test_the_link_of_a_loss_is_used_in_answers(split):
    retriever = beamwood.fit(split, LOSS, SMALL | {"tree.updates": 0, "loop.max_steps": 2}, progress=False)
    assert retriever.searcher.link == LINKS["sigmoid"]


class Bare(Seen):
    name = "bare"


def test_a_name_of_a_term_that_is_taken_is_refused():
    for terms in ([Seen(), TERMS["seen"]], [type("Odd", (Seen,), {"name": "a.b"})()]):
        with pytest.raises(InputError, match="give each an identifier of its own"):
            DinScorer(Shape(2, 2, 2), windows=(2,), terms=terms)
    assert list(DinScorer(Shape(2, 2, 2), windows=(2,), terms=[Bare()]).held_terms()) == ["bare"]


def test_a_term_with_arrays_by_node_must_define_their_move():
    still = type("Still", (Bare,), {"by_node": ("weights",)})()
    scorer = DinScorer(Shape(2, 2, 2), windows=(2,), terms=[still])
    with pytest.raises(NotImplementedError, match="'bare' has arrays by node and no move; give it one"):
        scorer.terms["bare"].move(np.arange(4))
