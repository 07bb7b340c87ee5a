"""`beamwood events`: the content of a server's store as the next training log; and a model without erased users."""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from beamwood.cli import options as o
from beamwood.cli.output import print_json
from beamwood.cli.stores import reading_store
from beamwood.errors import InputError, nearest
from beamwood.steps import tell

if TYPE_CHECKING:
    from beamwood.serve.store.event import Owner
    from beamwood.serve.store.protocol import HistoryStore

__all__ = ["events"]

_ACTIONS = ("erase", "export")
_Action = Annotated[
    str, typer.Argument(metavar="ACTION", help="export: write a log; erase: write a model without erased users.")
]
_Store = Annotated[
    str,
    typer.Argument(
        metavar="STORE", help="sqlite:PATH, redis://.., postgresql://.. or FILE.py:PLACE, as in `beamwood serve`."
    ),
]
_Out = Annotated[
    str, typer.Option("--out", metavar="PATH", help="The .parquet file of `export`, the folder of `erase`.")
]
_NewItems = Annotated[
    o.Text,
    typer.Option("--new-items", metavar="FILE", help="export: a .parquet file for the rows of new items, too."),
]
_Folder = Annotated[o.Text, typer.Option("--from", metavar="FOLDER", help="erase: the model, which is not changed.")]


def events(
    action: _Action,
    store: _Store,
    *,
    out: _Out,
    new_items: _NewItems = None,
    folder: _Folder = None,
    method: o.MethodFile = None,
    overwrite: o.Overwrite = False,
    json: o.Json = False,
) -> None:
    """Export the events of a server's store as a log, or apply its erasures to a model. The server may keep running."""
    if action not in _ACTIONS:
        raise InputError(f"the action {action!r} is unknown{nearest(action, _ACTIONS)}")
    if (folder is not None) != (action == "erase"):
        raise InputError("erase needs the model's folder as --from FOLDER, and export takes none")
    if method is not None and folder is None:
        raise InputError("--method is for erase; leave it out")
    if folder is None:
        _check_files(out, new_items, overwrite=overwrite)
    elif new_items is not None:
        raise InputError("--new-items is for export; leave it out")
    with reading_store(store, "beamwood events") as opened:
        if folder is None:
            found = _export(opened, out, new_items)
        else:
            found = _erase(opened.erased(), folder, method, out, overwrite=overwrite)
    if json:
        print_json({"out": out, **found})
        return
    wrote = " and ".join([out] if new_items is None else [out, new_items])
    print(", ".join([f"wrote {wrote}", *(f"{name.replace('_', ' ')}: {count}" for name, count in found.items())]))
    if folder is None:
        tell(f"next: put its rows behind your log's and fit both, or alone: {shlex.join(('beamwood', 'fit', out))}")


def _check_files(out: str, new_items: str | None, *, overwrite: bool) -> None:
    from beamwood.retrieval.batch.job import check_file

    check_file(out, overwrite=overwrite, columns=("user", "item", "time", "type", "weight"))
    if new_items is None:
        return
    if os.path.realpath(new_items) == os.path.realpath(out):
        raise InputError(f"--new-items {new_items} is --out too; name another file")
    if check_file(new_items, overwrite=overwrite, option="--new-items", columns=("item",)).suffix != ".parquet":
        raise InputError(f"--new-items {new_items} does not end in .parquet; give a name such as new-items.parquet")


def _export(store: HistoryStore, out: str, new_items: str | None) -> dict[str, int]:
    from beamwood.serve.items.learned import Learned, erased_items, read_learned
    from beamwood.serve.items.table import export_new_items
    from beamwood.serve.store.export import export_events

    found = {}
    if new_items is not None:
        # First, as a store may have new items and no events yet.
        found = {"new_items": export_new_items(read_learned(store, None)[1] or Learned(), Path(new_items))}
    return export_events(store, out, erased=lambda: erased_items(store)) | found


def _erase(
    erased: Mapping[Owner, float], folder: str, method: str | None, out: str, *, overwrite: bool
) -> dict[str, int]:
    from beamwood import load
    from beamwood.artefact import check_output
    from beamwood.retrieval.forget import without_erased

    check_output(out, overwrite=overwrite)
    users = [user for user in erased if isinstance(user, int | str)]
    left, gone = without_erased(load(folder, method), users, max(erased.values(), default=0.0))
    left.save(out, overwrite=overwrite)
    return {"erased": len(users), "in_the_model": gone}
