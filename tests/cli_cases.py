"""Calls of the command line in the test's process, and a small market for them."""

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
    """Run a command in this process and return its exit code."""
    return main([str(argument) for argument in arguments])
