"""`beamwood refit`: a fitted model fitted again on its whole log, or on a later one, for serving."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from beamwood.cli import options as o
from beamwood.cli.commands.fit import print_fit
from beamwood.cli.expand import expanded
from beamwood.cli.interrupts import keeping
from beamwood.cli.output import finish
from beamwood.cli.quantities import parse_time_limit
from beamwood.cli.runs import keeping_run
from beamwood.cli.start import StartOptions
from beamwood.cli.written import path_beside
from beamwood.errors import InputError, check_utf8
from beamwood.steps import tell

if TYPE_CHECKING:
    from beamwood.cli.data_source import DataSource
    from beamwood.recipes.refit import RefitPart
    from beamwood.training.run_folder import RunFolder

__all__ = ["refit"]


@expanded
def refit(
    folder: o.FittedFolder,
    *,
    out: Annotated[
        o.Text, typer.Option("--out", metavar="FOLDER", help="Output folder; default: the name of FOLDER with -refit.")
    ] = None,
    log: Annotated[
        o.Text,
        typer.Option("--log", metavar="FILE", help="A later log with the same columns. Default: that of the fit."),
    ] = None,
    items: Annotated[o.Text, typer.Option("--items", metavar="FILE", help="The item table of that log.")] = None,
    unlisted_items: o.RefitUnlistedItems = None,
    time_limit: o.TimeLimit = None,
    start: StartOptions,
    method: o.MethodFile = None,
    resume: Annotated[bool, typer.Option("--resume", help="Continue an interrupted run.")] = False,
    overwrite: o.Overwrite = False,
    json: o.Json = False,
) -> None:
    """Train a fitted model again, with its settings, on nearly all events of its log, also those that tested it."""
    from beamwood import load
    from beamwood.cli.origin import dataset_of, origin_of, with_origin
    from beamwood.data import SPLITS
    from beamwood.recipes import refit as recipe
    from beamwood.training.budget import Budget

    out = f"{os.path.normpath(folder)}-refit" if out is None else out
    start.check_apart(out)
    _check_places(folder, out, overwrite=overwrite)
    seconds = parse_time_limit(time_limit)
    limit = None if seconds is None else Budget(seconds, name="the refit")
    fitted = load(folder, method, verify=True)
    origin = origin_of(folder, fitted.metadata)
    run_of = _runs(out, recipe.refit_parts(fitted, method, start.folders), resume=resume, overwrite=overwrite)
    began = time.perf_counter()
    recorded = _recorded(origin.source, items, unlisted_items)
    dataset, source = dataset_of(folder, recorded, origin.read, log, items)
    split = SPLITS[origin.split.name](dataset, **origin.options)
    options: dict[str, Any] = {"method": method, "start": start.folders, "time_limit": limit}
    with keeping_run(out, resume=resume):
        both = recipe.refit(fitted, split, run_of=run_of, resume=resume, say=tell, **options)
        of = fitted.metadata.get("refit", {}).get("of", os.path.abspath(folder))
        both = replace(both, metadata=both.metadata | {"refit": both.metadata["refit"] | {"of": of}})
        with_origin(both, source, split).save(out, overwrite=overwrite)
    with keeping(lambda: f"{out} is saved"):
        document: dict[str, Any] = {
            "out": out,
            "method": both.metadata["method"],
            "seconds": round(time.perf_counter() - began, 2),
            "training": both.metadata["training"],
            "refit": both.metadata["refit"],
            "data": both.metadata["data"],
        }
        finish(document, lambda: print_fit(document, "beamwood", "serve", out), as_json=json)


def _recorded(source: DataSource, items: str | None, unlisted: str | None) -> DataSource:
    """The source of the fit, with another word for unlisted items. Errors: that word without an item table."""
    if unlisted is None:
        return source
    if source.items is None and items is None:
        raise InputError("--unlisted-items is for the item table; give one with --items, or leave the option out")
    return replace(source, unlisted=unlisted)


def _check_places(folder: str, out: str, *, overwrite: bool) -> None:
    """Errors: an output that may not be replaced; a fitted folder whose path the result cannot record."""
    from beamwood.artefact import check_output

    if os.path.isdir(folder) and os.path.realpath(folder) == os.path.realpath(out):
        raise InputError(f"--out {out} is the fitted folder itself; name another, so that it can still be evaluated")
    check_output(out, overwrite=overwrite)
    check_utf8(os.path.abspath(folder))


def _runs(out: str, parts: Sequence[RefitPart], *, resume: bool, overwrite: bool) -> Callable[[int], RunFolder]:
    """The run folder beside `out` of each part that trains, by its place. Errors: the first cannot be used."""
    trains = [part.trains for part in parts]

    def run_of(place: int) -> RunFolder:
        from beamwood.training.run_folder import RunFolder

        number = sum(trains[: place + 1])
        return RunFolder(path_beside(out, ".run" if number == 1 else f".run{number}"), overwrite=overwrite)

    if any(trains):
        run_of(trains.index(True)).check(resume=resume)
    elif resume:
        tell(f"{'+'.join(part.method.name for part in parts)} does not train by steps: --resume has no effect")
    return run_of
