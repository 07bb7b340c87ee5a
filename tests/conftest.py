"""Settings of every test."""

import pytest
from hypothesis import settings

# A machine that is busy with something else must not fail a property: no test is timed.
settings.register_profile("beamwood", deadline=None)
settings.load_profile("beamwood")

# Far above what any takes, so that only what never ends is ended.
SHORT, LONG = 900, 4 * 3600


def pytest_collection_modifyitems(items):
    for item in items:
        is_long = any(item.get_closest_marker(name) for name in ("slow", "real_data"))
        item.add_marker(pytest.mark.timeout(LONG if is_long else SHORT))
