"""`python -m beamwood`, and the command `beamwood`."""

import signal
import sys

__all__ = ["run"]


def run() -> None:
    """Run the command line and exit; an interrupt while its modules are still loading ends like any other."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        from beamwood.cli.main import run as start

        start()
    except KeyboardInterrupt:
        sys.stderr.write("beamwood: interrupted; nothing was saved; run it again\n")
        sys.exit(130)


if __name__ == "__main__":
    run()
