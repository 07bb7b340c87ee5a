"""A method defined in a user's .py file."""

from __future__ import annotations

from dataclasses import replace

from beamwood.errors import InputError
from beamwood.methods.method import Method, MethodFile
from beamwood.own_file import own_names

__all__ = ["method_in"]


def method_in(path: str) -> Method:
    """The `METHOD` that a .py file defines. Errors: those of `own_names`; there is no `METHOD`."""
    names, file, sha256 = own_names(path, "method")
    method = names.get("METHOD")
    if not isinstance(method, Method):
        raise InputError(f"the method file {path} defines no METHOD; write METHOD = Method(name=..., ...)")
    return replace(method, file=MethodFile(str(file), sha256))
