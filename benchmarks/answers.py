"""Latency and quality of single answers, side by side: each way to search the tree, its rivals, and the bars.

python -m benchmarks.answers [LOG ...]           measure these logs, by default all, and keep a line for each
python -m benchmarks.answers --again LOG ...     measure logs that have a line again; stored answers are reused
python -m benchmarks.answers --short [--json]    ml1m, if available, and a planted market, fitted in minutes
python -m benchmarks.answers --folder ml1m=runs/mine ml1m    with a model already fitted by a method of the rows

Missing models are fitted first, with the settings of the suite. `python -m benchmarks report` renders the lines.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

from beamwood.artefact import read_manifest
from beamwood.errors import InputError, nearest
from benchmarks.answer_table import answer_table, bar_table, equal_time, said
from benchmarks.bars import bars
from benchmarks.bench import Bench, Place
from benchmarks.command import exit_code
from benchmarks.lines import Line
from benchmarks.logs import data_folder, is_there
from benchmarks.origin import check_committed
from benchmarks.suite import Run

__all__ = ["document", "main"]

ROOT = Path(__file__).parents[1]


def wanted_runs(bench: Bench, logs: Sequence[str]) -> list[Run]:
    """The runs of these logs, by default of all available logs. Errors: a log that is not measured."""
    runs = {run.log: run for run in bench.suite if bench.suite.row(run).recipe == "answers"}
    for log in logs:
        if log not in runs:
            raise InputError(f"log '{log}' is not measured{nearest(log, runs)}")
    data = data_folder(bench.place.root)
    return [runs[log] for log in logs or runs if logs or is_there(bench.suite.logs[log], data)]


def given_folders(bench: Bench, runs: Sequence[Run], given: Sequence[str]) -> dict[str, dict[str, Path]]:
    """Folders by log and method, from "LOG=FOLDER". Errors: not a saved folder, or its log or method is not run."""
    found: dict[str, dict[str, Path]] = {}
    measured = {run.log: bench.suite.row(run).start for run in runs}
    for each in given:
        log, _, name = each.partition("=")
        folder = Path(name).resolve()
        if not name or not (folder / "manifest.json").is_file():
            raise InputError(f"--folder {each} must be LOG=FOLDER, with a folder that `beamwood fit` saved")
        method = str(read_manifest(folder).get("method"))
        for part, value, known in (("log", log, measured), ("method", method, measured.get(log, {}))):
            if value not in known:
                raise InputError(f"--folder {each}: its {part} '{value}' is not measured here{nearest(value, known)}")
        found.setdefault(log, {})[method] = folder
    return found


def measured(
    bench: Bench, runs: Sequence[Run], given: Mapping[str, Mapping[str, Path]], *, again: bool
) -> tuple[list[Line], bool]:
    """The lines of these runs, and whether all exist; missing ones are made first."""
    made = True
    with bench.alone():
        for run in runs:
            folders = given.get(run.log, {})
            if again or folders or bench.lines.get(run) is None:
                made &= bench.in_process(run, folders)
    return [line for line in map(bench.lines.get, runs) if line is not None], made


def document(bench: Bench, lines: Sequence[Line]) -> dict[str, Any]:
    """All results as a JSON document."""
    logs = {}
    for line in lines:
        values = bench.lines.values(line)
        compared = {
            key: {"tree": tree, "gain": [change.low, change.mean, change.high], "p": p}
            for key, (tree, change, p) in equal_time(line, values).items()
        }
        about = {"titles": line.training["titles"], "machine": line.machine, "commit": line.commit}
        logs[line.log] = about | {"figures": line.figures, "equal_time": compared, "said": said(line, values)}
    found = bars({line.log: (line.data["items"], line.figures) for line in lines})
    return {"logs": logs, "bars": {name: bar.as_dict() for name, bar in found.items()}}


def parser() -> argparse.ArgumentParser:
    """The options."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.answers", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("logs", nargs="*", metavar="LOG")
    parser.add_argument("--short", action="store_true", help="short fits, whose lines are not kept")
    parser.add_argument("--again", action="store_true", help="also measure logs that have a line")
    parser.add_argument(
        "--folder", action="append", default=[], metavar="LOG=FOLDER", help="a model that is already fitted"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON document, with a member `bars`")
    parser.add_argument("--root", type=Path, default=ROOT, help=argparse.SUPPRESS)
    return parser


def run(arguments: argparse.Namespace) -> int:
    """Exit code: 0 if everything was measured, even if a bar fails."""
    bench = Bench(Place(arguments.root, arguments.short))
    runs = wanted_runs(bench, arguments.logs)
    given = given_folders(bench, runs, arguments.folder)
    if not arguments.short and arguments.root == ROOT:
        check_committed(ROOT)
    with redirect_stdout(sys.stderr):
        lines, made = measured(bench, runs, given, again=arguments.again or arguments.short)
    if arguments.json:
        print(json.dumps(document(bench, lines), indent=2))
    else:
        parts = [answer_table(bench.suite, line, bench.lines.values(line)) for line in lines]
        print("\n\n".join([*parts, bar_table(lines)]))
    return 0 if made else 1


def main() -> int:
    return exit_code("benchmarks.answers", lambda: run(parser().parse_args()))


if __name__ == "__main__":
    sys.exit(main())
