"""The origin of a run: the commit and digest of the source, the versions, the machine."""

from __future__ import annotations

import hashlib
import os
import platform
import subprocess
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import beamwood
from beamwood.errors import InputError
from beamwood.kernels import active_kernels
from benchmarks.measure import status_kib

__all__ = ["check_committed", "commit", "machine", "peak_mib", "source_digest", "versions"]

_MEASURED = ("src/beamwood", "native")
_LIBRARIES = ("numpy", "scipy", "torch", "polars")


def commit(root: Path) -> str | None:
    """The last commit that changed the package or its native core; None outside a checkout."""
    found = _git(root, "log", "-1", "--format=%h", "--abbrev=9", "--", *_MEASURED)
    return found or None


def check_committed(root: Path) -> None:
    """Errors: the package has uncommitted changes, so a line could not name the source that it measured."""
    changed = _git(root, "status", "--porcelain", "--", *_MEASURED)
    if changed:
        first = changed.splitlines()[0].split()[-1]
        raise InputError(f"{first} has uncommitted changes; commit them, so that a line can name its source")


def source_digest() -> str:
    """The first 12 digits of the sha256 of the package's Python source; equal code has equal digests in any history."""
    folder, digest = Path(beamwood.__file__).parent, hashlib.sha256()
    for file in sorted(folder.rglob("*.py")):
        digest.update(file.relative_to(folder).as_posix().encode() + b"\0" + file.read_bytes() + b"\0")
    return digest.hexdigest()[:12]


def versions() -> dict[str, str]:
    """The versions of Python and of the numerical libraries."""
    found = {"beamwood": beamwood.__version__, "python": platform.python_version()}
    for name in _LIBRARIES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def machine() -> dict[str, Any]:
    """The processor, the cores available to this process, its threads, and the kernels in use."""
    kernels = active_kernels()
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    threads = int(os.environ.get("OMP_NUM_THREADS", 0)) or cores
    shown = {"kernels": kernels["path"], "level": kernels["level"], "amx": kernels["amx"]}
    return {"processor": _processor(), "cores": cores, "threads": threads} | shown


def peak_mib() -> int:
    """The peak memory of this process."""
    return round(status_kib("VmHWM") / 1024)


def _processor() -> str:
    with open("/proc/cpuinfo") as info:
        return next((line.split(":", 1)[1].strip() for line in info if line.startswith("model name")), "unknown")


def _git(root: Path, *arguments: str) -> str:
    try:
        done = subprocess.run(["git", "-C", str(root), *arguments], capture_output=True, text=True, check=False)
    except FileNotFoundError:
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""
