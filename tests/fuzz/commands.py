"""Commands with words replaced, removed and added: exit code 0 or 2, and one line of error."""

import contextlib
import io

import polars as pl

from beamwood.cli.registry import commands_by_name
from cli_cases import beamwood
from fuzz.calls import planted
from fuzz.values import WORDS, drawn

__all__ = ["Commands"]

# Commands that terminate, without long training.
KEPT = ("--method", "--methods")


class Commands:
    """A log, a fitted folder and the commands on them."""

    def __init__(self, folder):
        self.folder = folder
        log, items, fitted = folder / "log.csv", folder / "items.csv", folder / "fitted"
        planted().write_csv(log)
        taken = planted()["item"].unique().sort()
        pl.DataFrame({"item": taken, "category": "odd", "price": 1.5}).write_csv(items)
        counted = ["--method", "popularity", "--split", "leave-one-out", "--items", items]
        self.bases = [
            ["describe", log, "--items", items],
            ["fit", log, "--out", folder / "out", "--overwrite", *counted],
            ["evaluate", fitted, "--k", "3"],
            ["refit", fitted, "--out", folder / "again", "--overwrite", "--log", log],
            ["recommend", fitted, "--user", "u1", "-k", "3"],
            ["recommend", fitted, "--history", "i01,i02", "--category", "odd"],
            ["recommend", fitted, "--all-users", "--out", folder / "recs.parquet", "--overwrite"],
            ["similar", fitted, "--item", "i01"],
            ["score", fitted, "--user", "u1", "--items", items],
            ["export", fitted, "--vectors", folder / "vectors.parquet"],
            ["inspect", fitted],
            ["settings", "dtr"],
            ["doctor"],
        ]
        self.options = {
            name: [one for one in page.options if one.typed.startswith("-")]
            for name, page in commands_by_name().items()
        }
        code, said = self.run(["fit", log, "--out", fitted, *counted, "--keep-columns", "price"])
        assert code == 0, said

    def case(self, seed, number):
        """The words, and the call that runs them, which raises on any other behaviour."""
        chance = drawn("command", seed, number)
        words = [str(word) for word in chance.choice(self.bases)]
        for _ in range(chance.choice((1, 1, 2, 3))):
            place = chance.randrange(1, len(words) + 1)
            kind = chance.randrange(4)
            if kind == 0 and place < len(words) and words[place - 1] not in KEPT:
                words[place] = chance.choice(WORDS)
            elif kind == 1 and place < len(words) and not {words[place], words[place - 1]} & {*KEPT}:
                del words[place]
            else:
                option = chance.choice(self.options[words[0]])
                name, *value = option.typed.split(", ")[-1].split(" ", 1)
                if name not in (*KEPT, "--html", "--tensorboard", "--out"):
                    words += [name, *([chance.choice(WORDS)] if value else [])]
        return f"beamwood {' '.join(map(ascii, words))}", lambda: self.check(words)

    def check(self, words):
        """Whether the command succeeded. Anything but success and refusal in one line is a failure."""
        code, said = self.run(words)
        assert code in (0, 2), f"exit code {code}: {said[-300:]}"
        assert "Traceback" not in said, said[-300:]
        return code == 0

    def run(self, words):
        """The exit code and stderr."""
        errors = io.StringIO()
        with (
            contextlib.redirect_stderr(errors),
            contextlib.redirect_stdout(io.StringIO()),
            contextlib.chdir(self.folder),
        ):
            code = beamwood(*words)
        return code, errors.getvalue()
