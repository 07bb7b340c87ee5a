"""Calls of the command line within a test's process, and a small market to call it on."""

import os

from beamwood.cli.main import main

ENVIRONMENT = os.environ | {"OMP_NUM_THREADS": "1", "COLUMNS": "200"}
TINY = [
    "model.width=4",
    "model.attention_hidden=4",
    "model.windows=[4,2,1]",
    "model.mlp=[8,4]",
    "examples.min_history=2",
    "loop.max_steps=6",
    "loop.evaluate_every=3",
]


def beamwood(*arguments):
    """Run in this process; returns the exit code."""
    return main([str(argument) for argument in arguments])
