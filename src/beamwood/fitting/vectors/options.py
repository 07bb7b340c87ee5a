"""The options of every vector method's `fit` besides those of all methods."""

from __future__ import annotations

from typing import TYPE_CHECKING

from beamwood.fitting.options import TrainOptions

if TYPE_CHECKING:
    from beamwood.retrieval.index import Index

__all__ = ["VectorOptions"]


class VectorOptions(TrainOptions, total=False):
    """An option for a part of a user's own method, as `functools.partial(METHOD.fit, index=...)`.

    `index`: replaces the index of `index.kind`; loading such a folder needs it too
    (`retrieval.searchers.vectors.searcher_with`).
    """

    index: type[Index]
