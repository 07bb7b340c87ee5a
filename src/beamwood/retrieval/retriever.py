"""Ids in, ids out: a searcher with the vocabularies, filters and stored histories around it, as one artefact."""

from __future__ import annotations

import functools
import operator
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from beamwood.artefact import read_artefact, write_artefact
from beamwood.data.vocabulary import Vocabulary
from beamwood.errors import ArtefactError, InputError, UnknownSearcherError, nearest
from beamwood.kernels.arrays import check_integers
from beamwood.retrieval.load import files_of, restore_searcher, with_searchers
from beamwood.retrieval.stored import restoring
from beamwood.retrieval.top_k import top_k
from beamwood.types import (
    Askers,
    BoolArray,
    Hits,
    ItemLists,
    PersonalSearcher,
    Searcher,
    context_columns,
    is_personal,
    needs_users,
)

__all__ = ["Allowed", "Recommendations", "Retriever"]

Ids = Sequence[Any] | NDArray[Any] | pl.Series
Allowed = BoolArray | Ids | Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Recommendations:
    """For each row the item ids found, best first, and their scores; `rank` counts from 1.

    A row is shorter than k only where fewer items were allowed.
    """

    item_ids: list[list[Any]]
    scores: list[list[float]]

    @property
    def rank(self) -> list[list[int]]:
        return [list(range(1, len(row) + 1)) for row in self.item_ids]

    def as_frame(self) -> pl.DataFrame:
        """One line a recommendation: row, rank, item, score."""
        lengths = [len(row) for row in self.item_ids]
        return pl.DataFrame(
            {
                "row": np.repeat(np.arange(len(lengths)), lengths),
                "rank": pl.Series([rank for row in self.rank for rank in row], dtype=pl.Int64),
                "item": [item for row in self.item_ids for item in row],
                "score": pl.Series([score for row in self.scores for score in row], dtype=pl.Float64),
            },
            strict=False,
        )


@dataclass(frozen=True)
class Retriever:
    """Recommends items by id.

    `items` numbers the catalogue, `categories` gives each item's categories joined with "|" (or None). `users` and
    `histories` are what is known of users, so that they can be asked for by id. `metadata` is JSON-able: method,
    configuration, data fingerprint, split, metrics.
    """

    searcher: Searcher
    items: Vocabulary
    users: Vocabulary | None = None
    histories: ItemLists | None = None
    categories: pl.Series | None = None
    metadata: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if len(self.items) != self.searcher.num_items:
            raise ArtefactError(
                f"the vocabulary has {len(self.items)} items, the searcher {self.searcher.num_items}; "
                "they come from different trainings"
            )
        if (self.users is None) != (self.histories is None):
            raise InputError("give users and histories together, or neither")

    def recommend(
        self,
        histories: ItemLists | Sequence[Ids] | None = None,
        k: int = 20,
        *,
        users: Ids | None = None,
        exclude_seen: bool = True,
        allowed: Allowed | None = None,
        on_unknown: str = "error",
        context: Mapping[str, Sequence[Any]] | None = None,
    ) -> Recommendations:
        """The k best items for each history (item ids, oldest first) or each known user.

        Ids come as lists, arrays or series. `allowed`: item ids, {"category": name or names}, or N truth values by
        item index; the filter acts inside the search.
        An empty history is answered with the items that were taken most often where the model says nothing of it
        (all scores 0). `exclude_seen` leaves the history's own items out. Unknown ids are an `InputError` unless
        `on_unknown="ignore"`, which drops unknown items and answers unknown users as if they had no history. `context`:
        by column a value a row, where the retriever looks at circumstances; what is left out counts as missing.
        """
        searcher = self.searcher
        if needs_users(searcher) and histories is not None:
            raise InputError(
                "this retriever knows users, not histories alone (by a vector or columns of each); give users, with "
                "on_unknown='ignore' also unknown ones"
            )
        known = self.resolve(histories, users, on_unknown=on_unknown)
        k = self._checked(k)
        mask = self.allowed_mask(allowed, on_unknown=on_unknown)
        excluded = known.distinct() if exclude_seen else None
        if context is not None:
            looked_at = context_columns(searcher)
            if not looked_at:
                raise InputError("this retriever looks at no context; leave context out")
            for name in context:
                if name not in looked_at:
                    raise InputError(f"the context has a column '{name}'{nearest(name, looked_at)}")
        if is_personal(searcher):
            assert isinstance(searcher, PersonalSearcher)
            asked = np.full(len(known), -1, np.int64)
            if users is not None and self.users is not None:
                asked = np.asarray(self.users.encode(_listed("users", users), on_unknown=on_unknown), np.int64)
            for name, values in (context or {}).items():
                if isinstance(values, str) or not hasattr(values, "__len__") or len(values) != len(known):
                    raise InputError(f"the context's column '{name}' needs a list of {len(known)} values, one a row")
            frame = None if context is None else _context_frame(context)
            hits = searcher.search_askers(Askers(asked, known, frame), k, excluded=excluded, allowed=mask)
            if not needs_users(searcher):
                hits = self._with_popular(hits, known, mask)
        else:
            hits = self._with_popular(searcher.search(known, k, excluded=excluded, allowed=mask), known, mask)
        if np.isposinf(hits.scores).any():
            raise ArtefactError("a score is infinite, so the stored weights are too large; fit and save it again")
        counts = np.count_nonzero(hits.items >= 0, axis=1)
        flat = hits.items[hits.items >= 0]
        ids = list(self.items.decode(flat))
        stops = np.cumsum(counts)
        rows = [ids[stop - count : stop] for stop, count in zip(stops, counts, strict=True)]
        scores = [row[:count].astype(float).tolist() for row, count in zip(hits.scores, counts, strict=True)]
        return Recommendations(rows, scores)

    @functools.cached_property
    def _counts(self) -> NDArray[np.float32]:
        """float32[N], how many entries of the known histories each item is."""
        assert self.histories is not None
        return np.bincount(self.histories.items, minlength=len(self.items)).astype(np.float32)

    def _with_popular(self, hits: Hits, histories: ItemLists, allowed: BoolArray | None) -> Hits:
        """The hits, with the items that were taken most often where a history is empty and the searcher says
        nothing of those, as one that multiplies vectors does; the scores there stay 0."""
        new = np.flatnonzero(histories.lengths == 0)
        if len(new) == 0 or self.histories is None:
            return hits
        first: Any = self.searcher
        while hasattr(first, "retriever"):
            first = first.retriever
        of_nobody = first.search(ItemLists.empty(1), min(2, first.num_items)).scores
        if (of_nobody != 0).any():
            return hits
        items = top_k(self._counts[None, :], hits.items.shape[1], allowed=allowed).items
        hits.items[new], hits.scores[new] = items, np.where(items >= 0, np.float32(0), np.float32(-np.inf))
        return hits

    def score(self, histories: ItemLists | Sequence[Ids], items: Sequence[Ids]) -> NDArray[np.float32]:
        """float32[B, M], the score of each given item id for each history; every row of `items` has M ids."""
        known = self.resolve(histories, None, on_unknown="error")
        if len(known) == 0:
            raise InputError("score needs at least one history, and a row of items for it")
        rows = _rows("items", items)
        widths = {len(row) for row in rows}
        if len(rows) != len(known) or len(widths) > 1:
            raise InputError(f"items must be {len(known)} rows of equal length; got {len(rows)} of lengths {widths}")
        flat = self.items.encode([item for row in rows for item in row])
        return self.searcher.score(known, np.asarray(flat).reshape(len(rows), -1))

    def resolve(
        self,
        histories: ItemLists | Sequence[Ids] | None,
        users: Ids | None,
        *,
        on_unknown: str = "error",
    ) -> ItemLists:
        """The histories by item index, of given lists of ids or of known users."""
        if (histories is None) == (users is None):
            raise InputError("give either histories or users")
        if isinstance(histories, ItemLists):
            return histories
        if histories is not None:
            given = _rows("histories", histories)
            flat = self.items.encode([item for row in given for item in row], on_unknown=on_unknown)
            stops = np.cumsum([len(row) for row in given], dtype=np.int64)
            rows = np.split(np.asarray(flat, np.int32), stops[:-1]) if len(stops) else []
            return ItemLists.from_lists([row[row >= 0] for row in rows])
        if self.users is None or self.histories is None:
            raise InputError("this artefact keeps no users; give histories, or fit with users kept")
        rows_of_users = np.asarray(self.users.encode(_listed("users", users), on_unknown=on_unknown))
        padded = ItemLists.concatenate([self.histories, ItemLists.empty(1)])
        return padded.take(np.where(rows_of_users < 0, len(self.histories), rows_of_users))

    def allowed_mask(self, allowed: Allowed | None, *, on_unknown: str = "error") -> BoolArray | None:
        """bool[N] of a filter, or None where everything is allowed."""
        if allowed is None:
            return None
        if isinstance(allowed, Mapping):
            return self._category_mask(allowed)
        given = allowed if isinstance(allowed, np.ndarray) else _listed("allowed", allowed)
        flags = _truth_values(given)
        if flags is not None:
            if flags.shape != (len(self.items),):
                raise InputError(f"allowed has shape {flags.shape}; give one bool for each of {len(self.items)} items")
            return flags
        indices = np.asarray(self.items.encode(list(given), on_unknown=on_unknown))
        mask = np.zeros(len(self.items), bool)
        mask[indices[indices >= 0]] = True
        return mask

    def _category_mask(self, allowed: Mapping[str, Any]) -> BoolArray:
        unknown = set(allowed) - {"category"}
        if unknown or not allowed:
            raise InputError(f"allowed has keys {sorted(allowed)}; the known key is 'category'")
        if self.categories is None:
            raise InputError("this artefact has no categories; fit with an item table that has a 'category' column")
        wanted = allowed["category"]
        names = [wanted] if isinstance(wanted, str) else _listed("category", wanted)
        parts = self.categories.cast(pl.String).fill_null("").str.split("|")
        present = set(parts.explode().drop_nulls().unique().to_list()) - {""}
        for name in names:
            if not isinstance(name, str) or name not in present:
                raise InputError(f"category {name!r} is unknown{nearest(str(name), present)}")
        matches = parts.list.eval(pl.element().is_in(names)).list.any()
        return np.asarray(matches.fill_null(False).to_numpy(), dtype=np.bool_)

    def _checked(self, k: Any) -> int:
        try:
            number = None if isinstance(k, bool) else operator.index(k)
        except TypeError:
            number = None
        if number is None:
            raise InputError(f"k={k!r} is no whole number; give one of 1..{len(self.items)}, such as k=10")
        if not 1 <= number <= len(self.items):
            raise InputError(f"k={k} is outside 1..{len(self.items)}, the number of items")
        return number

    def save(self, path: str | os.PathLike[str], *, overwrite: bool = False) -> None:
        """Write the artefact, whole or not at all; an artefact already there needs `overwrite`."""
        config, arrays = self.searcher.export()
        items = {"id": self.items.ids} | ({} if self.categories is None else {"category": self.categories})
        tables = {"items": pl.DataFrame(items)}
        files = {"weights": arrays}
        if self.users is not None and self.histories is not None:
            tables["users"] = pl.DataFrame({"id": self.users.ids})
            files["histories"] = {"indptr": self.histories.indptr, "items": self.histories.items}
        manifest = {"kind": "retriever", "searcher": self.searcher.kind, "searcher_config": config} | self.metadata
        write_artefact(path, manifest=manifest, arrays=files, tables=tables, overwrite=overwrite)

    @classmethod
    def load(
        cls, path: str | os.PathLike[str], *, searchers: Mapping[str, type[Any]] = MappingProxyType({})
    ) -> Retriever:
        """Open a saved retriever; needs no training data and no torch. Errors: `ArtefactError` naming the file.

        `searchers`: by kind the classes that only the method's own file defines.
        """
        artefact = read_artefact(path, kind="retriever")
        manifest, folder = artefact.manifest, artefact.path
        weights, items = artefact.arrays("weights"), artefact.table("items")
        what = "the searcher (manifest.json, weights.safetensors)"
        try:
            with restoring(folder, what), with_searchers(searchers):
                searcher = restore_searcher(manifest["searcher"], manifest["searcher_config"], weights)
        except UnknownSearcherError as error:
            raise ArtefactError(f"{folder}: {what}: {error}; {_fix(manifest)}") from error
        with restoring(folder, "items.parquet"):
            vocabulary, categories = _ids(items), _categories(items)
            if len(vocabulary) != searcher.num_items:
                raise ArtefactError(f"it has {len(vocabulary)} items, the searcher {searcher.num_items}")
        users, histories = None, None
        if "users" in artefact.names("table"):
            table, stored = artefact.table("users"), artefact.arrays("histories")
            with restoring(folder, "users.parquet"):
                users = _ids(table)
            with restoring(folder, "histories.safetensors"):
                histories = _histories(stored, len(users), len(vocabulary))
        own = {"kind", "searcher", "searcher_config", "format", "format_version", "files", "checksum"}
        return cls(
            searcher=searcher,
            items=vocabulary,
            users=users,
            histories=histories,
            categories=categories,
            metadata={
                name: value
                for name, value in manifest.items()
                if name not in own | {"beamwood", "libraries", "created"}
            },
        )


def _fix(manifest: Mapping[str, Any]) -> str:
    """What helps with a searcher that the package does not define."""
    files = [str(file.get("path")) for file in files_of(manifest)]
    if not files:
        return "it was not written by this version: fit and save it again, or load(path, method=...) its own Method"
    return (
        f"it is of the method file {', '.join(files)}, which is not run unasked: if you trust it, "
        f"beamwood.load(path, method={files[0]!r})"
    )


def _listed(name: str, values: Any) -> list[Any]:
    """The values of a list, an array or a series. Errors: a single value, or text, in its place."""
    if not isinstance(values, str | bytes):
        try:
            return list(values)
        except TypeError:
            pass
    raise InputError(f"{name}={values!r} is no list; write [{values!r}]")


def _truth_values(values: NDArray[Any] | list[Any]) -> BoolArray | None:
    """Values that are truth values throughout as an array, None where any is an id."""
    if isinstance(values, np.ndarray):
        return values if values.dtype == np.bool_ else None
    return np.array(values, np.bool_) if values and all(isinstance(v, bool | np.bool_) for v in values) else None


def _rows(name: str, rows: Any) -> list[list[Any]]:
    """A list for each row. Errors: a row that is a single id, as in a flat list."""
    if hasattr(rows, "columns"):
        raise InputError(
            f"{name} is a {type(rows).__name__}; give a list of ids for each row, such as its column of lists"
        )
    given = _listed(name, rows)
    for row in given:
        if isinstance(row, str | bytes) or not hasattr(row, "__iter__"):
            raise InputError(f"{name} holds {row!r}, which is no list; give a list of ids for each row, as [[{row!r}]]")
    return [list(row) for row in given]


def _context_frame(context: Mapping[str, Sequence[Any]]) -> pl.DataFrame:
    """The columns of the context as a frame. Errors: values that no column can hold."""
    columns = []
    for name, values in context.items():
        try:
            columns.append(pl.Series(name, values, strict=False))
        except (TypeError, ValueError, OverflowError, pl.exceptions.PolarsError) as error:
            reason = (str(error).splitlines() or [type(error).__name__])[0]
            raise InputError(
                f"the context's column '{name}' cannot be read ({reason}); give text, numbers or lists of numbers, of "
                "one kind"
            ) from error
    return pl.DataFrame(columns)


def _ids(table: pl.DataFrame) -> Vocabulary:
    """The stored ids, of a type that ids may have."""
    ids = table["id"]
    plain = ids.dtype.is_numeric() or ids.dtype.is_temporal()
    if not plain and ids.dtype not in (pl.String, pl.Binary, pl.Categorical, pl.Enum):
        raise ArtefactError(f"its ids are of type {ids.dtype}")
    if ids.dtype.is_float() and not ids.is_finite().all():
        raise ArtefactError("its ids hold NaN or infinity")
    return Vocabulary(ids)


def _categories(items: pl.DataFrame) -> pl.Series | None:
    """The stored categories, which have to be text at least when they are asked for, or None where there are none."""
    if "category" not in items.columns:
        return None
    items["category"].cast(pl.String)
    return items["category"]


def _histories(arrays: Mapping[str, NDArray[Any]], num_users: int, num_items: int) -> ItemLists:
    """The stored histories, one a user, of known items."""
    check_integers(arrays, {"indptr": (np.int64,), "items": (np.int32,)})
    histories = ItemLists(arrays["indptr"], arrays["items"])
    if len(histories) != num_users:
        raise ArtefactError(f"{len(histories)} histories for {num_users} users")
    if len(histories.items) and int(histories.items.max()) >= num_items:
        raise ArtefactError(f"a history holds item index {int(histories.items.max())} of {num_items} items")
    return histories
