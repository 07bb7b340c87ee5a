"""`python -m beamwood`."""

from beamwood.cli.main import run

run()
