"""A snapshot: retriever, names, item fields and version of a folder, immutable.

Shape legend: N items.
"""

from __future__ import annotations

import math
import os
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from beamwood.artefact import read_artefact
from beamwood.kept import Prepared
from beamwood.retrieval.columns.filters import FILTER_BYTES, Filters
from beamwood.retrieval.columns.item_columns import ItemColumns
from beamwood.retrieval.item_vectors import part_with
from beamwood.retrieval.new_items.added import fitted_of
from beamwood.retrieval.resolve import Names
from beamwood.retrieval.retriever import Retriever
from beamwood.retrieval.searchers.blend import Blend
from beamwood.retrieval.searchers.popularity import PopularitySearcher
from beamwood.retrieval.searchers.tree import TreeSearcher
from beamwood.serve.answer.item_fields import ItemFields
from beamwood.serve.answer.kinds import Kinds
from beamwood.serve.answer.rungs import Rung, rungs_of
from beamwood.types import QueryNeeds, Searcher

__all__ = ["Snapshot", "open_snapshot"]


@dataclass(frozen=True, eq=False)
class Snapshot:
    """One version of everything that answers; a service holds a reference to one, and swaps it as a whole.

    `number` counts the versions of this process; `key`: the checksum of the folder; `rungs`: the narrower searches
    under load, after the default; `popular`: the fallback where the model has no answer, None without counts; `end`:
    the end of the log, None if unknown. `kinds`: which types of events count. `learned`: the version of
    what was learned about items (see `serve.items.learned`), empty if nothing. `known`: the number of the folder's
    items. `fitted`: this snapshot without what was learned, None if it is that. `by_category`: a new item without other
    information is placed by its category. `opened`: when, by `time.monotonic`.
    """

    number: int
    folder: Path
    key: str
    model: str
    retriever: Retriever
    names: Names
    rungs: tuple[Rung, ...]
    fields: ItemFields
    popular: Searcher | None = None
    known: int = 0
    fitted: Snapshot | None = None
    learned: str = ""
    by_category: bool = False
    end: float | None = None
    kinds: Kinds = field(default_factory=Kinds)
    opened: float = field(default_factory=time.monotonic)
    by_label: dict[str, dict[int, float]] = field(default_factory=dict, repr=False)
    """The mixtures of new items by category, as far as they were asked for."""
    by_piece: WeakKeyDictionary[Any, Any] = field(default_factory=WeakKeyDictionary, repr=False)
    """What `serve.items.widened` made of each piece of what was learned, as long as that is in use."""

    def hides(self, erased: float | None) -> bool:
        """Whether a user's tombstone applies to the data here; the folder may have been written after it."""
        until = self.retriever.metadata.get("erased_until")
        return erased is not None and not (isinstance(until, int | float) and until >= erased)

    @cached_property
    def searcher(self) -> Searcher:
        """The searcher."""
        return self.retriever.searcher

    @cached_property
    def model_alone(self) -> Searcher:
        """The searcher without new items."""
        return fitted_of(self.searcher)

    @cached_property
    def needs(self) -> QueryNeeds:
        """What the searcher reads besides histories."""
        return self.searcher.needs

    @cached_property
    def num_items(self) -> int:
        """N."""
        return len(self.names.items)

    @cached_property
    def fitted_alone(self) -> Prepared:
        """The items of the folder."""
        return Prepared(np.arange(self.num_items) < self.known)

    @cached_property
    def tree(self) -> TreeSearcher | None:
        """The tree that it searches, None for other methods."""
        return part_with(self.searcher, TreeSearcher)

    @cached_property
    def history_length(self) -> int | None:
        """The latest items that the model reads, None where unknown."""
        tree = self.tree
        return None if tree is None else tree.weights.history_length


def open_snapshot(
    folder: str | os.PathLike[str],
    *,
    number: int = 1,
    threads: int = 1,
    items: Path | None = None,
    min_beam: int = 50,
    filter_bytes: int = FILTER_BYTES,
    filter_uses: Counter[str] | None = None,
    by_category: bool = False,
    verify: bool = False,
    searchers: Mapping[str, type[Any]] | None = None,
) -> Snapshot:
    """Open the folder. Errors: `ArtefactError` naming the file; an item table that does not fit."""
    path = Path(os.path.realpath(folder))
    manifest: Mapping[str, Any] = {"checksum": ""}
    # A save may replace the folder meanwhile: model and manifest are of one.
    while (found := _manifest(path))["checksum"] != manifest["checksum"]:
        manifest = found
        retriever = Retriever.load(path, threads=threads, verify=verify, searchers=searchers or {})
    names = retriever.names
    source = manifest.get("source")
    told = [source.get("items_column"), source.get("item")] if isinstance(source, Mapping) else []
    ids = [name for name in told if isinstance(name, str)]
    kept = {name: column.kind for name, column in names.filters.columns.columns.items()}
    own = ItemFields.read(items, names.items, ids, kept) if items is not None else ItemFields()
    columns = ItemColumns(len(names.items), {**names.filters.columns.columns, **own.columns()})
    filters = Filters(
        names.items, columns, filter_bytes, names.filters.alive, Counter() if filter_uses is None else filter_uses
    )
    names = Names(names.items, filters, names.users, names.histories, names.erased, names.rejected)
    data = manifest.get("data")
    end = data.get("end") if isinstance(data, Mapping) else None
    return Snapshot(
        number=number,
        folder=path,
        key=str(manifest["checksum"]),
        model=f"{manifest.get('method', manifest['searcher'])}@{str(manifest['checksum'])[:6]}",
        retriever=retriever,
        names=names,
        rungs=rungs_of(retriever.searcher, min_beam),
        fields=own,
        popular=_popular(retriever),
        known=len(retriever.items),
        by_category=by_category,
        end=_whole_end(end) if isinstance(end, int | float) else None,
        kinds=Kinds.of(manifest),
    )


def _manifest(path: Path) -> Mapping[str, Any]:
    return read_artefact(path, kind="retriever", verify=False).manifest


def _whole_end(end: float) -> float:
    """The end of the last second or millisecond of a log without finer times; the store's are finer."""
    step = next((10.0**-digits for digits in (0, 3) if round(end, digits) == end), 0.0)
    return math.nextafter(end + step, end)


def _popular(retriever: Retriever) -> Searcher | None:
    """The fallback by stored counts, or by the stored histories."""
    searcher = retriever.searcher
    if isinstance(searcher, PopularitySearcher):
        return searcher
    if isinstance(searcher, Blend) and searcher.fallback is not None:
        return searcher.fallback
    if retriever.histories is None:
        return None
    return PopularitySearcher(np.bincount(retriever.histories.items, minlength=len(retriever.items)))
