"""`beamwood fit LOG`, which searches for the best method, against named methods.

python -m benchmarks.portfolio                          all available logs, 15 minutes each; resumable
python -m benchmarks.portfolio --logs ml100k ml1m       only these logs
python -m benchmarks.portfolio --minutes 3 1 [--json]   limits of the search and of a named method (default: a third)

Each log adds one line with the metric of its test users to `benchmarks/runs/portfolio/lines.jsonl`; `python -m
benchmarks report` renders them. Fitted models are kept in `runs/portfolio`, and each result is printed as soon as it is
known. An interrupted study of the same source resumes with the method at which it stopped.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence
from contextlib import redirect_stdout
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

import beamwood
from beamwood.artefact.replace import whole_file
from beamwood.data.split import Split
from beamwood.errors import InputError, TimeLimitError, nearest
from beamwood.evaluation.protocol import evaluate_both
from beamwood.fitting.validation import CUT
from beamwood.methods.sums import blend_in_turn
from beamwood.recipes.portfolio.find import find
from beamwood.retrieval.retriever import Retriever
from benchmarks.command import exit_code
from benchmarks.logs import data_folder, is_there, split_of
from benchmarks.origin import check_committed, commit, machine, source_digest
from benchmarks.portfolio_bars import FOUND, bars_of_logs, compared
from benchmarks.portfolio_table import LINES, read
from benchmarks.suite import LogEntry

__all__ = ["BLENDS", "LOGS", "SINGLES", "document", "main", "line_of_log"]

ROOT = Path(__file__).parents[1]
SINGLES = ("ease", "cooccurrence", "two_tower", "sasrec", "dtr", "gru4rec")
BLENDS = ("dtr+cooccurrence", "dtr+ease", "two_tower+cooccurrence")
_APART = ("amazon_beauty", "amazon_toys", "yelp_s3rec")
LOGS = {
    name: LogEntry(title=name, folder=name, split="leave-one-out" if name in _APART else "users")
    for name in (
        *("ml100k", "ml_latest_small", "movietweetings_100k", "amazon_toys", "amazon_beauty", "amazon_games_sasrec"),
        *("yelp_s3rec", "tmall_sessions", "retailrocket_sessions", "ml1m", "globo_news"),
    )
} | {"mind_dtr": LogEntry(title="mind_dtr", folder="mind_dtr", boundary="part")}
"""The twelve logs, each with its split."""

# The largest number of test users.
_USERS = 10_000
METRIC = f"f@{CUT}"


class Study:
    """One log under one pair of limits; fits and results of this source are kept, so that nothing is fitted twice.

    `minutes`: the limits of the search and of a named method. `source`: the digest of the source.
    """

    def __init__(self, log: str, minutes: tuple[float, float], folder: Path, data: Path) -> None:
        self.log, self.source = log, source_digest()
        self.folder = folder / f"{log}-{minutes[0]:g}m-{minutes[1]:g}m-{self.source}"
        self.seconds, self.single = (60 * each for each in minutes)
        self.split: Split = split_of(LOGS[log], data)
        self.test = self.split.test.sample(_USERS, seed=0)
        self.fitted: dict[str, Retriever] = {}
        self.failed: dict[str, TimeLimitError] = {}

    def judged(self, name: str) -> dict[str, Any]:
        """The values by test user and view of a method, a sum, or the search; and its seconds."""
        path = self.folder / f"{name}.npz"
        if not path.exists():
            fitted, about = self._found() if name == FOUND else self._named(name)
            seconds = about["seconds"]
            views = evaluate_both(fitted.searcher, self.test, ks=(CUT,), batch_size=1024)
            values = {view: views[view].values[METRIC] for view in views}
            self.folder.mkdir(parents=True, exist_ok=True)
            with whole_file(path) as fresh, fresh.open("wb") as stream:
                np.savez(stream, about=np.array(json.dumps(about)), **values)  # type: ignore[arg-type]
            _say(f"{self.log}: {name}: {METRIC} {values['removed'].mean():.4f} (removed) after {seconds:.0f} s")
        with np.load(path, allow_pickle=False) as stored:
            return {view: stored[view] for view in ("kept", "removed")} | json.loads(str(stored["about"]))

    def _found(self) -> tuple[Retriever, dict[str, Any]]:
        folder = self.folder / "search"
        found = find(
            self.split,
            time_limit=self.seconds,
            monitor=f"removed/{METRIC}",
            seed=0,
            folder=folder,
            resume=folder.exists(),
            say=_say,
        )
        if found.interrupted:
            raise KeyboardInterrupt
        rows = [{key: row.get(key) for key in ("name", "value", "ms", "mb")} for row in found.document["rows"]]
        # Its own seconds, which a search that was interrupted goes on counting.
        seconds = round(found.document["seconds"], 1)
        return found.retriever, {"chosen": found.document["chosen"], "rows": rows, "seconds": seconds}

    def _named(self, name: str) -> tuple[Retriever, dict[str, Any]]:
        """Fit a method or a sum; each part of a sum has the whole limit. The seconds are those of all its parts."""
        parts = name.split("+")
        for part in parts:
            if part in self.failed:
                raise self.failed[part]
            if part in self.fitted:
                continue
            folder = self.folder / "named" / part
            if folder.exists():
                self.fitted[part] = beamwood.load(folder)
                continue
            _say(f"{self.log}: {part}")
            began = time.perf_counter()
            try:
                options = {"seed": 0, "time_limit": self.single, "progress": False}
                fitted = beamwood.fit(self.split, part, **options)
            except TimeLimitError as error:
                self.failed[part] = error
                raise
            seconds = {"fit_seconds": time.perf_counter() - began}
            self.fitted[part] = replace(fitted, metadata=fitted.metadata | seconds)
            self.fitted[part].save(folder)
        fits, began = [self.fitted[part] for part in parts], time.perf_counter()
        blend = blend_in_turn(fits, self.split, seed=0)
        spent = sum(each.metadata["fit_seconds"] for each in fits) + time.perf_counter() - began
        return blend, {"seconds": round(spent, 1)}


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def line_of_log(log: str, minutes: tuple[float, float], root: Path) -> dict[str, Any]:
    """The line of a log, measured first if it does not exist; `minutes`: limits of the search and of a named method."""
    path = root / LINES
    for known in read(path):
        if (known["log"], known["minutes"], known["named_minutes"]) == (log, *minutes):
            return known
    if root == ROOT:
        check_committed(root)
    study = Study(log, minutes, root / "runs" / "portfolio", data_folder(root))
    origin = {"commit": commit(root), "source": study.source, "machine": machine()}
    judged: dict[str, Any] = {}
    left_out: dict[str, str] = {}
    for name in (FOUND, *SINGLES, *BLENDS):
        try:
            judged[name] = study.judged(name)
        except TimeLimitError as error:
            left_out[name] = str(error)
            _say(f"{log}: {name} is left out: {error}")
    figures = compared({name: own["removed"] for name, own in judged.items()})
    for name, own in judged.items():
        figures[name] |= {"kept": float(own["kept"].mean()), "seconds": own["seconds"]}
    line: dict[str, Any] = {"log": log, "minutes": minutes[0], "named_minutes": minutes[1]}
    line |= {"metric": f"removed/{METRIC}", "users": len(judged[FOUND]["removed"])}
    line |= {"chosen": judged[FOUND]["chosen"], "rows": judged[FOUND]["rows"], "figures": figures, "left_out": left_out}
    line |= origin
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as file:
        file.write(json.dumps(line) + "\n")
    return line


def document(lines: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """All results as a JSON document."""
    return {"logs": list(lines), "bars": {name: bar.as_dict() for name, bar in bars_of_logs(lines).items()}}


def log_rows(lines: Sequence[dict[str, Any]]) -> str:
    """A table with one row per log, and the bars."""
    names = (FOUND, *SINGLES, *BLENDS)
    rows = [("log", "users", "chosen", *names)]
    for line in lines:
        values = [line["figures"].get(name, {}).get("value") for name in names]
        cells = ["–" if value is None else f"{value:.4f}" for value in values]
        rows.append((line["log"], f"{line['users']:,}", line["chosen"], *cells))
    told = [bar.line(name) for name, bar in bars_of_logs(lines).items()]
    return "\n".join(["| " + " | ".join(row) + " |" for row in rows] + told)


def parser() -> argparse.ArgumentParser:
    """The options."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.portfolio",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--logs", nargs="+", metavar="LOG", help="of " + ", ".join(LOGS))
    parser.add_argument(
        "--minutes",
        nargs="+",
        type=float,
        default=[15.0],
        metavar="X",
        help="time limits: of the search (default 15) and of a named method (default: a third of it)",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON document, with a member `bars`")
    parser.add_argument("--root", type=Path, default=ROOT, help=argparse.SUPPRESS)
    return parser


def wanted_logs(given: Sequence[str] | None, root: Path) -> list[str]:
    """The named logs, by default all available ones. Errors: a log that is not measured; no log is available."""
    names = list(given or ())
    for name in names:
        if name not in LOGS:
            raise InputError(f"log '{name}' is not measured{nearest(name, LOGS)}")
    found = names or [name for name, entry in LOGS.items() if is_there(entry, data_folder(root))]
    if not found:
        raise InputError(f"{data_folder(root)} has no log; set BEAMWOOD_DATA to the folder that holds them")
    return found


def run(arguments: argparse.Namespace) -> int:
    """Exit code: 0 if everything was measured, even if a bar fails."""
    given = arguments.minutes
    if len(given) > 2 or not all(each > 0 for each in given):
        raise InputError(f"--minutes {' '.join(f'{each:g}' for each in given)} is not one or two numbers above 0")
    minutes = given[0], given[1] if len(given) == 2 else given[0] / 3
    with redirect_stdout(sys.stderr):
        lines = [line_of_log(log, minutes, arguments.root) for log in wanted_logs(arguments.logs, arguments.root)]
    print(json.dumps(document(lines), indent=2) if arguments.json else log_rows(lines))
    return 0


def main() -> int:
    return exit_code("benchmarks.portfolio", lambda: run(parser().parse_args()))


if __name__ == "__main__":
    sys.exit(main())
