"""Settings of all tests."""

import pytest
from hypothesis import settings

# Load on the machine must not fail a property test, so no test is timed.
settings.register_profile("beamwood", deadline=None)
settings.load_profile("beamwood")

# Far longer than any test takes, so that only tests that hang are stopped.
SHORT, LONG = 900, 4 * 3600


def pytest_collection_modifyitems(items):
    for item in items:
        is_long = any(item.get_closest_marker(name) for name in ("slow", "real_data"))
        item.add_marker(pytest.mark.timeout(LONG if is_long else SHORT))
