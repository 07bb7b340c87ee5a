"""Calls of the command line within a test's process, and a small market to call it on."""

import os

from beamwood.cli.main import main

ENVIRONMENT = os.environ | {"OMP_NUM_THREADS": "1", "COLUMNS": "200"}
TINY = [
    "width=4",
    "attention_hidden=4",
    "windows=[4,2,1]",
    "mlp=[8,4]",
    "min_history=2",
    "max_steps=6",
    "evaluate_every=3",
]


def beamwood(*arguments):
    """Run in this process; returns the exit code."""
    return main([str(argument) for argument in arguments])
