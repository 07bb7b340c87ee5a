"""`beamwood compare`: methods on the same split, with tests of significance."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from beamwood.cli import options as o
from beamwood.cli.commands.evaluate import tail_rule, with_tail_label
from beamwood.cli.commands.fit import starting_anew
from beamwood.cli.data_source import DataSource, load_data, note_of_weights
from beamwood.cli.expand import expanded
from beamwood.cli.measure import cuts_of, parse_cuts, print_table
from beamwood.cli.output import check_page, finish
from beamwood.cli.quantities import parse_time_limit
from beamwood.cli.splits import load_split
from beamwood.errors import InputError, UnknownSearcherError
from beamwood.steps import tell

if TYPE_CHECKING:
    from beamwood.evaluation.tail import TailRule
    from beamwood.recipes.comparison import Comparison
    from beamwood.retrieval.retriever import Retriever

__all__ = ["compare"]


METHODS = "popularity,cooccurrence,transitions,ease,two_tower,dtr,dtr+cooccurrence,dtr+ease"
SPLIT, SEED = "users", 2026


@expanded
def compare(
    log: o.LogPath,
    more: Annotated[o.Texts, typer.Argument(hidden=True)] = None,
    *,
    methods: Annotated[
        str,
        typer.Option("--methods", metavar="NAMES", help="Methods and sums of methods, separated by commas."),
    ] = METHODS,
    folders: Annotated[
        o.Texts,
        typer.Option("--folders", metavar="A B C", help="Compare folders of fitted models that share one split."),
    ] = None,
    split: o.SplitName = SPLIT,
    seed: o.Seed = SEED,
    k: Annotated[
        o.Text, typer.Option("-k", "--k", metavar="N,N", help="Lengths of the evaluated lists; 20 by default.")
    ] = None,
    tail: o.Tail = None,
    tail_of: o.TailOf = None,
    time_limit: o.EachTimeLimit = None,
    preset: o.Preset = None,
    method: o.MethodFile = None,
    reading: o.ReadOptions,
    html: o.Page = None,
    json: o.Json = False,
) -> None:
    """Compare methods, or saved folders, on the same test users; say which is best, and whether that is certain."""
    if html is not None:
        check_page(html)
    cuts_of(k)
    rule = tail_rule(tail, tail_of)
    on_tail = None if tail is None else rule
    limit = parse_time_limit(time_limit)
    if folders or more:
        fitting = {"--methods": methods != METHODS, "--time-limit": time_limit, "--preset": preset}
        if folders and os.path.isfile(os.path.join(log, "manifest.json")):
            raise InputError(f"{log} is a fitted folder, not a log; write beamwood compare LOG --folders A B C")
        listed = folders_of(folders, more, fitting)
        check_reading(reading)
        measured = compare_folders(listed, log, reading.items, split, seed, method, k=k, tail=on_tail)
    elif method is not None:
        raise InputError(f"--method {method} is for --folders; list methods to fit with --methods")
    else:
        measured = fit_and_compare(DataSource.of(log, reading), methods, split, seed, limit, preset, k=k, tail=on_tail)
    document = measured.document() if json or html is not None else {}
    page = None
    if html is not None:
        from beamwood.report.compare import comparison_page

        page = html, comparison_page(document)
    finish(document, lambda: print_comparison(measured), as_json=json, page=page)


def fit_and_compare(
    source: DataSource,
    methods: str,
    split: str,
    seed: int,
    limit: float | None,
    preset: str | None,
    *,
    k: str | None,
    tail: TailRule | None,
) -> Comparison:
    """Fit several methods on the same training users, and evaluate them on the same test users."""
    from beamwood.recipes import compare as recipe

    named = [name.strip() for name in methods.split(",") if name.strip()]
    sums = recipe.named_sums(named)
    presets = recipe.named_presets(sums, preset)
    recipe.check_alone(sums, split, presets)
    recipe.check_installed(sums, presets)
    data = load_split(load_data(source), split, {"seed": seed})
    note_of_weights(data.dataset, [method for parts in sums.values() for method in parts])
    cuts = parse_cuts(k, len(data.dataset.items))
    with starting_anew("nothing is kept of a comparison"):
        return recipe.compare(data, named, ks=cuts, preset=preset, seed=seed, time_limit=limit, tail=tail, say=tell)


def folders_of(folders: list[str] | None, more: list[str] | None, fitting: dict[str, Any]) -> list[str]:
    """The folders of "--folders a b c". Errors: a single or repeated folder, and options of fitting with them."""
    if not folders:
        raise InputError(
            f"{' '.join(more or [])!r} is unexpected; give methods as --methods ease,dtr and folders as --folders A B C"
        )
    listed = [os.path.normpath(folder) for folder in (*folders, *(more or []))]
    for option, given in fitting.items():
        if given:
            raise InputError(f"{option} is for methods that are fitted, and --folders are fitted already; leave it out")
    if len({os.path.realpath(folder) for folder in listed}) < max(len(listed), 2):
        raise InputError(f"--folders {' '.join(listed)} must name at least two folders, each once")
    return listed


def check_reading(reading: o.ReadOptions) -> None:
    """Errors: an option of reading the log, which each folder has stored."""
    usual = asdict(o.ReadOptions())
    for name, value in asdict(replace(reading, items=None)).items():
        if value != usual[name]:
            raise InputError(
                f"--{name.replace('_', '-')} is stored in each of the --folders, which read the log as they were "
                "fitted; leave it out"
            )


def compare_folders(
    folders: list[str],
    log: str,
    items: str | None,
    split: str,
    seed: int,
    method: str | None,
    *,
    k: str | None,
    tail: TailRule | None,
) -> Comparison:
    """Measure saved folders on the test users of the one split that all were fitted on."""
    from beamwood.cli.origin import origin_of, split_of_all
    from beamwood.recipes.compare import compare_fitted

    fitted = load_all(folders, method)
    own = origin_of(folders[0], fitted[folders[0]].metadata).split
    for option, given, default, noted in (
        ("--split", split, SPLIT, own.name),
        ("--seed", seed, SEED, own.options.seed),
    ):
        if given not in (default, noted):
            raise InputError(f"{option}={given}: {folders[0]} was fitted with {option} {noted}; leave {option} out")
    data = split_of_all(fitted, log, items)
    bases = [os.path.basename(folder) for folder in folders]
    names = bases if len(set(bases)) == len(bases) else folders
    named = {name: fitted[folder] for name, folder in zip(names, folders, strict=True)}
    return compare_fitted(data, named, ks=parse_cuts(k, len(data.dataset.items)), tail=tail, say=tell)


def load_all(folders: Sequence[str], method: str | None) -> dict[str, Retriever]:
    """The saved retrievers by folder; the `method` file is for those whose searcher it alone defines.

    Errors: none of them needs it.
    """
    from beamwood import load

    fitted, needed = {}, False
    for folder in folders:
        try:
            fitted[folder] = load(folder)
        except UnknownSearcherError:
            if method is None:
                raise
            fitted[folder], needed = load(folder, method), True
    if method is not None and not needed:
        raise InputError(f"--method {method} defines the searcher of none of the --folders; leave it out")
    return fitted


def print_comparison(measured: Comparison) -> None:
    """Print the comparison for people."""
    from beamwood.evaluation.verdict import verdicts_in_words

    print_table(measured.results, measured.cuts)
    for name, cost in measured.costs.items():
        print(
            f"{name}: {cost.milliseconds:.2f} ms a user, {cost.p99:.2f} at the 99th percentile, "
            f"{cost.scored:,.0f} scored, {cost.megabytes:.1f} MB"
        )
    print(measured.conclusion)
    for name, why in measured.left_out.items():
        print(f"{name} is left out: {why}")
    if measured.tail:
        described, queries, views = measured.on_tail()
        print(f"\n{with_tail_label(queries)}; {described}")
        print_table(views, measured.cuts)
        print(verdicts_in_words(measured.tail_verdicts))
