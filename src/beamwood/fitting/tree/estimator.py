"""The estimator of rectified labels, by name: a method that is fitted first, or the folder of a fitted one."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from typing import Unpack

from beamwood.artefact import check_output
from beamwood.data.split import Split
from beamwood.errors import InputError, nearest
from beamwood.fitting.fitted import load_fitted, training_seconds
from beamwood.fitting.options import Fit, TrainOptions
from beamwood.training.budget import Budget
from beamwood.training.run_folder import RunFolder
from beamwood.types import Searcher

__all__ = ["check_estimator", "fit_estimator"]


def check_estimator(name: str, methods: Mapping[str, Fit]) -> None:
    """Errors: a name that is neither one of `methods` nor a folder."""
    if name not in methods and not os.path.isdir(name):
        raise InputError(f"loss.estimator='{name}' is neither a method nor a folder{nearest(name, methods)}")


def fit_estimator(name: str, split: Split, methods: Mapping[str, Fit], **options: Unpack[TrainOptions]) -> Searcher:
    """The estimator of rectified labels, fitted first or loaded.

    `name` is one of `methods`, fitted first on the same split, else a folder (where it is a method's name: ./sasrec).
    An estimator that is fitted, and its run, are stored in the folder of the run, which the caller locks. So a resumed
    training continues or loads it; the budget then counts the time that it took before.
    """
    if name not in methods:
        return load_fitted(name, split).searcher
    run, resume = options.get("run"), options.get("resume", False)
    folder, own = None, None
    if run is not None:
        folder = check_output(run.path / "estimator", overwrite=True)
        own = RunFolder(run.path / "estimator.run", overwrite=run.overwrite)
        if not resume:
            own.check(resume=False)
            run.clear()
        elif os.path.exists(folder / "manifest.json"):
            kept = load_fitted(str(folder), split)
            if kept.metadata.get("method") == name:
                Budget.of(options.get("time_limit")).count(training_seconds(kept) or 0.0)
                return kept.searcher
        # The estimator of another run, which this run must not resume after an interrupt.
        shutil.rmtree(folder, ignore_errors=True)
    resumes = resume and own is not None and own.holds_a_run
    fitted = methods[name](split, **options | {"run": own, "resume": resumes})
    if folder is not None:
        fitted.save(folder, overwrite=True)
    return fitted.searcher
