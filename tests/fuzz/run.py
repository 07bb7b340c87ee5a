"""`make fuzz`: random cases; one that ends in neither an answer nor an `InputError` is printed.

FUZZ_CALLS, FUZZ_COMMANDS, FUZZ_FOLDERS and FUZZ_LOGS set the numbers of cases, FUZZ_SEED the seed, FUZZ_FROM the first
number, to continue an earlier run, and FUZZ_SECONDS the time limit. Cases run in a separate process, so crashes and
cases that take more than a minute are found too.
"""

import contextlib
import os
import subprocess
import sys
import tempfile
import time
import traceback
from collections import Counter
from pathlib import Path

SIZES = {"calls": 100_000, "commands": 2_000, "folders": 10_000, "logs": 10_000}
# Time limits of a case and of the start of a process, in seconds; the number of cases per process.
PATIENCE, STARTING, BATCH = 60, 600, 2000


def cases_of(kind, folder):
    """The description and the call of a case by number; exceptions that are not faults."""
    if kind == "calls":
        from fuzz import calls

        made = calls.calls(folder)

        def case(seed, number):
            words, called, given = calls.case(made, seed, number)
            return words, lambda: called(**given)

        return case
    if kind == "commands":
        from fuzz.commands import Commands

        return Commands(folder).case
    if kind == "folders":
        from fuzz import folders

        return folders.Mutated(folder).case
    from fuzz import logs

    return logs.Mutated(folder).case


def attempt(words, call):
    """The fault of a call, None for an answer and "" for an `InputError`."""
    from beamwood.errors import InputError

    try:
        with contextlib.redirect_stdout(None):
            return "" if call() is False else None
    except InputError:
        return ""
    except BaseException as error:
        frames = traceback.extract_tb(error.__traceback__)
        own = [frame for frame in frames if "beamwood" in frame.filename] or frames
        return f"{type(error).__name__} in {Path(own[-1].filename).name}:{own[-1].lineno}: {str(error)[:200]}"


def work(kind, seed, first, last):
    """Run the cases; print the number of each before it and its fault after it, for the supervising process."""
    import warnings

    warnings.simplefilter("ignore")
    said = os.fdopen(os.dup(1), "w", encoding="utf-8", buffering=1)
    with tempfile.TemporaryDirectory() as folder:
        case = cases_of(kind, Path(folder))
        print("ready", file=said)
        refused = 0
        for number in range(first, last):
            print(f"case {number}", file=said)
            words, call = case(seed, number)
            wrong = attempt(words, call)
            refused += wrong == ""
            if wrong:
                print(f"wrong {number}\t{wrong!a}\t{words!a}", file=said)
        print(f"done {refused}", file=said)


def watched(kind, seed, first, last, until):
    """Run the cases in a process; return the number after the last case, the count of refusals, and the faults."""
    program = [sys.executable, __file__, kind, str(seed), str(first), str(last)]
    found, number, refused = [], first, 0
    with subprocess.Popen(program, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        import selectors

        chosen = selectors.DefaultSelector()
        chosen.register(process.stdout, selectors.EVENT_READ)
        rest, ended, patience = "", False, STARTING
        while not ended:
            if not chosen.select(timeout=patience) or time.monotonic() > until:
                late = time.monotonic() > until
                process.kill()
                return (
                    (number, refused, found)
                    if late
                    else (number + 1, refused, [*found, (number, "it does not end", "")])
                )
            read = os.read(process.stdout.fileno(), 2**16).decode()
            ended = not read
            *lines, rest = (rest + read).split("\n")
            for line in lines:
                word, _, told = line.partition(" ")
                patience = PATIENCE
                if word == "case":
                    number = int(told)
                elif word == "wrong":
                    place, wrong, words = told.split("\t")
                    found.append((int(place), wrong, words))
                elif word == "done":
                    refused, number = int(told), last
    if number < last:
        found.append((number, f"the process ended with {process.returncode}", ""))
        number += 1
    return number, refused, found


def fuzz(kind, size, seed, first, until):
    """Run this many cases and print each kind of fault once; return the number after the last case."""
    number, refused, faults = first, 0, Counter()
    while number < first + size and time.monotonic() < until:
        number, more, found = watched(kind, seed, number, min(number + BATCH, first + size), until)
        refused += more
        for place, wrong, words in found:
            where = wrong.split(": ")[0]
            faults[where] += 1
            if faults[where] == 1:
                print(f"  {kind} {place}: {wrong} {words}", flush=True)
    print(
        f"{kind}: {number - first:,} of {size:,} cases tried with seed {seed}, {refused:,} refused, "
        f"{faults.total():,} wrong of {len(faults)} kinds; go on with FUZZ_FROM={number}",
        flush=True,
    )
    return faults.total()


def main():
    """Fuzz all kinds; return 1 if there were faults."""
    seed, first = int(os.environ.get("FUZZ_SEED", "0")), int(os.environ.get("FUZZ_FROM", "0"))
    until = time.monotonic() + float(os.environ.get("FUZZ_SECONDS", "86400"))
    sizes = {kind: int(os.environ.get(f"FUZZ_{kind.upper()}", size)) for kind, size in SIZES.items()}
    return int(sum(fuzz(kind, size, seed, first, until) for kind, size in sizes.items() if size) > 0)


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1]))
    if len(sys.argv) > 1:
        work(sys.argv[1], *map(int, sys.argv[2:]))
    else:
        sys.exit(main())
