"""Settings of every test."""

from hypothesis import settings

# A machine that is busy with something else must not fail a property: no test is timed.
settings.register_profile("beamwood", deadline=None)
settings.load_profile("beamwood")
