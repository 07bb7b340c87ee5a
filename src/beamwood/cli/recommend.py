"""`beamwood recommend`: items for users or histories, from a saved retriever."""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import polars as pl
import typer

from beamwood import load
from beamwood.cli import options as o
from beamwood.cli.expand import expanded
from beamwood.cli.interrupts import keeping
from beamwood.cli.listed import parse_history, read_id_lines, read_lines
from beamwood.cli.output import print_json
from beamwood.cli.shown import duration
from beamwood.cli.words import in_words_of
from beamwood.errors import InputError
from beamwood.retrieval.resolve import of_users
from beamwood.steps import step, tell

if TYPE_CHECKING:
    from beamwood.data.vocabulary import Vocabulary
    from beamwood.retrieval.group_answers import Engine
    from beamwood.retrieval.request import Allowed, Recommendations, Request
    from beamwood.retrieval.retriever import Retriever

__all__ = ["allowed_of", "recommend"]

_HISTORY_HELP = 'Item ids, oldest first: 5,9,2; ids with commas as JSON: ["a,b", "c"].'
_User = Annotated[o.Texts, typer.Option("--user", metavar="ID", help="A user of the log; repeatable.")]
_Users = Annotated[o.Text, typer.Option("--users", metavar="FILE", help="A file of user ids, one per line.")]
_Histories = Annotated[
    o.Text,
    typer.Option("--histories", metavar="FILE", help="A file of histories, one per line, in the form of --history."),
]
_AllUsers = Annotated[bool, typer.Option("--all-users", help="All users of the log; requires --out.")]
_Out = Annotated[o.Text, typer.Option("--out", metavar="FILE", help="Write a .parquet, .csv or .jsonl file.")]
_Threads = Annotated[
    int, typer.Option("--threads", metavar="N", min=1, max=1024, help="Number of rows searched in parallel.")
]
_RayAddress = Annotated[
    o.Text,
    typer.Option("--ray-address", metavar="ADDRESS", help="Compute --out on a Ray cluster: auto, HOST:PORT, or local."),
]
_Resume = Annotated[bool, typer.Option("--resume", help="Continue an interrupted --out.")]
_Replace = Annotated[bool, typer.Option("--overwrite", help="Overwrite the file of --out.")]
_History = Annotated[o.Texts, typer.Option("--history", metavar="IDS", help=_HISTORY_HELP)]
_Category = Annotated[
    o.Texts, typer.Option("--category", metavar="NAME", help="Only items of this category; repeatable.")
]
_AllowedItems = Annotated[
    o.Text, typer.Option("--allowed-items", metavar="FILE", help="A file of allowed item ids, one per line.")
]
_Where = Annotated[
    o.Text, typer.Option("--where", metavar="TEXT", help="Condition on item columns: 'price<=20 and brand in (a, b)'.")
]
_IncludeSeen = Annotated[bool, typer.Option("--include-seen", help="Include seen items.")]
_WithoutRejected = Annotated[
    bool, typer.Option("--without-rejected", help="Exclude items whose latest event of the user is negative.")
]
_Context = Annotated[
    o.Texts,
    typer.Option("--context", metavar="NAME=VALUE", hidden=True, help="A context column of the model."),
]
_Effort = Annotated[
    o.Number,
    typer.Option("--effort", metavar="X", help="Trees only: search effort, from 0 (fastest) to 1 (full beam)."),
]
_BeamWidth = Annotated[
    o.Count, typer.Option("--beam-width", metavar="N", hidden=True, help="Trees only: width of a full beam.")
]
_OnUnknown = Annotated[str, typer.Option("--on-unknown", metavar="WORD", help="Unknown ids: error or ignore.")]


@dataclass(frozen=True, slots=True)
class AskedOptions:
    """The users or histories to answer, individually or by a file."""

    user: _User = None
    users: _Users = None
    history: _History = None
    histories: _Histories = None
    all_users: _AllUsers = False

    def of(self, retriever: Retriever, on_unknown: str) -> QueryRows:
        """The rows. Errors: none, more than one source, an empty file, users where none are stored."""
        given = [bool(self.user or self.users), bool(self.history or self.histories), self.all_users]
        if sum(given) != 1:
            raise InputError("give one of --user (or --users FILE), --history (or --histories FILE) and --all-users")
        if given[1]:
            texts = [*(self.history or []), *(read_lines(self.histories, "--histories") if self.histories else [])]
            parsed = [_items_of(text, retriever, on_unknown) for text in texts]
            return QueryRows(texts, parsed, False)
        if retriever.users is None:
            raise InputError("this folder keeps no users; give --history")
        if self.all_users:
            every = retriever.users.decode(np.arange(len(retriever.users)))
            return QueryRows(every, every, True)
        names = [*(self.user or []), *(read_id_lines(self.users, "--users", retriever.users) if self.users else [])]
        with of_users(retriever.searcher.needs):
            return QueryRows(names, retriever.users.parse_all(names, on_unknown=on_unknown), True)


def _items_of(text: str, retriever: Retriever, on_unknown: str) -> list[Any]:
    """The items of one history. Errors: an unknown one; a text that is a single id with commas."""
    ids = retriever.items
    parsed = ids.parse_all(parse_history(text), on_unknown=on_unknown)
    if "," in text and _all_known(ids, [text]) and not _all_known(ids, parsed):
        written = shlex.quote(json.dumps([text], ensure_ascii=False))
        raise InputError(f"{text!r} is one item, with a comma of its own; write a list of JSON: --history {written}")
    return parsed


def _all_known(ids: Vocabulary, texts: list[Any]) -> bool:
    return bool(ids.dtype == pl.String and (ids.encode(texts, on_unknown="ignore") >= 0).all())


@dataclass(frozen=True, slots=True)
class QueryRows:
    """The labels of the rows, and the rows: user ids, or histories of item ids."""

    labels: Sequence[Any]
    rows: Sequence[Any]
    by_users: bool


@dataclass(frozen=True, slots=True)
class FileOptions:
    """The output file of many answers."""

    out: _Out = None
    threads: _Threads = 1
    ray_address: _RayAddress = None
    resume: _Resume = False
    overwrite: _Replace = False


@expanded
def recommend(
    folder: o.FittedFolder,
    *,
    asking: AskedOptions,
    k: o.NumItems = None,
    category: _Category = None,
    where: _Where = None,
    allowed_items: _AllowedItems = None,
    include_seen: _IncludeSeen = False,
    without_rejected: _WithoutRejected = False,
    context: _Context = None,
    on_unknown: _OnUnknown = "error",
    effort: _Effort = None,
    beam_width: _BeamWidth = None,
    writing: FileOptions,
    method: o.MethodFile = None,
    json: o.Json = False,
) -> None:
    """Recommend items to users of the log, or to given histories. Filters act inside the search."""
    from beamwood.retrieval.request import Request
    from beamwood.retrieval.where_text import parse_where

    if writing.out is None and (asking.all_users or writing.resume or writing.overwrite or writing.ray_address):
        raise InputError(
            "--all-users, --resume, --overwrite and --ray-address are about a file; name it with --out recs.parquet"
        )
    # Before it is loaded: groups of a folder that is replaced meanwhile are gone on with by neither model.
    origin = None if writing.out is None else _checksum(folder)
    retriever = load(folder, method, threads=writing.threads)
    asked = asking.of(retriever, on_unknown)
    request = Request(
        histories=None if asked.by_users else asked.rows,
        k=min(10, len(retriever.items)) if k is None else k,
        users=asked.rows if asked.by_users else None,
        allowed=allowed_of(retriever, category, allowed_items, on_unknown),
        context=parse_context(context, retriever.searcher.needs.names, len(asked.rows)),
        seen="keep" if include_seen else "remove",
        rejected="remove" if without_rejected else "keep",
        on_unknown=on_unknown,
        where=None if where is None else parse_where(where, retriever.names.filters.columns),
        effort=effort,
        beam_width=beam_width,
    )
    if origin is not None:
        engine = None if writing.ray_address is None else _on_ray(writing.ray_address, folder, origin, method)
        _write_all(retriever, request, asked, origin, writing, engine, json=json)
        return
    _print_lists(asked.labels, retriever.answer(request), json=json)


def _print_lists(labels: Sequence[Any], found: Recommendations, *, json: bool) -> None:
    """The answer of each row under its label, with the reason of an empty one."""
    why = {row: in_words_of(("recommend",), reason) for row, reason in found.empty.items()}
    rows = enumerate(zip(labels, found.item_ids, found.scores, strict=True))
    if json:
        print_json(
            [
                {"query": label, "items": items, "scores": scores} | ({"why": why[row]} if row in why else {})
                for row, (label, items, scores) in rows
            ]
        )
        return
    for row, (label, items, scores) in rows:
        print(label)
        if row in why:
            tell(f"{label}: no items, as {why[row]}")
        for rank, (item, score) in enumerate(zip(items, scores, strict=True), start=1):
            print(f"  {rank:>3}  {item}  {score:.4f}")


def _checksum(folder: str) -> str:
    from beamwood.artefact import read_artefact

    return str(read_artefact(folder, kind="retriever", verify=False).manifest["checksum"])


def _on_ray(address: str, folder: str, checksum: str, method: str | None) -> Engine:
    from beamwood.scale.ray_groups import RayGroups

    return RayGroups(address, Path(folder), checksum, None if method is None else str(Path(method).absolute()))


def _write_all(
    retriever: Retriever,
    request: Request,
    asked: QueryRows,
    origin: str,
    writing: FileOptions,
    engine: Engine | None,
    *,
    json: bool,
) -> None:
    """The answers of all rows in one file, group by group."""
    from beamwood.retrieval.job import Job, check_file, count_by_rank

    assert writing.out is not None
    if request.context is not None:
        raise InputError("--context is not for --out; ask without a file")
    target = check_file(writing.out, overwrite=writing.overwrite, resume=writing.resume)
    # Users from a file get the log's type, unless one does not convert.
    labels = asked.rows if asked.by_users and None not in asked.rows else asked.labels
    job = Job(retriever, request, asked.rows, labels, asked.by_users, origin, writing.threads, engine)

    kept = f"what is finished is in {target}.parts; the same command with --resume goes on"
    with step("answering", len(asked.rows)) as answering, keeping(lambda: kept):

        def say(done: int, total: int, rate: float) -> None:
            answering.done = done
            tell(f"{done:,} of {total:,}, {rate:,.0f} a second, about {duration((total - done) / rate)} left")

        answered = job.run(target, resume=writing.resume, say=say)
    some, full = count_by_rank(target, 1, request.k)
    empty, short = len(asked.rows) - some, some - full
    if json:
        counts = {"rows": len(asked.rows), "answered": answered, "short": short, "empty": empty}
        print_json({"out": str(target)} | counts)
        return
    asked_for = "users" if asked.by_users else "histories"
    print(f"wrote {target}: lists for {len(asked.rows):,} {asked_for}, {answered:,} of them answered now")
    if short or empty:
        tell(
            f"{short:,} of the lists are shorter than {request.k}, and {empty:,} are empty, as no more items may be "
            "shown there"
        )


def allowed_of(
    retriever: Retriever, category: list[str] | None, allowed_items: str | None, on_unknown: str
) -> Allowed | None:
    """The filter of --category or --allowed-items."""
    if category and allowed_items:
        raise InputError("give either --category or --allowed-items")
    if category:
        return {"category": category}
    if allowed_items is None:
        return None
    listed = read_id_lines(allowed_items, "--allowed-items", retriever.items)
    return retriever.items.parse_all(listed, on_unknown=on_unknown)


def parse_context(texts: list[str] | None, known: Sequence[str], num_rows: int) -> dict[str, list[str]] | None:
    """The context of --context, the same for every row."""
    if not texts:
        return None
    values: dict[str, str] = {}
    for name, value in (parse_pair(text, known) for text in texts):
        if name in values:
            raise InputError(f"--context gives '{name}' more than once; give one value for each column")
        values[name] = value
    return {name: [value] * num_rows for name, value in values.items()}


def parse_pair(text: str, known: Sequence[str]) -> tuple[str, str]:
    """Name and value of "name=value", where a known name may contain "=" and blanks itself."""
    for name in sorted(known, key=len, reverse=True):
        if text.startswith(f"{name}="):
            return name, text.removeprefix(f"{name}=").strip()
    name, equals, value = text.partition("=")
    if not equals or not name.strip():
        raise InputError(f"--context {text!r} has no '='; write --context column=value")
    return name.strip(), value.strip()
