"""The real data sets, which lie beside the checkout."""

import os
from pathlib import Path

import pytest


def real_data(name):
    """The folder of a data set; without it the test is skipped."""
    shared = Path(os.environ.get("BEAMWOOD_SHARED", Path(__file__).parents[1] / "../shared"))
    if not (shared / "data" / name).is_dir():
        pytest.skip(f"the data set {name} is not beside the checkout (../shared)")
    return shared / "data" / name
