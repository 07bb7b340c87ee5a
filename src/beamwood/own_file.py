"""A user's .py file that defines a part of its own, such as a method or a store."""

from __future__ import annotations

import hashlib
import importlib.util
import sys
import traceback
from pathlib import Path
from typing import Any

from beamwood.errors import InputError, NotInstalledError, check_utf8, nearest_path
from beamwood.extras import asking_for

__all__ = ["last_own_line", "own_names"]

# The prefix of the module name of a user's file.
_MODULE = "beamwood_own_"


def own_names(path: str, what: str) -> tuple[dict[str, Any], Path, str]:
    """What a .py file of a `what` defines, by name; its path, and its sha256. It runs once for each of its contents.

    Errors: a missing file, a path that is not UTF-8, one that raises, one that needs an extra which is not installed.
    """
    file = Path(path).resolve()
    check_utf8(str(file))
    try:
        content = file.read_bytes()
    except FileNotFoundError:
        raise InputError(f"the {what} file {path} does not exist{nearest_path(Path(path))}") from None
    except OSError as error:
        raise InputError(f"the {what} file {path} cannot be read: {error}; name a .py file") from None
    sha256 = hashlib.sha256(content).hexdigest()
    # pydantic and dataclasses look types up in sys.modules, so the module needs a unique name there.
    name = f"{_MODULE}{what}_{file.stem}_{hashlib.sha256(str(file).encode()).hexdigest()[:8]}_{sha256[:16]}"
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, file)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        try:
            with asking_for(f"the {what} file {path}"):
                spec.loader.exec_module(module)
        except NotInstalledError:
            del sys.modules[name]
            raise
        except (Exception, SystemExit) as error:
            del sys.modules[name]
            where = last_own_line(error) or f"the {what} file {path}"
            fix = "install that" if isinstance(error, ModuleNotFoundError) else "mend the file"
            raise InputError(f"{where}: {type(error).__name__}: {error}; {fix}") from error
    return vars(sys.modules[name]), file, sha256


def last_own_line(error: BaseException) -> str | None:
    """The last line of a user's file in the traceback of an error, as "the method file mine.py, line 7"; else None."""
    lines = [
        f"the {module.removeprefix(_MODULE).split('_')[0]} file {frame.f_code.co_filename}, line {number}"
        for frame, number in traceback.walk_tb(error.__traceback__)
        if (module := str(frame.f_globals.get("__name__"))).startswith(_MODULE)
    ]
    return lines[-1] if lines else None
