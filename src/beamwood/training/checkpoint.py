"""A checkpoint: nested state of any shape as one artefact, tensors in safetensors, all else in JSON; never pickle."""

from __future__ import annotations

import json
import math
import os
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from beamwood.artefact import read_artefact, write_artefact

__all__ = ["load_checkpoint", "save_checkpoint"]

_TEXT = "state.json"


def save_checkpoint(path: str | os.PathLike[str], state: dict[str, Any]) -> None:
    """Save nested dicts, lists and tuples of tensors, arrays and scalars at `path`, in place of an older checkpoint.

    All or nothing: a kill leaves the older one whole. Raises `ArtefactError` when it cannot be written.
    """
    arrays: dict[str, NDArray[Any]] = {}
    text = json.dumps(_encode(state, arrays))
    write_artefact(
        path, manifest={"kind": "checkpoint"}, arrays={"tensors": arrays}, texts={_TEXT: text}, overwrite=True
    )


def load_checkpoint(path: str | os.PathLike[str]) -> dict[str, Any]:
    """What `save_checkpoint` was given, tensors on the CPU; raises `ArtefactError` when missing or damaged."""
    artefact = read_artefact(path, kind="checkpoint")
    state = _decode(json.loads(artefact.text(_TEXT)), artefact.arrays("tensors"))
    assert isinstance(state, dict)
    return state


def _encode(value: Any, arrays: dict[str, NDArray[Any]]) -> Any:
    """JSON for everything but arrays; each object with a `$` key stands for what JSON lacks."""
    if isinstance(value, Tensor):
        tensor = value.detach().cpu()
        if tensor.dtype == torch.bfloat16:
            # numpy has no bfloat16: its bits travel as int16.
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
    if mark == "$tensor":
        return torch.from_numpy(arrays[inner])
    if mark == "$bfloat16":
        return torch.from_numpy(arrays[inner]).view(torch.bfloat16)
    if mark == "$array":
        return arrays[inner]
    if mark == "$dict":
        return {_decode(key, arrays): _decode(item, arrays) for key, item in inner}
    if mark == "$tuple":
        return tuple(_decode(item, arrays) for item in inner)
    assert mark == "$float", f"unknown mark {mark!r}"
    return float(inner)
