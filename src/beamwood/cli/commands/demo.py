"""`beamwood demo`: the whole workflow on a synthetic market, compared with its optimum."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from beamwood.cli import options as o
from beamwood.cli.commands.fit import curve_of, fit_method, starting_anew
from beamwood.cli.interrupts import keeping
from beamwood.cli.measure import print_table
from beamwood.cli.output import finish
from beamwood.cli.written import RunOptions, path_beside
from beamwood.errors import InputError, NotInstalledError
from beamwood.steps import tell

if TYPE_CHECKING:
    from beamwood.data.markets.synthetic import Market
    from beamwood.recipes.comparison import Comparison

__all__ = ["demo"]

METHODS = ("popularity", "cooccurrence", "transitions", "dtr")
CUTS = (20,)
OPTIMUM = "best possible"


def demo(
    out: Annotated[str, typer.Option("--out", metavar="FOLDER", help="Output folder of the tree.")] = "runs/demo",
    seed: o.Seed = 0,
    time_limit: Annotated[
        float, typer.Option("--seconds", min=5.0, metavar="X", help="Training time of the tree in seconds.")
    ] = 120.0,
    overwrite: o.Overwrite = False,
    json: o.Json = False,
) -> None:
    """Simulate a market with known probabilities, fit methods on it, and compare them with the optimum."""
    from beamwood.artefact import check_output
    from beamwood.data.markets.synthetic import make_market
    from beamwood.methods import load_method

    tree = load_method(METHODS[-1])
    for name in METHODS:
        load_method(name).check_installed()
    check_output(out, overwrite=overwrite)
    report = page_beside(out, overwrite=overwrite)
    market = make_market(seed=seed)
    with starting_anew("run the demo again with --overwrite"):
        measured, config = measure(market, out, seed, time_limit, overwrite=overwrite)

    def show() -> None:
        print_table(measured.results | measured.beyond, CUTS)
        print(measured.conclusion)
        print(f"the retriever is in {out}")
        print(f"next: {_program()} serve {shlex.quote(out)}, and open http://127.0.0.1:8000 in a browser")

    with keeping(lambda: f"{out} is saved"):
        document = measured.document() | {
            "market": market.config.model_dump(),
            "curve": curve_of(tree, tree.Config(), out),
            "configuration": config,
        }
        page = None
        if report is not None:
            from beamwood.report.demo import demo_page

            page = str(report), demo_page(document)
        finish(document, show, as_json=json, page=page)


def _program() -> str:
    """What to type for this command, whether or not its environment is active."""
    if shutil.which("beamwood") is not None:
        return "beamwood"
    own = Path(sys.executable).with_name("beamwood")
    return shlex.quote(str(own.relative_to(Path.cwd()) if own.is_relative_to(Path.cwd()) else own))


def measure(
    market: Market, out: str, seed: int, time_limit: float, *, overwrite: bool
) -> tuple[Comparison, dict[str, Any]]:
    """Fit each method, the tree last and saved in `out`, and measure all and the optimum; the tree's settings, too."""
    from beamwood.data import Dataset, disjoint_users, read_log
    from beamwood.data.markets.synthetic import BayesSearcher
    from beamwood.evaluation.protocol import evaluate_split
    from beamwood.methods import load_method
    from beamwood.recipes.compare import simplest_of
    from beamwood.recipes.comparison import Comparison

    dataset = Dataset.from_log(read_log(market.log), market.item_frame)
    tell(f"a market of {len(dataset.users):,} users, {len(dataset.items):,} items, {market.log.height:,} events")
    split = disjoint_users(dataset, seed=seed)
    methods, run = {name: load_method(name) for name in METHODS}, RunOptions(overwrite=overwrite)
    measured = Comparison(split, CUTS, simplest_of({name: [method] for name, method in methods.items()}))
    for name, method in methods.items():
        began = time.perf_counter()
        retriever = fit_method(method, split, method.Config(), out=out, seed=seed, run=run, limit=time_limit)
        measured.seconds[name] = round(time.perf_counter() - began, 1)
        tell(f"{name}: fitted in {measured.seconds[name]} s")
        measured.add(name, retriever.searcher)
    measured.beyond[OPTIMUM] = evaluate_split(BayesSearcher(market), split, ks=CUTS)
    retriever.save(out, overwrite=overwrite)
    return measured, retriever.metadata["config"]


def page_beside(out: str, *, overwrite: bool) -> Path | None:
    """The path of the page, None where the extra for pages is missing. Errors: as `check_report`."""
    from beamwood.report.page import check_installed

    report = path_beside(out, ".html")
    check_report(report, overwrite=overwrite)
    try:
        check_installed()
    except NotInstalledError as missing:
        tell(f"no page is written: {missing}")
        return None
    return report


def check_report(path: Path, *, overwrite: bool) -> None:
    """Errors: the page would replace a report without `overwrite`, or another kind of file."""
    from beamwood.report.demo import TITLE

    if not os.path.exists(path):
        return
    if not os.path.isfile(path) or f"<title>{TITLE}</title>" not in path.read_text(encoding="utf-8", errors="replace"):
        raise InputError(f"{path} is not a report of the demo's, so it is never replaced; choose another --out")
    if not overwrite:
        raise InputError(f"{path} already holds a report; pass --overwrite to replace it, or choose another --out")
