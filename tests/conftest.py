"""Settings of every test, and the bound of its time: what hangs ends the process, and says where it was."""

import faulthandler
import os

import pytest
from hypothesis import settings

# A machine that is busy with something else must not fail a property: no test is timed.
settings.register_profile("beamwood", deadline=None)
settings.load_profile("beamwood")

# Far above what any takes, so that only what never ends is ended: a short test, a long one, and the end of all.
SHORT, LONG, LAST = 900, 4 * 3600, 300
_SAID = pytest.StashKey[int]()


def pytest_configure(config):
    # What says where each thread stood goes past the capture of output.
    capture = config.pluginmanager.getplugin("capturemanager")
    with capture.global_and_fixture_disabled():
        config.stash[_SAID] = os.dup(2)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item):
    is_long = any(item.get_closest_marker(name) for name in ("slow", "real_data"))
    _end_after(item.config, LONG if is_long else SHORT)
    try:
        return (yield)
    finally:
        faulthandler.cancel_dump_traceback_later()


def pytest_sessionfinish(session):
    _end_after(session.config, LAST)


def _end_after(config, seconds):
    """Unless it is cancelled, say where all threads are, and end the process."""
    faulthandler.dump_traceback_later(seconds, exit=True, file=config.stash[_SAID])
