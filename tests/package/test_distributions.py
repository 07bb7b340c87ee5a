"""The distributions of `python -m build`: a complete sdist, and a wheel with the native core, equal from both."""

import json
import re
import tarfile
import zipfile

import pytest

pytestmark = pytest.mark.slow


def content(wheel):
    with zipfile.ZipFile(wheel) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def test_the_sdist_has_all_source_files(distributions):
    with tarfile.open(distributions.sdist) as archive:
        held = {member.name.split("/", 1)[1] for member in archive.getmembers() if member.isfile()}
    assert held - {"PKG-INFO"} == distributions.held
    for part in (
        "native/module.cpp",
        "tests/package/test_distributions.py",
        "docs/reference/glossary.md",
        "Makefile",
        "LICENSE",
    ):
        assert part in held


def test_the_wheel_of_the_sdist_equals_that_of_the_source(distributions):
    ours, theirs = content(distributions.wheel), content(distributions.rebuilt)
    assert distributions.wheel.name == distributions.rebuilt.name
    assert ours.keys() == theirs.keys()
    assert [name for name in ours if ours[name] != theirs[name]] == []


def test_the_wheel_has_the_package_and_the_native_core(distributions):
    held = content(distributions.wheel)
    sources = {name.removeprefix("src/") for name in distributions.held if name.startswith("src/beamwood/")}
    assert {"beamwood/py.typed", "beamwood/serve/page/templates/page.html"} < sources
    (info,) = {name.split("/")[0] for name in held if ".dist-info/" in name}
    (core,) = {name for name in held if not name.startswith(info)} - sources
    assert re.fullmatch(r"beamwood/_native\.[\w.-]+", core)
    assert sources < held.keys()
    assert f"{info}/licenses/LICENSE" in held
    said = held[f"{info}/METADATA"].decode().split("\n\n")[0].splitlines()
    assert not [line for line in said if line.startswith("Requires-Dist: torch") and "extra ==" not in line]
    assert not [line for line in said if line.startswith(("Project-URL", "Home-page", "Download-URL"))]


def test_the_core_of_the_wheel_works(wheel_installed):
    ((code, said, _),) = wheel_installed.beamwood(["doctor", "--json"])
    assert code == 0
    assert json.loads(said)["kernels"]["path"] == "native"
