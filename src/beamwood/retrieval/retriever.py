"""Ids in, ids out: a searcher with vocabularies, filters and stored histories, as one artefact."""

from __future__ import annotations

import inspect
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from types import MappingProxyType
from typing import Any, Literal, overload

import numpy as np
import polars as pl
from numpy.typing import NDArray

from beamwood.arguments import naming_arguments
from beamwood.data.vocabularies.open_vocabulary import OpenVocabulary, fitted_ids
from beamwood.data.vocabularies.vocabulary import Vocabulary
from beamwood.errors import ArtefactError, InputError, UnknownIdError, nearest
from beamwood.kept import Prepared
from beamwood.kernels.arrays import sound
from beamwood.notebook import facts
from beamwood.retrieval.arrange import arranged
from beamwood.retrieval.columns.filters import Filters, mask_of
from beamwood.retrieval.columns.item_columns import ItemColumns
from beamwood.retrieval.folder import read_retriever, write_retriever
from beamwood.retrieval.found import found_of
from beamwood.retrieval.item_vectors import part_with
from beamwood.retrieval.new_items.added import NewItem, num_known
from beamwood.retrieval.new_items.content import placed_by_content
from beamwood.retrieval.new_items.retriever_parts import with_new_items
from beamwood.retrieval.request import Allowed, Form, Ids, Recommendations, Request, Seen, as_list
from beamwood.retrieval.resolve import Names, rows_of_ids
from beamwood.retrieval.rules import rules_of
from beamwood.retrieval.searchers.tree import TreeSearcher
from beamwood.retrieval.similar import By, similar_items
from beamwood.retrieval.why_empty import why_empty
from beamwood.types import Hits, ItemLists, Searcher, SearchOptions
from beamwood.words import counted

__all__ = ["Retriever"]

_RULES = ("exclude", "max_per_category", "diversity", "promote")


@dataclass(frozen=True, eq=False)
class Retriever:
    """Recommends items by id.

    `items` is the catalogue, `columns` the item columns for filters. `users` and `histories`: of known users, so that
    they can be asked for by id. `metadata` is JSON-able: method, configuration, data fingerprint, split, metrics.
    `erased`: items removed from answers, filters and histories. `rejected`: the items with a negative last event
    of each user, which a request may exclude.
    """

    searcher: Searcher
    items: Vocabulary
    users: Vocabulary | None = None
    histories: ItemLists | None = None
    columns: ItemColumns | None = None
    metadata: dict[str, Any] = field(default_factory=dict)
    erased: NDArray[np.int32] | None = None
    rejected: ItemLists | None = None

    def __post_init__(self) -> None:
        if len(self.items) != self.searcher.num_items:
            raise ArtefactError(
                f"the vocabulary has {len(self.items)} items, the searcher {self.searcher.num_items}; "
                "they come from different trainings"
            )
        if self.columns is not None and self.columns.num_items != len(self.items):
            raise InputError(f"the columns are of {self.columns.num_items} items, the vocabulary of {len(self.items)}")
        if (self.users is None) != (self.histories is None):
            raise InputError("give users and histories together, or neither")
        if self.rejected is not None and len(self.rejected) != (0 if self.users is None else len(self.users)):
            raise InputError(f"rejected has {len(self.rejected)} rows; give one for each user")

    @cached_property
    def names(self) -> Names:
        """The meaning of ids and filters."""
        columns = ItemColumns(len(self.items)) if self.columns is None else self.columns
        erased = None if self.erased is None else mask_of(self.erased, len(self.items))
        filters = Filters(self.items, columns, alive=None if erased is None else Prepared(~erased))
        return Names(self.items, filters, self.users, self.histories, erased, self.rejected)

    @overload
    def recommend(
        self, histories: ItemLists | Sequence[Ids] | None = None, k: int = 20, *, as_: None = None, **rest: Any
    ) -> Recommendations: ...

    @overload
    def recommend(
        self, histories: ItemLists | Sequence[Ids] | None = None, k: int = 20, *, as_: Literal["lists"], **rest: Any
    ) -> list[list[Any]]: ...

    @overload
    def recommend(
        self, histories: ItemLists | Sequence[Ids] | None = None, k: int = 20, *, as_: Form, **rest: Any
    ) -> Any: ...

    @naming_arguments
    def recommend(
        self,
        histories: ItemLists | Sequence[Ids] | None = None,
        k: int = 20,
        *,
        users: Ids | None = None,
        seen: Seen = "remove",
        allowed: Allowed | None = None,
        on_unknown: str = "error",
        context: Mapping[str, Sequence[Any]] | None = None,
        where: Mapping[str, Any] | None = None,
        effort: float | None = None,
        beam_width: int | None = None,
        rejected: Seen = "keep",
        as_: Form | None = None,
        **rules: Any,
    ) -> Any:
        """The `answer` to a `Request`; `rules`: exclude, max_per_category, diversity, promote.

        `as_`: "lists" of item ids a row, or a frame of "polars", "pandas" or "arrow", instead of `Recommendations`.
        `effort` in 0..1: how thoroughly a tree is searched, 0 the cheapest way, 1 the full beam, None the way chosen by
        the fit; or `beam_width`: a full beam of that many nodes.
        """
        for name in rules:
            if name not in _RULES:
                known = [each for each in inspect.signature(self.recommend).parameters if each != "rules"]
                raise InputError(f"recommend has no argument '{name}'{nearest(name, [*known, *_RULES])}")
        given: dict[str, Any] = {**rules, "effort": effort, "beam_width": beam_width, "rejected": rejected}
        request = Request(histories, k, users, allowed, context, seen, on_unknown, where, **given)
        found, users = self.answer(request), request.users
        return found if as_ is None else found.to(as_, None if users is None else self._typed(as_list("users", users)))

    def _typed(self, users: list[Any]) -> pl.Series:
        """Users as a column of the log's type, or of their own where an unknown one has another."""
        typed = None if self.users is None else self.users.typed(users, "ignore")
        return pl.Series(users, strict=False) if typed is None or typed.null_count() else typed

    def answer(self, request: Request) -> Recommendations:
        """The k best items of each row of the request, best first.

        An empty history gets the most popular items where the model has no answer (a blend's fallback; all scores 0).
        Errors: `InputError` on what does not fit this retriever.
        """
        hits, promotions = self.hits(request)
        found = self._by_id(hits, promotions if request.promote else [])
        return found if all(found.item_ids) else replace(found, empty=why_empty(self.names, request, found.item_ids))

    def hits(self, request: Request) -> tuple[Hits, list[list[str | None]]]:
        """The answer by item index, and the names of promotions, where the request has rules."""
        self.check_request(request)
        query, k, options = self.names.resolve(request, self.searcher.needs)
        rules = rules_of(request, k, self.names.filters)
        if rules is None:
            return self.searcher.search(query, k, options), []
        return arranged(self.searcher, query, k, options, rules)

    def check_request(self, request: Request) -> None:
        """Errors: `effort` or `beam_width` for a model without a tree; `rejected="remove"` for histories alone."""
        if request.rejected == "remove" and request.users is None:
            self.names.check_rejected()
            raise InputError(
                "rejected='remove' needs users, as a history alone has no rejected items; give users, or leave it out"
            )
        for name, value in (("effort", request.effort), ("beam_width", request.beam_width)):
            if value is not None and part_with(self.searcher, TreeSearcher) is None:
                raise InputError(f"{name}={value} is for trees, and this model has no tree; leave it out")

    def _by_id(self, hits: Hits, promotions: list[list[str | None]]) -> Recommendations:
        if len(hits.items) == 1:
            items, values = found_of(hits)
            return Recommendations([self.items.decode(items)], [values], promotions, item_type=self.items.dtype)
        found = hits.items >= 0
        sound(hits.scores[found])
        counts = np.count_nonzero(found, axis=1)
        ids = self.items.decode(hits.items[found])
        stops = np.cumsum(counts)
        rows = [ids[stop - count : stop] for stop, count in zip(stops, counts, strict=True)]
        scores = [row[:count].astype(float).tolist() for row, count in zip(hits.scores, counts, strict=True)]
        return Recommendations(rows, scores, promotions, item_type=self.items.dtype)

    @naming_arguments
    def similar(
        self,
        items: Ids,
        k: int = 20,
        *,
        by: By = "model",
        allowed: Allowed | None = None,
        where: Mapping[str, Any] | None = None,
    ) -> Recommendations:
        """The k items most similar to the given ones together, as one row; see `retrieval.similar`."""
        indices = self._known(as_list("items", items))
        if len(indices) == 0:
            raise InputError("items is empty; give at least one item")
        filtered = self.names.filters.prepared(allowed, where)
        options = SearchOptions(allowed=None if filtered is None else filtered.mask, prepared=filtered)
        return self._by_id(similar_items(self.searcher, indices, self.names.checked_k(k), options, by=by), [])

    @naming_arguments
    def score(
        self, histories: ItemLists | Sequence[Ids] | None, items: Sequence[Ids], *, users: Ids | None = None
    ) -> NDArray[np.float32]:
        """float32[B, M], the score of each given item id for each history or user; every row of `items` has M ids."""
        if (histories is None) == (users is None):
            raise InputError("give either histories or users")
        query, _, _ = self.names.resolve(Request(histories, 1, users), self.searcher.needs)
        if len(query.users) == 0:
            raise InputError("score needs at least one history, and a row of items for it")
        rows = rows_of_ids("items", items)
        widths = {len(row) for row in rows}
        if len(rows) != len(query.users) or len(widths) > 1:
            raise InputError(
                f"items must be {len(query.users)} rows of equal length; got {len(rows)} of lengths {widths}"
            )
        flat = self._known([item for row in rows for item in row])
        return sound(self.searcher.score(query, np.asarray(flat).reshape(len(rows), -1)))

    @naming_arguments
    def with_items(self, items: Sequence[NewItem]) -> Retriever:
        """A copy with items added after the fit, replacing earlier ones; see `retrieval.new_items.added`.

        An item without a mixture is placed by its cell of a vector column, if any.
        No large array is copied, and this retriever stays valid. Errors: `InputError` on a known or repeated id, a
        mixture of unknown items, a cell of a wrong type, more items than there is room for.
        """
        alive = self.names.filters.alive
        new = placed_by_content(items, self.columns, self.items, self.histories, None if alive is None else alive.mask)
        return replace(self, **with_new_items(self.searcher, self.items, self.columns, new, self.erased))

    @naming_arguments
    def without_items(self, items: Ids) -> Retriever:
        """A copy without these items: they are in no answer, no filter and no known user's history.

        A further fit that starts from it follows its log, where they may still be.
        """
        known = num_known(self.searcher)
        removed = self._known(as_list("items", items))
        if (removed >= known).any():
            late = self.items.decode(removed[removed >= known])[0]
            raise InputError(f"item {late!r} came after the fit; leave it out of with_items instead")
        erased = np.union1d(removed, [] if self.erased is None else self.erased).astype(np.int32)
        new, mask = self.items.decode(np.arange(known, len(self.items))), mask_of(erased, len(self.items))
        return replace(self, items=OpenVocabulary(fitted_ids(self.items), known, new, mask), erased=erased)

    def _known(self, items: list[Any]) -> NDArray[np.int32]:
        """The indices of items, where unknown ones are an error."""
        try:
            return self.items.encode(items)
        except UnknownIdError as error:
            raise UnknownIdError(str(error).replace(" or pass on_unknown='ignore'", "")) from None

    def __repr__(self) -> str:
        users = "no users" if self.users is None else counted(len(self.users), "user")
        items = counted(len(self.items), "item")
        return f"Retriever by {self.metadata.get('method', self.searcher.kind)}: {items}, {users}"

    def _repr_html_(self) -> str:
        split = self.metadata.get("split")
        return facts(
            f"retriever by {self.metadata.get('method', self.searcher.kind)}",
            {
                "items": len(self.items),
                "users": None if self.users is None else len(self.users),
                "columns to filter by": ", ".join(self.columns.columns) if self.columns is not None else None,
                "split": split.get("name") if isinstance(split, Mapping) else split,
            },
        )

    @naming_arguments
    def save(self, path: str | os.PathLike[str], *, overwrite: bool = False) -> None:
        """Write the artefact atomically; an existing one needs `overwrite`."""
        write_retriever(path, self.searcher, self.names, self.metadata, overwrite=overwrite)

    @classmethod
    @naming_arguments
    def load(
        cls,
        path: str | os.PathLike[str],
        *,
        searchers: Mapping[str, type[Any]] = MappingProxyType({}),
        threads: int = 1,
        verify: bool = False,
    ) -> Retriever:
        """Load a saved retriever, without training data or torch.

        Weights are memory-mapped, so that processes share them; `verify` reads all files and checks digests and values.
        `threads`: rows searched at once, over all callers together. `searchers`: by kind the classes that only the
        method's own file defines. Errors: `ArtefactError` naming the file; `InputError` on `threads` outside 1..1024,
        or on an unknown value of an environment variable.
        """
        return cls(**read_retriever(path, searchers, threads=threads, verify=verify))
