"""Evidence as data: run the suite, render its tables, and check both.

python -m benchmarks list [PATTERN ...]         list runs as made, missing or stale
python -m benchmarks run PATTERN ... | --all    make missing runs in sequence; an interrupted run resumes
python -m benchmarks report [--check]           render the tables of all pages; --check: report errors instead
python -m benchmarks verify NAME                repeat one run and compare its values by user with the stored ones
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from beamwood.errors import InputError
from benchmarks.bench import Bench, Place
from benchmarks.command import exit_code
from benchmarks.origin import check_committed
from benchmarks.pages import faults, render
from benchmarks.verify import agreement

ROOT = Path(__file__).parents[1]


def run(bench: Bench, arguments: argparse.Namespace) -> int:
    """Make the missing runs; return 1 if any run failed."""
    if not arguments.patterns and not arguments.all:
        raise InputError("no runs were named; name runs or patterns such as main/ml1m, or give --all")
    chosen = list(bench.suite) if arguments.all else bench.suite.matching(arguments.patterns)
    wanted = bench.missing(chosen)
    if arguments.stale:
        wanted += bench.stale(chosen)
    if bench.place.root == ROOT:
        check_committed(ROOT)
    failed = []
    with bench.alone():
        for number, each in enumerate(wanted, start=1):
            print(f"{number} of {len(wanted)}: {each.name}", flush=True)
            if not bench.in_process(each):
                failed.append(each.name)
    print(f"{len(wanted) - len(failed)} made, {len(failed)} failed: {', '.join(failed) or 'none'}")
    return 1 if failed else 0


def run_one(bench: Bench, arguments: argparse.Namespace) -> int:
    """Make one run in this process."""
    bench.make(bench.suite.find(arguments.name), folders_by_name(arguments.folder))
    return 0


def fit_starts(bench: Bench, arguments: argparse.Namespace) -> int:
    """Fit in this process what a run starts from."""
    bench.fit_starts(bench.suite.find(arguments.name), folders_by_name(arguments.folder))
    return 0


def folders_by_name(given: Sequence[str]) -> dict[str, Path]:
    """Folders by name, from "NAME=FOLDER". Errors: the text has another form, or the folder does not exist."""
    found = {}
    for each in given:
        name, _, folder = each.partition("=")
        if not (name and folder and Path(folder).is_dir()):
            raise InputError(f"--folder {each} must be NAME=FOLDER, with a folder that `beamwood fit` saved")
        found[name] = Path(folder).resolve()
    return found


def listed(bench: Bench, arguments: argparse.Namespace) -> int:
    """Print which runs are made, stale or missing."""
    chosen = bench.suite.matching(arguments.patterns) if arguments.patterns else list(bench.suite)
    _missing, stale = set(bench.missing(chosen)), set(bench.stale(chosen))
    for each in chosen:
        line = bench.lines.get(each)
        state = "missing" if line is None else "stale" if each in stale else "made"
        print(f"{state:<18} {each.name}" + ("" if line is None else f"  {line.commit}  {line.date}"))
    lines = [line for line in map(bench.lines.get, chosen) if line is not None]
    hours = sum(sum(line.seconds.values()) - line.seconds.get("processor", 0) for line in lines) / 3600
    made = f"{len(lines)} of {len(chosen)} made, {len(stale)} stale"
    print(f"{made}; the runs took {hours:.1f} hours of wall time")
    return 0


def report(bench: Bench, arguments: argparse.Namespace) -> int:
    """Render the tables, or check them; a check returns 1 if it finds errors."""
    if not arguments.check:
        changed = [page.relative_to(bench.place.root).as_posix() for page in render(bench)]
        print(f"{len(changed)} pages changed: {', '.join(changed) or 'none'}")
        return 0
    wrong = faults(bench)
    for each in wrong:
        print(each)
    print(f"{len(wrong)} errors" if wrong else "every table matches its lines, and no figure is typed by hand")
    return 1 if wrong else 0


def verify(bench: Bench, arguments: argparse.Namespace) -> int:
    """Repeat a run; return 1 if it does not agree with its line."""
    each = bench.suite.find(arguments.name)
    with bench.alone():
        said, agrees = agreement(bench, each)
    print("\n".join(said))
    return 0 if agrees else 1


def parser() -> argparse.ArgumentParser:
    """The parser of all commands."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(required=True)
    works = {"list": listed, "run": run, "starts": fit_starts, "one": run_one, "report": report, "verify": verify}
    for name, work in works.items():
        command = commands.add_parser(name)
        command.set_defaults(work=work)
        command.add_argument("--root", type=Path, default=ROOT, help=argparse.SUPPRESS)
        command.add_argument("--short", action="store_true", help=argparse.SUPPRESS)
        if name in ("starts", "one"):
            command.add_argument("--folder", action="append", default=[], metavar="NAME=FOLDER")
        if name in ("starts", "one", "verify"):
            command.add_argument("name", help="topic/log/row/seed")
        elif name == "report":
            command.add_argument("--check", action="store_true")
        else:
            command.add_argument(
                "patterns", nargs="*", help="names, prefixes of names, or patterns such as main/*/dtr/0"
            )
        if name == "run":
            command.add_argument("--all", action="store_true")
            command.add_argument("--stale", action="store_true", help="also repeat runs made with other settings")
    return parser


def main() -> int:
    arguments = parser().parse_args()
    place = Place(arguments.root, arguments.short)
    return exit_code("benchmarks", lambda: arguments.work(Bench(place), arguments))


if __name__ == "__main__":
    sys.exit(main())
