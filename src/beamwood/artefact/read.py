"""Open an artefact: verified at once, loaded when asked for."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import polars as pl
from numpy.typing import NDArray

from beamwood.artefact.manifest import MANIFEST, SUFFIXES, checked_path, digest, read_manifest
from beamwood.artefact.mapped import array_shapes, map_arrays
from beamwood.artefact.replace import recover
from beamwood.errors import ArtefactError, nearest

__all__ = ["Artefact", "read_artefact"]

_Identity = tuple[int, int, int, int]


@dataclass(frozen=True)
class Artefact:
    """An opened folder; arrays are mapped, tables and texts read, when asked for."""

    path: Path
    manifest: dict[str, Any]
    _verified: dict[str, _Identity] = field(repr=False)

    def arrays(self, name: str) -> dict[str, NDArray[Any]]:
        """The arrays of `<name>.safetensors`, mapped: see `map_arrays`."""
        with self._opened(name, "arrays") as path:
            return map_arrays(path)

    def table(self, name: str) -> pl.DataFrame:
        """The frame of `<name>.parquet`."""
        with self._opened(name, "table") as path:
            # Through memory, not mapped: the next save may take the file away.
            content = path.read_bytes()
            try:
                return pl.read_parquet(content)
            except pl.exceptions.PanicException as error:
                raise ValueError(f"it is no sound Parquet: {error}") from error

    def text(self, name: str) -> str:
        """The content of the text file `name`."""
        with self._opened(name, "text") as path:
            return path.read_bytes().decode()

    def names(self, kind: str) -> list[str]:
        """What can be loaded of a kind: "arrays", "table" or "text"."""
        suffix = SUFFIXES[kind]
        return [n.removesuffix(suffix) for n, about in self.manifest["files"].items() if about["kind"] == kind]

    @contextmanager
    def _opened(self, name: str, kind: str) -> Iterator[Path]:
        known = self.names(kind)
        if name not in known:
            hint = nearest(name, known) if known else "; it has none"
            raise ArtefactError(f"{self.path} (a {self.manifest['kind']}) holds no {kind} {name!r}{hint}")
        path = self.path / (name + SUFFIXES[kind])
        try:
            self._check_unchanged(path)
            yield path
            self._check_unchanged(path)
        except ArtefactError:
            raise
        except (OSError, ValueError, pl.exceptions.PolarsError) as error:
            raise ArtefactError(f"{path} cannot be read ({error}); save the artefact again") from error

    def _check_unchanged(self, path: Path) -> None:
        if not path.exists() or _identity(path) != self._verified[path.name]:
            raise ArtefactError(f"{path} was replaced while it was being read; load the artefact again")


def _identity(path: Path) -> _Identity:
    status = path.stat()
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns


def read_artefact(path: str | os.PathLike[str], *, kind: str | None = None, verify: bool = True) -> Artefact:
    """Open a folder and verify format, version, names, sizes and shapes, with `verify` the files' hashes too.

    `kind` is what the caller can use, e.g. "retriever". Raises `ArtefactError` naming the file and the fix.
    """
    target = Path(os.path.realpath(checked_path(path)))
    for attempt in range(3):
        folder = _find(target)
        before = folder.stat().st_ino
        try:
            manifest = read_manifest(folder, kind=kind)
            files = manifest["files"].items()
            return Artefact(folder, manifest, {n: _verify(folder, n, a, verify) for n, a in files})
        except ArtefactError:
            # Replaced by a save while we were reading: the new folder is whole, read that one.
            if attempt == 2 or (folder.exists() and folder.stat().st_ino == before):
                raise
    raise AssertionError("the last attempt returns or raises")


def _find(target: Path) -> Path:
    folder = recover(target)
    if not folder.exists():
        raise ArtefactError(f"{target} does not exist; give the folder that `beamwood fit --out` wrote")
    if not folder.is_dir():
        raise ArtefactError(f"{target} is a file, not an artefact; give the folder that `beamwood fit --out` wrote")
    return folder


def _verify(folder: Path, name: str, about: Mapping[str, Any], hashes: bool) -> _Identity:
    path = folder / name
    fix = "copy the folder again or save the artefact again"
    try:
        identity = _identity(path)
        if identity[2] != about["size"]:
            raise ArtefactError(f"{path} has {identity[2]} bytes, {about['size']} were saved; {fix}")
        if hashes and digest(path)[1] != about["sha256"]:
            raise ArtefactError(f"{path} is damaged (its sha256 is not the one in {MANIFEST}); {fix}")
        if about["kind"] == "arrays":
            _verify_shapes(path, about["arrays"])
    except FileNotFoundError:
        raise ArtefactError(f"{path} is missing; {fix}") from None
    except OSError as error:
        raise ArtefactError(f"{path} cannot be read ({error}); {fix}") from error
    return identity


def _verify_shapes(path: Path, expected: Mapping[str, Any]) -> None:
    try:
        found = array_shapes(path)
    except ValueError as error:
        raise ArtefactError(f"{path} is not a safetensors file ({error}); save the artefact again") from error
    for name in sorted(set(expected) | set(found)):
        shape = expected[name]["shape"] if name in expected else None
        if found.get(name) != shape:
            raise ArtefactError(
                f"{path}: the array {name!r} has shape {found.get(name)}, {MANIFEST} says {shape}; "
                f"save the artefact again"
            )
