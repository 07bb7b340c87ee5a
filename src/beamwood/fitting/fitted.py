"""Fitted models as input of another fit: loading them, and checking that data and split are the same."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from typing import Any

from beamwood.artefact import read_manifest
from beamwood.data.split import Split
from beamwood.data.whole import is_whole
from beamwood.errors import InputError, UnknownSearcherError
from beamwood.retrieval.retriever import Retriever

__all__ = ["check_same_data", "load_fitted", "folder_digests", "method_of", "notes_of_fit", "training_seconds"]


def load_fitted(folder: str, split: Split) -> Retriever:
    """The fitted retriever in a folder, for a further fit on this split.

    Errors: those of `check_same_data`; a searcher that only a method file defines, which no fit is given.
    """
    try:
        fitted = Retriever.load(folder)
    except UnknownSearcherError as error:
        made_by = read_manifest(folder).get("method")
        raise InputError(
            f"{folder} holds {made_by}, whose searcher only its own file defines, so no other fit can start from it; "
            "give a folder of another method"
        ) from error
    check_same_data(fitted, folder, split)
    return fitted


def method_of(fitted: Retriever) -> str:
    """The name of the method that fitted it, for messages."""
    return str(fitted.metadata.get("method", fitted.searcher.kind))


def check_same_data(fitted: Retriever, name: str, split: Split) -> None:
    """Raise `InputError` where a retriever, `name` in messages, was fitted on other data or needs context columns that
    the log lacks. On another split it may have been fitted on the test users.
    """
    data = fitted.metadata.get("data")
    if not isinstance(data, dict):
        raise InputError(f"{name} does not record the data it was fitted on; fit it on the same log")
    fit_it = "refit it" if is_whole(split) else "fit it"
    if not fitted.items.ids.equals(split.dataset.items.ids):
        raise InputError(
            f"{name} was fitted on {len(fitted.items):,} items, here are {len(split.dataset.items):,}, or others; "
            f"{fit_it} on the same log and the same item table (--items)"
        )
    if data.get("fingerprint") != split.dataset.fingerprint():
        raise InputError(f"{name} was fitted on another log; {fit_it} on the same one")
    if data.get("split") != split.rule:
        if is_whole(split):
            raise InputError(
                f"{name} was not refitted on the whole log, as this model is; refit it, and put the new folder in its "
                "place"
            )
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
    """The sha256 of the content of each fitted folder that a setting names, as a path may later hold another model."""
    digests = {}
    for key, value in settings.items():
        if isinstance(value, str) and os.path.isfile(os.path.join(value, "manifest.json")):
            manifest = read_manifest(value)
            content = [manifest.get(part) for part in ("files", "searcher", "searcher_config")]
            digests[f"content of {key}"] = hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
    return digests


def notes_of_fit(fitted: Retriever) -> tuple[str, ...]:
    """What a fit did not look at: the earlier parts of very long histories, and what it left out for lack of time."""
    training = fitted.metadata.get("training")
    if not isinstance(training, dict):
        return ()
    capped = training.get("long_histories")
    return (*(() if capped is None else (capped,)), *training.get("left_out", ()))


def training_seconds(fitted: Retriever) -> float | None:
    """The seconds of a retriever's training; None where not recorded."""
    training = fitted.metadata.get("training")
    seconds = training.get("seconds") if isinstance(training, dict) else None
    return float(seconds) if isinstance(seconds, int | float) else None
