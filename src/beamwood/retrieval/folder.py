"""A retriever as a folder: writing, and the checks when it is read."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import nullcontext
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from beamwood.artefact import Artefact, read_artefact, write_artefact
from beamwood.data.vocabularies.id_table import restore_ids
from beamwood.data.vocabularies.open_vocabulary import OpenVocabulary
from beamwood.data.vocabularies.vocabulary import Vocabulary
from beamwood.errors import ArtefactError, InputError, UnknownSearcherError
from beamwood.kept import Prepared
from beamwood.kernels.arrays import check_integers, values_unread
from beamwood.retrieval.columns.filters import Filters, mask_of
from beamwood.retrieval.columns.item_columns import ItemColumns
from beamwood.retrieval.load import files_of, restore_searcher, with_searchers
from beamwood.retrieval.request import is_number
from beamwood.retrieval.resolve import Names
from beamwood.retrieval.stored import restoring
from beamwood.types import BoolArray, ItemLists, Searcher

__all__ = ["read_retriever", "write_retriever"]

_OWN = {"columns", "kind", "searcher", "searcher_config", "format", "format_version", "files", "checksum"}
_WRITTEN = {"beamwood", "libraries", "created"}


def write_retriever(
    path: str | os.PathLike[str], searcher: Searcher, names: Names, metadata: Mapping[str, Any], *, overwrite: bool
) -> None:
    """Write the artefact atomically; an existing one needs `overwrite`."""
    config, arrays = searcher.export()
    kept, columns = names.filters.columns.export()
    files: dict[str, dict[str, NDArray[Any]]] = {"weights": arrays}
    tables: dict[str, pl.DataFrame] = {}
    known = {"items": names.items} | ({} if names.users is None else {"users": names.users})
    for name, vocabulary in known.items():
        if vocabulary.table is None:
            tables[name] = pl.DataFrame({"id": vocabulary.ids})
        else:
            files[name] = vocabulary.table.arrays()
    if columns:
        files["columns"] = columns
    erased, histories = names.erased, names.histories
    if erased is not None:
        files["erased"] = {"items": np.flatnonzero(erased).astype(np.int32)}
    if histories is not None:
        histories = histories if erased is None else histories.keeping(~erased[histories.items])
        files["histories"] = {"indptr": histories.indptr, "items": histories.items}
    rejected = names.rejected
    if rejected is not None:
        rejected = rejected if erased is None else rejected.keeping(~erased[rejected.items])
        files["rejected"] = {"indptr": rejected.indptr, "items": rejected.items}
    manifest = {"kind": "retriever", "searcher": searcher.kind, "searcher_config": config, "columns": kept}
    write_artefact(path, manifest=manifest | dict(metadata), arrays=files, tables=tables, overwrite=overwrite)


def read_retriever(
    path: str | os.PathLike[str], searchers: Mapping[str, type[Any]], *, threads: int = 1, verify: bool = False
) -> tuple[Searcher, Names, dict[str, Any]]:
    """The content of a folder; see `Retriever.load`. Errors: `ArtefactError` naming the file."""
    if not is_number(threads, whole=True) or threads < 1:
        raise InputError(f"threads={threads!r} is not a whole number of 1 or more")
    artefact = read_artefact(path, kind="retriever", verify=verify)
    with nullcontext() if verify else values_unread():
        return _opened(artefact, searchers, threads=int(threads), verify=verify)


def _opened(
    artefact: Artefact, searchers: Mapping[str, type[Any]], *, threads: int, verify: bool
) -> tuple[Searcher, Names, dict[str, Any]]:
    manifest, folder = artefact.manifest, artefact.path
    weights = artefact.arrays("weights")
    what = "the searcher (manifest.json, weights.safetensors)"
    try:
        with restoring(folder, what), with_searchers(searchers):
            searcher = restore_searcher(manifest["searcher"], manifest["searcher_config"], weights, threads=threads)
    except UnknownSearcherError as error:
        raise ArtefactError(f"{folder}: {what}: {error}; {_fix(manifest)}") from error
    items = _ids(artefact, "items", verify=verify)
    with restoring(folder, "items"):
        if len(items) != searcher.num_items:
            raise ArtefactError(f"it has {len(items)} items, the searcher {searcher.num_items}")
    stored = artefact.arrays("columns") if "columns" in artefact.names("arrays") else {}
    with restoring(folder, "the item columns (manifest.json, columns.safetensors)"):
        columns = ItemColumns.restore(len(items), manifest["columns"], stored, verify=verify)
    users, histories, rejected = None, None, None
    if "histories" in artefact.names("arrays"):
        users, own = _ids(artefact, "users", verify=verify), artefact.arrays("histories")
        with restoring(folder, "histories.safetensors"):
            histories = _histories(own, len(users), len(items), verify=verify)
        if "rejected" in artefact.names("arrays"):
            with restoring(folder, "rejected.safetensors"):
                rejected = _histories(artefact.arrays("rejected"), len(users), len(items), verify=verify)
    metadata = {name: value for name, value in manifest.items() if name not in _OWN | _WRITTEN}
    if "erased" not in artefact.names("arrays"):
        return searcher, Names(items, Filters(items, columns), users, histories, None, rejected), metadata
    with restoring(folder, "erased.safetensors"):
        erased = _erased(artefact.arrays("erased"), len(items))
    items = OpenVocabulary(items, len(items), [], erased)
    filters = Filters(items, columns, alive=Prepared(~erased))
    return searcher, Names(items, filters, users, histories, erased, rejected), metadata


def _erased(arrays: Mapping[str, NDArray[Any]], num_items: int) -> BoolArray:
    """bool[N], the erased items."""
    check_integers(arrays, {"items": (np.int32,)})
    if len(arrays["items"]) and arrays["items"].min() < 0:
        raise ArtefactError("an item below 0 was erased")
    return mask_of(arrays["items"], num_items)


def _fix(manifest: Mapping[str, Any]) -> str:
    """The advice for a searcher that the package does not define."""
    files = [str(file.get("path")) for file in files_of(manifest)]
    if not files:
        return "it was not written by this version: fit and save it again, or load(path, method=...) its own Method"
    return (
        f"it is of the method file {', '.join(files)}, which is not run automatically: if you trust it, "
        f"pass method={files[0]!r}"
    )


def _ids(artefact: Artefact, name: str, *, verify: bool) -> Vocabulary:
    """The stored ids: mapped arrays of integers or text, or a table for other types."""
    if name in artefact.names("arrays"):
        arrays = artefact.arrays(name)
        with restoring(artefact.path, f"{name}.safetensors"):
            table = restore_ids(arrays)
            if verify:
                table.check()
            return Vocabulary.stored(table)
    ids = artefact.table(name)
    with restoring(artefact.path, f"{name}.parquet"):
        return _of_table(ids["id"])


def _of_table(ids: pl.Series) -> Vocabulary:
    if not (ids.dtype.is_numeric() or ids.dtype.is_temporal()) and ids.dtype not in (
        pl.String,
        pl.Binary,
        pl.Categorical,
        pl.Enum,
    ):
        raise ArtefactError(f"its ids are of type {ids.dtype}")
    if ids.dtype.is_float() and not ids.is_finite().all():
        raise ArtefactError("its ids hold NaN or infinity")
    return Vocabulary(ids)


def _histories(arrays: Mapping[str, NDArray[Any]], num_users: int, num_items: int, *, verify: bool) -> ItemLists:
    """The stored histories, one a user, of known items."""
    check_integers(arrays, {"indptr": (np.int64,), "items": (np.int32,)})
    indptr, items = arrays["indptr"], arrays["items"]
    if len(indptr) != num_users + 1:
        raise ArtefactError(f"{len(indptr) - 1} histories for {num_users} users")
    if not verify:
        return ItemLists.unchecked(indptr, items)
    histories = ItemLists(indptr, items)
    if len(histories.items) and int(histories.items.max()) >= num_items:
        raise ArtefactError(f"a history holds item index {int(histories.items.max())} of {num_items} items")
    return histories
