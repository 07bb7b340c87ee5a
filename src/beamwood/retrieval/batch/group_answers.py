"""The answers to the groups of a batch job, encoded for its file; an engine computes groups in any order.

The options of a group can be sent to another process, the model cannot.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import polars as pl

from beamwood.blocks import slices
from beamwood.kernels.arrays import sound
from beamwood.retrieval.request import Request
from beamwood.retrieval.retriever import Retriever

__all__ = ["AnswerRows", "Engine", "Group", "GroupAnswers", "GroupOptions", "OfRetriever", "in_process"]

# Rows of one search, whose histories are in memory for each thread.
_ROWS = 250


@dataclass(frozen=True, slots=True)
class Group:
    """Rows of a batch job, users or histories, with their labels; `number`: its position in the output."""

    number: int
    rows: Sequence[Any]
    labels: Sequence[Any]


@dataclass(frozen=True, slots=True)
class GroupOptions:
    """What all groups of a job share: the `request` without rows, and how answers are written.

    `by_users`: rows are user ids, not histories; `label_type`: the polars type of labels; `suffix`: of the file.
    """

    request: Request
    by_users: bool
    label_type: Any
    suffix: str
    threads: int = 1


AnswerRows = Callable[[GroupOptions, Sequence[Any]], pl.DataFrame]
"""The answers to rows, best first: columns row (its position), rank from 1, item, score. Called by several threads."""

Engine = Callable[[GroupOptions, Iterable[Group]], Iterator[tuple[int, bytes]]]
"""Yields the number and the encoded answers of each group, in any order."""


@dataclass(frozen=True, slots=True)
class OfRetriever:
    """The answers of a retriever alone."""

    retriever: Retriever

    def __call__(self, options: GroupOptions, rows: Sequence[Any]) -> pl.DataFrame:
        users, histories = (rows, None) if options.by_users else (None, rows)
        hits, _ = self.retriever.hits(replace(options.request, users=users, histories=histories))
        found = hits.items >= 0
        sound(hits.scores[found])
        # Built from whole columns, which is faster than by rows.
        row_of, places = np.nonzero(found)
        items = self.retriever.items
        return pl.DataFrame(
            {
                "row": row_of,
                "rank": (places + 1).astype(np.int32),
                "item": pl.Series(items.decode(hits.items[found]), dtype=items.dtype),
                "score": hits.scores[found].astype(np.float64),
            }
        )


@dataclass(frozen=True, slots=True)
class GroupAnswers:
    """The answers to groups, in the form of the file."""

    answer_rows: AnswerRows
    options: GroupOptions

    def encoded(self, group: Group) -> bytes:
        """The answers as bytes of the file's format, without a header where lines are concatenated."""
        frame, buffer = self.frame(group), io.BytesIO()
        if self.options.suffix == ".parquet":
            frame.write_parquet(buffer)
        elif self.options.suffix == ".csv":
            frame.write_csv(buffer, include_header=False)
        else:
            frame.write_ndjson(buffer)
        return buffer.getvalue()

    def frame(self, group: Group) -> pl.DataFrame:
        """One row a recommendation, in the order of the queries, computed by several threads."""
        cuts = list(slices(len(group.rows), _ROWS)) or [slice(0, 0)]
        blocks = [(group.rows[cut], group.labels[cut]) for cut in cuts]
        if self.options.threads == 1 or len(blocks) == 1:
            return pl.concat([self._frame(*block) for block in blocks])
        with ThreadPoolExecutor(self.options.threads) as pool:
            return pl.concat(pool.map(self._frame, *zip(*blocks, strict=True)))

    def _frame(self, rows: Sequence[Any], labels: Sequence[Any]) -> pl.DataFrame:
        answers = self.answer_rows(self.options, rows)
        named = pl.Series(labels, dtype=self.options.label_type)
        return answers.select(named.gather(answers["row"]).alias("query"), "rank", "item", "score")


def in_process(answer_rows: AnswerRows) -> Engine:
    """An engine that answers the groups here, in order."""

    def compute(options: GroupOptions, groups: Iterable[Group]) -> Iterator[tuple[int, bytes]]:
        answers = GroupAnswers(answer_rows, options)
        return ((group.number, answers.encoded(group)) for group in groups)

    return compute
