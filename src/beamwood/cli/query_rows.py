"""The users or histories that `beamwood recommend` answers."""

from __future__ import annotations

import json
import shlex
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import polars as pl
import typer

from beamwood.cli import options as o
from beamwood.cli.listed import parse_history, read_history_lines, read_id_lines, read_lines
from beamwood.errors import InputError, UnknownIdError
from beamwood.retrieval.resolve import of_users
from beamwood.steps import tell
from beamwood.words import counted

if TYPE_CHECKING:
    from beamwood.data.vocabularies.vocabulary import Vocabulary
    from beamwood.retrieval.retriever import Retriever
    from beamwood.serve.offline import StoreAnswers

__all__ = ["AskedOptions", "QueryRows", "tell_ignored"]

_HISTORY_HELP = 'Item ids, oldest first: 5,9,2; ids with commas as JSON: ["a,b", "c"].'
_User = Annotated[o.Texts, typer.Option("--user", metavar="ID", help="A user of the log; repeatable.")]
_Users = Annotated[o.Text, typer.Option("--users", metavar="FILE", help="A file of user ids, one per line.")]
_History = Annotated[o.Texts, typer.Option("--history", metavar="IDS", help=_HISTORY_HELP)]
_Histories = Annotated[
    o.Text,
    typer.Option("--histories", metavar="FILE", help="A file of histories, one per line, in the form of --history."),
]
_AllUsers = Annotated[bool, typer.Option("--all-users", help="All users of the log; requires --out.")]


@dataclass(frozen=True, slots=True)
class QueryRows:
    """The rows, user ids or histories of item ids, and their labels as text or ids.

    `id_type`: the Polars type of the rows where a file has them as its labels, else None. `added`: the last of the rows
    where users of a store follow those of the model.
    """

    labels: Sequence[Any]
    rows: Sequence[Any]
    by_users: bool
    id_type: Any = None
    added: Sequence[int | str] = ()

    @property
    def queries(self) -> list[Any]:
        """The rows as JSON names them: users by id, as the log has it; unknown users and histories as typed."""
        if not self.by_users:
            return list(self.labels)
        return [label if row is None else row for label, row in zip(self.labels, self.rows, strict=True)]


@dataclass(frozen=True, slots=True)
class AskedOptions:
    """The users or histories to answer, individually or by a file."""

    user: _User = None
    users: _Users = None
    history: _History = None
    histories: _Histories = None
    all_users: _AllUsers = False

    def of(self, retriever: Retriever, on_unknown: str) -> QueryRows:
        """The rows for a retriever. Errors: none, more than one source, an empty file, users where none are stored."""
        self._check()
        if self._gives_histories:
            return self._histories(retriever.items, on_unknown)
        if retriever.users is None:
            raise InputError("this folder keeps no users; give --history")
        if self.all_users:
            every = retriever.users.decode(np.arange(len(retriever.users)))
            return QueryRows(every, every, True, retriever.users.dtype)
        names = self._names(retriever.users)
        with of_users(retriever.searcher.needs):
            rows = retriever.users.parse_all(names, on_unknown=on_unknown)
        if on_unknown == "ignore":
            tell_ignored("user", names, rows, retriever.users)
        # Users from a file get the log's type, unless one does not convert.
        return QueryRows(names, rows, True, None if None in rows else retriever.users.dtype)

    def of_store(self, answers: StoreAnswers, on_unknown: str, added: list[int | str] | None) -> QueryRows:
        """The rows for a model with a server's store; `added`: the store's own users in an interrupted job.

        Errors: see `of`; a user whom neither the model nor the store knows.
        """
        self._check()
        names = answers.snapshot.names
        if self._gives_histories:
            return self._histories(names.items, on_unknown)
        if self.all_users:
            own, alone = answers.users()
            alone = alone if added is None else added
            return _of_json_ids([*own, *alone], alone)
        rows = [answers.user_of(text) for text in self._names(names.users)]
        unknown = answers.unknown(rows)
        if on_unknown == "ignore":
            _tell_of("user", unknown, len(rows))
        elif unknown:
            raise UnknownIdError(
                f"{len(unknown)} of {len(rows)} users have no history in the model or the store, such as "
                f"{unknown[0]!r}; leave them out or pass on_unknown='ignore'"
            )
        return _of_json_ids(rows)

    @property
    def _gives_histories(self) -> bool:
        return bool(self.history or self.histories)

    def _check(self) -> None:
        if bool(self.user or self.users) + self._gives_histories + self.all_users != 1:
            raise InputError("give one of --user (or --users FILE), --history (or --histories FILE) and --all-users")

    def _names(self, users: Vocabulary | None) -> list[str]:
        if self.users is None:
            return self.user or []
        lines = read_lines(self.users, "--users") if users is None else read_id_lines(self.users, "--users", users)
        return [*(self.user or []), *lines]

    def _histories(self, items: Vocabulary, on_unknown: str) -> QueryRows:
        texts = [*(self.history or []), *(read_history_lines(self.histories, items) if self.histories else [])]
        rows = [_items_of(text, items, on_unknown) for text in texts]
        if on_unknown == "ignore":
            named = [name for text in texts for name in parse_history(text)]
            tell_ignored("item", named, [item for row in rows for item in row], items)
        return QueryRows(texts, rows, False)


def tell_ignored(role: str, names: Sequence[str], ids: Sequence[Any], vocabulary: Vocabulary) -> None:
    """Tell of unknown ids, which are ignored: in a file of another form all may be."""
    known = np.array([each is not None for each in ids], bool)
    known[known] = vocabulary.encode([each for each in ids if each is not None], on_unknown="ignore") >= 0
    _tell_of(role, [name for name, is_known in zip(names, known.tolist(), strict=True) if not is_known], len(names))


def _tell_of(role: str, unknown: Sequence[Any], total: int) -> None:
    if unknown:
        tell(f"unknown and ignored: {len(unknown):,} of {counted(total, f'{role} id')}, such as {unknown[0]!r}")


def _of_json_ids(rows: list[int | str], added: Sequence[int | str] = ()) -> QueryRows:
    """Users with ids as in JSON; labels are text unless all are numbers."""
    numbers = all(isinstance(row, int) for row in rows)
    labels = [str(row) for row in rows]
    if not numbers:
        twice = [label for label, count in Counter(map(str, set(rows))).items() if count > 1]
        if twice:
            users = counted(len(twice), "user is", "users are")
            tell(f"{users} stored both as a number and as text, such as {twice[0]}; each has two lists")
    return QueryRows(labels, rows, True, _whole_type([int(row) for row in rows]) if numbers else None, added)


def _whole_type(numbers: list[int]) -> pl.DataType | None:
    """The type that holds all numbers of 64 bits, with or without a sign; None where none does."""
    if max(numbers, default=0) < 2**63:
        return pl.Int64()
    return pl.UInt64() if min(numbers) >= 0 else None


def _items_of(text: str, items: Vocabulary, on_unknown: str) -> list[Any]:
    """The items of one history. Errors: an unknown one; a text that is a single id with commas."""
    parsed = items.parse_all(parse_history(text), on_unknown=on_unknown)
    if "," in text and _all_known(items, [text]) and not _all_known(items, parsed):
        written = shlex.quote(json.dumps([text], ensure_ascii=False))
        raise InputError(f"{text!r} is one item, with a comma of its own; write a list of JSON: --history {written}")
    return parsed


def _all_known(items: Vocabulary, texts: list[Any]) -> bool:
    return bool(items.dtype == pl.String and (items.encode(texts, on_unknown="ignore") >= 0).all())
