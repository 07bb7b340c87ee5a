"""The estimator of rectified labels: what it may be, and how its own training is kept and resumed."""

import numpy as np
import pytest

from beamwood.errors import InputError
from beamwood.fitting.vectors import sequence
from beamwood.methods import load_method
from beamwood.retrieval.searchers.popularity import PopularitySearcher
from beamwood.training.interrupt import Interrupted
from beamwood.training.run_folder import RunFolder
from beamwood.types import QueryNeeds
from plans import planned
from resumed import assert_same_arrays
from tree_cases import SHORT, configured, market_split


@pytest.fixture(scope="module")
def split():
    return market_split(300)


def test_an_estimator_must_use_histories(split):
    class KnowsUsers(PopularitySearcher):
        needs = QueryNeeds(users=True)

    estimator = KnowsUsers(np.ones(split.train.num_items))
    with pytest.raises(InputError, match="the estimator needs known users; give one of histories"):
        load_method("dtr").fitted(
            split, configured("dtr", {"loss.labels": "rectified"}), estimator=estimator, progress=False
        )


def test_a_folder_does_not_shadow_a_method_name(split, tmp_path, monkeypatch):
    """Folders in the working directory do not change the meaning of `estimator=transitions`."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "transitions").mkdir()
    config = configured("dtr", {"loss.labels": "rectified", "loss.estimator": "transitions"}, **SHORT)
    assert load_method("dtr").fitted(split, config, progress=False).metadata["method"] == "dtr"
    config = configured("dtr", {"loss.labels": "rectified", "loss.estimator": "./transitions"}, **SHORT)
    with pytest.raises(InputError, match="transitions"):
        load_method("dtr").fitted(split, config, progress=False)


def test_an_estimator_of_an_earlier_run_is_not_used(split, tmp_path, monkeypatch):
    """A new run in an older run's folder, interrupted in its estimator, trains the estimator again when resumed."""
    run = RunFolder(tmp_path / "run")
    config = configured("dtr", {"loss.labels": "rectified", "loss.estimator": "transitions"}, **SHORT)
    load_method("dtr").fitted(split, config, run=run, progress=False)
    run = RunFolder(run.path, overwrite=True)

    def interrupted(*arguments, **options):
        raise Interrupted("here")

    monkeypatch.setattr(sequence, "fit_sequence", interrupted)
    for resume in (False, True):
        with pytest.raises(Interrupted):
            load_method("dtr").fitted(
                split, configured("dtr", {"loss.labels": "rectified"}, **SHORT), run=run, resume=resume, progress=False
            )


def test_an_estimator_is_trained_only_while_the_folder_is_locked(split, tmp_path):
    """A concurrent new run changes neither the run nor its estimator's run."""
    config, run = (
        configured("dtr", {"loss.labels": "rectified", "loss.estimator": "transitions"}, **SHORT),
        tmp_path / "run",
    )
    with RunFolder(run).locked(resume=False):
        (run / "estimator").mkdir()
        with pytest.raises(InputError, match=r"is in use by process \d+; wait"):
            load_method("dtr").fitted(split, config, run=RunFolder(run, overwrite=True), progress=False)
        assert [path.name for path in run.iterdir()] == ["estimator"]
    (run / "estimator" / "thesis.doc").write_text("mine")
    with pytest.raises(InputError, match="estimator is not empty and not a beamwood artefact"):
        load_method("dtr").fitted(split, config, run=RunFolder(run, overwrite=True), progress=False)
    assert [path.name for path in (run / "estimator").iterdir()] == ["thesis.doc"]


def test_an_interrupted_estimator_is_not_overwritten_by_default(split, tmp_path, monkeypatch):
    """Its run is like any other: without --resume or --overwrite it is not changed."""
    module, own = load_method("gru4rec"), RunFolder(tmp_path / "run" / "estimator.run")
    module.fitted(split, module.Config(**{"loop.max_steps": 1, "choose.validation_users": 5}), run=own, progress=False)
    before = own.metrics_path.read_bytes()

    def anew(*arguments, **options):
        raise AssertionError("the estimator was trained from the start")

    monkeypatch.setattr(sequence, "fit_sequence", anew)
    config = configured("dtr", {"loss.labels": "rectified", "loss.estimator": "gru4rec"}, **SHORT)
    with pytest.raises(InputError, match=r"estimator\.run already holds a run; pass --resume"):
        load_method("dtr").fitted(split, config, run=RunFolder(tmp_path / "run"), progress=False)
    assert own.metrics_path.read_bytes() == before


def test_an_estimator_is_kept_and_its_own_training_is_resumed(split, tmp_path, monkeypatch):
    """With labels=rectified SASRec is trained first; a resumed run uses it instead of training it again."""
    small = {"model.width": 8, "model.length": 8, "model.num_blocks": 1, "loop.batch_size": 8, "loop.max_steps": 4}
    small |= {"loop.evaluate_every": 2, "choose.validation_users": 5}
    plain = sequence.fit_sequence

    def fit_small(split, config, *arguments, **options):
        return plain(split, planned(config.changed(small), split.train), *arguments, **options)

    monkeypatch.setattr(sequence, "fit_sequence", fit_small)
    config = configured(
        "dtr",
        {
            "loss.labels": "rectified",
            "loop.max_steps": 4,
            "loop.evaluate_every": 2,
            "loop.batch_size": 8,
            "choose.validation_users": 5,
            "optimiser.decay_steps": 9,
        },
    )
    run = RunFolder(tmp_path / "run")
    whole = load_method("dtr").fitted(split, config, run=run, progress=False)
    assert (run.path / "estimator" / "manifest.json").exists()
    assert (run.path / "estimator.run" / "metrics.jsonl").exists()

    def never(*arguments, **options):
        raise AssertionError("the estimator was trained again")

    monkeypatch.setattr(sequence, "fit_sequence", never)
    again = load_method("dtr").fitted(split, config, run=run, resume=True, progress=False)
    assert_same_arrays(whole, again)
