"""A log in which one of two items follows each item, and helpers for tests of sequence methods."""

import numpy as np
import polars as pl
import torch

import beamwood
from beamwood.data import Dataset, leave_one_out, read_log
from beamwood.methods import load_method
from beamwood.types import ItemLists, Query

NUM_ITEMS = 60


def followed(items=None):
    """Item n is followed by n + 1 or n + 7; `items`: the item table."""
    rng = np.random.default_rng(0)
    rows = []
    for user in range(200):
        item = int(rng.integers(NUM_ITEMS))
        for time in range(10):
            rows.append((user, item, time))
            item = (item + (1 if rng.random() < 0.5 else 7)) % NUM_ITEMS
    log = read_log(pl.DataFrame(rows, ["user_id", "item_id", "timestamp"], orient="row"))
    return leave_one_out(Dataset.from_log(log, items))


def far_from_start(task):
    """The training task, with its parameters moved away from their initial values."""
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in task.model.parameters():
            parameter.add_(0.3 * torch.randn(parameter.shape, generator=generator))
    task.model.eval()
    return task


def queries(rows=12):
    """Histories of one to eight items."""
    rng = np.random.default_rng(3)
    return Query.of(ItemLists.from_lists([rng.integers(0, NUM_ITEMS, n % 8 + 1) for n in range(rows)]))


def without_gradient(task):
    """The parameters that a step does not change. A softmax is invariant to a constant common to all keys."""
    task.model.train()
    task.loss(task.batch(np.arange(64))).backward()
    silent = [name for name, each in task.model.named_parameters() if each.grad is None or not each.grad.any()]
    return [name for name in silent if not name.endswith("key.bias")]


def gain_over_popularity(method, split, settings):
    """The gain in recall@20 of a fit over popularity."""
    fitted = method.fitted(split, settings | {"optimiser.warmup_steps": 10}, progress=False)
    popular = load_method("popularity").fitted(split)
    found = [beamwood.evaluate(each, split)["kept"].means()["recall@20"] for each in (fitted, popular)]
    return found[0] - found[1]
