"""`beamwood compare`: methods on the same split: which is best, and whether that is certain."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from beamwood.cli import options as o
from beamwood.cli.evaluate import tail_rule, with_tail_label
from beamwood.cli.expand import expanded
from beamwood.cli.fit import starting_anew
from beamwood.cli.inputs import Source, load_data, load_split, note, parse_duration, print_json
from beamwood.cli.measure import parse_cuts, print_table
from beamwood.cli.output import check_page, write_page

if TYPE_CHECKING:
    from beamwood.recipes.compare import Comparison

__all__ = ["compare"]


@expanded
def compare(
    log: o.LogPath,
    *,
    methods: Annotated[
        str,
        typer.Option("--methods", metavar="NAMES", help="Methods and sums of methods, separated by commas."),
    ] = "popularity,cooccurrence,transitions,ease,two_tower,dtr,dtr+cooccurrence,dtr+ease",
    split: o.SplitName = "users",
    seed: o.Seed = 2026,
    k: Annotated[
        o.Text, typer.Option("--k", metavar="N,N", help="Lengths of the lists that are judged; 20 unless given.")
    ] = None,
    tail: o.Tail = None,
    tail_of: o.TailOf = "items",
    time_limit: o.TimeLimit = None,
    preset: o.Preset = None,
    reading: o.ReadOptions,
    html: o.Page = None,
    json: o.Json = False,
) -> None:
    """Fit several methods on the same training users and compare them on the same test users."""
    from beamwood.recipes import compare as recipe

    if html is not None:
        check_page(html)
    named = [name.strip() for name in methods.split(",") if name.strip()]
    sums = recipe.named_sums(named)
    presets = recipe.named_presets(sums, preset)
    recipe.check_alone(sums, split, presets)
    recipe.check_installed(sums, presets)
    limit, rule = parse_duration(time_limit), tail_rule(tail, tail_of)
    data = load_split(load_data(Source.of(log, reading)), split, {"seed": seed})
    with starting_anew("nothing is kept of a comparison"):
        measured = recipe.compare(
            data,
            named,
            ks=parse_cuts(k, len(data.dataset.items)),
            preset=preset,
            seed=seed,
            time_limit=limit,
            tail=None if tail is None else rule,
            say=note,
        )
    document = measured.document() if json or html is not None else {}
    if html is not None:
        from beamwood.report.compare import comparison_page

        write_page(html, comparison_page(document))
    if json:
        print_json(document)
    else:
        show(measured)


def show(measured: Comparison) -> None:
    """All of it for people."""
    from beamwood.evaluation.verdict import in_words

    print_table(measured.results, measured.cuts)
    for name, cost in measured.costs.items():
        print(f"{name}: {cost.milliseconds:.2f} ms a user, {cost.megabytes:.1f} MB")
    print(measured.conclusion)
    if measured.tail:
        described, queries, views = measured.on_tail()
        print(f"\n{with_tail_label(queries)}; {described}")
        print_table(views, measured.cuts)
        print(in_words(measured.tail_verdicts))
