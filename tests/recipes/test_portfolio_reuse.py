"""Results that a search computes once: initialisations of trainings, and candidates of the first part of blends."""

import errno
import json
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from beamwood.artefact.write import _WRITERS
from beamwood.errors import NotSavedError
from beamwood.fitting.start_cache import caching
from beamwood.fitting.tree import initial_scorer, task
from beamwood.fitting.tree.dtr import make_objective
from beamwood.fitting.vectors import item_start
from beamwood.fitting.vectors.item_start import transition_vectors, unit_vectors
from beamwood.methods import load_method
from beamwood.recipes.portfolio import choice, first_part
from beamwood.recipes.portfolio.members import Member
from beamwood.recipes.portfolio.search import Search
from beamwood.recipes.portfolio.search_folder import SearchFolder
from beamwood.recipes.portfolio.trials import Trials
from beamwood.recipes.portfolio.wanted import Wanted
from beamwood.training import run_folder
from beamwood.training.budget import Budget
from beamwood.training.checkpoint import load_checkpoint
from beamwood.training.run_folder import RunFolder
from beamwood.training.trainable import Stepper
from clocks import Ticks
from plans import planned
from portfolios import COUNTING, TINY, held, small_split
from resumed import assert_same_arrays

TREE = {"tree.branching": 4, "model.width": 8, "model.attention_hidden": 4, "model.mlp": (8,), "model.light_width": 0}
TREE |= {"model.num_neighbours": 4, "tree.beam_width": 16, "loop.evaluate_every": 2, "loop.max_steps": 10**6}
TREE |= {"loop.patience": 10**6, "choose.validation_users": 20, "loop.batch_size": 16}


@pytest.fixture(scope="module")
def split():
    return small_split()


def counted(monkeypatch, module, *names):
    """Count the calls of these functions of a module."""
    calls = dict.fromkeys(names, 0)
    for name in names:

        def noting(*given, _name=name, _whole=getattr(module, name), **options):
            calls[_name] += 1
            return _whole(*given, **options)

        monkeypatch.setattr(module, name, noting)
    return calls


def test_a_tree_is_initialised_once_for_all_looks_and_rates(split, tmp_path, monkeypatch):
    monkeypatch.setattr(choice, "SHORTEST", 1.0)
    trees = counted(monkeypatch, task, "start_tree")
    scorers = counted(monkeypatch, initial_scorer, "start_scorer", "best_seen_start")
    made = counted(monkeypatch, item_start, "leading_eigenvectors")
    monkeypatch.setattr(item_start, "_fits", lambda *_: True)
    gentle = {"optimiser.learning_rate": 5e-4, "model.dropout": 0.1}
    towers = {"model.width": 8, "start.items": "transitions", "loop.evaluate_every": 2, "choose.validation_users": 20}
    members = [COUNTING[0], Member("dtr", "dtr", TREE), Member("gentle", "dtr", TREE | gentle)]
    members += [Member("towers", "two_tower", towers)]
    parts, begun = held(split, tmp_path / "parts", members, 60)
    with parts.locked(resume=False, overwrite=False):
        begun().run()
    looks = [each.name for each in parts.trials if len(each.parts) == 1 and each.value is not None]
    assert len(looks) > len(set(looks)) == 4
    assert made == {"leading_eigenvectors": 1}
    assert trees | scorers == {"start_tree": 1, "start_scorer": 1, "best_seen_start": 1}


def test_other_settings_need_another_initialisation(split):
    with caching():
        trained = [
            load_method("dtr").fitted(split, TREE | changed | {"loop.max_steps": 1}, progress=False)
            for changed in ({}, {"tree.branching": 8}, {"start.seen": 3.0}, {"model.num_neighbours": 0})
        ]
    alone = [
        load_method("dtr").fitted(split, TREE | changed | {"loop.max_steps": 1}, progress=False)
        for changed in ({}, {"tree.branching": 8}, {"start.seen": 3.0}, {"model.num_neighbours": 0})
    ]
    for one, other in zip(trained, alone, strict=True):
        assert_same_arrays(one, other)


def test_a_training_from_a_stored_initialisation_equals_an_uninterrupted_one(split, tmp_path):
    def trained(folder, steps, **options):
        run, config = RunFolder(tmp_path / folder), TREE | {"loop.max_steps": steps}
        fitted = load_method("dtr").fitted(split, config, run=run, progress=False, **options)
        return fitted, load_checkpoint(run.checkpoint_path)["run"]["model"]

    whole, weights = trained("whole", 6)
    with caching():
        trained("parts", 2)
        again, own = trained("parts", 6, resume=True)
    assert_same_arrays(whole, again)
    assert all(torch.equal(tensor, own[name]) for name, tensor in weights.items())


def test_a_stored_initialisation_has_nothing_learned_later(split):
    def started():
        config = planned(load_method("dtr").configured(TREE), split.train)
        return Stepper(task.TreeTask(split, config, lambda tree: make_objective(config, tree, None))).task.model

    with caching():
        first = started()
        before = {name: tensor.clone() for name, tensor in first.state_dict().items()}
        for parameter in first.parameters():
            parameter.data.add_(1.0)
        second = started()
    assert all(torch.equal(tensor, before[name]) for name, tensor in second.state_dict().items())


def test_large_initialisations_are_not_stored(split, monkeypatch):
    monkeypatch.setattr(initial_scorer, "_MOST_CACHED", 10)
    trees, scorers = counted(monkeypatch, task, "start_tree"), counted(monkeypatch, initial_scorer, "start_scorer")
    with caching():
        for _ in range(2):
            load_method("dtr").fitted(split, TREE | {"loop.max_steps": 1}, progress=False)
    assert trees | scorers == {"start_tree": 1, "start_scorer": 2}


def test_few_vectors_are_the_first_of_many_stored_ones(split, monkeypatch):
    calls = counted(monkeypatch, item_start, "leading_eigenvectors")
    alone = transition_vectors(split.train, 8, seed=0)
    with caching():
        many = transition_vectors(split.train, 16, seed=0)
        few, other = (transition_vectors(split.train, 8, seed=seed) for seed in (0, 1))
    assert calls["leading_eigenvectors"] == 3
    assert not np.array_equal(few, other)
    np.testing.assert_array_equal(few, unit_vectors(many[:, :8]))
    # Eigenvalues are accurate to a hundredth.
    assert np.abs(few @ few.T - alone @ alone.T).mean() < 0.01


def test_omissions_of_a_stored_initialisation_are_reported_for_all(split, monkeypatch):
    monkeypatch.setattr(item_start, "_DENSE", 0)
    lines = []
    with caching():
        for _ in range(2):
            budget = Budget(1000, clock=Slow())
            load_method("dtr").fitted(split, TREE | {"loop.max_steps": 1}, progress=False, time_limit=budget)
            lines.append([line for line in budget.left_out if "eigenvectors" in line])
    assert lines[0] == lines[1] != []


class Slow:
    """A clock with which exact eigenvectors by single products take too long."""

    def __init__(self):
        self.now = 0.0

    def __call__(self):
        self.now += 1.0
        return self.now


# ---- looks


@pytest.mark.parametrize("what", ["checkpoint", "metrics"])
def test_a_full_disk_ends_the_search_without_dropping_a_member(split, tmp_path, monkeypatch, what):
    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    # Counting methods need less disk space than trained ones.
    members = [*COUNTING, Member("dtr", "dtr", TREE)]
    parts, begun = held(split, tmp_path / "parts", members, 60)
    with monkeypatch.context() as patched:
        if what == "checkpoint":
            arrays = _WRITERS["arrays"]
            patched.setitem(
                _WRITERS, "arrays", lambda path, of: full() if ".checkpoint." in str(path) else arrays(path, of)
            )
        else:
            dumps = json.dumps
            lines = SimpleNamespace(
                loads=json.loads, dumps=lambda of, **more: full() if "step" in of else dumps(of, **more)
            )
            patched.setattr(run_folder, "json", lines)
        with (
            parts.locked(resume=False, overwrite=False),
            pytest.raises(NotSavedError, match=r"No space left.*free some space.*--resume goes on"),
        ):
            begun().run()
    assert [each.name for each in parts.trials] == [member.name for member in COUNTING]
    parts, begun = held(split, tmp_path / "parts", members, 120)
    with parts.locked(resume=True, overwrite=False):
        begun().run()
    assert parts.kept("dtr").value > 0


def test_unchanged_models_are_not_evaluated_again(split, tmp_path, monkeypatch):
    """A look without better weights needs no evaluation, however slow it is."""
    monkeypatch.setattr(choice, "SHORTEST", 1.0)
    judged = []
    measure = Trials.measure
    monkeypatch.setattr(
        Trials,
        "measure",
        lambda self, trial, searcher: judged.append(trial.name) or measure(self, trial, searcher),
    )
    frozen = TREE | {"optimiser.learning_rate": 1e-12}
    members = [COUNTING[0], Member("dtr", "dtr", frozen), Member("gentle", "dtr", frozen | {"model.dropout": 0.1})]
    parts, begun = held(split, tmp_path / "parts", members, 60)
    with parts.locked(resume=False, overwrite=False):
        one = begun()
        one.looks.run()
        again = [each for each in parts.trials if each.name in ("dtr", "gentle")]
    of_trees = [name for name in judged if name in ("dtr", "gentle")]
    assert len(again) > len(of_trees) == 2
    assert len({tuple(each.folders) for each in again}) == 2
    assert len({each.value for each in again}) == 1
    assert all(each.evaluation_seconds > 0 and each.milliseconds > 0 for each in again)


@pytest.mark.parametrize(("pace", "looked_at"), [(1.0, {"s0", "s1"}), (0.3, {"s0"})])
def test_under_other_load_there_are_fewer_and_longer_looks(split, tmp_path, pace, looked_at):
    members = [COUNTING[0], *(Member(f"s{n}", "sasrec", TINY | {"model.dropout": n / 10}) for n in range(3))]
    clock, parts = Ticks(0.1), SearchFolder(tmp_path / "parts", {})
    options = {"budget": Budget(150, clock=clock), "processor": lambda: pace * clock.now}
    with parts.locked(resume=False, overwrite=False):
        one = Search(split, Wanted(150, "removed/f@20"), parts, members=members, **options)
        clock.now += 5
        one.looks.run()
    trained = [each for each in parts.trials if each.name != "popularity"]
    assert {each.name for each in trained} == looked_at
    if pace < 1:
        assert len(trained) == 1
        assert trained[0].seconds > 100


# ---- blends


def test_candidates_of_the_first_part_are_reused_for_all_blends(split, tmp_path, monkeypatch):
    """The first part retrieves its candidates once for all second parts."""
    made, whole = [], first_part.FirstStage.__init__

    def noting(self, retriever, *given, **options):
        made.append(retriever.metadata["method"])
        whole(self, retriever, *given, **options)

    monkeypatch.setattr(first_part.FirstStage, "__init__", noting)
    retrieved, retrieve = [], first_part.FirstStage._retrieve
    monkeypatch.setattr(
        first_part.FirstStage, "_retrieve", lambda self, num: retrieved.append(num) or retrieve(self, num)
    )
    parts, begun = held(split, tmp_path / "parts", [*COUNTING, Member("ease", "ease")], 600)
    with parts.locked(resume=False, overwrite=False):
        begun().run()
    pairs = [each.parts for each in parts.trials if len(each.parts) == 2]
    first = pairs[0][0]
    behind = [pair for pair in pairs if pair[0] == first]
    assert len(behind) > 1
    # The best method is tried with each other as the second part.
    assert made.count(first) == 1
    assert retrieved.count(max(retrieved)) == len(made)


def test_slow_blends_are_skipped_for_faster_ones(split, tmp_path, monkeypatch):
    """The remaining time is too short for the best first part, which is slow, but enough for the second best."""
    members = [*COUNTING, Member("ease", "ease")]
    parts, begun = held(split, tmp_path / "parts", members, 600)
    with parts.locked(resume=False, overwrite=False):
        one = begun()
        one.looks.run()
        best, second = sorted(
            (each for each in parts.trials if each.name != "popularity"), key=lambda each: -each.value
        )[:2]
        best.evaluation_seconds, second.evaluation_seconds = one.budget.left, 0.0
        one.blends.run()
    firsts = {each.parts[0] for each in parts.trials if len(each.parts) > 1}
    assert firsts == {second.name}
