"""Training in forked processes: the threads of torch do not survive a fork, and who needs them waits forever."""

from __future__ import annotations

import os

import torch

from beamwood.errors import InputError

__all__ = ["refuse_after_fork"]

# The last process that trained with several threads: this one, or one that this was forked from.
_trained_in: list[int] = []


def refuse_after_fork() -> None:
    """To be called before a training. Errors: this process was forked from one that trained with several threads."""
    if torch.get_num_threads() == 1:
        return
    if _trained_in and _trained_in != [os.getpid()]:
        raise InputError(
            "this process was forked from one that has trained with several threads, so its own training would wait "
            "forever; start processes by multiprocessing.get_context('spawn')"
        )
    _trained_in[:] = [os.getpid()]
