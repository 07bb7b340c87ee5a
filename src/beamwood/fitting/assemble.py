"""The last step of every fit: the `Retriever` of a searcher, with ids, histories and the record of the fit."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel

from beamwood.data.cells.times import PARTS_OF_UNIT, parts_of_second
from beamwood.data.split import Split
from beamwood.retrieval.columns.item_columns import ItemColumns
from beamwood.retrieval.retriever import Retriever
from beamwood.types import Searcher

__all__ = ["build_retriever"]


def build_retriever(
    searcher: Searcher,
    split: Split,
    *,
    method: str,
    config: BaseModel,
    seed: int,
    training: dict[str, Any] | None = None,
) -> Retriever:
    """The retriever of a fitted method, with the record of its fit; `config`: a plan (`MethodConfig.plan`).

    It stores the whole histories of all users. A scorer reads only the latest interactions, but recommendations by user
    id exclude all seen items.
    """
    dataset = split.dataset
    table = dataset.item_table
    kept = None if table is None else table.filtered_by()
    return Retriever(
        searcher=searcher,
        items=dataset.items,
        users=dataset.users,
        histories=dataset.histories,
        rejected=dataset.rejected,
        columns=None if kept is None or not kept.columns else ItemColumns.of(kept),
        metadata={
            "method": method,
            "plan": config.model_dump(mode="json"),
            "seed": seed,
            "data": {"fingerprint": dataset.fingerprint(), "split": split.rule, "users": len(dataset.users)}
            | _end_of_log(dataset.times, dataset.report.get("log", {}))
            | ({} if dataset.kinds is None else {"events": dataset.kinds.as_dict()})
            | ({"context": dataset.context_digests()} if dataset.context is not None else {}),
            "training": training or {},
        },
    )


def _end_of_log(times: NDArray[np.int64] | None, read: Mapping[str, Any]) -> dict[str, float]:
    """The last time of the log in seconds since 1970, where its times are dates; later events of a store are new.

    `read`: the report of the log. Times after its reading are wrong, and would hide new events, so they do not count.
    """
    unit = read.get("time_unit")
    if times is None or len(times) == 0 or unit == "order":
        return {}
    # A single wrong time, as the year 9999 often is, may be of the size of another unit.
    parts = parts_of_second(int(np.median(times))) if unit is None else PARTS_OF_UNIT[unit]
    if parts is None:
        return {}
    last = int(times.max())
    until = int(read.get("read_at", time.time()) * parts)
    if last > until:
        last = int(times.max(where=times <= until, initial=0))
    return {"end": last / parts}
