"""`beamwood fit`: a log becomes a saved retriever."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from json import dumps, loads
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from beamwood.cli import options as o
from beamwood.cli.data_source import DataSource, load_data, note_of_weights
from beamwood.cli.expand import expanded
from beamwood.cli.interrupts import keeping
from beamwood.cli.method_settings import make_config
from beamwood.cli.output import check_page, finish
from beamwood.cli.quantities import parse_time_limit
from beamwood.cli.runs import keeping_run
from beamwood.cli.search import BudgetOptions, FolderSearch
from beamwood.cli.splits import load_split
from beamwood.cli.start import StartOptions
from beamwood.cli.written import FitOptions, RunOptions, WrittenOptions, default_output, path_beside
from beamwood.errors import InputError, TimeLimitError
from beamwood.methods import METHODS
from beamwood.steps import tell
from beamwood.training.interrupt import Interrupted

if TYPE_CHECKING:
    from beamwood.data import Dataset, Split
    from beamwood.fitting.method_config import MethodConfig
    from beamwood.methods import Method
    from beamwood.retrieval.retriever import Retriever
    from beamwood.training.budget import Budget

__all__ = ["curve_of", "fit", "fit_method", "print_fit", "starting_anew"]

_METHOD_HELP = f"Default: find the best. Or {', '.join(METHODS)}; a sum, dtr+ease; FILE.py."


@dataclass(frozen=True, slots=True)
class SettingOptions:
    """The settings of a method."""

    preset: o.Preset = None
    config: Annotated[
        o.Text,
        typer.Option(
            "--config", metavar="FILE", hidden=True, help="A TOML file of settings, with one table per group."
        ),
    ] = None
    setting: Annotated[
        o.Texts,
        typer.Option("--set", metavar="NAME=VALUE", help="A setting; `beamwood settings METHOD` lists all."),
    ] = None

    def check_unused(self, others: Mapping[str, str | None]) -> None:
        """Errors: an option that belongs to a method, one of these or of `others`, where none is named."""
        given = {"--preset": self.preset, "--config": self.config, "--set": self.setting, **others}
        for option, value in given.items():
            if value:
                raise InputError(f"{option} belongs to a method; name it with --method, or leave {option} out")

    def of(self, method: Method, folders: Mapping[str, str]) -> MethodConfig:
        """The method's settings; `folders`: those that it starts from, by option.

        Errors: a folder that it does not take, or that is given twice.
        """
        from beamwood.methods import with_option

        known = {each.option: each.setting for each in method.needs.fitted}
        given = [*(self.setting or [])]
        for option, folder in folders.items():
            if option not in known:
                raise InputError(f"{option} is not for {method.name}; it is for {', '.join(with_option(option))}")
            name = known[option]
            if any(text.partition("=")[0].strip() == name for text in given):
                raise InputError(f"{option} and --set {name}= name the same folder; give one of the two")
            given.append(f"{name}={dumps(folder)}")
        return make_config(method, self.config, given, preset=self.preset)


@expanded
def fit(
    log: o.LogPath,
    *,
    out: Annotated[
        o.Text, typer.Option("--out", metavar="FOLDER", help="Output folder; default: runs/ and the log's name.")
    ] = None,
    method: Annotated[
        o.Text, typer.Option("--method", metavar="NAME", help=_METHOD_HELP, autocompletion=o.beginning(*METHODS))
    ] = None,
    split: o.SplitName = "users",
    seed: o.Seed = 2026,
    settings: SettingOptions,
    start: StartOptions,
    time_limit: o.TimeLimit = None,
    budgets: BudgetOptions,
    reading: o.ReadOptions,
    user_table: Annotated[
        o.Text,
        typer.Option("--user-table", metavar="FILE", hidden=True, help="The user table, for rankers that use it."),
    ] = None,
    keep_columns: Annotated[
        o.Text, typer.Option("--keep-columns", help="Item columns for `recommend --where`, such as price:number,brand.")
    ] = None,
    run: RunOptions,
    written: WrittenOptions,
    json: o.Json = False,
) -> None:
    """Find the best for LOG within a time limit, or train the method named; save what validation users like best."""
    out = default_output(log) if out is None else out
    start.check_apart(out)
    if written.html is not None:
        _check_apart(out, written.html)
        check_page(written.html)
    asked = FitOptions(out, _budget(time_limit, method), seed, run, written)
    if method is None:
        settings.check_unused({**start.folders, "--user-table": user_table, "--tensorboard": run.tensorboard})
        source = DataSource.of(log, reading, keep_columns=keep_columns)
        search = FolderSearch(asked, budgets, source)
        search.run(lambda: load_split(_read(source), split, {"seed": seed}), as_json=json)
        return
    budgets.check_unused(method)

    def source_of(first: Method, config: MethodConfig) -> DataSource:
        return DataSource.of(
            log,
            reading,
            user_table=user_table,
            context=_context_columns(first, config),
            keep_columns=keep_columns,
        )

    _fit_named(method, asked, settings, start, source_of, split, as_json=json)


def _check_apart(out: str, html: str) -> None:
    """Errors: the page lies in the output."""
    if os.path.realpath(out) in (page := os.path.realpath(html), *map(str, Path(page).parents)):
        raise InputError(f"--html {html} is in --out {out}, which holds nothing else; name a file outside it")


def _fit_named(
    method: str,
    asked: FitOptions,
    settings: SettingOptions,
    start: StartOptions,
    source_of: Callable[[Method, MethodConfig], DataSource],
    split: str,
    *,
    as_json: bool,
) -> None:
    """Fit a method, or a sum, save it and report it; `source_of`: the data source for its settings."""
    from beamwood.artefact import check_output
    from beamwood.cli.origin import with_origin
    from beamwood.methods.sums import add_counting, check_counting, first_budget, parts

    out, run = asked.out, asked.run
    check_output(out, overwrite=run.overwrite)
    first, *others = parts(method)
    check_counting(first, others)
    config = settings.of(first, start.folders)
    first.check_installed(config)
    first.check_start(config)
    asked.written.check(first, config)
    source = source_of(first, config)
    _say_what_has_no_use(first, config, asked, user_table=source.user_table)
    data = load_split(_read(source, first, *others), split, {"seed": asked.seed})
    if first.needs.trains(config) and not run.resume:
        _check_begun(asked.budget, first)
    with keeping_run(out, resume=run.resume):
        limit = first_budget(asked.budget, first, others)
        fitted = fit_method(first, data, config, out=out, seed=asked.seed, run=run, limit=limit, preset=settings.preset)
        fitted = add_counting(fitted, others, data, seed=asked.seed, budget=asked.budget)
        asked.written.of(with_origin(fitted, source, data)).save(out, overwrite=run.overwrite)
    with keeping(lambda: f"{out} is saved"):
        document = {
            "out": out,
            "method": fitted.metadata["method"],
            "seconds": round(asked.budget.seconds, 2),
            "training": fitted.metadata["training"],
            "data": fitted.metadata["data"],
        }
        page = None
        if asked.written.html is not None:
            from beamwood.report.fit import fit_page

            document |= {"plan": fitted.metadata["plan"], "curve": curve_of(first, config, out)}
            document |= {"split": data.rule, "num_items": len(data.dataset.items)}
            page = asked.written.html, fit_page(document)
        finish(document, lambda: print_fit(document, "beamwood", "evaluate", out), as_json=as_json, page=page)


def _check_begun(budget: Budget, method: Method) -> None:
    """Errors: the time limit ended while reading the log."""
    if budget.left <= 0:
        raise TimeLimitError(
            f"--time-limit {budget.limit:g} s was over before {method.name} began: reading the log took "
            f"{budget.seconds:.1f} s; raise it to several times that"
        )


def _budget(time_limit: str | None, method: str | None) -> Budget:
    """A budget from here on: a time limit includes reading the log and importing libraries."""
    from beamwood.training.budget import Budget

    limit = parse_time_limit(time_limit)
    if method is not None:
        return Budget(limit, name=method)
    from beamwood.recipes.portfolio.find import TIME_LIMIT

    return Budget(limit or TIME_LIMIT, name="the search")


def curve_of(method: Method, config: MethodConfig, out: str) -> list[dict[str, Any]]:
    """The metrics of the run beside the output, step by step; empty where these settings train nothing."""
    path = path_beside(out, ".run") / "metrics.jsonl"
    if not method.needs.trains(config) or not os.path.exists(path):
        return []
    return [loads(line) for line in path.read_text().splitlines()]


def print_fit(document: dict[str, Any], *then: str) -> None:
    """Print the saved result for people; `then`: the next command."""
    print(f"saved {document['method']} in {document['out']} after {document['seconds']} s")
    for fact, value in document["training"].items():
        shown = "; ".join(map(str, value)) if isinstance(value, list) else value
        print(f"  {fact}: {shown:.4g}" if isinstance(shown, float) else f"  {fact}: {shown}")
    tell(f"next: {shlex.join(then)}")


def _say_what_has_no_use(method: Method, config: MethodConfig, asked: FitOptions, *, user_table: str | None) -> None:
    trains, resume = method.needs.trains(config), asked.run.resume
    kind = "combines fitted models" if method.needs.steps else "is a counting method"
    for option, given in (("--resume", resume), ("--tensorboard", asked.run.tensorboard is not None)):
        if given and not trains:
            tell(f"{method.name} {kind}: {option} has no effect")
    if user_table is not None and not method.needs.named_columns(config, "users"):
        tell(
            "--user-table has no effect without columns of it in model.user_columns (--set), which methods that rank "
            "pairs have"
        )


def _read(source: DataSource, *methods: Method) -> Dataset:
    """The data, with lines on its main properties, on kept text columns and on unused weights."""
    from beamwood.data.description import lines_of_fit
    from beamwood.data.kept_columns import numbers_as_text

    dataset = load_data(source)
    for line in lines_of_fit(dataset):
        tell(line)
    note_of_weights(dataset, methods)
    table = dataset.item_table
    for name in () if table is None else numbers_as_text(source.keep_columns, table.frame):
        tell(f"--keep-columns {name} keeps numbers as text; write {name}:number to ask for less or more than a number")
    return dataset


def _context_columns(method: Method, config: MethodConfig) -> tuple[str, ...]:
    """The context columns that a method, or a fitted stage of it, uses."""
    from beamwood.data.features import name_and_kind
    from beamwood.retrieval.retriever import Retriever

    names = [name_and_kind(name)[0] for name in method.needs.named_columns(config, "context")]
    values = config.flat()
    for folder in (values[each.setting] for each in method.needs.fitted):
        if folder is not None and os.path.isdir(folder):
            names += Retriever.load(folder).searcher.needs.names
    return tuple(dict.fromkeys(names))


def fit_method(
    method: Method,
    split: Split,
    config: MethodConfig,
    *,
    out: str,
    seed: int,
    run: RunOptions,
    limit: float | Budget | None = None,
    preset: str | None = None,
) -> Retriever:
    """Train in the run folder beside `out`.

    `limit`: seconds; a budget counts from its own start.
    """
    options: dict[str, Any] = {"time_limit": limit}
    if method.needs.trains(config):
        from beamwood.training.run_folder import RunFolder

        folder = RunFolder(path_beside(out, ".run"), overwrite=run.overwrite, tensorboard=run.tensorboard)
        folder.check(resume=run.resume)
        options |= {"run": folder, "resume": run.resume}
    return method.fitted(split, config, preset=preset, seed=seed, **options)


@contextmanager
def starting_anew(fix: str) -> Iterator[None]:
    """A context in which an interrupted command says `fix`, and a training, too, which only `fit` can resume."""
    with keeping(lambda: fix):
        try:
            yield
        except Interrupted:
            raise Interrupted(f"interrupted; {fix}") from None
