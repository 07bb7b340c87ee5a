"""What `beamwood recommend` asks: the model of a folder, alone or with the store of its server."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from beamwood import load
from beamwood.cli.query_rows import AskedOptions, QueryRows
from beamwood.cli.stores import reading_store
from beamwood.retrieval.batch.group_answers import AnswerRows, OfRetriever

if TYPE_CHECKING:
    from beamwood.retrieval.request import Recommendations, Request
    from beamwood.retrieval.resolve import Names
    from beamwood.retrieval.retriever import Retriever
    from beamwood.serve.offline import StoreAnswers
    from beamwood.types import QueryNeeds

__all__ = ["Answering", "answering", "open_alone"]


class Answering(Protocol):
    """A model that answers; `reopened`: the same in another process, with a number of threads."""

    @property
    def names(self) -> Names: ...
    @property
    def needs(self) -> QueryNeeds: ...
    @property
    def answer_rows(self) -> AnswerRows: ...
    @property
    def reopened(self) -> Callable[[int], AnswerRows]: ...

    def rows_of(self, asking: AskedOptions, on_unknown: str, interrupted: Path | None) -> QueryRows:
        """The rows; `interrupted`: the output of an interrupted job, which goes on with its own rows."""
        ...

    def recommendations(self, request: Request) -> Recommendations:
        """The answers to a request."""
        ...


@contextmanager
def answering(
    folder: str, method: str | None, threads: int, store: str | None, new_item_share: float | None
) -> Iterator[Answering]:
    """A context with the model open. Errors: those of `load` and `reading_store`."""
    place, file = str(Path(folder).absolute()), None if method is None else str(Path(method).absolute())
    if store is None:
        yield _Alone(load(folder, method, threads=threads), partial(open_alone, place, file))
        return
    with reading_store(store, "beamwood recommend --store") as opened:
        from beamwood.serve.offline import open_with_store
        from beamwood.serve.store.open import absolute_address

        answers = open_with_store(folder, opened, method, threads, new_item_share=new_item_share)
        address = absolute_address(store)
        yield _WithStore(answers, partial(open_with_store, place, address, file, new_item_share=new_item_share))


def open_alone(folder: str, method: str | None, threads: int) -> AnswerRows:
    """The model of a folder without a store, also on another machine. Errors: those of `load`."""
    return OfRetriever(load(folder, method, threads=threads))


@dataclass(frozen=True, slots=True)
class _Alone:
    """See `Answering`."""

    retriever: Retriever
    reopened: Callable[[int], AnswerRows]

    @property
    def names(self) -> Names:
        return self.retriever.names

    @property
    def needs(self) -> QueryNeeds:
        return self.retriever.searcher.needs

    @property
    def answer_rows(self) -> AnswerRows:
        return OfRetriever(self.retriever)

    def rows_of(self, asking: AskedOptions, on_unknown: str, interrupted: Path | None) -> QueryRows:
        del interrupted
        return asking.of(self.retriever, on_unknown)

    def recommendations(self, request: Request) -> Recommendations:
        return self.retriever.answer(request)


@dataclass(frozen=True, slots=True)
class _WithStore:
    """See `Answering`."""

    answers: StoreAnswers
    reopened: Callable[[int], AnswerRows]

    @property
    def names(self) -> Names:
        return self.answers.snapshot.names

    @property
    def needs(self) -> QueryNeeds:
        return self.answers.snapshot.searcher.needs

    @property
    def answer_rows(self) -> AnswerRows:
        return self.answers

    def rows_of(self, asking: AskedOptions, on_unknown: str, interrupted: Path | None) -> QueryRows:
        from beamwood.retrieval.batch.job import added_rows

        added = None if interrupted is None else added_rows(interrupted)
        return asking.of_store(self.answers, on_unknown, added)

    def recommendations(self, request: Request) -> Recommendations:
        return self.answers.recommendations(request)
