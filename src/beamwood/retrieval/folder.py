"""A retriever as a folder: writing, and the checks when it is read."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import nullcontext
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from beamwood.arguments import is_number
from beamwood.artefact import Artefact, read_artefact, write_artefact
from beamwood.data.vocabularies.id_table import restore_ids
from beamwood.data.vocabularies.open_vocabulary import OpenVocabulary
from beamwood.data.vocabularies.vocabulary import Vocabulary
from beamwood.errors import ArtefactError, InputError, UnknownSearcherError
from beamwood.kernels.arrays import check_integers, values_unread
from beamwood.kernels.dispatch import active_kernels
from beamwood.kernels.search_arguments import MAX_THREADS
from beamwood.retrieval.columns.filters import mask_of
from beamwood.retrieval.columns.item_columns import ItemColumns
from beamwood.retrieval.load import files_of, restore_searcher, with_searchers
from beamwood.retrieval.resolve import Names
from beamwood.retrieval.stored import restoring
from beamwood.types import ItemLists, Searcher

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
    if names.erased is not None:
        files["erased"] = {"items": np.flatnonzero(names.erased).astype(np.int32)}
    for name, lists in (("histories", names.histories), ("rejected", names.rejected)):
        if lists is not None:
            alive = lists if names.erased is None else lists.keeping(~names.erased[lists.items])
            files[name] = {"indptr": alive.indptr, "items": alive.items}
    manifest = {"kind": "retriever", "searcher": searcher.kind, "searcher_config": config, "columns": kept}
    write_artefact(path, manifest=manifest | dict(metadata), arrays=files, tables=tables, overwrite=overwrite)


def read_retriever(
    path: str | os.PathLike[str], searchers: Mapping[str, type[Any]], *, threads: int, verify: bool
) -> dict[str, Any]:
    """The fields of a `Retriever` from a folder; see `Retriever.load`.

    Errors: `ArtefactError` naming the file; `InputError` on `threads`, or on an environment variable of the kernels.
    """
    if not is_number(threads, whole=True) or not 1 <= threads <= MAX_THREADS:
        raise InputError(f"threads={threads!r} is not a whole number of 1..{MAX_THREADS}; give one, such as threads=4")
    # A wrong environment variable is no fault of the folder.
    active_kernels()
    artefact = read_artefact(path, kind="retriever", verify=verify)
    with nullcontext() if verify else values_unread():
        return _opened(artefact, searchers, threads=int(threads), verify=verify)


def _opened(artefact: Artefact, searchers: Mapping[str, type[Any]], *, threads: int, verify: bool) -> dict[str, Any]:
    manifest, folder, files = artefact.manifest, artefact.path, artefact.names("arrays")
    weights = artefact.arrays("weights")
    what = "the searcher (manifest.json, weights.safetensors)"
    try:
        with restoring(folder, what), with_searchers(searchers):
            searcher = restore_searcher(manifest["searcher"], manifest["searcher_config"], weights, threads=threads)
    except UnknownSearcherError as error:
        raise UnknownSearcherError(f"{folder}: {what}: {error}; {_fix(manifest)}") from error
    items = _ids(artefact, "items", verify=verify)
    with restoring(folder, "items"):
        if len(items) != searcher.num_items:
            raise ArtefactError(f"it has {len(items)} items, the searcher {searcher.num_items}")
    stored = artefact.arrays("columns") if "columns" in files else {}
    with restoring(folder, "the item columns (manifest.json, columns.safetensors)"):
        columns = ItemColumns.restore(len(items), manifest["columns"], stored, verify=verify)
    metadata = {name: value for name, value in manifest.items() if name not in _OWN | _WRITTEN}
    found: dict[str, Any] = {"searcher": searcher, "items": items, "columns": columns, "metadata": metadata}
    if "histories" in files:
        found["users"] = users = _ids(artefact, "users", verify=verify)
        with restoring(folder, "users"):
            needs = searcher.needs
            if needs.users and needs.num_users is not None and len(users) > needs.num_users:
                raise ArtefactError(f"it has {len(users)} users, the searcher {needs.num_users}")
        for name in ("histories", "rejected"):
            if name not in files:
                continue
            lists = artefact.arrays(name)
            with restoring(folder, f"{name}.safetensors"):
                found[name] = _histories(lists, len(users), len(items), verify=verify)
    if "erased" in files:
        arrays = artefact.arrays("erased")
        with restoring(folder, "erased.safetensors"):
            found["erased"] = erased = _erased(arrays, len(items))
        found["items"] = OpenVocabulary(items, len(items), [], mask_of(erased, len(items)))
    return found


def _erased(arrays: Mapping[str, NDArray[Any]], num_items: int) -> NDArray[np.int32]:
    """int32[at most N], the erased items."""
    check_integers(arrays, {"items": (np.int32,)})
    items: NDArray[np.int32] = arrays["items"]
    if items.min(initial=0) < 0 or items.max(initial=0) >= num_items:
        raise ArtefactError(f"an erased item is outside 0..{num_items - 1}")
    return items


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
