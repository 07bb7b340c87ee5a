"""The subcommands in the order of `--help`, with runnable examples."""

from __future__ import annotations

from beamwood.cli.commands.compare import compare
from beamwood.cli.commands.demo import demo
from beamwood.cli.commands.describe import describe
from beamwood.cli.commands.doctor import doctor
from beamwood.cli.commands.evaluate import evaluate
from beamwood.cli.commands.events import events
from beamwood.cli.commands.explain import explain
from beamwood.cli.commands.fit import fit
from beamwood.cli.commands.inspect import inspect
from beamwood.cli.commands.items import export, score, similar
from beamwood.cli.commands.recommend import recommend
from beamwood.cli.commands.refit import refit
from beamwood.cli.commands.serve import serve
from beamwood.cli.commands.settings import settings
from beamwood.cli.help import Described, described

__all__ = ["COMMANDS", "EXAMPLES", "commands_by_name"]

COMMANDS = (
    demo,
    describe,
    fit,
    evaluate,
    refit,
    recommend,
    similar,
    score,
    export,
    serve,
    events,
    explain,
    compare,
    inspect,
    settings,
    doctor,
)

EXAMPLES: dict[str, tuple[str, ...]] = {
    "demo": ("beamwood demo --overwrite",),
    "describe": (
        "beamwood describe log.csv",
        "beamwood describe log.csv --items items.csv --html log.html",
    ),
    "fit": (
        "beamwood fit log.csv --out runs/mine --time-limit 30m",
        "beamwood fit log.csv --out runs/small --time-limit 10m --budget-ms 2",
        "beamwood fit log.csv --items items.csv --method dtr+ease --out runs/sum",
    ),
    "evaluate": (
        "beamwood evaluate runs/mine",
        "beamwood evaluate runs/mine --tail 0.2 --html runs/mine.html",
    ),
    "refit": (
        "beamwood refit runs/mine --out runs/served",
        "beamwood refit runs/mine --log log.csv --out runs/next --time-limit 30m",
    ),
    "recommend": (
        "beamwood recommend runs/mine --user 42 -k 10",
        "beamwood recommend runs/mine --history 5,9,2 --category shoes",
        "beamwood recommend runs/mine --all-users --out recs.parquet --threads 4",
    ),
    "similar": ("beamwood similar runs/mine --item 318 --by vectors",),
    "score": ("beamwood score runs/mine --user 42 --items candidates.txt",),
    "export": ("beamwood export runs/mine --vectors items.parquet",),
    "serve": (
        "beamwood serve runs/mine",
        "beamwood serve runs/mine --items items.csv --check",
    ),
    "compare": (
        "beamwood compare log.csv --time-limit 10m",
        "beamwood compare log.csv --methods ease,sasrec --split leave-one-out",
    ),
    "inspect": (
        "beamwood inspect runs/mine",
        "beamwood inspect runs/mine --html runs/tree.html",
    ),
    "settings": (
        "beamwood settings",
        "beamwood settings dtr",
    ),
    "events": (
        "beamwood events export sqlite:runs/mine.events.db --out taken.parquet",
        "beamwood events erase redis://localhost --from runs/mine --out runs/new",
    ),
    "explain": ("beamwood explain 9f3c2a7e51d08b46 --store sqlite:runs/mine.events.db",),
    "doctor": ("beamwood doctor",),
}


def commands_by_name() -> dict[str, Described]:
    """The help of every command by its name."""
    return {command.__name__: described(command, EXAMPLES[command.__name__]) for command in COMMANDS}
