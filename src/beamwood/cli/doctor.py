"""`beamwood doctor`: what this installation can do on this machine."""

from __future__ import annotations

import os
import platform
import shutil
from importlib.metadata import PackageNotFoundError, version

from beamwood import __version__
from beamwood.cli import options as o
from beamwood.cli.inputs import print_json

__all__ = ["doctor"]

LIBRARIES = ("torch", "numpy", "scipy", "polars", "pyarrow", "pydantic", "safetensors")


def doctor(json: o.Json = False) -> None:
    """Show versions, which kernels are live, processors, memory and disk."""
    from beamwood.kernels import live

    document = {
        "beamwood": __version__,
        "python": platform.python_version(),
        "platform": platform.platform(),
        "libraries": {name: installed(name) for name in LIBRARIES},
        "kernels": live(),
        "processors": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "memory_gib": memory_gib(),
        "free_disk_gib": round(shutil.disk_usage(".").free / 2**30, 1),
    }
    if json:
        print_json(document)
        return
    for name, value in document.items():
        if isinstance(value, dict):
            print(f"{name}:")
            for key, inner in value.items():
                print(f"  {key}: {inner}")
        else:
            print(f"{name}: {value}")


def installed(name: str) -> str | None:
    """The installed version of a library, None where it is absent."""
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def memory_gib() -> float | None:
    """Physical memory in GiB, None where the system does not say."""
    try:
        return round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1)
    except (ValueError, OSError, AttributeError):
        return None
