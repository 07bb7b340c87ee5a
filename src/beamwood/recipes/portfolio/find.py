"""Find the best model for a log within a time limit."""

from __future__ import annotations

import hashlib
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from os import PathLike
from pathlib import Path
from typing import Any

from beamwood.arguments import naming_arguments
from beamwood.data.dataset import Dataset
from beamwood.data.digest import frame_digest
from beamwood.data.split import Split
from beamwood.errors import InputError
from beamwood.extras import install_command
from beamwood.methods.arguments import check_seed, check_split
from beamwood.recipes.portfolio.members import Member
from beamwood.recipes.portfolio.search import PortfolioResult, Search
from beamwood.recipes.portfolio.search_folder import SearchFolder
from beamwood.recipes.portfolio.wanted import Reports, Wanted, check_bounds
from beamwood.retrieval.retriever import Retriever
from beamwood.training.budget import Budget

__all__ = ["MONITOR", "TIME_LIMIT", "find"]

TIME_LIMIT = 1800.0
"""The default time limit of a search, in seconds."""

MONITOR = "removed/f@20"
"""The default validation metric: that of answers without seen items."""


@naming_arguments
def find(
    split: Split,
    *,
    time_limit: float | Budget | None = None,
    budget_ms: float | None = None,
    budget_mb: float | None = None,
    monitor: str = MONITOR,
    seed: int = 0,
    folder: str | PathLike[str] | None = None,
    resume: bool = False,
    overwrite: bool = False,
    members: Sequence[Member] | None = None,
    better: Callable[[Retriever], None] = lambda _: None,
    say: Callable[[str], None] = lambda _: None,
) -> PortfolioResult:
    """Search methods and blends of at most three, chosen on `split.valid`; `split.test` is read once, at the end.

    `time_limit` in seconds (None: half an hour), or a `Budget` that began earlier, covers everything. `budget_ms` and
    `budget_mb` bound an answer of the chosen model on this machine. `folder` stores all fitted models, for `resume`;
    `overwrite` as for a run folder; None: nothing is stored. `better` is called with each retriever that becomes the
    best. An interrupted search returns the best so far, without reading the test users. Errors: `InputError` on another
    type than `Split`, a bound that is not above 0, an unknown monitor, a foreign folder, and where nothing is within
    the budgets.
    """
    check_split(split)
    budget = time_limit if isinstance(time_limit, Budget) else None
    limit = time_limit.limit if isinstance(time_limit, Budget) else TIME_LIMIT if time_limit is None else time_limit
    check_bounds({"time_limit": limit, "budget_ms": budget_ms, "budget_mb": budget_mb})
    check_seed(seed)
    within = [None if each is None else float(each) for each in (budget_ms, budget_mb)]
    if folder is None and resume:
        raise InputError("resume=True needs the folder of the search to go on with")
    wanted = Wanted(float(limit), monitor, int(seed), *within)
    with tempfile.TemporaryDirectory() if folder is None else nullcontext(folder) as place:
        search_folder = SearchFolder(Path(place), _made_of(split, wanted))
        with search_folder.locked(resume=resume, overwrite=overwrite):
            search = Search(
                split,
                wanted,
                search_folder,
                members=members,
                budget=budget,
                processor=time.process_time,
                reports=Reports(say, better),
            )
            most = f"{limit / 60:.3g} minutes" if limit >= 120 else f"{limit:.3g} second{'' if limit == 1 else 's'}"
            other = "; a time limit of your own changes that" if limit == TIME_LIMIT else ""
            say(f"the whole search takes {most} at most{other}")
            say(search.outline.words())
            if not search.trains:
                say(f"only what counts is looked at; what trains needs: {install_command('train')}")
            return search.run()


def _made_of(split: Split, wanted: Wanted) -> dict[str, Any]:
    """The record that a resumed search must match."""
    return {
        "log": split.dataset.fingerprint(),
        "split": split.rule,
        "item table or kept columns": _tables_digest(split.dataset),
        "seed": wanted.seed,
        "monitor": wanted.monitor,
    }


def _tables_digest(dataset: Dataset) -> str:
    """sha256 of the tables, and of the item columns for filters, which every stored model holds."""
    table = dataset.item_table
    kept = None if table is None else frame_digest(table.filtered_by())
    return hashlib.sha256(repr((dataset.tables_digest(), kept)).encode()).hexdigest()
