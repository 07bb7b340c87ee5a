"""The searcher classes that loading a saved folder needs from the method that fitted it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from os import PathLike
from typing import Any

from beamwood.artefact import read_manifest
from beamwood.errors import InputError
from beamwood.methods import load_method
from beamwood.methods.method import Method
from beamwood.retrieval.load import files_of

__all__ = ["searchers_by_folder", "searchers_of"]


def searchers_of(method: str | PathLike[str] | Method, folder: Any) -> Mapping[str, type[Any]]:
    """A method's searcher classes by kind, for a folder. Errors: the folder is of another method or method file."""
    given = load_method(method)
    return given.searchers if isinstance(method, Method) else _checked(given, folder)


def searchers_by_folder(method: str | PathLike[str], first: Any) -> Callable[[Any], Mapping[str, type[Any]]]:
    """A function that gives the same for any folder: nothing for one that no method file fitted.

    The file is read once, so what it becomes later is not run. Errors: as `searchers_of` for the folder `first`.
    """
    given = load_method(method)
    _checked(given, first)
    return lambda folder: _checked(given, folder) if files_of(read_manifest(folder, kind="retriever")) else {}


def _checked(given: Method, folder: Any) -> Mapping[str, type[Any]]:
    """The searchers of a named method or of a file. Errors: the folder is of another one."""
    manifest = read_manifest(folder, kind="retriever")
    if given.file is None:
        fitted = str(manifest.get("method"))
        if given.name not in fitted.split("+"):
            raise InputError(f"{folder} was fitted with {fitted} and not with {given.name}; leave the method out")
        return given.searchers
    known = files_of(manifest)
    if not known:
        raise InputError(f"{folder} was fitted with no method file; leave {given.file.path} out")
    if given.file.sha256 not in [file.get("sha256") for file in known]:
        named = ", ".join(f"{file.get('path')} (sha256 {str(file.get('sha256'))[:12]})" for file in known)
        raise InputError(
            f"{folder} was fitted with the method file {named}, and {given.file.path} has sha256 "
            f"{given.file.sha256[:12]}; give the original file, or its METHOD if that is still compatible"
        )
    return given.searchers
