"""A run resumes only on its own data and split."""

import json

import numpy as np
import polars as pl
import pytest
import torch

from beamwood.data import Dataset, disjoint_users, leave_one_out, read_log
from beamwood.errors import InputError
from beamwood.methods import load_method
from beamwood.training.checkpoint import load_checkpoint
from beamwood.training.run_folder import RunFolder
from resumed import assert_same_arrays


def logged(seed):
    """200 rows of 20 users, in an order by the seed."""
    items = np.random.default_rng(seed).permutation(np.arange(200) % 12)
    return Dataset.from_log(
        read_log(pl.DataFrame({"user_id": np.arange(200) % 20, "item_id": items, "timestamp": np.arange(200)}))
    )


def test_another_log_or_split_is_refused(tmp_path):
    sasrec, run = load_method("sasrec"), RunFolder(tmp_path / "run")
    config = sasrec.Config(
        **{"model.width": 4, "loop.max_steps": 2, "loop.evaluate_every": 1, "choose.validation_users": 5}
    )
    split = disjoint_users(logged(0), seed=1)
    sasrec.fitted(split, config, run=run, progress=False)
    files = {path: path.read_bytes() for path in run.path.rglob("*") if path.is_file()}
    assert json.loads(run.config_path.read_text())["data"] == split.dataset.fingerprint()
    others = [
        (disjoint_users(logged(3), seed=1), "on another log or item table than these"),
        (disjoint_users(split.dataset, seed=2), r"on another split than this one \(disjoint users .*seed 1"),
        (leave_one_out(split.dataset), "on another split"),
    ]
    for other, message in others:
        with pytest.raises(InputError, match=message):
            sasrec.fitted(other, config, run=run, resume=True, progress=False)
    assert {path: path.read_bytes() for path in run.path.rglob("*") if path.is_file()} == files
    sasrec.fitted(split, config.changed({"loop.max_steps": 3}), run=run, resume=True, progress=False)


def test_another_method_over_the_same_training_is_refused(tmp_path):
    """Also the same file with other content, and where its fit is another method's."""
    run, split, path = RunFolder(tmp_path / "run"), disjoint_users(logged(0), seed=1), tmp_path / "mine.py"
    sizes = {"model.width": 4, "loop.evaluate_every": 1, "choose.validation_users": 5}
    start = "from dataclasses import replace\nfrom beamwood.methods.sasrec import METHOD as SASREC\n"
    parts = ("", ", fit=lambda *given, **more: SASREC.fitted(*given, **more)")

    def fit(method, max_steps, *, resume):
        config = sizes | {"loop.max_steps": max_steps}
        load_method(method).fitted(split, config, run=run, resume=resume, progress=False)

    for part in parts:
        text = f"{start}METHOD = replace(SASREC, name='mine'{part})\n"
        path.write_text(text)
        fit(str(path), 1, resume=False)
        fit(str(path), 2, resume=True)
        path.write_text(text + "# changed\n")
        with pytest.raises(InputError, match="with another method file than this one, or its content has changed"):
            fit(str(path), 3, resume=True)
        with pytest.raises(InputError, match="with method name='mine', now it is 'sasrec'; resume with the same"):
            fit("sasrec", 3, resume=True)
        run = RunFolder(run.path, overwrite=True)


def test_parts_outside_checkpoints_use_the_tree_of_the_run(tmp_path, monkeypatch):
    """With another limit the start may place items differently from the resumed run."""
    from beamwood.fitting.tree import task
    from beamwood.tree import random_tree

    config = {"tree.branching": 3, "model.width": 8, "model.num_neighbours": 4, "model.light_width": 0}
    config |= {"model.mlp": (8,), "loop.evaluate_every": 2, "loop.batch_size": 8, "tree.beam_width": 12}
    dtr, split = load_method("dtr"), disjoint_users(logged(0), seed=1)
    whole, run = RunFolder(tmp_path / "whole"), RunFolder(tmp_path / "run")
    fitted = dtr.fitted(split, config | {"loop.max_steps": 6}, run=whole, progress=False)
    dtr.fitted(split, config | {"loop.max_steps": 2}, run=run, progress=False)
    monkeypatch.setattr(
        task, "start_tree", lambda split, config, rng, *_: random_tree(split.train.num_items, rng, branching=3)
    )
    resumed = dtr.fitted(split, config | {"loop.max_steps": 6}, run=run, resume=True, progress=False)
    assert resumed.metadata["training"]["seen_start"] == fitted.metadata["training"]["seen_start"]
    ours, theirs = (load_checkpoint(each.checkpoint_path)["run"]["model"] for each in (whole, run))
    assert ours.keys() == theirs.keys()
    for name, tensor in ours.items():
        np.testing.assert_array_equal(tensor.numpy(), theirs[name].numpy(), err_msg=name)


@pytest.mark.parametrize(
    ("method", "settings"),
    [("tiger", {"model.num_words": 3}), ("jtr", {"index.leaf_size": 3, "index.num_children": 2})],
)
def test_codes_and_trees_of_initial_vectors_are_those_of_the_run(tmp_path, monkeypatch, method, settings):
    """With less time the resumed run starts from other vectors, of which it would make others."""
    sizes = {"model.width": 4, "model.length": 4, "model.num_blocks": 1, "loop.batch_size": 8, "loop.evaluate_every": 2}
    fit, split, runs = load_method(method).fitted, disjoint_users(logged(0), seed=1), RunFolder(tmp_path / "run")
    given, whole = settings | sizes, RunFolder(tmp_path / "whole")
    trained = fit(split, given | {"loop.max_steps": 6}, run=whole, progress=False)
    fit(split, given | {"loop.max_steps": 2}, run=runs, progress=False)
    other = np.random.default_rng(5).normal(size=(12, 4)).astype(np.float32)
    monkeypatch.setattr("beamwood.fitting.vectors.tiger.transition_vectors", lambda *_: other)
    monkeypatch.setattr(
        "beamwood.fitting.vectors.sequence.start_from_transitions",
        lambda tables, *_: torch.nn.init.normal_(tables[0].weight),
    )
    resumed = fit(split, given | {"loop.max_steps": 6}, run=runs, resume=True, progress=False)
    assert_same_arrays(trained, resumed)
