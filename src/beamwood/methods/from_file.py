"""A method defined in a user's .py file."""

from __future__ import annotations

import hashlib
import importlib.util
import sys
import traceback
from dataclasses import replace
from pathlib import Path

from beamwood.errors import InputError, NotInstalledError, nearest_path
from beamwood.extras import asking_for
from beamwood.methods.method import Method, MethodFile

__all__ = ["last_own_line", "method_in"]

# The prefix of the module name of a user's file.
_MODULE = "beamwood_method_"


def method_in(path: str) -> Method:
    """The `METHOD` that a .py file defines; the file is executed once for each of its contents.

    Errors: a missing file, one that raises, one without a `METHOD`, one that needs an extra which is not installed.
    """
    file = Path(path).resolve()
    try:
        content = file.read_bytes()
    except FileNotFoundError:
        raise InputError(f"the method file {path} does not exist{nearest_path(Path(path))}") from None
    except OSError as error:
        raise InputError(f"the method file {path} cannot be read: {error}; name a .py file") from None
    sha256 = hashlib.sha256(content).hexdigest()
    # pydantic and dataclasses look types up in sys.modules, so the module needs a unique name there.
    name = f"{_MODULE}{file.stem}_{hashlib.sha256(str(file).encode()).hexdigest()[:8]}_{sha256[:16]}"
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, file)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        try:
            with asking_for(f"the method file {path}"):
                spec.loader.exec_module(module)
        except NotInstalledError:
            del sys.modules[name]
            raise
        except Exception as error:
            del sys.modules[name]
            raise InputError(f"the method file {path} fails: {type(error).__name__}: {error}") from error
    method = vars(sys.modules[name]).get("METHOD")
    if not isinstance(method, Method):
        raise InputError(f"the method file {path} defines no METHOD; write METHOD = Method(name=..., ...)")
    return replace(method, file=MethodFile(str(file), sha256))


def last_own_line(error: BaseException) -> str | None:
    """The last line of a user's method file in the traceback of an error, as "mine.py, line 7"; else None."""
    lines = [
        f"{frame.f_code.co_filename}, line {number}"
        for frame, number in traceback.walk_tb(error.__traceback__)
        if str(frame.f_globals.get("__name__")).startswith(_MODULE)
    ]
    return lines[-1] if lines else None
