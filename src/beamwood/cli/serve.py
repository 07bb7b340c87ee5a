"""`beamwood serve`: recommendations over HTTP from a saved retriever."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from beamwood.artefact import read_artefact
from beamwood.cli import options as o
from beamwood.cli.expand import expanded
from beamwood.cli.output import print_json
from beamwood.errors import InputError
from beamwood.extras import asking_for

if TYPE_CHECKING:
    from beamwood.serve.settings import ServeSettings

__all__ = ["serve"]

_Host = Annotated[
    str, typer.Option("--host", metavar="ADDRESS", help="Where to listen; others than this machine need --tokens.")
]
_Port = Annotated[int, typer.Option("--port", metavar="N", min=0, max=65535, help="0: any free one.")]
_Threads = Annotated[str, typer.Option("--threads", metavar="N", help="Searches at once; auto: one a core.")]
_Items = Annotated[
    o.Text, typer.Option("--items", metavar="FILE", help="A table of items: fields of answers and filters.")
]
_Timeout = Annotated[str, typer.Option("--timeout", metavar="TIME", help="An answer later than this is given up.")]
_MaxWait = Annotated[str, typer.Option("--max-wait", metavar="TIME", help="Who would wait longer is refused at once.")]
_MinBeam = Annotated[int, typer.Option("--min-beam", metavar="N", min=1, help="Under load beams narrow down to this.")]
_NewItems = Annotated[
    float,
    typer.Option(
        "--new-item-share", metavar="SHARE", min=0, max=1, help="Places of an answer at most for items after the fit."
    ),
]
_ByCategory = Annotated[
    bool,
    typer.Option(
        "--new-items-by-category", hidden=True, help="A category places a new item of which nothing else is known."
    ),
]
_FilterCache = Annotated[str, typer.Option("--filter-cache", metavar="SIZE", help="Room for prepared filters.")]
_Tokens = Annotated[o.Text, typer.Option("--tokens", metavar="FILE", help="Lines 'name scope,scope sha256' of tokens.")]
_Insecure = Annotated[bool, typer.Option("--insecure", help="Let others ask without tokens.")]
_Rate = Annotated[float, typer.Option("--rate", metavar="N", min=0, help="Requests a second of each token; 0: any.")]
_Cors = Annotated[
    o.Texts,
    typer.Option("--cors", metavar="ORIGIN", hidden=True, help="Pages of this origin may ask; may be given again."),
]
_Forwarded = Annotated[
    o.Text, typer.Option("--forwarded-allow", metavar="IPS", hidden=True, help="Proxies whose headers are believed.")
]
_Store = Annotated[
    o.Text,
    typer.Option(
        "--store",
        metavar="ADDRESS",
        help="Of histories: sqlite:PATH (FOLDER.events.db unless given), redis://.., postgresql://.. or memory.",
    ),
]
_KeepEvents = Annotated[
    o.Count, typer.Option("--keep-events", metavar="N", min=1, help="Keep so many events of a user; all unless given.")
]
_KeepDays = Annotated[
    o.Number, typer.Option("--keep-days", metavar="N", help="Keep events so long; for ever unless given.")
]
_Models = Annotated[o.Text, typer.Option("--models-dir", metavar="FOLDER", help="Below it other models may be loaded.")]
_Watch = Annotated[bool, typer.Option("--watch", help="Load a newer model of --models-dir, or of a linked FOLDER.")]
_Drain = Annotated[str, typer.Option("--drain", metavar="TIME", help="After SIGTERM requests come in so long.")]
_Grace = Annotated[
    str, typer.Option("--grace", metavar="TIME", hidden=True, help="After --drain, what runs is finished within this.")
]
_Limit = Annotated[
    o.Texts,
    typer.Option(
        "--limit", metavar="NAME=N", hidden=True, help="How much one request may ask: k=2000; may be given again."
    ),
]
_Log = Annotated[str, typer.Option("--log", metavar="WORD", help="A line a request, as json or text; none: no lines.")]
_LogUsers = Annotated[bool, typer.Option("--log-users", help="User ids in the log as they are, not hashed.")]
_Otlp = Annotated[o.Text, typer.Option("--otlp", metavar="URL", help="The collector of a span of each request.")]
_Page = Annotated[bool, typer.Option("--page/--no-page", help="The page at /.")]
_Check = Annotated[bool, typer.Option("--check", help="Load, verify, answer once, and exit 0 or 2.")]


@dataclass(frozen=True, slots=True)
class ListenOptions:
    """The address, and access control."""

    host: _Host = "127.0.0.1"
    port: _Port = 8000
    tokens: _Tokens = None
    insecure: _Insecure = False
    rate: _Rate = 0.0
    cors: _Cors = None
    forwarded_allow: _Forwarded = None


@dataclass(frozen=True, slots=True)
class LoadOptions:
    """Limits of the load."""

    threads: _Threads = "auto"
    timeout: _Timeout = "500ms"
    max_wait: _MaxWait = "100ms"
    min_beam: _MinBeam = 50
    filter_cache: _FilterCache = "256MB"
    new_item_share: _NewItems = 0.1
    new_items_by_category: _ByCategory = False
    limit: _Limit = None


@dataclass(frozen=True, slots=True)
class LifecycleOptions:
    """Models, and shutdown."""

    models_dir: _Models = None
    watch: _Watch = False
    drain: _Drain = "5s"
    grace: _Grace = "30s"
    log: _Log = "json"
    log_users: _LogUsers = False
    otlp: _Otlp = None


@dataclass(frozen=True, slots=True)
class StoreOptions:
    """The store of histories, and their retention."""

    store: _Store = None
    keep_events: _KeepEvents = None
    keep_days: _KeepDays = None


@expanded
def serve(
    folder: o.FittedFolder,
    *,
    where: ListenOptions,
    items: _Items = None,
    keeping: StoreOptions,
    load: LoadOptions,
    running: LifecycleOptions,
    method: o.MethodFile = None,
    page: _Page = True,
    check: _Check = False,
    json: o.Json = False,
) -> None:
    """Answer over HTTP until it is told to stop."""
    with asking_for("beamwood serve"):
        from beamwood.serve import check as checking
        from beamwood.serve.server import serve as run
        from beamwood.serve.store.open import check_address
    settings = _settings(folder, where, items, keeping, load, running, page)
    if method is not None:
        from beamwood.methods.reload import searchers_of

        settings = replace(settings, searchers=searchers_of(method, folder))
    if check:
        check_address(settings.store)
        found = checking.check(folder, replace(settings, store="memory"))
        if json:
            print_json(found)
        else:
            print("ok: " + ", ".join(f"{name} {value}" for name, value in found.items()))
        return
    # The store's path is derived from the folder, so its existence is checked first.
    read_artefact(folder, kind="retriever", verify=False)
    code = run(folder, settings)
    if code:
        raise typer.Exit(code)


def _settings(
    folder: str,
    where: ListenOptions,
    items: str | None,
    keeping: StoreOptions,
    load: LoadOptions,
    running: LifecycleOptions,
    page: bool,
) -> ServeSettings:
    """The settings given by the options. Errors: invalid ones."""
    from beamwood.serve.settings import ServeSettings, limits_of, of_bytes, of_seconds
    from beamwood.serve.store.protocol import Retention

    if running.log not in ("json", "text", "none"):
        raise InputError(f"--log={running.log!r} is unknown; known: json, none, text")
    settings = ServeSettings(
        host=where.host,
        port=where.port,
        threads=_num_threads(load.threads),
        # Derived from the given name, also where that is "." or a link: beside the folder, not in it.
        store=f"sqlite:{os.path.abspath(folder)}.events.db" if keeping.store is None else keeping.store,
        retention=Retention(keeping.keep_events, keeping.keep_days),
        tokens=_path(where.tokens),
        insecure=where.insecure,
        items=_path(items),
        timeout=of_seconds("--timeout", load.timeout),
        max_wait=of_seconds("--max-wait", load.max_wait),
        min_beam=load.min_beam,
        filter_cache=of_bytes("--filter-cache", load.filter_cache),
        watch=running.watch,
        models_dir=_path(running.models_dir),
        log=running.log,
        log_users=running.log_users,
        otlp=running.otlp,
        page=page,
        drain=of_seconds("--drain", running.drain),
        grace=of_seconds("--grace", running.grace),
        forwarded_allow=where.forwarded_allow,
        cors=tuple(where.cors or ()),
        rate=where.rate,
        by_category=load.new_items_by_category,
        limits=replace(limits_of(load.limit or ()), new_item_share=load.new_item_share),
    )
    _check_models(settings, folder)
    return settings


def _num_threads(text: str) -> int:
    """The number, 0 for "auto". Errors: neither."""
    if text == "auto":
        return 0
    if not (text.isdecimal() and 1 <= int(text) <= 1024):
        raise InputError(f"--threads={text!r} is not a number of 1..1024; write auto for one a core")
    return int(text)


def _check_models(settings: ServeSettings, folder: str) -> None:
    """Errors: no source of other models."""
    if settings.models_dir is not None and not settings.models_dir.is_dir():
        raise InputError(f"--models-dir {settings.models_dir} is not a folder")
    if settings.watch and settings.models_dir is None and not Path(folder).is_symlink():
        raise InputError("--watch needs --models-dir, or a FOLDER that is a link to the current model")


def _path(text: str | None) -> Path | None:
    return None if text is None else Path(text)
