"""`beamwood recommend`: items for users or histories, from a saved retriever."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import polars as pl
import typer

from beamwood.cli import options as o
from beamwood.cli.answering import answering
from beamwood.cli.expand import expanded
from beamwood.cli.interrupts import keeping
from beamwood.cli.listed import read_id_lines
from beamwood.cli.output import on_one_line, print_json
from beamwood.cli.query_rows import AskedOptions, QueryRows, tell_ignored
from beamwood.cli.shown import duration
from beamwood.cli.words import in_words_of
from beamwood.errors import InputError
from beamwood.steps import step, tell
from beamwood.words import counted

if TYPE_CHECKING:
    from beamwood.cli.answering import Answering
    from beamwood.retrieval.batch.group_answers import Engine
    from beamwood.retrieval.batch.job import Job
    from beamwood.retrieval.request import Allowed, Recommendations, Request
    from beamwood.retrieval.resolve import Names
    from beamwood.types import QueryNeeds

__all__ = ["allowed_of", "recommend"]

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
_Category = Annotated[
    o.Texts, typer.Option("--category", metavar="NAME", help="Only items of this category; repeatable.")
]
_AllowedItems = Annotated[
    o.Text, typer.Option("--allowed-items", metavar="FILE", help="A file of allowed item ids, one per line.")
]
_Where = Annotated[
    o.Text, typer.Option("--where", metavar="TEXT", help="Condition on item columns: 'price<=20 and brand in (a, b)'.")
]
_Store = Annotated[
    o.Text,
    typer.Option(
        "--store", metavar="ADDRESS", help="Include users, events and items of a server's store, such as sqlite:PATH."
    ),
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
class FileOptions:
    """The output file of many answers."""

    out: _Out = None
    threads: _Threads = 1
    ray_address: _RayAddress = None
    resume: _Resume = False
    overwrite: _Replace = False

    def target(self) -> Path | None:
        """The file, None without --out. Errors: see `check_file`."""
        from beamwood.retrieval.batch.job import check_file

        return None if self.out is None else check_file(self.out, overwrite=self.overwrite, resume=self.resume)

    def engine(self, model: Answering, folder: str, checksum: str) -> Engine:
        """What computes the groups: this process or a Ray cluster."""
        from beamwood.retrieval.batch.group_answers import in_process

        if self.ray_address is None:
            return in_process(model.answer_rows)
        from beamwood.scale.ray_groups import RayGroups

        return RayGroups(self.ray_address, Path(folder), checksum, model.reopened)


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
    store: _Store = None,
    new_item_share: o.StoredItemShare = None,
    writing: FileOptions,
    method: o.MethodFile = None,
    json: o.Json = False,
) -> None:
    """Recommend items to users of the log, or to given histories. Filters act inside the search."""
    from beamwood.retrieval.columns.where_text import parse_where
    from beamwood.retrieval.request import Request

    if writing.out is None and (asking.all_users or writing.resume or writing.overwrite or writing.ray_address):
        raise InputError(
            "--all-users, --resume, --overwrite and --ray-address are about a file; name it with --out recs.parquet"
        )
    if new_item_share is not None and store is None:
        raise InputError("--new-item-share is about the new items of a store; give --store, or leave it out")
    target = writing.target()
    # Before it is loaded: groups of a folder that is replaced meanwhile are gone on with by neither model.
    checksum = None if target is None else _checksum(folder)
    with answering(folder, method, writing.threads, store, new_item_share) as model:
        asked = model.rows_of(asking, on_unknown, target if writing.resume else None)
        request = Request(
            histories=None if asked.by_users else asked.rows,
            k=min(10, len(model.names.items)) if k is None else k,
            users=asked.rows if asked.by_users else None,
            allowed=allowed_of(model.names, category, allowed_items, on_unknown),
            context=parse_context(context, model.needs, len(asked.rows)),
            seen="keep" if include_seen else "remove",
            rejected="remove" if without_rejected else "keep",
            on_unknown=on_unknown,
            where=None if where is None else parse_where(where, model.names.filters.columns),
            effort=effort,
            beam_width=beam_width,
        )
        if target is None or checksum is None:
            _print_lists(asked, model.recommendations(request), json=json)
            return
        origin = " ".join(str(each) for each in (checksum, store, new_item_share) if each is not None)
        job = _job(request, asked, writing.engine(model, folder, checksum), origin, writing.threads)
        _run(job, target, resume=writing.resume, json=json)


def _print_lists(asked: QueryRows, found: Recommendations, *, json: bool) -> None:
    """The answer of each row under its label, with the reason of an empty one."""
    why = {row: in_words_of(recommend, reason) for row, reason in found.empty.items()}
    if json:
        print_json(
            [
                {"query": query, "items": items, "scores": scores} | ({"why": why[row]} if row in why else {})
                for row, (query, items, scores) in enumerate(
                    zip(asked.queries, found.item_ids, found.scores, strict=True)
                )
            ]
        )
        return
    for row, (label, items, scores) in enumerate(zip(asked.labels, found.item_ids, found.scores, strict=True)):
        label = on_one_line(label)
        print(label)
        if row in why:
            tell(f"{label}: no items, as {why[row]}")
        for rank, (item, score) in enumerate(zip(items, scores, strict=True), start=1):
            print(f"  {rank:>3}  {on_one_line(item)}  {score:z.4f}")


def _checksum(folder: str) -> str:
    from beamwood.artefact import read_artefact

    return str(read_artefact(folder, kind="retriever", verify=False).manifest["checksum"])


def _job(request: Request, asked: QueryRows, engine: Engine, origin: str, threads: int) -> Job:
    """The job of all rows. Errors: a context."""
    from beamwood.retrieval.batch.job import Job

    if request.context is not None:
        raise InputError("--context is not for --out; ask without a file")
    labels, label_type = (asked.labels, pl.String) if asked.id_type is None else (asked.rows, asked.id_type)
    return Job(engine, request, asked.rows, labels, asked.by_users, label_type, origin, threads, asked.added)


def _run(job: Job, target: Path, *, resume: bool, json: bool) -> None:
    """Run the job with progress, and say what was written."""
    kept = f"what is finished is in {target}.parts; the same command with --resume goes on"
    with step("answering", len(job.rows)) as answered_so_far, keeping(lambda: kept):

        def say(done: int, total: int, rate: float) -> None:
            answered_so_far.done = done
            tell(f"{done:,} of {total:,}, {rate:,.0f} a second, about {duration((total - done) / rate)} left")

        answered = job.run(target, resume=resume, say=say)
    with keeping(lambda: f"{target} is saved"):
        _say_written(job, target, answered, json=json)


def _say_written(job: Job, target: Path, answered: int, *, json: bool) -> None:
    from beamwood.retrieval.batch.job import count_by_rank

    some, full = count_by_rank(target, 1, job.request.k)
    empty, short = len(job.rows) - some, some - full
    if json:
        counts = {"rows": len(job.rows), "answered": answered, "short": short, "empty": empty}
        print_json({"out": str(target)} | counts)
        return
    asked_for = counted(len(job.rows), *(("user",) if job.by_users else ("history", "histories")))
    print(f"wrote {target}: lists for {asked_for}, {answered:,} of them answered now")
    if short or empty:
        tell(
            f"{short:,} of the lists are shorter than {job.request.k}, and {empty:,} are empty, as no more items may "
            "be shown there"
        )


def allowed_of(names: Names, category: list[str] | None, allowed_items: str | None, on_unknown: str) -> Allowed | None:
    """The filter of --category or --allowed-items."""
    if category and allowed_items:
        raise InputError("give either --category or --allowed-items")
    if category:
        return {"category": category}
    if allowed_items is None:
        return None
    listed = read_id_lines(allowed_items, "--allowed-items", names.items)
    allowed = names.items.parse_all(listed, on_unknown=on_unknown)
    if on_unknown == "ignore":
        tell_ignored("item", listed, allowed, names.items)
    return allowed


def parse_context(texts: list[str] | None, needs: QueryNeeds, num_rows: int) -> dict[str, list[str]] | None:
    """The context of --context, the same for every row; values that training did not have are reported on stderr."""
    if not texts:
        return None
    values: dict[str, str] = {}
    for name, value in (parse_pair(text, needs.names) for text in texts):
        if name in values:
            raise InputError(f"--context gives '{name}' more than once; give one value for each column")
        values[name] = value
    notes = [column.unseen(values[column.name]) for column in needs.context if column.name in values]
    for note in dict.fromkeys(notes):
        if note is not None:
            tell(f"--context {note}")
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
