"""Ids as requests and answers have them, and their indices in a vocabulary."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from beamwood.data.vocabularies.open_vocabulary import OpenVocabulary, fitted_ids
from beamwood.data.vocabularies.vocabulary import Vocabulary
from beamwood.types import IndexArray

__all__ = ["in_folder", "indices_of", "told_ids", "typed_id", "without_index"]

# Integers in canonical form.
_WHOLE = re.compile(r"0|-?[1-9][0-9]{0,19}")


def indices_of(vocabulary: Vocabulary, ids: Sequence[Any]) -> NDArray[np.int32]:
    """int32, the index of each id of a body, -1 for an unknown one of any type.

    JSON ids are integers or text; ids of other types, such as dates, are looked up by their text.
    """
    table = fitted_ids(vocabulary).table
    if table is None:
        texts = vocabulary.parse_all([str(each) for each in ids], on_unknown="ignore")
        return vocabulary.encode(texts, on_unknown="ignore")
    if isinstance(vocabulary, OpenVocabulary):
        return vocabulary.opened(ids, indices_of(vocabulary.fitted, ids))
    found = table.find(ids)
    if found is not None:
        return found
    # Mixed types, or integers beyond the table's: one by one.
    each = [table.find([value]) for value in ids]
    return np.array([-1 if one is None else one[0] for one in each], np.int32)


def told_ids(vocabulary: Vocabulary, indices: IndexArray) -> list[Any]:
    """The ids of indices as JSON has them, and as the store does: a date or a time is text."""
    ids = vocabulary.decode(indices)
    if not vocabulary.dtype.is_temporal():
        return ids
    return [each.isoformat() if isinstance(each, dt.date | dt.time) else each for each in ids]


def in_folder(items: Vocabulary, ids: Sequence[Any]) -> NDArray[np.int32]:
    """int32, the index of each id in the model's folder, erased or not; -1 for any other."""
    return indices_of(fitted_ids(items), ids)


def without_index(ids: Sequence[Any], indices: NDArray[np.int32]) -> list[Any]:
    """The ids whose index is -1, without repeats."""
    return list(dict.fromkeys(each for each, at in zip(ids, indices.tolist(), strict=True) if at < 0))


def typed_id(text: str, vocabulary: Vocabulary | None) -> int | str:
    """The typed id of text from an address or form: an integer where the vocabulary's ids are.

    Without a vocabulary any canonical integer is one that a store accepts. Beyond 64 bits, with a sign or as the
    vocabulary without one, ids are text, as in a log.
    """
    numbers = vocabulary is None or vocabulary.dtype.is_integer()
    most = 2**64 if vocabulary is None or vocabulary.dtype == pl.UInt64 else 2**63
    return int(text) if numbers and _WHOLE.fullmatch(text) and -(2**63) <= int(text) < most else text
