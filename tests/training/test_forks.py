"""A process forked from one that has trained refuses to train, as torch would wait for threads that it lacks."""

import os

import numpy as np
import polars as pl
import pytest
import torch

import beamwood
from beamwood.data import Dataset, leave_one_out, read_log
from beamwood.errors import InputError
from beamwood.training import forks

SMALL = {"loop.max_steps": 1, "model.width": 4, "model.length": 4, "choose.validation_users": 5}


@pytest.fixture(scope="module")
def split():
    rows = np.arange(120)
    frame = pl.DataFrame({"user_id": rows % 20, "item_id": (rows + rows // 20) % 30, "timestamp": rows})
    return leave_one_out(Dataset.from_log(read_log(frame)))


@pytest.mark.parametrize("threads", [1, 2])
def test_a_forked_process_refuses_to_train_by_several_threads(split, monkeypatch, threads):
    monkeypatch.setattr(forks, "_trained_in", [])
    monkeypatch.setattr(torch, "get_num_threads", lambda: threads)
    for _ in range(2):
        beamwood.fit(split, "sasrec", SMALL, progress=False)
    own = os.getpid()
    monkeypatch.setattr(forks.os, "getpid", lambda: own + 1)
    if threads == 1:
        beamwood.fit(split, "sasrec", SMALL, progress=False)
        return
    with pytest.raises(
        InputError, match=r"forked from one that has trained .* multiprocessing\.get_context\('spawn'\)"
    ):
        beamwood.fit(split, "sasrec", SMALL, progress=False)
