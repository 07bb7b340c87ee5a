"""Checkpoints: nested state as one artefact, tensors in safetensors, all else in JSON; never pickle."""

from __future__ import annotations

import json
import math
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from array_api_compat import is_torch_array
from numpy.typing import NDArray

from beamwood.artefact import read_artefact, write_artefact
from beamwood.artefact.manifest import MANIFEST, SUFFIXES
from beamwood.artefact.replace import recover
from beamwood.errors import ArtefactError, InputError

if TYPE_CHECKING:
    from torch import Tensor

__all__ = [
    "check_replaceable",
    "check_tensors",
    "load_checkpoint",
    "remove_checkpoint",
    "resuming",
    "save_checkpoint",
]

_TEXT = "state.json"
_ARRAYS = "tensors"
_FILES = {MANIFEST, _TEXT, f"{_ARRAYS}{SUFFIXES['arrays']}"}
_ANEW = "run with --overwrite and without --resume to start anew, or give another output folder"


def save_checkpoint(path: str | os.PathLike[str], state: dict[str, Any]) -> None:
    """Save nested dicts, lists and tuples of tensors, arrays and scalars at `path`, replacing an older checkpoint.

    Atomic: a kill leaves the older one intact. Raises `ArtefactError` when it cannot be written.
    """
    arrays: dict[str, NDArray[Any]] = {}
    text = json.dumps(_encode(state, arrays))
    write_artefact(path, manifest={"kind": "checkpoint"}, arrays={_ARRAYS: arrays}, texts={_TEXT: text}, overwrite=True)


def load_checkpoint(path: str | os.PathLike[str]) -> dict[str, Any]:
    """The state given to `save_checkpoint`, tensors on the CPU; raises `ArtefactError` when missing or damaged."""
    try:
        artefact = read_artefact(path, kind="checkpoint")
        text, arrays = artefact.text(_TEXT), artefact.arrays(_ARRAYS)
    except ArtefactError as error:
        raise ArtefactError(f"the training cannot continue from its checkpoint ({error}); {_ANEW}") from error
    with resuming(path):
        state = _decode(json.loads(text), arrays)
        if not isinstance(state, dict):
            raise ValueError(f"{_TEXT} holds no table of keys")
    return state


def check_replaceable(path: str | os.PathLike[str]) -> None:
    """Raise `ArtefactError` unless `path` holds nothing but a checkpoint: complete, damaged or partly removed."""
    target = recover(Path(os.path.realpath(path)))
    if not target.exists():
        return
    foreign = sorted(set(os.listdir(target)) - _FILES) if target.is_dir() else [target.name]
    if foreign:
        raise ArtefactError(
            f"{target} holds {foreign[0]!r}, which is not part of a checkpoint and would be lost; move it away first"
        )


def remove_checkpoint(path: str | os.PathLike[str]) -> None:
    """Remove a checkpoint, after `check_replaceable`; if a kill leaves a part of it, that can be removed again."""
    check_replaceable(path)
    if os.path.exists(path):
        shutil.rmtree(os.path.realpath(path))


@contextmanager
def resuming(path: str | os.PathLike[str]) -> Iterator[None]:
    """A context that turns errors caused by an incomplete or unsuitable state in `path` into `ArtefactError` with a
    fix.

    For restoring stored state only: elsewhere these types of errors are bugs.
    """
    try:
        yield
    except InputError:
        raise
    except (KeyError, TypeError, ValueError, IndexError, AttributeError, RuntimeError, OverflowError) as error:
        what = f"it lacks {error}" if isinstance(error, KeyError) else str(error)
        raise ArtefactError(
            f"{path} does not fit this training ({what}); another version or another model wrote it: {_ANEW}"
        ) from error


def check_tensors(saved: dict[str, Any], expected: dict[str, Tensor]) -> None:
    """Raise `ValueError` unless both hold tensors of the same names and shapes."""
    if set(saved) != set(expected):
        raise ValueError(f"the weights differ in {sorted(set(saved) ^ set(expected))[0]!r}")
    for name, tensor in expected.items():
        if saved[name].shape != tensor.shape:
            raise ValueError(f"{name} has shape {tuple(saved[name].shape)}, here {tuple(tensor.shape)}")


def _encode(value: Any, arrays: dict[str, NDArray[Any]]) -> Any:
    """JSON for everything but arrays; objects with a `$` key represent types that JSON lacks."""
    if is_torch_array(value):
        import torch

        tensor = value.detach().cpu()
        if tensor.dtype == torch.bfloat16:
            # numpy has no bfloat16: its bits are stored as int16.
            return {"$bfloat16": _store(tensor.view(torch.int16).numpy(), arrays)}
        return {"$tensor": _store(tensor.numpy(), arrays)}
    if isinstance(value, np.ndarray):
        return {"$array": _store(value, arrays)}
    if isinstance(value, np.generic):
        return _encode(value.item(), arrays)
    if isinstance(value, dict):
        if all(isinstance(key, str) and not key.startswith("$") for key in value):
            return {key: _encode(inner, arrays) for key, inner in value.items()}
        return {"$dict": [[_encode(key, arrays), _encode(inner, arrays)] for key, inner in value.items()]}
    if isinstance(value, tuple):
        return {"$tuple": [_encode(inner, arrays) for inner in value]}
    if isinstance(value, list):
        return [_encode(inner, arrays) for inner in value]
    if isinstance(value, float) and not math.isfinite(value):
        return {"$float": str(value)}
    assert isinstance(value, str | int | float | bool | None), f"a checkpoint cannot hold a {type(value).__name__}"
    return value


def _store(array: NDArray[Any], arrays: dict[str, NDArray[Any]]) -> str:
    name = str(len(arrays))
    arrays[name] = array
    return name


def _decode(value: Any, arrays: dict[str, NDArray[Any]]) -> Any:
    if isinstance(value, list):
        return [_decode(inner, arrays) for inner in value]
    if not isinstance(value, dict):
        return value
    if len(value) != 1 or not (mark := next(iter(value))).startswith("$"):
        return {key: _decode(inner, arrays) for key, inner in value.items()}
    inner = value[mark]
    if mark in ("$tensor", "$bfloat16"):
        import torch

        tensor = torch.from_numpy(arrays[inner])
        return tensor if mark == "$tensor" else tensor.view(torch.bfloat16)
    if mark == "$array":
        return arrays[inner]
    if mark == "$dict":
        return {_decode(key, arrays): _decode(item, arrays) for key, item in inner}
    if mark == "$tuple":
        return tuple(_decode(item, arrays) for item in inner)
    if mark != "$float":
        raise ValueError(f"{_TEXT} has the mark {mark!r}")
    return float(inner)
