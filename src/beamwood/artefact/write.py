"""Save an artefact atomically."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import safetensors
import safetensors.numpy
from numpy.typing import NDArray

from beamwood.artefact.manifest import (
    MANIFEST,
    SUFFIXES,
    check_manifest,
    check_outside,
    checked_name,
    checked_path,
    claimed_manifest,
    digest,
    manifest_bytes,
)
from beamwood.artefact.replace import clean, put_in_place, recover, sync, temporary_folder
from beamwood.errors import ArtefactError, NotSavedError, is_of_full_disk
from beamwood.steps import step

__all__ = ["Arrays", "check_output", "write_artefact"]

Arrays = Mapping[str, NDArray[Any]]


def write_artefact(
    path: str | os.PathLike[str],
    *,
    manifest: Mapping[str, Any],
    arrays: Mapping[str, Arrays] | None = None,
    tables: Mapping[str, pl.DataFrame] | None = None,
    texts: Mapping[str, str] | None = None,
    overwrite: bool = False,
) -> None:
    """Save a folder at `path`, whole or not at all.

    `manifest` is JSON-able and names at least `kind`; format, versions, time and hashes are added to it. `arrays`
    `{"weights": {...}}` becomes `weights.safetensors`, `tables` `{"items": frame}` becomes `items.parquet`, `texts`
    keep the file names given. Raises `ArtefactError` when `path` holds an artefact and `overwrite` is False, holds
    anything else, or cannot be written; what was at `path` is then still there, untouched.
    """
    target = _checked(path, overwrite)
    check_manifest(manifest)
    with step(f"saving {target}"), _reporting(target, "the folder"):
        target.parent.mkdir(parents=True, exist_ok=True)
        clean(target)
        with temporary_folder(target) as folder:
            files = _write_files(folder, target, arrays or {}, tables or {}, texts or {})
            with _reporting(target, MANIFEST):
                (folder / MANIFEST).write_bytes(manifest_bytes(manifest, files))
                sync(folder / MANIFEST)
                sync(folder)
            _checked(target, overwrite)
            try:
                put_in_place(folder, target, overwrite=overwrite)
            except OSError:
                # Another save may have finished first.
                _checked(target, overwrite)
                raise


def check_output(path: str | os.PathLike[str], *, overwrite: bool = False) -> Path:
    """The resolved `path` if an artefact may be saved there; to be checked before a long training.

    Only an artefact may be replaced, only when asked, and only when it holds nothing but its own files. Raises
    `ArtefactError` with the fix.
    """
    target = _checked(path, overwrite)
    # Some file systems refuse only when a folder is created, as one whose name is too long.
    nearest = _nearest(target)
    beside = nearest / target.name
    with _reporting(target, "the folder"):
        clean(beside)
        with temporary_folder(beside) as folder:
            (folder / target.relative_to(nearest)).mkdir(parents=True)
            return target


def _checked(path: str | os.PathLike[str], overwrite: bool) -> Path:
    target = Path(os.path.realpath(checked_path(path)))
    if not target.name:
        raise ArtefactError(f"{target} cannot be an artefact; name a folder inside it")
    check_outside(target)
    circle = next((path for path in (target, *target.parents) if os.path.islink(path)), None)
    if circle is not None:
        raise ArtefactError(f"{circle} is a link that leads in a circle; remove it, or choose another output folder")
    if os.path.ismount(target):
        raise ArtefactError(f"{target} is a mount point, which cannot be replaced; name a folder in it")
    with _reporting(target, "the folder"):
        _check_parent(target)
        recover(target)
        if os.path.exists(target):
            _check_present(target, overwrite)
    return target


def _nearest(target: Path) -> Path:
    """The nearest parent folder that exists."""
    return next(folder for folder in target.parents if os.path.exists(folder))


def _check_parent(target: Path) -> None:
    parent = _nearest(target)
    if not os.path.isdir(parent):
        raise ArtefactError(f"{parent} is a file, so {target} cannot be made; choose another output folder")
    if not os.access(parent, os.W_OK | os.X_OK):
        raise ArtefactError(f"{parent} may not be written to, so {target} cannot be saved; choose another folder")


def _check_present(target: Path, overwrite: bool) -> None:
    if not os.path.isdir(target):
        raise ArtefactError(f"{target} is a file, not a folder; choose another output folder")
    present = set(os.listdir(target))
    if not present:
        return
    try:
        files = set(claimed_manifest(target)["files"])
    except ArtefactError as error:
        raise ArtefactError(
            f"{target} is not empty and not a beamwood artefact, so it is never replaced; choose another output "
            f"folder, or delete it yourself"
        ) from error
    if not overwrite:
        raise ArtefactError(
            f"{target} already holds an artefact; pass --overwrite (overwrite=True) to replace it, or choose "
            f"another output folder"
        )
    strangers = sorted(present - files - {MANIFEST})
    if strangers:
        raise ArtefactError(
            f"{target} holds {strangers[0]!r}, which is not part of the artefact and would be lost; move it away first"
        )


@contextmanager
def _reporting(target: Path, what: str) -> Iterator[None]:
    """Convert errors of the disk while saving into one error that names the file and the fix."""
    try:
        yield
    except ArtefactError:
        raise
    except (OSError, safetensors.SafetensorError, pl.exceptions.PolarsError) as error:
        text = str(error)
        full = is_of_full_disk(error) or "No space left" in text
        fix = "free some space" if full else "check that the folder can be written"
        raise NotSavedError(
            f"{target}: {what} could not be saved ({text}); what was there before is untouched; {fix} and save again"
        ) from error


def _write_files(
    folder: Path,
    target: Path,
    arrays: Mapping[str, Arrays],
    tables: Mapping[str, pl.DataFrame],
    texts: Mapping[str, str],
) -> dict[str, dict[str, Any]]:
    files: dict[str, dict[str, Any]] = {}
    for kind, group in (("arrays", arrays), ("table", tables), ("text", texts)):
        for name, content in group.items():
            file = checked_name(name + SUFFIXES[kind], target)
            assert file not in files, f"two parts want the file name {file!r}"
            with _reporting(target, file):
                about = _WRITERS[kind](folder / file, content)
                sync(folder / file)
                size, sha256 = digest(folder / file)
            files[file] = {"kind": kind, "size": size, "sha256": sha256, **about}
    return files


def _write_arrays(path: Path, arrays: Arrays) -> dict[str, Any]:
    prepared = {}
    for key, array in arrays.items():
        if array.dtype.kind not in "biuf" or array.dtype.itemsize > 8:
            raise ArtefactError(f"{path.name}: the array {key!r} is {array.dtype}; only bool, int and float are saved")
        prepared[key] = np.asarray(array, dtype=array.dtype.newbyteorder("="), order="C")
    safetensors.numpy.save_file(prepared, path)
    # Temporary files are private; this restores the permissions that the umask gives.
    path.chmod(path.parent.stat().st_mode & 0o666)
    return {"arrays": {key: {"dtype": str(a.dtype), "shape": list(a.shape)} for key, a in prepared.items()}}


def _write_table(path: Path, frame: pl.DataFrame) -> dict[str, Any]:
    frame.write_parquet(path)
    return {"rows": frame.height}


def _write_text(path: Path, text: str) -> dict[str, Any]:
    path.write_bytes(text.encode())
    return {}


_WRITERS: dict[str, Callable[[Path, Any], dict[str, Any]]] = {
    "arrays": _write_arrays,
    "table": _write_table,
    "text": _write_text,
}
