"""`beamwood doctor`: the capabilities of this installation on this machine."""

from __future__ import annotations

import os
import platform
import shutil
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from beamwood import __version__
from beamwood.cli import options as o
from beamwood.cli.output import print_json
from beamwood.extras import EXTRAS, install_command, is_installed
from beamwood.system import processors

__all__ = ["doctor"]

LIBRARIES = ("numpy", "scipy", "polars", "pydantic", "safetensors", "array-api-compat")


def doctor(json: o.Json = False) -> None:
    """Show versions, missing extras, active kernels, processors, memory and disk."""
    from beamwood.kernels import active_kernels

    document: dict[str, Any] = {
        "beamwood": __version__,
        "python": platform.python_version(),
        "platform": platform.platform(),
        "libraries": {name: installed(name) for name in LIBRARIES},
        "extras": extras(),
        "kernels": active_kernels(),
        "processors": processors(),
        "memory_gib": memory_gib(),
        "free_disk_gib": round(shutil.disk_usage(".").free / 2**30, 1),
    }
    if json:
        print_json(document)
        return
    for name, value in document.items():
        if name == "extras":
            print("extras:\n" + "\n".join(f"  {extra}: {extra_in_words(row)}" for extra, row in value.items()))
        elif isinstance(value, dict):
            print("\n".join([f"{name}:", *(f"  {key}: {inner}" for key, inner in value.items())]))
        else:
            print(f"{name}: {value}")


def extras() -> dict[str, dict[str, Any]]:
    """By extra: whether it is installed, its versions, what it enables, and the command that installs it."""
    return {
        name: {
            "installed": is_installed(name),
            "versions": {library: installed(library) for library in extra.modules.values()},
            "gives": extra.gives,
            "install": install_command(name),
        }
        for name, extra in EXTRAS.items()
    }


def extra_in_words(row: dict[str, Any]) -> str:
    """One extra as a line."""
    if row["installed"]:
        return ", ".join(f"{library} {number}" for library, number in row["versions"].items())
    return f"missing ({row['gives']}); {row['install']}"


def installed(name: str) -> str | None:
    """The installed version of a library, None where it is absent."""
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def memory_gib() -> float | None:
    """Physical memory in GiB, None where unknown."""
    try:
        return round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1)
    except (ValueError, OSError, AttributeError):
        return None
