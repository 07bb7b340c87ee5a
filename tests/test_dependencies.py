"""The package imports only its declared dependencies, not development tools."""

import ast
import subprocess
import sys
import tomllib
from pathlib import Path

from packaging.requirements import Requirement
from packaging.version import Version

from beamwood.extras import EXTRAS

ROOT = Path(__file__).parents[1]


def test_every_import_is_declared():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    names = {Requirement(line).name.replace("-", "_") for line in project["dependencies"]}
    names |= {module for extra in EXTRAS.values() for module in extra.modules}
    imported = {}
    for path in (ROOT / "src").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            modules = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            modules += [node.module] if isinstance(node, ast.ImportFrom) and node.module else []
            imported |= {module.split(".")[0]: path.name for module in modules}
    assert len(imported) > 20
    unknown = {
        name: path for name, path in imported.items() if name not in {*names, *sys.stdlib_module_names, "beamwood"}
    }
    assert not unknown


def test_extras_are_those_of_the_project():
    """Extras in `beamwood doctor` and in errors match those that pip installs."""
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert set(declared) - {"dev"} == set(EXTRAS)
    for name, extra in EXTRAS.items():
        assert {Requirement(line).name for line in declared[name]} == set(extra.modules.values())


def test_every_dependency_is_pinned():
    """`make` installs the tested versions on every machine."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    declared = [
        *project["dependencies"],
        *(line for extra in project["optional-dependencies"].values() for line in extra),
    ]
    lines = [line for line in (ROOT / "constraints.txt").read_text().splitlines() if not line.startswith("#")]
    pinned = {name: Version(version) for name, version in (line.split("==") for line in lines)}
    asked = {each.name: each for each in map(Requirement, declared) if each.name != "beamwood"}
    assert asked.keys() == pinned.keys()
    for name, requirement in asked.items():
        assert requirement.specifier.contains(pinned[name])


def test_nothing_is_declared_twice():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    for lines in [project["dependencies"], *project["optional-dependencies"].values()]:
        names = [Requirement(line).name for line in lines]
        assert len(set(names)) == len(names)


def test_methods_and_their_settings_need_no_torch():
    """Each method is one file that imports torch only inside functions."""
    program = (
        "import sys\nfrom beamwood.cli.main import main\nfrom beamwood.methods import METHODS, load_method\n"
        "assert not any(name in sys.modules for name in METHODS.values())\n"
        "for name in METHODS:\n    load_method(name).Config()\n"
        "assert main(['settings', 'dtr']) == main(['settings']) == main(['fit', '--help']) == 0\n"
        "assert 'torch' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, capture_output=True)


def test_answering_imports_no_method():
    program = (
        "import sys\nimport beamwood\nfrom beamwood.retrieval.retriever import Retriever\nbeamwood.load\n"
        "assert not any(name.startswith('beamwood.methods') for name in sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, capture_output=True)
