"""Two models in a folder, and the options to serve them with events that are kept."""

from __future__ import annotations

import pytest

from served import saved


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """A folder with two models, "one" and "other"."""
    folder = tmp_path_factory.mktemp("models")
    saved(folder / "one", 0)
    saved(folder / "other", 1)
    return folder


@pytest.fixture
def options(models, tmp_path):
    return {"models_dir": models, "store": f"sqlite:{tmp_path / 'events.db'}"}
