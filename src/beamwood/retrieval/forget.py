"""A retriever without stored data of users: of all, or of erased ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from beamwood.data.vocabularies.vocabulary import Vocabulary
from beamwood.errors import InputError
from beamwood.retrieval.retriever import Retriever

__all__ = ["without_erased", "without_users"]


def without_users(retriever: Retriever) -> Retriever:
    """The same model without users, which recommends for histories only. Errors: a model that needs known users."""
    if retriever.searcher.needs.users:
        raise InputError("this model holds weights of each training user; fit another method to drop histories")
    return replace(retriever, users=None, histories=None, rejected=None)


def without_erased(retriever: Retriever, users: Sequence[Any], until: float) -> tuple[Retriever, int]:
    """The same model without the ids and histories of some users, and how many of them it stored.

    `until`: the time in seconds of the last erasure, stored in the metadata as "erased_until". A model of known users
    keeps the ids, as its weights are in their order, and drops the histories. It does not store the time: a service
    must still not use these weights.
    """
    metadata = retriever.metadata | ({} if retriever.searcher.needs.users else {"erased_until": until})
    if retriever.users is None or retriever.histories is None:
        return replace(retriever, metadata=metadata), 0
    known = retriever.users.encode(list(users), on_unknown="ignore")
    is_erased = np.zeros(len(retriever.users), np.bool_)
    is_erased[known[known >= 0]] = True
    lists = (retriever.histories, retriever.rejected)
    if retriever.searcher.needs.users:
        histories, rejected = (None if each is None else each.keeping(~is_erased[each.rows]) for each in lists)
        return replace(retriever, histories=histories, rejected=rejected, metadata=metadata), int(is_erased.sum())
    kept = np.flatnonzero(~is_erased)
    vocabulary = Vocabulary(retriever.users.ids.gather(kept.tolist()))
    histories, rejected = (None if each is None else each.take(kept) for each in lists)
    left = replace(retriever, users=vocabulary, histories=histories, rejected=rejected, metadata=metadata)
    return left, int(is_erased.sum())
