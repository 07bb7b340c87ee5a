"""What share of the optimum each method has on a planted market whose optimum is known, and at what milliseconds.

python -m benchmarks.planted                            the small market, every method of the list
python -m benchmarks.planted --size large --minutes 20  the large one, so long for each method that trains
python -m benchmarks.planted --methods dtr,ease [--json] [--queries 2000] [--out FILE]

The formula of the market stands in docs/lab/planted-market.md. With --out what was measured is kept, and is not
measured again.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Mapping
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

import beamwood
from beamwood.data import ColumnNames, Dataset, leave_one_out, read_log
from beamwood.data.split import Split
from beamwood.data.taste_optimum import TasteOptimum
from beamwood.data.tastes import SIZES, TasteMarket, make_taste_market
from beamwood.errors import InputError, TimeLimitError, nearest
from beamwood.evaluation.cost import cost_of
from beamwood.evaluation.protocol import evaluate
from beamwood.evaluation.significance import t_interval
from beamwood.fitting.choose import drawn
from beamwood.methods import METHODS as KNOWN
from beamwood.types import Searcher
from benchmarks.origin import machine, source_digest

__all__ = ["METHODS", "OPTIMUM", "main", "measure", "split_of_market"]

METHODS = ("popularity", "cooccurrence", "transitions", "ease", "two_tower", "sasrec", "dtr", "dtr+transitions")
OPTIMUM, KNOWING = "optimum", "optimum, the context known"
CUT = 20
FIGURES = ("hit_rate@20", "ndcg@20")


def split_of_market(market: TasteMarket) -> Split:
    """Leave-one-out, each item of the market an item of the catalogue, by its number."""
    every = pl.DataFrame({"item_id": np.arange(market.config.num_items)})
    dataset = Dataset.from_log(read_log(market.log, columns=ColumnNames(context=("context",))), every)
    assert dataset.items.ids.to_list()[-1] == len(dataset.items) - 1 == market.config.num_items - 1
    return leave_one_out(dataset)


def measure(searcher: Searcher, split: Split, num_queries: int, best: Mapping[str, Any] | None) -> dict[str, Any]:
    """Figures on test users, seen items kept, with the share of the optimum's, and what an answer costs."""
    queries = drawn(split.test, num_queries, seed=0)
    found = evaluate(searcher, queries, ks=(CUT,), remove_seen=False)
    cost = None if isinstance(searcher, TasteOptimum) else cost_of(searcher, queries, CUT)
    line: dict[str, Any] = {"queries": len(found)}
    for name in FIGURES:
        interval = t_interval(found.values[name])
        line[name] = {"value": interval.mean, "95": [interval.low, interval.high]}
        if best is not None:
            line[name]["of the optimum"] = interval.mean / best[name]["value"]
    return line if cost is None else line | {"ms": cost.milliseconds, "mb": cost.megabytes, "scored": cost.scored}


def measured(arguments: argparse.Namespace) -> dict[str, Any]:
    """By method what was measured; what `--out` has is kept."""
    market = make_taste_market(SIZES[arguments.size], seed=0)
    split = split_of_market(market)
    made = {"size": arguments.size, "minutes": arguments.minutes, "queries": arguments.queries}
    found = _kept(arguments.out, made)
    for name, knows in ((OPTIMUM, False), (KNOWING, True)):
        if name not in found:
            searcher = TasteOptimum(market, knows_context=knows)
            found[name] = measure(searcher, split, arguments.queries, found.get(OPTIMUM))
            _say(name, found[name])
    for name in arguments.methods:
        if name in found:
            continue
        began = time.perf_counter()
        try:
            fitted = beamwood.fit(split, name, seed=0, time_limit=60 * arguments.minutes, progress=False)
        except TimeLimitError as error:
            found[name] = {"left out": str(error)}
        else:
            seconds = round(time.perf_counter() - began, 1)
            found[name] = measure(fitted.searcher, split, arguments.queries, found[OPTIMUM]) | {"seconds": seconds}
        _say(name, found[name])
        _keep(arguments.out, made, found)
    return made | {
        "market": market.config.model_dump(),
        "source": source_digest(),
        "machine": machine(),
        "found": found,
    }


def _kept(path: Path | None, made: Mapping[str, Any]) -> dict[str, Any]:
    if path is None or not path.exists():
        return {}
    kept = json.loads(path.read_text())
    for key, value in made.items():
        if kept.get(key) != value:
            raise InputError(f"{path} was measured with {key}={kept.get(key)}, not {value}; give another file")
    found: dict[str, Any] = kept["found"]
    return found


def _keep(path: Path | None, made: Mapping[str, Any], found: Mapping[str, Any]) -> None:
    if path is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        fresh = path.with_name(path.name + ".part")
        fresh.write_text(json.dumps({**made, "found": found}, indent=2) + "\n")
        fresh.rename(path)


def _say(name: str, line: Mapping[str, Any]) -> None:
    print(row(name, line), file=sys.stderr, flush=True)


def row(name: str, line: Mapping[str, Any]) -> str:
    """A row of the table."""
    if "left out" in line:
        return f"| {name} | {line['left out']} |"
    cells = []
    for figure in FIGURES:
        share = line[figure].get("of the optimum")
        cells.append(f"{line[figure]['value']:.4f}" + ("" if share is None else f" ({share:.1%})"))
    cost = ["–", "–"] if "ms" not in line else [f"{line['ms']:.2f}", f"{line['mb']:.1f}"]
    return "| " + " | ".join([name, *cells, *cost, f"{line.get('seconds', 0):.0f}"]) + " |"


def parser() -> argparse.ArgumentParser:
    """The options."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.planted",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--size", choices=sorted(SIZES), default="small")
    parser.add_argument("--methods", metavar="A,B", default=",".join(METHODS))
    parser.add_argument("--minutes", type=float, default=5.0, metavar="X", help="for each method; 5 unless given")
    parser.add_argument("--queries", type=int, default=2000, metavar="N", help="test users who are asked, at most")
    parser.add_argument("--out", type=Path, metavar="FILE", help="keeps what was measured, for the next time")
    parser.add_argument("--json", action="store_true", help="one JSON document on stdout")
    return parser


def run(arguments: argparse.Namespace) -> int:
    """0 wherever it measured."""
    arguments.methods = [name.strip() for name in arguments.methods.split(",")]
    for part in (part for name in arguments.methods for part in name.split("+")):
        if part not in KNOWN:
            raise InputError(f"--methods: '{part}' is unknown{nearest(part, KNOWN)}")
    if not arguments.minutes > 0 or arguments.queries < 2:
        raise InputError("--minutes must be above 0, and --queries at least 2")
    with redirect_stdout(sys.stderr):
        document = measured(arguments)
    if arguments.json:
        print(json.dumps(document, indent=2))
        return 0
    print("| method | hit rate@20 (of the optimum) | ndcg@20 (of the optimum) | ms | MB | seconds of the fit |")
    print("| --- | --- | --- | --- | --- | --- |")
    print("\n".join(row(name, line) for name, line in document["found"].items()))
    return 0


def main() -> int:
    """Errors that a person can mend are one line and exit 2."""
    try:
        return run(parser().parse_args())
    except InputError as error:
        print(f"benchmarks.planted: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main())
