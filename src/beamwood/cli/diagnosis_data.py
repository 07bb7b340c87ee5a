"""The queries on which a tree is diagnosed."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from beamwood.cli.origin import origin_of, split_of
from beamwood.errors import InputError
from beamwood.steps import tell
from beamwood.words import counted

if TYPE_CHECKING:
    from beamwood.data import Split
    from beamwood.retrieval.retriever import Retriever
    from beamwood.types import ItemLists

__all__ = ["DiagnosisData", "diagnosis_data"]


@dataclass(frozen=True, slots=True)
class DiagnosisData:
    """The queries of a tree's diagnostics, their source in words, and the data where the log exists."""

    histories: ItemLists
    labels: ItemLists
    words: str
    split: Split | None = None


def diagnosis_data(folder: str, retriever: Retriever, users: int, log: str | None, items: str | None) -> DiagnosisData:
    """Validation users of the log, else, also where all users trained, halves of stored histories."""
    refitted = "refit" in retriever.metadata
    if log is not None or (log_is_there(folder, retriever) and not refitted):
        split = split_of(folder, retriever, log, items)
        valid = split.valid.labelled()
        valid = valid.sample(users, seed=0)
        if len(valid) == 0:
            raise InputError(f"the split of {folder} has no validation user to diagnose on; use --users 0")
        return DiagnosisData(valid.histories, valid.labels, counted(len(valid), "validation user"), split)
    stored = retriever.histories
    usable = np.flatnonzero(stored.lengths >= 2) if stored is not None else np.empty(0, int)
    if stored is None or len(usable) == 0:
        raise InputError(f"{folder} keeps no histories and its log is gone; give --log, or --users 0")
    usable = np.sort(np.random.default_rng(0).permutation(usable)[:users])
    tell(f"{_why_no_log(retriever)}: halves of stored histories are used, which training may have seen")
    middle = (stored.indptr[usable] + stored.indptr[usable + 1]) // 2
    histories = stored.slices(stored.indptr[usable], middle)
    labels: ItemLists = stored.slices(middle, stored.indptr[usable + 1]).distinct()
    halved = counted(len(usable), "stored history", "stored histories")
    return DiagnosisData(histories, labels, f"{halved} cut in half, which training may have seen")


def _why_no_log(retriever: Retriever) -> str:
    if "refit" in retriever.metadata:
        return "refit trained on all users"
    return "the log is not where it was" if retriever.metadata.get("source") else "the folder names no log"


def log_is_there(folder: str, retriever: Retriever) -> bool:
    """Whether the log that the folder names still exists."""
    # os.path.exists is False also for invalid paths.
    return bool(retriever.metadata.get("source")) and os.path.exists(origin_of(folder, retriever.metadata).source.log)
