"""A market, folders fitted on it with torch, and installations without torch."""

import fcntl
import json
import os
import shutil
import subprocess
import sys
import tarfile
from dataclasses import dataclass
from pathlib import Path

import pytest

from bare_environment import ROOT, bare_environment
from beamwood.data.markets.synthetic import MarketConfig, make_market
from cli_cases import TINY, beamwood

SHORT = ["loop.max_steps=6", "loop.evaluate_every=3", "model.width=8"]
TRAINED = {"dtr": TINY, "two_tower": SHORT, "sasrec": SHORT}
# Files in a checkout that are not part of the source.
OWN = (
    ".git",
    ".venv",
    ".*_cache",
    ".hypothesis",
    "__pycache__",
    "build",
    "dist",
    "runs",
    "shared",
    "*.so",
    "*.egg-info",
)


@dataclass(frozen=True)
class Distributions:
    """`held`: the files of the checkout; `rebuilt`: a wheel built from the sdist."""

    held: set[str]
    sdist: Path
    wheel: Path
    rebuilt: Path


@pytest.fixture(scope="session")
def market(tmp_path_factory):
    folder = tmp_path_factory.mktemp("market")
    planted = make_market(MarketConfig(num_users=120, num_items=60, max_events=40), seed=0)
    planted.log.write_parquet(folder / "log.parquet")
    planted.item_frame.write_parquet(folder / "items.parquet")
    return folder


@pytest.fixture(scope="session")
def trained(market):
    """Fitted folders by method."""
    log = [market / "log.parquet", "--items", market / "items.parquet"]
    for name, settings in TRAINED.items():
        asked = [part for setting in settings for part in ("--set", setting)]
        assert beamwood("fit", *log, "--method", name, *asked, "--out", market / name) == 0
    return {name: market / name for name in TRAINED}


@pytest.fixture(scope="session")
def distributions(tmp_path_factory):
    """The sdist and the wheel of this source, and a wheel built from the sdist."""
    for module in ("build", "scikit_build_core", "nanobind"):
        pytest.importorskip(module, reason=f"{module} is not installed (make installs it)")
    if shutil.which("cmake") is None or shutil.which("c++") is None:
        pytest.skip("no CMake or no C++ compiler, so the wheel would have no native core")
    # Built once for all workers: the first one builds, the others wait.
    shared = tmp_path_factory.getbasetemp()
    shared = shared.parent if "PYTEST_XDIST_WORKER" in os.environ else shared
    with (shared / "distributions.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        folder = shared / "built"
        if not (folder / "held.json").exists():
            build_all(folder)
    found = {name: next((folder / name).iterdir()) for name in ("sdist", "wheel", "rebuilt")}
    return Distributions(set(json.loads((folder / "held.json").read_text())), **found)


def build_all(folder):
    """Build all three from a copy of the checkout, and finally write its files to `held.json`."""
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(ROOT, folder / "tree", ignore=shutil.ignore_patterns(*OWN))
    held = [str(path.relative_to(folder / "tree")) for path in (folder / "tree").rglob("*") if path.is_file()]
    build(folder / "tree", "sdist", folder / "sdist")
    build(folder / "tree", "wheel", folder / "wheel")
    with tarfile.open(next((folder / "sdist").iterdir())) as archive:
        archive.extractall(folder / "unpacked", filter="data")
    build(next((folder / "unpacked").iterdir()), "wheel", folder / "rebuilt")
    (folder / "held.json").write_text(json.dumps(held))


def build(source, kind, out):
    """Build one distribution like `python -m build`, with the installed tools."""
    command = [sys.executable, "-m", "build", "--no-isolation", f"--{kind}", "--outdir", out, source]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture(scope="session")
def wheel_installed(distributions, tmp_path_factory):
    """The wheel installed by pip, with the core dependencies and what the tests of the kernels need."""
    installed = bare_environment(tmp_path_factory.mktemp("installed"), more=["pytest", "hypothesis", "pytest-timeout"])
    installed.install(distributions.wheel)
    return installed


@pytest.fixture(scope="session", params=["source", pytest.param("wheel", marks=pytest.mark.slow)])
def bare(request, tmp_path_factory):
    """beamwood with the core dependencies and pytest: this source, or its wheel."""
    if request.param == "wheel":
        return request.getfixturevalue("wheel_installed")
    return bare_environment(tmp_path_factory.mktemp("bare"), source=True, more=["pytest"])


@pytest.fixture
def answers(capsys):
    """The JSON of a command in this environment."""

    def of(*asked):
        capsys.readouterr()
        assert beamwood(*asked) == 0
        return json.loads(capsys.readouterr().out)

    return of
