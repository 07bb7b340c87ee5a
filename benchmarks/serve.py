"""`beamwood serve` under load, against the package in process and FastAPI around two towers in an HNSW graph.

`python -m benchmarks.serve [--short] [--folder FOLDER --full FOLDER --rival FOLDER] [--json]`. What is not named is
fitted on a planted market. Two trees answer: one as a fit leaves it, whose search is as fast as the HTTP around it, and
one that a full beam answers, so that the search threads are what is saturated. Load comes from another process of this
machine, whose processor time is reported apart. What a bar compares is measured in turns, and is the median over them,
as a machine does not keep its pace. `server_held_up_ms` says how long a request's threads had no processor, as other
programs had it. Exit 0 whenever it measured.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from typing import Any

import beamwood
from benchmarks.measure import in_process, one_thread, print_results
from benchmarks.serve_run import Run, Times
from benchmarks.serve_turns import Turns

__all__ = ["LONG", "SHORT", "SUITE", "fit", "main"]

_MARKET: dict[str, Any] = {"items": 10_000, "full": 10_000, "users": 3000, "swaps": 20}
# Of so few users the light head of a tree has little to learn from, which takes most of a short fit.
SHORT = Times(items=1000, full=4000, users=60, steps=50, part=Turns(1, 2.0), steady=Turns(1, 6.0), warm=5.0, swaps=4)
LONG = Times(steps=3000, part=Turns(5, 30.0), steady=Turns(5, 600.0), warm=300.0, **_MARKET)
SUITE = Times(steps=300, part=Turns(5, 10.0), steady=Turns(5, 120.0), warm=120.0, **_MARKET)
FITS: dict[str, tuple[str, dict[str, Any]]] = {
    "rival": ("two_tower", {"index.kind": "hnsw"}),
    "model": ("dtr", {}),
    "full": ("dtr", {"model.light_width": 0}),
}


def fit(folder: Path, name: str, times: Times) -> None:
    """A model of `FITS` on a planted market, saved in the folder."""
    from beamwood.data.synthetic import MarketConfig, make_market

    num_items = times.full if name == "full" else times.items
    market = make_market(MarketConfig(num_items=num_items, num_users=times.users), seed=0)
    dataset = beamwood.Dataset.from_log(beamwood.read_log(market.log), market.item_frame)
    split = beamwood.splits.disjoint_users(dataset, seed=0)
    method, settings = FITS[name]
    beamwood.fit(split, method, settings | {"loop.max_steps": times.steps}, progress=False).save(folder)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--short", action="store_true", help="within four minutes")
    parser.add_argument("--folder", type=Path, help="a saved tree, else one is fitted")
    parser.add_argument("--full", type=Path, help="a saved tree that a full beam answers, else one is fitted")
    parser.add_argument("--rival", type=Path, help="saved two towers with integer ids, else they are fitted too")
    parser.add_argument("--json", action="store_true", help="one JSON document on stdout")
    options = parser.parse_args()
    one_thread()
    times = SHORT if options.short else LONG
    with tempfile.TemporaryDirectory() as root:
        folders = {"model": options.folder, "full": options.full, "rival": options.rival}
        for name in FITS:
            if folders[name] is None:
                folders[name] = Path(root) / name
                in_process(fit, folders[name], name, times)
        run = Run(folders["model"], folders["full"], folders["rival"], times)
        found = run.whole(lambda text: None if options.json else print(f"# {text}", flush=True))
    if options.json:
        print_results(found, as_json=True)
        return
    print_results({name: value for name, value in found.items() if not isinstance(value, dict)}, as_json=False)
    for name, bar in run.bars.items():
        print(bar.line(name))


if __name__ == "__main__":
    main()
