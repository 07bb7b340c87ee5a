"""Two stages under a time limit: what is left out, the users that judge, and resuming with another limit."""

import numpy as np
import pytest

import beamwood
from beamwood.data import disjoint_users, leave_one_out
from beamwood.fitting import blend, timed_validation
from beamwood.fitting.ranking import stage_measure, two_stage
from beamwood.fitting.stages import stage_candidates
from beamwood.methods import load_method
from beamwood.training.budget import Budget
from beamwood.training.checkpoint import load_checkpoint
from beamwood.training.run_folder import RunFolder
from clocks import Clock
from rankers import STAGES, STAGES_OF


@pytest.fixture
def clock(monkeypatch):
    """A clock on which only searches for training histories take time: a second for eight."""
    clock, searched = Clock(), two_stage.StagesTask._searched

    def slow(task, rows):
        clock.now += len(rows) / 8
        return searched(task, rows)

    monkeypatch.setattr(two_stage, "_SEARCHED_UNDER_A_LIMIT", 8)
    monkeypatch.setattr(two_stage.StagesTask, "_searched", slow)
    return clock


def fitted(dataset, first, clock, limit, run=None, *, steps=2, resume=False, **settings):
    given = STAGES | {"start.retriever": first["users"], "loop.max_steps": steps, "loop.evaluate_every": 1}
    options = {"run": run, "resume": resume, "progress": False, "time_limit": Budget(limit, clock=clock)}
    return STAGES_OF.fitted(disjoint_users(dataset), given | settings, **options)


@pytest.mark.parametrize("limit", [6.0, 1000.0, None])
@pytest.mark.parametrize("settings", [{"examples.pairs": "harmonised"}, {"loss.negatives": "candidates"}], ids=str)
def test_a_resumed_run_retrieves_for_as_many_examples(dataset, first, tmp_path, clock, settings, limit):
    run = RunFolder(tmp_path / "run")
    before = fitted(dataset, first, clock, 40.0, run, **settings).metadata["training"]
    after = fitted(dataset, first, clock, limit, run, steps=4, resume=True, **settings).metadata["training"]
    for name in ("examples", "retrieved_share_of_training_pairs"):
        assert after[name] == before[name]
    for each in (before, after):
        assert each["left_out"][0] == "candidates are retrieved for 168 of 400 training histories"
    assert after["steps"] == (2 if limit == 6 else 4)


def test_a_resumed_run_knows_that_other_users_judged(dataset, first, tmp_path, clock, monkeypatch):
    """Metrics of fewer users are not compared with those of all."""
    run = RunFolder(tmp_path / "run")
    with monkeypatch.context() as slow:
        slow.setattr(stage_measure, "estimated_seconds", lambda *_: 100.0)
        before = fitted(dataset, first, clock, 100.0, run).metadata["training"]
    assert before["left_out"] == ["validation uses 2 of 30 users: retrieving for all takes 200 s"]
    assert load_checkpoint(run.checkpoint_path)["run"]["num_queries"] == 2
    after = fitted(dataset, first, clock, 100.0, run, steps=3, resume=True).metadata["training"]
    assert load_checkpoint(run.checkpoint_path)["run"]["num_queries"] is None
    assert after["valid/removed/ndcg@20"] != before["valid/removed/ndcg@20"]


def test_the_weights_are_chosen_on_as_many_users_as_time_is_reserved_for(dataset, first, clock, monkeypatch):
    """Choosing takes a tenth of a second for each user."""
    began, asked, best = clock.now, [], blend.StageCandidates.best

    def slow(stages, second):
        asked.append(len(stages.queries))
        clock.now += len(stages.queries) / 10
        return best(stages, second)

    monkeypatch.setattr(timed_validation, "_FEWEST", 4)
    monkeypatch.setattr(blend.StageCandidates, "best", slow)
    training = fitted(dataset, first, clock, 20.0, steps=100).metadata["training"]
    assert training["left_out"] == [
        "validation uses 13 of 30 users",
        "after the training, weights are chosen on 6 of 30 users",
    ]
    assert asked[-2:] == [13, 6]
    assert clock.now - began <= 20


def test_candidates_of_some_users_are_those_that_they_get_alone(dataset, first, monkeypatch):
    """Across blocks, of which some have none of the users."""
    split, retriever = disjoint_users(dataset), beamwood.load(first["users"])
    config, second = STAGES_OF.Config(**STAGES), load_method("transitions").fitted(split).searcher
    queries, rows = split.valid.labelled(), np.array([0, 2, 6, 7, 22])
    alone = stage_candidates(retriever, queries.take(rows), config)
    monkeypatch.setattr(blend, "_QUERIES_AT_A_TIME", 7)
    some = stage_candidates(retriever, queries, config).take(rows)
    assert np.array_equal(some.queries.users, alone.queries.users)
    ours, theirs = some.best(second), alone.best(second)
    assert ours[0].facts() == pytest.approx(theirs[0].facts())
    assert ours[1] == pytest.approx(theirs[1])


@pytest.mark.parametrize("seed", [0, 1])
def test_a_random_part_of_the_users_judges(dataset, first, clock, monkeypatch, seed):
    """Equal numbers are equal users, also where the measure itself has left some out."""
    split, retriever = leave_one_out(dataset), beamwood.load(first["leave-one-out"])
    config, measures = STAGES_OF.Config(**STAGES), []
    monkeypatch.setattr(stage_measure, "estimated_seconds", lambda *_: 60.0)
    for limit in (100.0, None):
        measure = stage_measure.StageMeasure(
            retriever.searcher,
            split.valid,
            lambda queries: stage_candidates(retriever, queries, config),
            num_candidates=30,
            budget=Budget(limit, clock=clock),
            seed=seed,
        )
        measures.append(measure)
    cut, whole = measures
    assert (len(cut), len(whole)) == (37, 300)
    asked, best = [], blend.StageCandidates.best
    monkeypatch.setattr(blend.StageCandidates, "best", lambda *given: asked.append(given[0].queries) or best(*given))
    second = load_method("popularity").fitted(split).searcher
    results = [measure(second, num) for num in (12, 37) for measure in measures]
    for one, other in ((0, 1), (2, 3)):
        assert np.array_equal(asked[one].users, asked[other].users)
        assert results[one] == pytest.approx(results[other])
        assert abs(asked[one].users.mean() - 150) < 100
    assert set(asked[0].users) < set(asked[2].users)
