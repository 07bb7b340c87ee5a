"""`beamwood demo`: the whole way on a planted market, against the best that is possible there."""

from __future__ import annotations

import json as json_module
import time
from pathlib import Path
from typing import Annotated

import typer

from beamwood.cli import options as o
from beamwood.cli.fit import beside, fit_method, starting_anew
from beamwood.cli.inputs import note, print_json
from beamwood.cli.measure import print_table
from beamwood.cli.output import write_page
from beamwood.errors import InputError

__all__ = ["demo"]

METHODS = ("popularity", "cooccurrence", "transitions", "dtr")
CUTS = (20,)
TITLE = "beamwood demo"


def demo(
    out: Annotated[str, typer.Option("--out", metavar="FOLDER", help="Where to save the tree.")] = "runs/demo",
    seed: o.Seed = 0,
    time_limit: Annotated[
        float, typer.Option("--seconds", min=5.0, metavar="X", help="Time for training the tree.")
    ] = 120.0,
    overwrite: o.Overwrite = False,
    json: o.Json = False,
) -> None:
    """Plant a market whose probabilities are known, fit methods on it, and compare them with the optimum."""
    from beamwood.artefact import check_output
    from beamwood.data import Dataset, disjoint_users, read_log
    from beamwood.data.synthetic import BayesSearcher, make_market
    from beamwood.evaluation.protocol import evaluate_split
    from beamwood.evaluation.report import html_report
    from beamwood.evaluation.summary import as_document, compared
    from beamwood.methods import load_method
    from beamwood.recipes.compare import verdict

    for name in METHODS:
        load_method(name).check_installed()
    check_output(out, overwrite=overwrite)
    report = beside(out, ".html")
    check_report(report, overwrite=overwrite)
    market = make_market(seed=seed)
    dataset = Dataset.from_log(read_log(market.log), market.item_frame)
    note(f"a market of {len(dataset.users):,} users, {len(dataset.items):,} items, {market.log.height:,} events")
    split = disjoint_users(dataset, seed=seed)
    results, seconds = {}, {}
    for name in METHODS:
        began = time.perf_counter()
        method = load_method(name)
        with starting_anew("run the demo again with --overwrite"):
            retriever = fit_method(
                method, split, method.Config(), out=out, seed=seed, limit=time_limit, overwrite=overwrite
            )
        seconds[name] = round(time.perf_counter() - began, 1)
        note(f"{name}: fitted in {seconds[name]} s")
        results[name] = evaluate_split(retriever.searcher, split, ks=CUTS)
    retriever.save(out, overwrite=overwrite)
    results["bayes-optimal"] = evaluate_split(BayesSearcher(market), split, ks=CUTS)
    tests = compared({name: views for name, views in results.items() if name != "bayes-optimal"}, "dtr", "f@20")
    conclusion = verdict(tests, "dtr", "f@20")
    lines = (beside(out, ".run") / "metrics.jsonl").read_text().splitlines()
    write_page(
        str(report),
        html_report(
            title=TITLE,
            results={name: as_document(views) for name, views in results.items()},
            tests=tests,
            curve=[json_module.loads(line) for line in lines],
            facts={"data": market.config.model_dump(), "split": split.rule, "conclusion": conclusion}
            | {"fingerprint": dataset.fingerprint(), "configuration": retriever.metadata["config"]},
        ),
    )
    if json:
        methods = {name: as_document(views) for name, views in results.items()}
        print_json({"methods": methods, "seconds": seconds, "paired_tests": tests, "conclusion": conclusion})
        return
    print_table(results, CUTS)
    print(conclusion)
    print(f"the retriever is in {out}, the report in {report}")


def check_report(path: Path, *, overwrite: bool) -> None:
    """Errors: the page would replace one that is not to be replaced, or what is no report of this command's."""
    if not path.exists():
        return
    if not path.is_file() or f"<title>{TITLE}</title>" not in path.read_text(encoding="utf-8", errors="replace"):
        raise InputError(f"{path} is not a report of the demo's, so it is never replaced; choose another --out")
    if not overwrite:
        raise InputError(f"{path} already holds a report; pass --overwrite to replace it, or choose another --out")
