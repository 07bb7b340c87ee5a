"""`make survive`: commands are killed with SIGKILL at random points and resumed; no saved data may be lost.

SURVIVE_KILLS sets the number of kills, SURVIVE_SEED the seed, SURVIVE_FROM the number of the first case, to continue an
earlier run, and SURVIVE_SECONDS the time limit. Half of the points are calls that change the disk, half are processor
times. After each kill the target is the old one, the new one, or absent, and is read with all its checksums. Then the
same command resumes, and may be killed again. In the end its result equals that of an uninterrupted run, no temporary
file of a killed process is left, and that of a live process still exists.
"""

import fcntl
import hashlib
import json
import os
import random
import shutil
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

KILLS = 200
LIVING, DEAD = "aaaaaaaaaaaa", "bbbbbbbbbbbb"


@dataclass
class Whole:
    """An uninterrupted job: its start folder, its result, and its cost."""

    start: Path
    old: object
    new: object
    names: set
    calls: int
    seconds: float


def content_of(folder, job):
    """The content of the target for comparison; None if it is absent. Errors: an invalid file."""
    target = folder / job.target
    if target.is_file():
        return hashlib.sha256(target.read_bytes()).hexdigest()
    if not target.exists():
        return None
    manifest = json.loads((target / "manifest.json").read_text())
    for name, about in manifest["files"].items():
        assert hashlib.sha256((target / name).read_bytes()).hexdigest() == about["sha256"], f"{name} is damaged"
    assert set(os.listdir(target)) == {"manifest.json", *manifest["files"]}
    if job.same:
        return {name: about["sha256"] for name, about in manifest["files"].items()}
    rows = manifest["portfolio"]["rows"]
    return {row["name"]: (row["value"], row["looks"]) for row in rows} | {"read": "test" in manifest["portfolio"]}


def names_in(folder):
    """All paths in a folder, at any depth."""
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if LIVING not in path.name}


def readable(job):
    """Read the target with all checksums, as a user of it would."""
    if Path(job.target).suffix == ".parquet" and Path(job.target).exists():
        import polars as pl

        pl.read_parquet(job.target)
    elif Path(job.target).is_dir():
        import beamwood

        beamwood.load(job.target, verify=True).recommend([[1, 2]], k=1)


class Survival:
    """The uninterrupted jobs in `home`, then the cases in sequence."""

    def __init__(self, home, jobs):
        from survive import child

        self.home, self.jobs, self.child = home, jobs, child
        self.where = Counter()
        (home / "data").mkdir()
        self._do(make_data, home / "data")
        self.whole = [self._whole(number, job) for number, job in enumerate(jobs)]

    def _do(self, work, folder, kill=None, codes=(0,)):
        ended = self.child.forked(work, folder, kill)
        if kill is None or ended.code != -9:
            assert ended.code in codes, f"exit code {ended.code}: {ended.said[-400:]}"
            assert "Traceback" not in ended.said, ended.said[-2000:]
        return ended

    def _whole(self, number, job):
        start, end = self.home / f"start{number}", self.home / f"end{number}"
        shutil.copytree(self.home / "data", start)
        for before in job.before:
            self._do(lambda before=before: self.child.command(before), start)
        shutil.copytree(start, end)
        old = content_of(start, job)
        ended = self._do(lambda: self.child.command(job.command), end)
        new = content_of(end, job)
        assert new not in (None, old), f"{job.name} changes nothing"
        return Whole(start, old, new, names_in(end), ended.calls, ended.seconds)

    def case(self, seed, number):
        """Kill the job with this number and resume it. Errors: lost data or leftover files."""
        place = number % len(self.jobs)
        job, whole, rng = self.jobs[place], self.whole[place], random.Random(f"{seed}/{number}")
        folder = self.home / f"case{number}"
        shutil.copytree(whole.start, folder)
        target = folder / job.target
        # A temporary file of a live process, and one of a killed process.
        living, dead = (target.with_name(f".{target.name}.{name}.saving") for name in (LIVING, DEAD))
        for temporary in (living, dead):
            temporary.mkdir() if job.target == "model" else temporary.touch()
        lock = os.open(living, os.O_RDONLY)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            kills = self._killed(job, whole, folder, job.command, rng)
            if rng.random() < 0.25:
                kills += self._killed(job, whole, folder, (*job.command, *job.go_on), rng)
            self._goes_on(job, whole, folder)
            assert content_of(folder, job) == whole.new, "it brought something else than a run that nobody stops"
            left = names_in(folder) ^ whole.names
            assert not left, f"left over, or missing: {sorted(left)}"
            assert living.exists(), "the temporary of a living process is gone"
        finally:
            os.close(lock)
        shutil.rmtree(folder)
        return kills

    def _killed(self, job, whole, folder, arguments, rng):
        """Kill it at a random point, if it gets that far, and check the target; return the number of kills."""
        by_call = rng.random() < 0.5
        call, share = rng.randint(1, whole.calls), rng.uniform(0, 0.95)
        kill = self.child.Kill(call=call) if by_call else self.child.Kill(seconds=max(share * whole.seconds, 1e-3))
        ended = self._do(lambda: self.child.command(arguments), folder, kill, codes=(0, 2))
        if ended.code != -9:
            return 0
        self.where[f"{self.child.phase_of(ended.stack)} of {job.name}"] += 1
        left = content_of(folder, job)
        # A search saves the best model so far, which differs each time.
        assert left in (whole.old, whole.new) or not job.same, "the target is neither the old nor the new one"
        self._do(lambda: readable(job), folder)
        return 1

    def _goes_on(self, job, whole, folder):
        """Resume with the same command; it reports if nothing was started or everything was finished."""
        done = content_of(folder, job) == whole.new
        ended = self._do(lambda: self.child.command((*job.command, *job.go_on)), folder, codes=(0, 2))
        if ended.code == 2 and not done:
            assert "--resume" in ended.said or "resume with the same" in ended.said or "use the same" in ended.said, (
                f"it does not say how to go on: {ended.said}"
            )
            self._do(lambda: self.child.command(job.command), folder)


def make_data():
    """A small planted market."""
    from beamwood.data.markets.synthetic import MarketConfig, make_market

    market = make_market(MarketConfig(num_users=120, num_items=60, max_events=40), seed=0)
    market.log.write_parquet("log.parquet")
    market.item_frame.write_parquet("items.parquet")


def survive(home, jobs, kills, seed, first, until):
    """Kill this often, print the failures and the phases of the kills; return the number of failed cases."""
    survival = Survival(home, jobs)
    number, killed, wrong = first, 0, 0
    while killed < kills and time.monotonic() < until:
        try:
            killed += survival.case(seed, number)
        except (AssertionError, OSError, ValueError, KeyError) as error:
            killed, wrong = killed + 1, wrong + 1
            print(f"  case {number}, {jobs[number % len(jobs)].name}: {error}", flush=True)
        number += 1
    for place, times in sorted(survival.where.items()):
        print(f"  {times:>3} within {place}")
    print(
        f"{killed} of {kills} kills with seed {seed}, {wrong} with something lost or left; "
        f"go on with SURVIVE_FROM={number}",
        flush=True,
    )
    return wrong


def main():
    """Run by the environment's settings; return 1 if data were lost or files left over."""
    import_all()
    from survive.jobs import JOBS

    given = {name: os.environ.get(f"SURVIVE_{name}") for name in ("KILLS", "SEED", "FROM", "SECONDS", "JOBS")}
    jobs = [job for job in JOBS if given["JOBS"] is None or job.name in given["JOBS"].split(",")]
    until = time.monotonic() + float(given["SECONDS"] or 86400)
    with tempfile.TemporaryDirectory() as home:
        return int(
            survive(
                Path(home), jobs, int(given["KILLS"] or KILLS), given["SEED"] or "0", int(given["FROM"] or 0), until
            )
            > 0
        )


def import_all():
    """Import the modules that commands load lazily, so that forks need not."""
    import importlib
    import pkgutil

    import beamwood

    for module in pkgutil.walk_packages(beamwood.__path__, "beamwood."):
        if not module.name.startswith(("beamwood.testing", "beamwood.serve", "beamwood.report", "beamwood.__main__")):
            importlib.import_module(module.name)
    importlib.import_module("torch._dynamo")


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1]))
    sys.exit(main())
