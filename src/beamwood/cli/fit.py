"""`beamwood fit`: a log becomes a saved retriever."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from json import dumps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Optional

import typer

from beamwood.cli import options as o
from beamwood.cli.inputs import (
    Source,
    check_items_options,
    load_data,
    load_split,
    make_config,
    note,
    parse_duration,
    print_json,
)
from beamwood.errors import InputError

if TYPE_CHECKING:
    from beamwood.data import Split
    from beamwood.retrieval.retriever import Retriever

__all__ = ["beside", "fit", "fit_method", "starting_anew"]

METHODS_OF = {
    "start": "methods that go on from a fitted model (lpo4rec, melt, cities)",
    "retriever": "two-stage",
    "ranker": "two-stage",
}


def fit(
    log: o.LogPath,
    out: Annotated[str, typer.Option("--out", help="The folder to save the retriever in.")],
    method: Annotated[
        str,
        typer.Option(
            "--method",
            help="Trees: dtr, tdm, jtm, otm, plt, din. Sequences: sasrec, gru4rec, caser, fmlp, lpo4rec, melt, cities. "
            "Others: two_tower, ranker, two-stage, popularity, cooccurrence, transitions, ease. dtr+ease adds the "
            "second's score to the first's, of which the settings are.",
        ),
    ] = "dtr",
    items: o.Items = None,
    split: o.SplitName = "users",
    seed: o.Seed = 2026,
    config: Annotated[Optional[str], typer.Option("--config", help="A TOML file of the method's settings.")] = None,  # noqa: UP045
    setting: Annotated[Optional[list[str]], typer.Option("--set", help="One setting, as key=value.")] = None,  # noqa: UP045
    start: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option("--from", help="Go on from a fitted model (lpo4rec, melt, cities)."),
    ] = None,
    retriever: Annotated[Optional[str], typer.Option("--retriever", help="First stage (method two-stage).")] = None,  # noqa: UP045
    ranker: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(
            "--ranker",
            help="Second stage (method two-stage): a fitted ranker, another retriever, cooccurrence, transitions or "
            "ease; else a ranker is trained.",
        ),
    ] = None,
    time_limit: o.TimeLimit = None,
    user_column: o.UserColumn = None,
    item_column: o.ItemColumn = None,
    time_column: o.TimeColumn = None,
    weight_column: o.WeightColumn = None,
    min_weight: o.MinWeight = None,
    boundary_column: o.Boundary = None,
    items_column: o.ItemsColumn = None,
    unlisted_items: o.Unlisted = "error",
    user_table: o.UserTable = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with a run that was interrupted.")] = False,
    overwrite: o.Overwrite = False,
    json: o.Json = False,
) -> None:
    """Train a method on the training part of LOG and save the retriever that is best on its validation part."""
    from beamwood.artefact import check_output
    from beamwood.methods import load_method
    from beamwood.methods.sums import check_counting, parts, with_counting

    check_output(out, overwrite=overwrite)
    limit = parse_duration(time_limit)
    first, *others = parts(method)
    module = load_method(first)
    check_counting(first, others)
    folders = {"start": ("--from", start), "retriever": ("--retriever", retriever), "ranker": ("--ranker", ranker)}
    given = {key: folder for key, (_, folder) in folders.items() if folder is not None}
    for key in given:
        if key not in module.Config.model_fields:
            raise InputError(f"{folders[key][0]} is not for {first}; it is for {METHODS_OF[key]}")
        if any(text.partition("=")[0].strip() == key for text in setting or []):
            raise InputError(f"{folders[key][0]} and --set {key}= name the same folder; give one of the two")
    chosen = make_config(module, config, [*(setting or []), *(f"{key}={dumps(f)}" for key, f in given.items())])
    source = Source(
        log,
        items,
        user_column,
        item_column,
        time_column,
        weight_column,
        boundary_column,
        items_column,
        unlisted_items,
        user_table,
        _circumstances(chosen),
        min_weight,
    )
    check_items_options(source)
    if not hasattr(module, "TRAINS") and (resume or limit is not None):
        note(f"{method} only counts and is never long about it: --resume and --time-limit have no use")
    if limit is not None and given.keys() == {"retriever", "ranker"}:
        note("two fitted stages are only put together: --time-limit has no use")
    if user_table is not None and not getattr(chosen, "user_columns", ()):
        note(
            "--user-table has no use without columns of it in user_columns (--set), which methods that rank pairs have"
        )
    data = load_split(load_data(source), split, {"seed": seed})
    began = time.perf_counter()
    fitted = fit_method(
        module, data, chosen, out=out, seed=seed, limit=limit, resume=resume, overwrite=overwrite, source=source
    )
    fitted = with_counting(fitted, others, data, seed=seed)
    fitted.save(out, overwrite=overwrite)
    document = {
        "out": out,
        "method": method,
        "seconds": round(time.perf_counter() - began, 2),
        "training": fitted.metadata["training"],
        "data": fitted.metadata["data"],
    }
    if json:
        print_json(document)
        return
    print(f"saved {method} in {out} after {document['seconds']} s")
    for name, value in fitted.metadata["training"].items():
        print(f"  {name}: {value}")
    note(f"next: beamwood evaluate {out}")


def _circumstances(config: Any) -> tuple[str, ...]:
    """The columns of the log that a method, or a fitted stage that it builds on, looks at."""
    from beamwood.data.features import name_and_kind
    from beamwood.retrieval.retriever import Retriever
    from beamwood.types import context_columns

    names = [name_and_kind(name)[0] for name in getattr(config, "context_columns", ())]
    for folder in (getattr(config, "retriever", None), getattr(config, "ranker", None)):
        if folder is not None and os.path.isdir(folder):
            names += context_columns(Retriever.load(folder).searcher)
    return tuple(dict.fromkeys(names))


def fit_method(
    module: Any,
    split: Split,
    config: Any,
    *,
    out: str,
    seed: int,
    limit: float | None = None,
    resume: bool = False,
    overwrite: bool = False,
    source: Source | None = None,
) -> Retriever:
    """Train with a run folder beside `out`, and note in the retriever where its data came from."""
    options: dict[str, Any] = {}
    if hasattr(module, "TRAINS"):
        from beamwood.training.run_folder import RunFolder

        run = RunFolder(beside(out, ".run"), overwrite=overwrite)
        run.check(resume=resume)
        options = {"run": run, "time_limit": limit, "resume": resume}
    retriever: Retriever = module.fit(split, config, seed=seed, **options)
    origin = {"source": source.as_dict() if source else None, "split": {"name": split.name, "options": split.options}}
    return replace(retriever, metadata=retriever.metadata | origin)


@contextmanager
def starting_anew(fix: str) -> Iterator[None]:
    """Within it an interrupted training says `fix` instead of how to resume, which only `fit` can."""
    from beamwood.training.interrupt import Interrupted

    try:
        yield
    except Interrupted:
        raise Interrupted(f"interrupted; {fix}") from None


def beside(out: str, suffix: str) -> Path:
    """What is kept beside the output folder: "runs/mine.run" for "runs/mine" and for "runs/mine/"."""
    return Path(f"{os.path.abspath(out)}{suffix}")
