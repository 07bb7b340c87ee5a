"""`--help` is one screen that starts with an example, and `--help-all` lists every option."""

import inspect
import json
import shlex

import pytest

from beamwood.cli.registry import COMMANDS, commands_by_name
from cli_cases import beamwood

NAMES = [command.__name__ for command in COMMANDS]
PAGES = commands_by_name()


def shown(capsys, *arguments):
    assert beamwood(*arguments) == 0
    return capsys.readouterr().out.splitlines()


@pytest.fixture(autouse=True)
def narrow(monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")


@pytest.mark.parametrize("name", NAMES)
def test_help_is_one_screen_and_starts_with_an_example(name, capsys):
    lines = shown(capsys, name, "--help")
    assert len(lines) <= 40
    assert max(map(len, lines)) <= 80
    assert lines[0].startswith(f"Example: beamwood {name}")
    usage = next(line for line in lines if line.startswith("Usage: "))
    assert usage == f"Usage: {PAGES[name].usage}"


def test_the_first_help_lists_the_commands(capsys):
    lines = shown(capsys, "--help")
    assert len(lines) <= 40
    assert max(map(len, lines)) <= 80
    assert lines[0].startswith("Example: beamwood fit ")
    assert {name for name in NAMES if any(line.startswith(f"  {name} ") for line in lines)} == set(NAMES)


@pytest.mark.parametrize(("command", "name"), [*zip(COMMANDS, NAMES, strict=True)], ids=NAMES)
def test_help_all_lists_every_option(command, name, capsys):
    listed = shown(capsys, name, "--help-all")
    for option in PAGES[name].options:
        assert any(line.startswith(f"  {option.typed}") for line in listed), option.typed
    own = [one for one in inspect.signature(command).parameters if one != "more"]
    assert len(PAGES[name].options) == len([*own, "quiet", "verbose"])
    short = shown(capsys, name, "--help")
    further = [one for one in PAGES[name].options if one.further]
    assert not [one.typed for one in further if any(line.startswith(f"  {one.typed}") for line in short)]
    assert (f"  {'--help-all':<22}List every option, {len(further)} more." in short) == bool(further)


def test_help_all_of_the_program_covers_every_command(capsys):
    lines = shown(capsys, "--help-all")
    for name in NAMES:
        assert shown(capsys, name, "--help-all")[0] in lines


@pytest.mark.parametrize(
    ("name", "example"), [(name, example) for name, page in PAGES.items() for example in page.examples]
)
def test_examples_use_existing_options(name, example):
    program, command, *words = shlex.split(example)
    known = {part.split()[0] for one in PAGES[name].options for part in one.typed.split(", ")}
    assert (program, command) == ("beamwood", name)
    assert {word for word in words if word.startswith("-")} <= known


def test_options_have_short_descriptions():
    for name, page in PAGES.items():
        assert page.summary.endswith(".")
        for option in page.options:
            assert option.meaning.endswith("."), (name, option.typed)
            assert len(option.meaning.split()) <= 35, (name, option.typed)


def test_help_shows_required_arguments_and_defaults(capsys):
    assert PAGES["fit"].usage == "beamwood fit LOG [options]"
    assert PAGES["settings"].usage == "beamwood settings [METHOD] [options]"
    assert "[default: users]" in " ".join(shown(capsys, "fit", "--help"))
    assert "[default: 0]" in " ".join(shown(capsys, "demo", "--help-all"))


def test_without_a_command_help_is_shown(capsys):
    assert beamwood() == 2
    assert capsys.readouterr().out.startswith("Example: beamwood fit ")


def test_help_exits_with_0(capsys):
    assert beamwood("fit", "--help-all", "--json") == 0
    assert beamwood("fit", "--json") == 2
    assert "error" in json.loads(capsys.readouterr().out.splitlines()[-1])
