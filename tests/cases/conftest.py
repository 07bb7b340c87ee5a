"""A planted log, written in the form of a case, and the command line called on it."""

import random

import polars as pl
import pytest

from cli_cases import beamwood


def rows(users=40, items=30, per=8, seed=3):
    """Rows of user, item, rating and time: each user has mostly items of one of three tastes, at increasing times."""
    chance, time, out = random.Random(seed), 1_650_000_000, []
    for user in range(users):
        own = chance.sample([item for item in range(items) if item % 3 == user % 3], per - 2)
        for item in own + chance.sample([item for item in range(items) if item % 3 != user % 3], 2):
            time += chance.randint(60, 7200)
            out.append((user, item, chance.choice([2, 4, 5]), time))
    return out


@pytest.fixture
def planted():
    return rows()


@pytest.fixture
def write(tmp_path):
    """Rows as a CSV file, or with another separator and header."""

    def written(data, name="log.csv", header="user_id,item_id,rating,timestamp", separator=","):
        lines = [*([header] if header else []), *(separator.join(map(str, row)) for row in data)]
        (tmp_path / name).write_text("\n".join(lines) + "\n", encoding="utf-8")
        return tmp_path / name

    return written


@pytest.fixture
def say(tmp_path, capsys):
    """Run a command and return its stdout and stderr. A fit is by popularity, into a folder next to the log."""

    def said(command, *arguments, code=0):
        if command == "fit" and "--method" not in arguments:
            arguments = (*arguments, "--method", "popularity")
        extra = ("--out", tmp_path / "out", "--overwrite") if command == "fit" else ()
        assert beamwood(command, *arguments, *extra) == code, capsys.readouterr().err
        captured = capsys.readouterr()
        if code == 2:
            assert len(captured.err.strip().splitlines()[-1:]) == 1
            assert "Traceback" not in captured.err
        return captured.out + captured.err

    return said


@pytest.fixture
def frame(planted):
    return pl.DataFrame(planted, schema=["user_id", "item_id", "rating", "timestamp"], orient="row")
