"""One server of each kind for all tests of stores."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from store_servers import postgres_server, redis_server


@pytest.fixture(scope="session")
def redis_address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with redis_server(tmp_path_factory.mktemp("redis")) as (address, _):
        yield address


@pytest.fixture(scope="session")
def postgres_address() -> Iterator[str]:
    # Another user has to enter it, which pytest's own folders do not allow.
    folder = Path(tempfile.mkdtemp(prefix="beamwood-"))
    try:
        with postgres_server(folder) as (address, _):
            yield address
    finally:
        shutil.rmtree(folder, ignore_errors=True)
