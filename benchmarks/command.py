"""How a command ends."""

from __future__ import annotations

import sys
from collections.abc import Callable

from beamwood.errors import InputError
from beamwood.training.interrupt import Interrupted

__all__ = ["exit_code"]


def exit_code(name: str, work: Callable[[], int]) -> int:
    """What `work` gives; 2 and a line on stderr where a person can mend what is wrong, 130 after Ctrl-C."""
    try:
        return work()
    except InputError as error:
        print(f"{name}: {error}", file=sys.stderr)
        return 2
    except (KeyboardInterrupt, Interrupted):
        return 130
