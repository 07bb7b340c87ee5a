"""The choice of kernels: the native core where it was built, else the references.

`BEAMWOOD_KERNELS=native|reference` forces one; `BEAMWOOD_LEVEL` (generic, v2, v3, v4: the x86-64 levels) forces the
native core's instruction set.
"""

from __future__ import annotations

import importlib
import os
from functools import cache
from typing import Any

from beamwood.errors import InputError, nearest

__all__ = ["active_kernels", "native", "native_level"]

_CHOICES = ("native", "reference")


@cache
def _imported() -> tuple[Any, str]:
    """The native module (None where it cannot be loaded) and why not."""
    try:
        module = importlib.import_module("beamwood._native")
    except ImportError as error:
        return None, str(error)
    if not module.levels():
        return None, "none of its instruction sets runs on this processor"
    return module, ""


def native() -> Any:
    """The native module, or None where the references are to be used.

    Raises `InputError` on an unknown value of `BEAMWOOD_KERNELS`, or where it requires a native core that cannot be
    loaded.
    """
    choice = os.environ.get("BEAMWOOD_KERNELS", "")
    if choice and choice not in _CHOICES:
        raise InputError(f"BEAMWOOD_KERNELS={choice!r} names no kernels{nearest(choice, _CHOICES)}")
    if choice == "reference":
        return None
    module, why = _imported()
    if module is None and choice == "native":
        raise InputError(
            f"BEAMWOOD_KERNELS=native, but the native core cannot be loaded ({why}); install beamwood with a C++20 "
            "compiler and CMake at hand, or unset BEAMWOOD_KERNELS"
        )
    return module


def native_level(asked: str | None = None) -> str:
    """The instruction set of native kernels: `asked`, else `BEAMWOOD_LEVEL`, else the best of the CPU.

    Errors: no native core, an instruction set that is not available.
    """
    module = native()
    if module is None:
        raise InputError("the native core is not in use, so there is no instruction set to choose")
    known: list[str] = module.levels()
    level = asked or os.environ.get("BEAMWOOD_LEVEL") or known[-1]
    if level not in known:
        name = "level" if asked else "BEAMWOOD_LEVEL"
        raise InputError(f"{name}={level!r} is no instruction set of this processor{nearest(level, known)}")
    return level


def active_kernels() -> dict[str, Any]:
    """The active kernels: `path` native or reference, `why`, `level` and `levels` (instruction sets), `amx`."""
    forced = os.environ.get("BEAMWOOD_KERNELS", "")
    module = native()
    if module is None:
        why = "BEAMWOOD_KERNELS=reference" if forced == "reference" else f"native core not loaded: {_imported()[1]}"
        return {"path": "reference", "why": why, "level": None, "levels": [], "amx": False}
    why = "BEAMWOOD_KERNELS=native" if forced else "built and loaded"
    level = native_level()
    amx = level == "v4" and bool(module.has_amx())
    return {"path": "native", "why": why, "level": level, "levels": list(module.levels()), "amx": amx}
