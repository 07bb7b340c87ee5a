"""Open an artefact: verified at once, loaded on demand."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import polars as pl
from numpy.typing import NDArray

from beamwood.artefact.manifest import MANIFEST, SUFFIXES, checked_path, closed_to_this_user, digest, read_manifest
from beamwood.artefact.mapped import array_shapes, map_arrays
from beamwood.artefact.open_files import Identity, OpenFiles, identity
from beamwood.artefact.replace import recover
from beamwood.errors import ArtefactError, nearest, nearest_path
from beamwood.steps import step
from beamwood.words import followed

__all__ = ["Artefact", "read_artefact"]

_FIX = "copy the folder again or save the artefact again"
# Seconds of retries where saves keep replacing a folder before all of it is open.
_PATIENCE = 60.0
# Looks for a folder: where saves cannot exchange folders at once, one after another may hide it between two checks.
_LOOKS = 8


@dataclass(frozen=True)
class Artefact:
    """An opened folder; arrays are mapped, tables and texts read, on demand, by one thread at a time.

    Its files are held open, so that a save that replaces the folder does not affect it.
    """

    path: Path
    manifest: dict[str, Any]
    _files: OpenFiles = field(repr=False)
    _verified: dict[str, Identity] = field(repr=False)

    def arrays(self, name: str) -> dict[str, NDArray[Any]]:
        """The arrays of `<name>.safetensors`, mapped: see `map_arrays`."""
        with self._opened(name, "arrays") as file:
            return map_arrays(self._files[file])

    def table(self, name: str) -> pl.DataFrame:
        """The frame of `<name>.parquet`."""
        with self._opened(name, "table") as file:
            try:
                return pl.read_parquet(self._files.content(file))
            except pl.exceptions.PanicException as error:
                raise ValueError(f"it is not valid Parquet: {error}") from error

    def text(self, name: str) -> str:
        """The content of the text file `name`."""
        with self._opened(name, "text") as file:
            return self._files.content(file).decode()

    def names(self, kind: str) -> list[str]:
        """The names of all files of a type: "arrays", "table" or "text"."""
        suffix = SUFFIXES[kind]
        return [n.removesuffix(suffix) for n, about in self.manifest["files"].items() if about["kind"] == kind]

    @contextmanager
    def _opened(self, name: str, kind: str) -> Iterator[str]:
        known = self.names(kind)
        if name not in known:
            hint = nearest(name, known) if known else "; it has none"
            raise ArtefactError(f"{self.path} (a {self.manifest['kind']}) holds no {kind} {name!r}{hint}")
        file = name + SUFFIXES[kind]
        try:
            with self._files.reading:
                self._check_unchanged(file)
                yield file
                self._check_unchanged(file)
        except ArtefactError:
            raise
        except (OSError, ValueError, pl.exceptions.PolarsError) as error:
            raise ArtefactError(f"{self.path / file} cannot be read ({error}); save the artefact again") from error

    def _check_unchanged(self, file: str) -> None:
        if identity(self._files[file]) != self._verified[file]:
            raise ArtefactError(f"{self.path / file} was written to while it was being read; load the artefact again")


def read_artefact(path: str | os.PathLike[str], *, kind: str | None = None, verify: bool = True) -> Artefact:
    """Open a folder and verify format, version, names, sizes and shapes, with `verify` the files' hashes too.

    A save may replace the folder meanwhile: then all files opened are of the old one, or all of the new one. `kind` is
    what the caller can use, e.g. "retriever". Raises `ArtefactError` naming the file and the fix.
    """
    target = Path(os.path.realpath(checked_path(path)))
    until = time.monotonic() + _PATIENCE
    while True:
        folder = _find(target)
        before = _manifest_identity(folder)
        try:
            manifest, files = _opened_whole(folder, kind, before)
            with step(f"checking {folder}"):
                checked = {name: _verify(folder, name, files[name], a, verify) for name, a in manifest["files"].items()}
            return Artefact(folder, manifest, files, checked)
        except ArtefactError:
            # Replaced by a save in between: read the new folder. Otherwise the error is real.
            if time.monotonic() > until or (_manifest_identity(folder) == before and os.path.exists(folder)):
                raise


def _manifest_identity(folder: Path) -> Identity | None:
    try:
        return identity(folder / MANIFEST)
    except OSError:
        return None


def _opened_whole(folder: Path, kind: str | None, before: Identity | None) -> tuple[dict[str, Any], OpenFiles]:
    """The manifest and the files that it lists, all of them of one folder. Errors: as `read_artefact`."""
    manifest = read_manifest(folder, kind=kind)
    name = ""
    try:
        for name in manifest["files"]:
            identity(folder / name)
        files = OpenFiles(folder, manifest["files"])
    except FileNotFoundError:
        raise ArtefactError(f"{folder / name} is missing; {_FIX}") from None
    except PermissionError as error:
        raise closed_to_this_user(Path(error.filename or folder / name), error) from error
    except OSError as error:
        raise ArtefactError(f"{error.filename or folder / name} cannot be read ({error}); {_FIX}") from error
    if _manifest_identity(folder) != before or not files.are_in(folder):
        raise ArtefactError(f"{folder} was replaced while it was being read; load the artefact again")
    return manifest, files


def _find(target: Path) -> Path:
    try:
        folder = next((found for _ in range(_LOOKS) if os.path.exists(found := recover(target))), None)
        if folder is None:
            os.stat(target)
    except PermissionError as error:
        raise closed_to_this_user(target, error) from error
    except OSError:
        folder = None
    if folder is None:
        problem = f"{target} does not exist{nearest_path(target, '')}"
        raise ArtefactError(followed(problem, "give the folder that `beamwood fit --out` wrote"))
    if not os.path.isdir(folder):
        raise ArtefactError(f"{target} is a file, not an artefact; give the folder that `beamwood fit --out` wrote")
    return folder


def _verify(folder: Path, name: str, file: int, about: Mapping[str, Any], hashes: bool) -> Identity:
    path = folder / name
    try:
        found = identity(file)
        if found[2] != about["size"]:
            raise ArtefactError(f"{path} has {found[2]} bytes, {about['size']} were saved; {_FIX}")
        if hashes and digest(file)[1] != about["sha256"]:
            raise ArtefactError(f"{path} is damaged (its sha256 is not the one in {MANIFEST}); {_FIX}")
        if about["kind"] == "arrays":
            _verify_shapes(path, file, about["arrays"])
    except OSError as error:
        raise ArtefactError(f"{path} cannot be read ({error}); {_FIX}") from error
    return found


def _verify_shapes(path: Path, file: int, expected: Mapping[str, Any]) -> None:
    try:
        found = array_shapes(file)
    except ValueError as error:
        raise ArtefactError(f"{path} is not a safetensors file ({error}); save the artefact again") from error
    for name in sorted(set(expected) | set(found)):
        shape = expected[name]["shape"] if name in expected else None
        if found.get(name) != shape:
            raise ArtefactError(
                f"{path}: the array {name!r} has shape {found.get(name)}, {MANIFEST} says {shape}; "
                f"save the artefact again"
            )
