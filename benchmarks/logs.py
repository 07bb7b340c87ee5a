"""The location of the suite's logs, and how each is read and split.

The logs are research copies that this project does not ship. Each is a folder with `interactions.parquet`, and with
`items.parquet` if its items have categories.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

import beamwood
from beamwood.data import ColumnNames
from beamwood.data.markets.synthetic import MarketConfig, make_market
from beamwood.data.markets.tastes import TasteConfig, TasteMarket, make_taste_market
from beamwood.data.split import Split
from beamwood.data.splits import SPLITS
from beamwood.errors import InputError, nearest
from benchmarks.suite import LogEntry

__all__ = ["READINGS", "data_folder", "is_there", "split_of", "taste_market"]


def data_folder(root: Path) -> Path:
    """The folder of the logs: BEAMWOOD_DATA, by default shared/data next to the checkout."""
    return Path(os.environ.get("BEAMWOOD_DATA") or root.parent / "shared" / "data")


def split_of(entry: LogEntry, data: Path) -> Split:
    """The log of an entry, read or generated, and split with seed 2026. Errors: the log is not available."""
    if entry.split not in SPLITS:
        raise InputError(f"split='{entry.split}' is unknown{nearest(entry.split, SPLITS)}")
    split = SPLITS[entry.split](_dataset(entry, data), seed=2026)
    return split if entry.test_users is None else replace(split, test=split.test.sample(entry.test_users, seed=2026))


def is_there(entry: LogEntry, data: Path) -> bool:
    """Whether the log can be read or generated."""
    return (
        entry.market is not None or entry.tastes is not None or (data / entry.folder / "interactions.parquet").is_file()
    )


def taste_market(entry: LogEntry) -> TasteMarket:
    """The market of an entry with `tastes`: item i has the id i. Errors: the entry has none."""
    if entry.tastes is None:
        raise InputError(f"the optimum of '{entry.title}' is not known; give the log `tastes`")
    return make_taste_market(TasteConfig(**entry.tastes), seed=0)


def _dataset(entry: LogEntry, data: Path) -> beamwood.Dataset:
    if entry.tastes is not None:
        market = taste_market(entry)
        log = beamwood.read_log(market.log, columns=ColumnNames(context=("context",)))
        return beamwood.Dataset.from_log(log, pl.DataFrame({"item_id": np.arange(market.config.num_items)}))
    return _planted(entry.market) if entry.market else _read(entry, data)


def _planted(market: Mapping[str, Any]) -> beamwood.Dataset:
    found = make_market(MarketConfig(**market), seed=0)
    return beamwood.Dataset.from_log(beamwood.read_log(found.log), found.item_frame)


def _read(entry: LogEntry, data: Path) -> beamwood.Dataset:
    folder = data / entry.folder
    if not is_there(entry, data):
        raise InputError(f"{folder} has no interactions.parquet; set BEAMWOOD_DATA to the folder that holds the logs")
    if entry.reading not in READINGS:
        raise InputError(f"reading='{entry.reading}' is unknown{nearest(entry.reading, READINGS)}")
    source = READINGS[entry.reading](folder / "interactions.parquet")
    log = beamwood.read_log(source, columns=ColumnNames(boundary=entry.boundary))
    return beamwood.Dataset.from_log(log, folder / "items.parquet" if entry.items else None)


def _plain(path: Path) -> Any:
    return path


def _liked(path: Path) -> Any:
    """Ratings at or above their user's mean; a random fifth of each user's, drawn with seed 2026, is for testing."""
    rated = pl.read_parquet(path).sort("user_id", "timestamp", "item_id")
    liked = rated.filter(pl.col("rating") >= pl.col("rating").mean().over("user_id"))
    order = pl.Series("order", np.random.default_rng(2026).random(len(liked)))
    place = order.to_frame().with_columns(liked["user_id"]).select(pl.col("order").rank("ordinal").over("user_id"))
    tests = place["order"] > 0.8 * liked.select(pl.len().over("user_id")).to_series()
    return liked.select("user_id", "item_id", "timestamp").with_columns(part=(~tests).cast(pl.Int8))


READINGS: dict[str, Callable[[Path], Any]] = {"plain": _plain, "liked": _liked}
