"""`beamwood serve` under load, against the package in process and FastAPI with two towers in an HNSW graph.

`python -m benchmarks.serve [--short] [--folder FOLDER --full FOLDER --rival FOLDER] [--json]`. Models that are not
given are fitted on a planted market. Two trees are served: one as fitted, whose search takes about as long as its HTTP,
and one with a full beam, so that the search threads saturate first. Load comes from another process on the same
machine; its processor time is reported separately. The speed of a machine drifts, so bars compare medians over turns.
`server_held_up_ms` is the time that a request's threads waited for a processor. The exit code is 0 once all is
measured.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path
from typing import Any

import beamwood
from beamwood.artefact import read_manifest
from benchmarks.command import exit_code
from benchmarks.measure import in_process, one_thread, print_results
from benchmarks.serve_run import Run, Times
from benchmarks.serve_turns import Turns

__all__ = ["LONG", "SHORT", "SUITE", "fit", "main"]

_MARKET: dict[str, Any] = {"items": 10_000, "full": 10_000, "users": 3000, "swaps": 20}
# Few users give the tree's light head little to learn from, and it takes most of the time of a short fit.
SHORT = Times(items=1000, full=4000, users=60, steps=50, part=Turns(1, 2.0), steady=Turns(1, 6.0), warm=5.0, swaps=4)
LONG = Times(steps=3000, part=Turns(5, 30.0), steady=Turns(5, 600.0), warm=300.0, **_MARKET)
SUITE = Times(steps=300, part=Turns(5, 10.0), steady=Turns(5, 120.0), warm=120.0, **_MARKET)
FITS: dict[str, tuple[str, dict[str, Any]]] = {
    "rival": ("two_tower", {"index.kind": "hnsw"}),
    "model": ("dtr", {}),
    "full": ("dtr", {"model.light_width": 0}),
}


def fit(folder: Path, name: str, times: Times) -> None:
    """Fit a model of `FITS` on a planted market and save it in the folder."""
    from beamwood.data.markets.synthetic import MarketConfig, make_market

    num_items = times.full if name == "full" else times.items
    market = make_market(MarketConfig(num_items=num_items, num_users=times.users), seed=0)
    dataset = beamwood.Dataset.from_log(beamwood.read_log(market.log), market.item_frame)
    split = beamwood.splits.disjoint_users(dataset, seed=0)
    method, settings = FITS[name]
    beamwood.fit(split, method, settings | {"loop.max_steps": times.steps}, progress=False).save(folder)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--short", action="store_true", help="within four minutes")
    parser.add_argument("--folder", type=Path, help="a saved tree; by default one is fitted")
    parser.add_argument("--full", type=Path, help="a saved tree to search by a full beam; by default one is fitted")
    parser.add_argument("--rival", type=Path, help="saved two towers with integer ids; by default they are fitted")
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    options = parser.parse_args()
    one_thread()
    return exit_code("benchmarks.serve", lambda: served(options))


def served(options: argparse.Namespace) -> int:
    """Exit code: 0 once all is measured. Errors: a given folder holds no model; nothing was fitted then."""
    for folder in (options.folder, options.full, options.rival):
        if folder is not None:
            read_manifest(folder)
    times = SHORT if options.short else LONG
    with tempfile.TemporaryDirectory() as root:
        folders = {"model": options.folder, "full": options.full, "rival": options.rival}
        for name in FITS:
            if folders[name] is None:
                folders[name] = Path(root) / name
                in_process(fit, folders[name], name, times)
        run = Run(folders["model"], folders["full"], folders["rival"], times)
        found = run.measured(lambda text: None if options.json else print(f"# {text}", flush=True))
    if options.json:
        print_results(found, as_json=True)
        return 0
    print_results({name: value for name, value in found.items() if not isinstance(value, dict)}, as_json=False)
    for name, bar in run.bars.items():
        print(bar.line(name))
    return 0


if __name__ == "__main__":
    sys.exit(main())
