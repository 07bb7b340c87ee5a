"""Calls of the command line in the test's process, and a small market for them."""

import os

from beamwood.cli.main import main
from beamwood.retrieval.batch.group_answers import GroupAnswers

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


def interrupt_second_block(monkeypatch):
    """Press Ctrl-C, once, in the second block of a batch job; the list of the first label of each block."""
    frame, calls = GroupAnswers._frame, []

    def breaking(self, rows, labels):
        calls.append(labels[0])
        if len(calls) == 2:
            raise KeyboardInterrupt
        return frame(self, rows, labels)

    monkeypatch.setattr(GroupAnswers, "_frame", breaking)
    return calls
