"""Arguments that do not fit, named: what goes wrong inside because of one becomes an `InputError` that says which.

A successful call is not slowed down. A failed one is inspected afterwards: an argument whose type contradicts its
annotation, or that contains an unusable value, is named. Where there is none, the original exception is raised.
"""

from __future__ import annotations

import collections.abc
import functools
import inspect
import numbers
import reprlib
import types
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Literal, ParamSpec, TypeVar, Union, get_args, get_origin

from beamwood.errors import InputError, nearest

__all__ = ["is_number", "naming_arguments"]

_P = ParamSpec("_P")
_R = TypeVar("_R")
_LISTS = (collections.abc.Sequence, collections.abc.Iterable, collections.abc.Collection, list, tuple)
_MAPPINGS = (collections.abc.Mapping, dict)
# These end a program, whatever the arguments.
_MEANT = (KeyboardInterrupt, SystemExit, GeneratorExit)
# Elements of a list that are inspected.
_MOST = 1000
_STRANGE = (
    *(set, frozenset, complex, slice, range, type, BaseException, type(Ellipsis), types.FunctionType),
    *(types.BuiltinFunctionType, collections.abc.Iterator),
)


def naming_arguments(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """A decorator: a failure caused by an argument becomes an `InputError` that names it."""

    @functools.wraps(function)
    def called(*args: _P.args, **kwargs: _P.kwargs) -> _R:
        try:
            return function(*args, **kwargs)
        # Polars' panics are not an `Exception`.
        except BaseException as error:
            meant = isinstance(error, _MEANT) or type(error).__module__.startswith("beamwood.")
            blamed = None if meant else _blamed(function, args, kwargs)
            if blamed is None:
                raise
            raise InputError(blamed) from error

    return called


def is_number(value: Any, *, whole: bool = False) -> bool:
    """Whether a value is a number of Python or numpy; booleans are not."""
    return isinstance(value, _NUMBERS[int if whole else float]) and not isinstance(value, bool)


def _blamed(function: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> str | None:
    """The message about the unfitting argument; None where all fit, or where too few or too many were given."""
    parameters = inspect.signature(function).parameters
    try:
        given = inspect.signature(function).bind(*args, **kwargs)
    except TypeError:
        open_ended = any(each.kind is inspect.Parameter.VAR_KEYWORD for each in parameters.values())
        unknown = [] if open_ended else [name for name in kwargs if name not in parameters]
        own = [name for name in parameters if name not in ("self", "cls")]
        return f"{function.__name__} has no argument '{unknown[0]}'{nearest(unknown[0], own)}" if unknown else None
    values = dict(_named(given.arguments, parameters))
    for name, value in values.items():
        known = parameters.get(name)
        if known is None or value is known.default:
            continue
        if _misfits(value, _evaluated(known.annotation, function)):
            return f"{name}={_shown(value)} does not fit ({type(value).__name__}); give {known.annotation}"
    for name, value in values.items():
        known = parameters.get(name)
        # A callable is not looked into.
        held = None if known is not None and "Callable" in str(known.annotation) else _strange(value)
        if held is not None:
            return f"{name}={_shown(value)} {held}; give plain values"
    return None


def _named(arguments: Mapping[str, Any], parameters: Mapping[str, inspect.Parameter]) -> Iterator[tuple[str, Any]]:
    """The arguments by name, `**` arguments one by one, without `self` and `cls`."""
    for name, value in arguments.items():
        if parameters[name].kind is inspect.Parameter.VAR_KEYWORD:
            yield from value.items()
        elif name not in ("self", "cls"):
            yield name, value


def _evaluated(annotation: Any, function: Callable[..., Any]) -> Any:
    """The evaluated annotation; `Any` where its names are imported for type checkers alone."""
    if not isinstance(annotation, str):
        return annotation
    try:
        return eval(annotation, inspect.unwrap(function).__globals__)
    except (NameError, TypeError, AttributeError):
        return Any


def _misfits(value: Any, hint: Any) -> bool:
    """Whether a value certainly contradicts the type hint."""
    origin, parts = get_origin(hint), get_args(hint)
    if hint in (None, type(None)):
        return value is not None
    if origin in (Union, types.UnionType):
        return all(_misfits(value, part) for part in parts)
    if origin is Literal:
        return not any(type(value) is type(part) and value == part for part in parts)
    if origin in _LISTS:
        return not _is_list(value) or any(_misfits(part, parts[0]) for part in _parts(value))
    if origin in _MAPPINGS:
        return not isinstance(value, Mapping) or any(_misfits(part, parts[1]) for part in value.values())
    if isinstance(origin, type):
        return not isinstance(value, origin)
    if hint in _NUMBERS:
        return not is_number(value, whole=hint is int)
    try:
        return isinstance(hint, type) and not isinstance(value, hint)
    except TypeError:  # a protocol that is not runtime-checkable
        return False


_NUMBERS: dict[Any, Any] = {int: numbers.Integral, float: numbers.Real}


def _is_list(value: Any) -> bool:
    """Whether a value is a sequence, a numpy array or a Polars series; strings are not."""
    import numpy as np
    import polars as pl

    if isinstance(value, np.ndarray):
        return value.ndim >= 1
    return isinstance(value, collections.abc.Sequence | pl.Series) and not isinstance(value, str | bytes | range)


def _parts(value: Any) -> list[Any]:
    return list(value[:_MOST])


def _strange(value: Any, depth: int = 0) -> str | None:
    """What unusable thing a value holds, in words; None where it holds none."""
    import numpy as np
    import polars as pl

    if type(value) is object or isinstance(value, _STRANGE):
        return f"holds a {type(value).__name__}"
    if isinstance(value, int) and not -(2**63) <= value < 2**63:
        return "holds a number beyond 64 bits"
    if isinstance(value, float | np.floating) and not np.isfinite(value):
        return "holds NaN or infinity"
    if isinstance(value, str) and any(letter == "\0" or "\ud800" <= letter <= "\udfff" for letter in value):
        return "holds text that is not valid Unicode"
    if isinstance(value, np.ndarray) and (value.dtype == object or value.ndim != 1):
        return f"holds an array of type {value.dtype} and shape {value.shape}"
    if isinstance(value, pl.Series) and (value.dtype.is_nested() or value.dtype in (pl.Null, pl.Object)):
        return f"holds a series of type {value.dtype}"
    if depth > 3 or isinstance(value, str | bytes):
        return None
    inner: list[Any] = [*value, *value.values()] if isinstance(value, Mapping) else []
    inner = _parts(value) if isinstance(value, list | tuple) else inner
    return next((held for part in inner if (held := _strange(part, depth + 1)) is not None), None)


def _shown(value: Any) -> str:
    """A short representation of any value."""
    try:
        return " ".join(reprlib.repr(value).split())
    except Exception:  # its own __repr__ fails
        return f"<{type(value).__name__}>"
