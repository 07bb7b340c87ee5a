"""Simulated clocks, so that results do not depend on the machine."""

import signal


class Clock:
    """A clock that a test advances."""

    def __init__(self, now=100.0):
        self.now = now

    def __call__(self):
        return self.now


class Ticks:
    """A clock that advances by `step` with each reading, and at `rings` sends this process a SIGINT."""

    def __init__(self, step=0.04, *, rings=None):
        self.now, self.step, self.rings = 0.0, step, rings

    def __call__(self):
        self.now += self.step
        if self.rings is not None and self.now >= self.rings:
            self.rings = None
            signal.raise_signal(signal.SIGINT)
        return self.now
