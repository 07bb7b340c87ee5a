"""The subcommands, in the order that `--help` lists them."""

from beamwood.cli.compare import compare
from beamwood.cli.demo import demo
from beamwood.cli.doctor import doctor
from beamwood.cli.evaluate import evaluate
from beamwood.cli.fit import fit
from beamwood.cli.inspect import inspect
from beamwood.cli.recommend import recommend
from beamwood.cli.settings import settings

__all__ = ["COMMANDS"]

COMMANDS = (demo, fit, evaluate, recommend, compare, inspect, settings, doctor)
