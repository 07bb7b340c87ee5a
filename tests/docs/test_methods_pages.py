"""Each method has a short page in a fixed form; each command and each package is on its page."""

import re
from pathlib import Path

import pytest

from beamwood.cli.registry import COMMANDS
from beamwood.methods import METHODS, load_method

DOCS = Path(__file__).parents[2] / "docs"
MOST_WORDS = 300


@pytest.mark.parametrize("name", METHODS)
def test_a_method_has_a_page(name):
    page = (DOCS / "methods" / f"{name}.md").read_text()
    method = load_method(name)
    heads = re.findall(r"^## (.*)$", page, re.MULTILINE)
    assert heads[-2:] == ["Measured", "Settings"]
    assert ("Presets" in heads) == bool(method.presets)
    assert f"```{{settings}} {name}\n```" in page
    assert re.search(rf"<!-- table method-{name} -->\n(.*\n)*<!-- end method-{name} -->", page)
    prose = re.sub(r"<!-- table.*?<!-- end[^>]*-->", "", page, flags=re.DOTALL)
    assert len(prose.split()) <= MOST_WORDS
    presets = prose.partition("## Presets")[2].partition("\n## ")[0]
    assert {preset for preset in method.presets if f"`{preset}`" not in presets} == set()
    differs = re.search(r"## What (?:differs|to know)\n\n((?:- .*\n)+)", prose)
    assert differs is not None
    assert 2 <= differs[1].count("\n") <= 8


@pytest.mark.parametrize("name", METHODS)
def test_settings_named_in_a_page_exist(name):
    page = (DOCS / "methods" / f"{name}.md").read_text()
    known = load_method(name).Config.names()
    for setting in re.findall(r"`((?:model|tree|start|examples|loss|optimiser|loop|choose|index)\.\w+)", page):
        assert setting in known, f"{name}.md names {setting}"


def test_every_method_page_belongs_to_a_method():
    assert {path.stem for path in (DOCS / "methods").glob("*.md")} == {*METHODS, "index"}


def test_every_command_has_its_section():
    page = (DOCS / "reference" / "command-line.md").read_text()
    names = [command.__name__ for command in COMMANDS]
    assert re.findall(r"^## (\w+)\n\n```\{command\} (\w+)\n```$", page, re.MULTILINE) == [(n, n) for n in names]


def test_the_page_of_the_architecture_names_every_package():
    page = (DOCS / "develop" / "architecture.md").read_text()
    source = DOCS.parent / "src" / "beamwood"
    names = [path.stem for path in source.iterdir() if path.suffix == ".py" or (path / "__init__.py").is_file()]
    assert [name for name in names if name.strip("_") == name and not re.search(rf"\b{name}\b", page)] == []
