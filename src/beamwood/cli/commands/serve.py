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
from beamwood.cli.limits import parse_limits
from beamwood.cli.output import print_json
from beamwood.cli.quantities import parse_duration, parse_size
from beamwood.errors import InputError
from beamwood.extras import asking_for

if TYPE_CHECKING:
    from beamwood.serve.settings import ServeSettings

__all__ = ["serve"]

_Host = Annotated[
    str, typer.Option("--host", metavar="ADDRESS", help="Address to listen on; remote access needs --tokens.")
]
_Port = Annotated[int, typer.Option("--port", metavar="N", min=0, max=65535, help="Port; 0: any free port.")]
_Threads = Annotated[str, typer.Option("--threads", metavar="N", help="Parallel searches; auto: one per core.")]
_Items = Annotated[
    o.Text, typer.Option("--items", metavar="FILE", help="The item table, for fields of answers and filters.")
]
_Timeout = Annotated[str, typer.Option("--timeout", metavar="TIME", help="Maximum time of a request.")]
_MaxWait = Annotated[
    str, typer.Option("--max-wait", metavar="TIME", help="Reject requests with a longer expected wait.")
]
_MinBeam = Annotated[int, typer.Option("--min-beam", metavar="N", min=1, help="Minimum beam width under load.")]
_ByCategory = Annotated[
    bool,
    typer.Option(
        "--new-items-by-category", hidden=True, help="Place new items without other information by their category."
    ),
]
_FilterCache = Annotated[
    str, typer.Option("--filter-cache", metavar="SIZE", help="Size of the cache of prepared filters.")
]
_Tokens = Annotated[
    o.Text, typer.Option("--tokens", metavar="FILE", help="A file of tokens, with lines 'name scope,scope sha256'.")
]
_Insecure = Annotated[bool, typer.Option("--insecure", help="Allow remote requests and any host name without tokens.")]
_Rate = Annotated[
    float, typer.Option("--rate", metavar="N", min=0, help="Maximum requests per second and token; 0: any.")
]
_Cors = Annotated[
    o.Texts,
    typer.Option(
        "--cors",
        metavar="ORIGIN",
        hidden=True,
        help="Allow requests from pages of this origin, or of all: *; repeatable.",
    ),
]
_Store = Annotated[
    o.Text,
    typer.Option(
        "--store",
        metavar="ADDRESS",
        help="Histories: sqlite:PATH (default FOLDER.events.db), redis://.., postgresql://.., memory or FILE.py:PLACE.",
    ),
]
_KeepEvents = Annotated[
    o.Count, typer.Option("--keep-events", metavar="N", min=1, help="Retention: maximum events per user; default: all.")
]
_KeepDays = Annotated[
    o.Number,
    typer.Option("--keep-days", metavar="N", help="Retention: maximum age in days; default: unlimited."),
]
_KeepAnswers = Annotated[
    str,
    typer.Option(
        "--keep-answers",
        metavar="TIME",
        hidden=True,
        help="Retention: how long answers are stored, for hit rates and `explain`; 0s: none.",
    ),
]
_Models = Annotated[
    o.Text, typer.Option("--models-dir", metavar="FOLDER", help="Parent folder of other models that may be loaded.")
]
_Watch = Annotated[bool, typer.Option("--watch", help="Load newer models of --models-dir or a linked FOLDER.")]
_Drain = Annotated[str, typer.Option("--drain", metavar="TIME", help="Time to accept requests after SIGTERM.")]
_Grace = Annotated[
    str, typer.Option("--grace", metavar="TIME", hidden=True, help="Time to finish running requests after --drain.")
]
_Limit = Annotated[
    o.Texts,
    typer.Option("--limit", metavar="NAME=N", hidden=True, help="Limit of a request, such as k=2000; repeatable."),
]
_Log = Annotated[
    str, typer.Option("--log", metavar="WORD", help="Access log, one line per request: json, text or none.")
]
_LogUsers = Annotated[bool, typer.Option("--log-users", help="Log user ids in clear instead of hashed.")]
_Otlp = Annotated[o.Text, typer.Option("--otlp", metavar="URL", help="OpenTelemetry collector for a span per request.")]
_Page = Annotated[bool, typer.Option("--page/--no-page", help="Serve the page at /.")]
_Check = Annotated[bool, typer.Option("--check", help="Load, verify, answer one request, and exit with 0 or 2.")]


@dataclass(frozen=True, slots=True)
class ListenOptions:
    """The address, and access control."""

    host: _Host = "127.0.0.1"
    port: _Port = 8000
    tokens: _Tokens = None
    insecure: _Insecure = False
    rate: _Rate = 0.0
    cors: _Cors = None


@dataclass(frozen=True, slots=True)
class LoadOptions:
    """Limits of the load."""

    threads: _Threads = "auto"
    timeout: _Timeout = "500ms"
    max_wait: _MaxWait = "100ms"
    min_beam: _MinBeam = 50
    filter_cache: _FilterCache = "256MB"
    new_item_share: o.NewItemShare = None
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
    keep_answers: _KeepAnswers = "24h"


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
    """Serve recommendations over HTTP until stopped."""
    with asking_for("beamwood serve"):
        from beamwood.serve import check as checking
        from beamwood.serve.server import serve as run
        from beamwood.serve.store.open import check_address
    settings = _settings(folder, where, items, keeping, load, running, page)
    if method is not None:
        from beamwood.methods.reload import searchers_by_folder

        settings = replace(settings, searchers=searchers_by_folder(method, folder))
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
    run(folder, settings)


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
    from beamwood.serve.settings import ServeSettings
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
        keep_answers=parse_duration("--keep-answers", keeping.keep_answers),
        tokens=_path(where.tokens),
        insecure=where.insecure,
        items=_path(items),
        timeout=parse_duration("--timeout", load.timeout),
        max_wait=parse_duration("--max-wait", load.max_wait),
        min_beam=load.min_beam,
        filter_cache=parse_size("--filter-cache", load.filter_cache),
        watch=running.watch,
        models_dir=_path(running.models_dir),
        log=running.log,
        log_users=running.log_users,
        otlp=running.otlp,
        page=page,
        drain=parse_duration("--drain", running.drain),
        grace=parse_duration("--grace", running.grace),
        cors=tuple(where.cors or ()),
        rate=where.rate,
        by_category=load.new_items_by_category,
        limits=parse_limits(load.limit or ()).with_new_item_share(load.new_item_share),
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
    if settings.models_dir is not None and not os.path.isdir(settings.models_dir):
        raise InputError(f"--models-dir {settings.models_dir} is not a folder")
    if settings.watch and settings.models_dir is None and not os.path.islink(folder):
        raise InputError("--watch needs --models-dir, or a FOLDER that is a link to the current model")


def _path(text: str | None) -> Path | None:
    return None if text is None else Path(text)
