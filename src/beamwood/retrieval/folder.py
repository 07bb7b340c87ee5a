"""A retriever as a folder: what is written, and what is checked when it is read."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from beamwood.artefact import read_artefact, write_artefact
from beamwood.data.vocabulary import Vocabulary
from beamwood.errors import ArtefactError, UnknownSearcherError
from beamwood.kernels.arrays import check_integers
from beamwood.retrieval.load import files_of, restore_searcher, with_searchers
from beamwood.retrieval.resolve import Names
from beamwood.retrieval.stored import restoring
from beamwood.types import ItemLists, Searcher

__all__ = ["read_retriever", "write_retriever"]

_OWN = {"kind", "searcher", "searcher_config", "format", "format_version", "files", "checksum"}
_WRITTEN = {"beamwood", "libraries", "created"}


def write_retriever(
    path: str | os.PathLike[str], searcher: Searcher, names: Names, metadata: Mapping[str, Any], *, overwrite: bool
) -> None:
    """Write the artefact, whole or not at all; an artefact already there needs `overwrite`."""
    config, arrays = searcher.export()
    items = {"id": names.items.ids} | ({} if names.categories is None else {"category": names.categories})
    tables = {"items": pl.DataFrame(items)}
    files = {"weights": arrays}
    if names.users is not None and names.histories is not None:
        tables["users"] = pl.DataFrame({"id": names.users.ids})
        files["histories"] = {"indptr": names.histories.indptr, "items": names.histories.items}
    manifest = {"kind": "retriever", "searcher": searcher.kind, "searcher_config": config} | dict(metadata)
    write_artefact(path, manifest=manifest, arrays=files, tables=tables, overwrite=overwrite)


def read_retriever(
    path: str | os.PathLike[str], searchers: Mapping[str, type[Any]]
) -> tuple[Searcher, Names, dict[str, Any]]:
    """What a folder holds; see `Retriever.load`. Errors: `ArtefactError` naming the file."""
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
    metadata = {name: value for name, value in manifest.items() if name not in _OWN | _WRITTEN}
    return searcher, Names(vocabulary, users, histories, categories), metadata


def _fix(manifest: Mapping[str, Any]) -> str:
    """What helps with a searcher that the package does not define."""
    files = [str(file.get("path")) for file in files_of(manifest)]
    if not files:
        return "it was not written by this version: fit and save it again, or load(path, method=...) its own Method"
    return (
        f"it is of the method file {', '.join(files)}, which is not run unasked: if you trust it, "
        f"beamwood.load(path, method={files[0]!r})"
    )


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
