"""`python -m beamwood`, and the command `beamwood`."""

import os
import signal
import sys
from typing import Any, NoReturn

__all__ = ["run"]


def _stop(*_: Any) -> NoReturn:
    """End a server that does not listen yet: there is nothing to finish."""
    os.write(2, b"beamwood: stopped before it was ready\n")
    os._exit(0)


def run() -> None:
    """Run the command line and exit; an interrupt while its modules are still loading ends like any other.

    A supervisor stops a server at any time: SIGTERM and SIGINT end the start of one with 0, as they end a running one.
    """
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    if sys.argv[1:2] == ["serve"] and "--check" not in sys.argv:
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, _stop)
        if sys.platform != "win32":  # a reload waits until it can be made
            signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGHUP})
    try:
        from beamwood.cli.main import run as start

        start()
    except KeyboardInterrupt:
        sys.stderr.write("beamwood: interrupted; nothing was saved; run it again\n")
        sys.exit(130)


if __name__ == "__main__":
    run()
