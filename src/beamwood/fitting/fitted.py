"""Fitted folders as input of another training: checks that data and split agree, and their contents."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from typing import Any

from beamwood.artefact import read_manifest
from beamwood.data.split import Split
from beamwood.errors import InputError
from beamwood.retrieval.retriever import Retriever

__all__ = ["check_alike", "fitted_alike", "folder_digests", "method_of", "training_seconds"]


def fitted_alike(folder: str, split: Split) -> Retriever:
    """The retriever in a folder. Errors: those of `check_alike`."""
    fitted = Retriever.load(folder)
    check_alike(fitted, folder, split)
    return fitted


def method_of(fitted: Retriever) -> str:
    """The method that fitted it, for messages."""
    return str(fitted.metadata.get("method", fitted.searcher.kind))


def check_alike(fitted: Retriever, name: str, split: Split) -> None:
    """Errors: it was fitted on other data or another split, and so possibly on the test users, or needs context that
    the log lacks.
    """
    data = fitted.metadata.get("data")
    if not isinstance(data, dict):
        raise InputError(f"{name} does not say which data it was fitted on; fit it on the same log")
    if not fitted.items.ids.equals(split.dataset.items.ids):
        raise InputError(
            f"{name} was fitted on {len(fitted.items):,} items, here are {len(split.dataset.items):,}, or others; "
            "fit it on the same log and the same item table (--items)"
        )
    if data.get("fingerprint") != split.dataset.fingerprint():
        raise InputError(f"{name} was fitted on another log; fit it on the same one")
    if data.get("split") != split.rule:
        raise InputError(
            f"{name} was fitted on another split ({data.get('split')}), so it may have learned from this one's test "
            "users; fit it with the same --split and --seed"
        )
    given = () if split.dataset.context is None else split.dataset.context.columns
    lacking = [column for column in fitted.searcher.needs.names if column not in given]
    if lacking:
        raise InputError(
            f"{name} needs the context {lacking[0]!r}, without which the log was read; read it with "
            f"ColumnNames(context={(*given, *lacking)})"
        )


def folder_digests(settings: Mapping[str, Any]) -> dict[str, str]:
    """sha256 of the manifest in each fitted folder that a setting names: a path may hold another model later."""
    digests = {}
    for key, value in settings.items():
        if isinstance(value, str) and os.path.isfile(os.path.join(value, "manifest.json")):
            manifest = read_manifest(value)
            content = [manifest.get(part) for part in ("files", "searcher", "searcher_config")]
            digests[f"content of {key}"] = hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
    return digests


def training_seconds(fitted: Retriever) -> float:
    """The seconds of a retriever's training; 0 where not recorded."""
    training = fitted.metadata.get("training")
    seconds = training.get("seconds") if isinstance(training, dict) else None
    return float(seconds) if isinstance(seconds, int | float) else 0.0
