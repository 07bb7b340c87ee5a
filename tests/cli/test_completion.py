"""Shell completion of commands, options, methods and splits, by each shell's protocol."""

import pytest

from beamwood.cli.main import main
from beamwood.cli.registry import COMMANDS
from beamwood.methods import METHODS


@pytest.fixture
def complete(capsys, monkeypatch):
    """The completions for a partially typed line."""

    def completed(line, shell="bash"):
        words = line.split(" ")
        asked = {
            "bash": {"COMP_WORDS": line, "COMP_CWORD": str(len(words) - 1)},
            "zsh": {"_TYPER_COMPLETE_ARGS": line},
            "fish": {"_TYPER_COMPLETE_ARGS": line, "_TYPER_COMPLETE_FISH_ACTION": "get-args"},
        }
        monkeypatch.setenv("_BEAMWOOD_COMPLETE", f"complete_{shell}")
        for name, value in asked[shell].items():
            monkeypatch.setenv(name, value)
        assert main([]) == 0
        captured = capsys.readouterr()
        assert captured.err == ""
        return captured.out if shell == "zsh" else [row.split("\t")[0] for row in captured.out.splitlines() if row]

    return completed


def test_commands(complete):
    assert complete("beamwood ") == [command.__name__ for command in COMMANDS]
    assert complete("beamwood des") == ["describe"]
    assert complete("beamwood e", "fish")[0] == "evaluate"
    assert '"describe"' in complete("beamwood des", "zsh")


def test_options(complete):
    assert complete("beamwood fit log.csv --meth") == ["--method"]
    assert {"--log", "--tail", "--json", "-k"} > set(complete("beamwood evaluate runs/mine --js")) == {"--json"}


def test_values(complete):
    assert complete("beamwood fit log.csv --method du") == []
    assert complete("beamwood fit log.csv --method d") == ["dtr", "din"]
    assert sorted(complete("beamwood settings ")) == sorted(METHODS)
    assert complete("beamwood compare log.csv --split l") == ["leave-one-out"]
    assert complete("beamwood describe log.csv --missing d") == ["drop"]


def test_an_option_installs_completion(capsys, monkeypatch):
    monkeypatch.setenv("_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION", "1")
    assert main(["--show-completion", "bash"]) == 0
    script = capsys.readouterr().out
    assert "_BEAMWOOD_COMPLETE=complete_bash" in script
    assert main(["--help"]) == 0
    assert "--install-completion" in capsys.readouterr().out
