"""A ranker trained for a retriever's candidates: examples, negatives, loss, resume, and answers without torch."""

import subprocess
import sys

import numpy as np
import pytest
import torch

import beamwood
from beamwood.data import disjoint_users, leave_one_out
from beamwood.fitting.ranking import two_stage
from beamwood.methods import load_method
from beamwood.steps import heard_by
from beamwood.types import ItemLists, Query, SearchOptions
from plans import planned
from prepared import Prepared
from rankers import STAGES, STAGES_OF
from resumed import whole_as_in_parts


def task_of(dataset, first, **settings):
    split = disjoint_users(dataset)
    config = planned(STAGES_OF.Config(**STAGES | settings), split.train)
    return Prepared(two_stage.StagesTask(split.train, config, beamwood.load(first["users"]).searcher), seed=0)


@pytest.mark.parametrize("training", ["all", "harmonised"])
@pytest.mark.parametrize("negatives", ["unseen", "uniform", "candidates"])
def test_two_stages_resume_and_answer(dataset, first, tmp_path, training, negatives):
    split = disjoint_users(dataset)
    options = STAGES | {
        "examples.pairs": training,
        "loss.negatives": negatives,
        "loop.max_steps": 6,
        "loop.evaluate_every": 3,
    }
    config = STAGES_OF.Config(**options, **{"start.retriever": first["users"]})
    whole = whole_as_in_parts(STAGES_OF, split, config, tmp_path)
    whole.save(tmp_path / "saved")
    loaded = beamwood.load(tmp_path / "saved")
    assert loaded.recommend(histories=[[1, 2, 3], []], k=9) == whole.recommend(histories=[[1, 2, 3], []], k=9)


def test_harmonised_pairs_are_the_retrieved_ones(dataset, first):
    tasks = {
        name: task_of(dataset, first, **{"examples.pairs": name, "loss.negatives": "candidates"})
        for name in ("all", "harmonised")
    }
    every, kept = tasks["all"].examples, tasks["harmonised"].examples
    asked = list(retrieved(tasks["all"]))
    hits = np.array([hit for _, _, hit in asked])
    assert any(
        (hit & ~np.isin(target, new)).any() for target, new, hit in asked
    )  # Seen items may be recommended again.
    assert np.array_equal(kept.stop, every.stop[hits.any(axis=1)])
    assert np.array_equal(tasks["harmonised"].weights_ET, hits[hits.any(axis=1)])
    assert np.isclose(tasks["harmonised"].recall, np.mean(hits))
    assert (tasks["all"].weights_ET == 1).all()
    batch = tasks["harmonised"].batch(np.arange(20))
    assert batch.items_BC[:, :8].tolist() == tasks["harmonised"].targets(np.arange(20)).tolist()
    real, negatives = batch.log_weight_BM == 0, batch.items_BC[:, 8:]
    for row in range(20):
        own = set(tasks["harmonised"].candidates_EK[row].tolist())
        drawn = set(negatives[row][real[row]].tolist())
        assert drawn <= own
        assert not drawn & set(batch.items_BC[row, :8].tolist())


@pytest.mark.parametrize(("pairs", "candidates", "told"), [("harmonised", 1, 1), ("harmonised", 60, 0), ("all", 1, 0)])
def test_harmonising_with_a_poor_retriever_is_reported(dataset, tmp_path, capsys, pairs, candidates, told):
    split = disjoint_users(dataset)
    load_method("popularity").fitted(split).save(tmp_path / "popular")
    given = {"start.retriever": str(tmp_path / "popular"), "examples.pairs": pairs, "loop.max_steps": 1}
    given |= STAGES | {"model.num_candidates": candidates}
    fitted = STAGES_OF.fitted(split, given)
    found = capsys.readouterr().err
    assert found.count("in the study this gains nothing below 10 %: set examples.pairs=all") == told
    if pairs == "harmonised":
        assert (fitted.metadata["training"]["retrieved_share_of_training_pairs"] < 0.1) == told
    STAGES_OF.fitted(split, given, progress=False)
    assert "examples.pairs" not in capsys.readouterr().err


def retrieved(task):
    """Each example's targets, the retriever's candidates for the user's whole history, and the retrieved targets.

    A seen target is searched with seen items kept.
    """
    source, searcher = task.examples.source, task.retriever
    for row, (user, stop) in enumerate(zip(task.examples.users, task.examples.stop, strict=True)):
        past, target = source.items[source.indptr[user] : stop], task.targets(np.array([row]))[0]
        query = Query.of(ItemLists.from_lists([past]))
        new = searcher.search(query, 30, SearchOptions(query.histories)).items[0]
        whole = searcher.search(query, 30).items[0]
        yield target, new, np.where(np.isin(target, past), np.isin(target, whole), np.isin(target, new))


@pytest.mark.parametrize("bounds", [(1024, 2**18), (3, 2**18), (1024, 17)])
def test_the_retriever_gets_the_whole_history(dataset, first, monkeypatch, bounds):
    """The ranker gets the last 4 items; the retriever gets all and excludes all, in blocks of any size."""
    for name, bound in zip(("_SEARCHED_AT_A_TIME", "_ITEMS_AT_A_TIME"), bounds, strict=True):
        monkeypatch.setattr(two_stage, name, bound)
    settings = {"model.length": 4, "examples.max_examples": 90, "loss.negatives": "candidates"}
    task = task_of(dataset, first, **settings)
    assert np.array_equal(task.candidates_EK, [new for _, new, _ in retrieved(task)])


@pytest.mark.parametrize(("negatives", "shown"), [("candidates", [(400.0, 400)]), ("unseen", [])])
def test_retrieving_for_training_histories_is_a_step(dataset, first, negatives, shown):
    class Listener:
        quiet, steps = False, []

        def began(self, step): ...

        def ended(self, step):
            if step.words == "retrieving candidates for the training histories":
                self.steps.append((step.done, step.total))

        def told(self, line): ...

    with heard_by(Listener()):
        task_of(dataset, first, **{"loss.negatives": negatives})
    assert Listener.steps == shown


def test_targets_are_within_the_horizon(dataset, first):
    task = task_of(dataset, first, **{"examples.horizon": 5, "examples.num_targets": 3})
    ends = task.examples.source.indptr[task.examples.users + 1]
    for row, (stop, end) in enumerate(zip(task.examples.stop, ends, strict=True)):
        ahead = set(range(stop, min(end, stop + 5)))
        places = task.positions_ET[row].tolist()
        assert set(places) <= ahead
        assert len(set(places)) == min(3, len(ahead))
    offsets = (task.positions_ET - task.examples.stop[:, None])[ends - task.examples.stop >= 5]
    assert np.abs(np.bincount(offsets.ravel(), minlength=5) / offsets.size - 0.2).max() < 0.05


def test_a_horizon_beyond_every_history_costs_nothing(dataset, first):
    longest = int(disjoint_users(dataset).train.histories.lengths.max())
    near, far = (task_of(dataset, first, **{"examples.horizon": horizon}) for horizon in (longest, 2**31 - 1))
    assert np.array_equal(near.positions_ET, far.positions_ET)


def test_targets_of_long_histories_are_drawn_in_blocks(dataset, first, monkeypatch):
    """Memory is bounded, and the draws are those of a single block."""
    task, drawn = task_of(dataset, first, **{"examples.horizon": 0, "examples.num_targets": 3}), []

    class Watched(np.random.Generator):
        def random(self, size):
            drawn.append(np.prod(size))
            return super().random(size)

    for most in (2**22, 64, 1):
        monkeypatch.setattr(two_stage, "_DRAWS_AT_A_TIME", most)
        drawn.clear()
        positions = task.task._target_positions(Watched(np.random.PCG64(1)))
        assert np.array_equal(positions, task.positions_ET)
        assert max(drawn) <= max(most, task.examples.source.lengths.max())


def test_the_loss_equals_loops(dataset, first):
    task = task_of(dataset, first, **{"examples.pairs": "harmonised", "loss.negatives": "candidates"})
    batch = task.batch(np.arange(12))
    batch.log_weight_BM[3] = -torch.inf  # A row without negatives.
    scores = task.model(batch.query, batch.items_BC).detach()
    total, weight = 0.0, 0.0
    for row in range(12):
        rivals = [s.item() for s, w in zip(scores[row, 8:], batch.log_weight_BM[row], strict=True) if w == 0]
        for target in range(8 if rivals else 0):
            own, share = scores[row, target].item(), batch.weights_BT[row, target].item()
            total += share * -np.log(np.exp(own) / (np.exp(own) + np.exp(rivals).sum()))
            weight += share
    loss = task.loss(batch)
    assert np.isclose(loss.item(), total / weight, rtol=1e-5)
    loss.backward()
    assert all(torch.isfinite(p.grad).all() for p in task.model.parameters() if p.grad is not None)


@pytest.mark.parametrize("negatives", ["uniform", "unseen"])
def test_sampled_negatives_estimate_the_full_sum(dataset, first, negatives):
    """E[sum of exp(s + log weight)] over draws is the sum over all candidates."""
    split, task = disjoint_users(dataset), task_of(dataset, first, **{"loss.negatives": negatives})
    scores = np.random.default_rng(0).normal(size=split.train.num_items)
    sums = []
    for _ in range(3000):
        batch = task.batch(np.array([5]))
        sums.append(np.exp(scores[batch.items_BC[0, 8:].numpy()] + batch.log_weight_BM[0].numpy()).sum())
    had = task.targets(np.array([5])) if negatives == "uniform" else split.train.histories[task.examples.users[5]]
    others = np.setdiff1d(np.arange(split.train.num_items), had)
    assert abs(np.mean(sums) / np.exp(scores[others]).sum() - 1) < 0.03


def test_uniform_negatives_stand_for_all_items_but_the_targets(dataset, first):
    """Each kept draw weighs (items that are no target) / (draws kept); draws that are a target weigh nothing."""
    task = task_of(dataset, first, **{"loss.negatives": "uniform"})
    batch, dropped = task.batch(np.arange(200)), 0
    for items, log_weights in zip(batch.items_BC.tolist(), batch.log_weight_BM.tolist(), strict=True):
        targets, drawn = set(items[:8]), items[8:]
        kept = [item not in targets for item in drawn]
        dropped += len(kept) - sum(kept)
        weight = (task.num_items - len(targets)) / max(sum(kept), 1)
        assert log_weights == pytest.approx([np.log(weight) if real else -np.inf for real in kept])
    assert dropped


TREE = {
    "model.width": 4,
    "model.attention_hidden": 4,
    "model.windows": (4, 2, 1),
    "model.mlp": (8, 4),
    "examples.min_history": 2,
}


RETRIEVERS = {
    "dtr": TREE,
    "plt": TREE,
    "sasrec": {"model.width": 8, "model.length": 8},
    "two_tower": {"model.width": 4, "model.user_tower": "mf"},
    "transitions": {},
    "popularity": {},
}


@pytest.mark.parametrize("method", RETRIEVERS)
def test_any_retriever_can_come_first(dataset, tmp_path, method):
    split = leave_one_out(dataset)
    module = load_method(method)
    steps = {"loop.max_steps": 2} if RETRIEVERS[method] else {}
    module.fitted(split, module.Config(**RETRIEVERS[method], **steps)).save(tmp_path / "first")
    config = STAGES_OF.Config(
        **STAGES, **{"start.retriever": str(tmp_path / "first"), "examples.pairs": "harmonised", "loop.max_steps": 2}
    )
    both = STAGES_OF.fitted(split, config, progress=False)
    both.save(tmp_path / "both")
    loaded = beamwood.load(tmp_path / "both")
    allowed = list(range(0, 150, 3))
    found = loaded.recommend(users=[3, 7], k=5, allowed=allowed)
    assert found == both.recommend(users=[3, 7], k=5, allowed=allowed)
    assert {item for row in found.item_ids for item in row} <= set(allowed)


def test_two_stages_answer_without_torch(dataset, first, tmp_path):
    split = disjoint_users(dataset)
    config = STAGES_OF.Config(**STAGES, **{"start.retriever": first["users"], "loop.max_steps": 2})
    STAGES_OF.fitted(split, config, progress=False).save(tmp_path / "saved")
    code = (
        "import sys, beamwood; r = beamwood.load(sys.argv[1]); r.recommend(histories=[[1, 2]], k=3); "
        "assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code, str(tmp_path / "saved")], check=True)
