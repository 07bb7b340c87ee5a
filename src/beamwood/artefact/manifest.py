"""`manifest.json`: the content of a folder, with the size and sha256 of each file and a checksum of itself."""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Annotated, Any, Final, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from beamwood import __version__
from beamwood.artefact.open_files import read_regular
from beamwood.errors import ArtefactError, first_problem, is_address, is_utf8

__all__ = [
    "FORMAT",
    "FORMAT_VERSION",
    "MANIFEST",
    "SUFFIXES",
    "check_manifest",
    "check_outside",
    "checked_name",
    "claimed_manifest",
    "closed_to_this_user",
    "digest",
    "manifest_bytes",
    "read_manifest",
]

FORMAT: Final = "beamwood-artefact"
FORMAT_VERSION: Final = 1
MANIFEST: Final = "manifest.json"
SUFFIXES: Final = {"arrays": ".safetensors", "table": ".parquet", "text": ""}

_LIBRARIES = ("numpy", "polars", "safetensors", "torch")
_RESERVED = {"format", "format_version", "beamwood", "libraries", "created", "files", "checksum"}
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,199}")


class _Part(BaseModel):
    """The validated part of a manifest; further keys are ignored, as newer versions may add some."""

    model_config = ConfigDict(frozen=True, strict=True)


class _StoredArray(_Part):
    dtype: str
    shape: list[Annotated[int, Field(ge=0)]]


class _File(_Part):
    size: int = Field(ge=0)
    sha256: str


class _ArraysFile(_File):
    kind: Literal["arrays"]
    arrays: dict[str, _StoredArray]


class _OtherFile(_File):
    kind: Literal["table", "text"]


class _Manifest(_Part):
    kind: str
    files: dict[str, Annotated[_ArraysFile | _OtherFile, Field(discriminator="kind")]]


def check_manifest(manifest: Mapping[str, Any]) -> None:
    """Raise an error for values that JSON cannot store exactly, so that saving fails before it begins."""
    assert "kind" in manifest, "an artefact's manifest names its kind"
    assert not _RESERVED & set(manifest), f"reserved manifest keys: {_RESERVED & set(manifest)}"
    _check_plain(manifest, "manifest")


def _check_plain(value: Any, where: str) -> None:
    if isinstance(value, Mapping):
        for key, inner in value.items():
            if not isinstance(key, str):
                raise ArtefactError(f"{where} has the key {key!r}; JSON keys are strings: write str({key!r})")
            _check_plain(key, f"a key of {where}")
            _check_plain(inner, f"{where}[{key!r}]")
    elif isinstance(value, list | tuple):
        for position, inner in enumerate(value):
            _check_plain(inner, f"{where}[{position}]")
    elif isinstance(value, np.generic):
        _check_plain(value.item(), where)
    elif isinstance(value, str) and not is_utf8(value):
        raise ArtefactError(f"{where} is {value!a}, which is not UTF-8; write it so")
    elif isinstance(value, float) and not math.isfinite(value):
        raise ArtefactError(f"{where} is {value}, which JSON cannot hold; store None or leave it out")
    elif not isinstance(value, str | int | float | bool | None):
        raise ArtefactError(f"{where} is a {type(value).__name__}; store numbers, strings, lists or dicts")


def checked_name(name: str, where: Path) -> str:
    """`name` if it is a plain file name, so that a manifest cannot refer to files outside its folder."""
    if not _NAME.fullmatch(name) or ".." in name or name == MANIFEST:
        raise ArtefactError(
            f"{where}: the file name {name!r} is not a plain name of letters, digits, '.', '_' and '-'; "
            f"do not trust this folder, save the artefact again"
        )
    return name


def digest(file: Path | int) -> tuple[int, str]:
    """Size in bytes and sha256 of a file, by its path or open."""
    with open(file, "rb", closefd=not isinstance(file, int)) as stream:
        stream.seek(0)
        sha256 = hashlib.file_digest(stream, "sha256").hexdigest()
        return stream.tell(), sha256


def manifest_bytes(manifest: Mapping[str, Any], files: Mapping[str, Any]) -> bytes:
    """The content of `manifest.json`, with format, versions, time and checksum added."""
    whole = {
        "format": FORMAT,
        "format_version": FORMAT_VERSION,
        **manifest,
        "beamwood": __version__,
        "libraries": {"python": ".".join(map(str, sys.version_info[:3]))} | {n: _version(n) for n in _LIBRARIES},
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "files": dict(files),
    }
    plain = json.loads(json.dumps(whole, default=_item))
    plain["checksum"] = _checksum(plain)
    return (json.dumps(plain, indent=2, ensure_ascii=False) + "\n").encode()


def _item(value: Any) -> Any:
    assert isinstance(value, np.generic), f"{value!r} is not plain"
    return value.item()


def _version(library: str) -> str | None:
    try:
        return metadata.version(library)
    except metadata.PackageNotFoundError:
        return None


def _checksum(manifest: Mapping[str, Any]) -> str:
    content = {key: value for key, value in manifest.items() if key != "checksum"}
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def closed_to_this_user(path: Path, error: PermissionError) -> ArtefactError:
    """The error of a file or folder that is there, and is for others."""
    return ArtefactError(f"{path} may not be opened ({error.strerror}); ask its owner for access")


def claimed_manifest(folder: Path) -> dict[str, Any]:
    """The manifest of a folder, its format and checksum not yet verified."""
    file = folder / MANIFEST
    try:
        manifest = json.loads(read_regular(file))
        # Rejects numbers and characters that Python's json reads but JSON lacks.
        json.dumps(manifest, allow_nan=False, ensure_ascii=False).encode()
    except FileNotFoundError:
        raise ArtefactError(
            f"{folder} has no {MANIFEST}, so it is not a beamwood artefact; give the folder that `beamwood fit` wrote"
        ) from None
    except PermissionError as error:
        raise closed_to_this_user(file, error) from error
    except (OSError, ValueError, RecursionError) as error:
        raise ArtefactError(f"{file} cannot be read as JSON ({error}); save the artefact again") from error
    if not isinstance(manifest, dict) or manifest.get("format") != FORMAT:
        raise ArtefactError(f"{file} is not that of a beamwood artefact; give the folder that `beamwood fit` wrote")
    if not isinstance(manifest.get("files"), dict) or not isinstance(manifest.get("kind"), str):
        raise ArtefactError(f"{file} lacks its list of files or its kind; save the artefact again")
    return manifest


def checked_path(path: Any) -> Path:
    """The path. Errors: another type, and an empty text, which would mean the current folder."""
    if not isinstance(path, str | os.PathLike):
        raise ArtefactError(f"path={path!r} is not a path; give the artefact's folder as text or a pathlib.Path")
    if not os.fspath(path):
        raise ArtefactError(f"path={path!r} is empty; name the artefact's folder, or '.' for the current one")
    if os.fsdecode(path).startswith("~"):
        raise ArtefactError(f"path={path!r} begins with ~, which a shell knows; write os.path.expanduser({path!r})")
    return Path(path)


def check_outside(path: str | os.PathLike[str]) -> None:
    """Errors: an address; a path within a saved folder, whose replacement it would prevent, or would be deleted by."""
    target = Path(os.path.realpath(path))
    if is_address(target):
        raise ArtefactError(f"{path} is an address, which is not written to; name a path of this machine, and copy it")
    for folder in target.parents:
        if _is_saved(folder):
            raise ArtefactError(
                f"{target} is in {folder}, which is a saved folder and holds nothing else; name another"
            )


def _is_saved(folder: Path) -> bool:
    if not os.path.isfile(folder / MANIFEST):
        return False
    try:
        claimed_manifest(folder)
    except ArtefactError:
        return False
    return True


def read_manifest(path: str | os.PathLike[str], *, kind: str | None = None) -> dict[str, Any]:
    """The manifest alone, verified, without touching the files it lists.

    `kind`: the required kind, such as "retriever". Raises `ArtefactError` naming the file and the fix.
    """
    folder = checked_path(path)
    file = folder / MANIFEST
    manifest = claimed_manifest(folder)
    version = manifest.get("format_version")
    if type(version) is not int or version < 1:
        raise ArtefactError(f"{file}: format_version={version!r} is not a version; save the artefact again")
    if version > FORMAT_VERSION:
        raise ArtefactError(
            f"{file}: format_version={version} is newer than {FORMAT_VERSION}, the newest that beamwood "
            f"{__version__} reads; upgrade beamwood (the writer was {manifest.get('beamwood')})"
        )
    if manifest.get("checksum") != _checksum(manifest):
        raise ArtefactError(f"{file} was altered or damaged (its checksum does not match); save the artefact again")
    try:
        files = _Manifest.model_validate(manifest).files
    except ValidationError as error:
        raise ArtefactError(
            f"{file}: {first_problem(error)}; it was not written by this version: fit and save it again"
        ) from None
    for name, about in files.items():
        if not checked_name(name, file).endswith(SUFFIXES[about.kind]):
            raise ArtefactError(f"{file}: the file {name!r} is not of kind {about.kind}; fit and save it again")
    if kind is not None and manifest["kind"] != kind:
        raise ArtefactError(f"{folder} holds a {manifest['kind']}, not a {kind}; give the folder of a {kind}")
    return manifest
