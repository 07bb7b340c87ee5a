"""An offline virtual environment with only the core dependencies of a package, linked from the installed ones."""

import json
import os
import subprocess
import sys
import tomllib
import venv
from dataclasses import dataclass
from importlib.metadata import distribution
from importlib.util import find_spec
from pathlib import Path

from packaging.requirements import Requirement

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "beamwood"
COMMANDS = """
import contextlib, io, json, sys
from beamwood.cli.main import main
done = []
for command in json.load(sys.stdin):
    with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.redirect_stderr(io.StringIO()) as err:
        code = main(command)
    done.append((code, out.getvalue(), err.getvalue()))
assert "torch" not in sys.modules
print(json.dumps(done))
"""


@dataclass(frozen=True)
class Bare:
    """An environment, and functions that run programs in it."""

    folder: Path

    @property
    def python(self):
        return self.folder / "bin" / "python"

    def run(self, *arguments, asked=None):
        """Run its Python and return stdout."""
        environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "BEAMWOOD"))}
        done = subprocess.run(
            [self.python, *map(str, arguments)],
            env=environment | {"OMP_NUM_THREADS": "1", "COLUMNS": "200"},
            cwd=self.folder,
            input=asked,
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def beamwood(self, *commands):
        """Run command lines in sequence in one process; return (exit code, stdout, stderr) of each."""
        asked = json.dumps([[str(part) for part in command] for command in commands])
        return [tuple(done) for done in json.loads(self.run("-c", COMMANDS, asked=asked))]

    def install(self, wheel):
        """Install a wheel with pip, and let pip check that its requirements are met."""
        pip = [sys.executable, "-m", "pip", "--python", self.python, "--disable-pip-version-check"]
        subprocess.run([*pip, "install", "--quiet", "--no-index", "--no-deps", wheel], check=True)
        subprocess.run([*pip, "check"], check=True)


def bare_environment(folder, *, source=False, more=()):
    """Build an environment by links: the `dependencies` in pyproject.toml with their own, and `more` distributions.

    With `source` it also has this checkout, with the native core in use.
    """
    venv.create(folder, symlinks=True)
    bare = Bare(folder)
    site = Path(bare.run("-c", "import sysconfig; print(sysconfig.get_path('purelib'))").strip())
    for name in with_all_they_need([*core_dependencies(), *map(Requirement, more)]):
        for top in tops(name):
            if not (site / top.name).exists():
                (site / top.name).symlink_to(top)
    if source:
        (site / "beamwood").mkdir()
        core = find_spec("beamwood._native")
        parts = [path for path in PACKAGE.iterdir() if not path.name.startswith("_native")]
        for path in [*parts, *([] if core is None else [Path(core.origin)])]:
            (site / "beamwood" / path.name).symlink_to(path)
    bare.run("-c", "import importlib.util; assert importlib.util.find_spec('torch') is None")
    return bare


def core_dependencies():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return [Requirement(line) for line in project["dependencies"]]


def with_all_they_need(requirements):
    """The names of the distributions and all their dependencies."""
    found, left = set(), list(requirements)
    while left:
        asked = left.pop()
        if asked.marker is not None and not asked.marker.evaluate({"extra": ""}):
            continue
        if asked.name not in found:
            found.add(asked.name)
            left += [Requirement(line) for line in distribution(asked.name).requires or ()]
    return found


def tops(name):
    """The files and folders of a distribution in site-packages."""
    known = distribution(name)
    assert known.files, f"{name} has no list of its files"
    parts = {file.parts[0] for file in known.files} - {"..", "__pycache__"}
    return [Path(known.locate_file(part)) for part in sorted(parts)]
