"""One server of each kind for all store tests."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from beamwood.serve.store.open import open_store
from beamwood.serve.store.protocol import HistoryStore
from store_servers import KINDS, address_of, postgres_server, redis_server


@pytest.fixture(scope="session")
def redis_address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with redis_server(tmp_path_factory.mktemp("redis")) as (address, _):
        yield address


@pytest.fixture(scope="session")
def postgres_address() -> Iterator[str]:
    # Another user must be able to enter the folder, which pytest's folders do not allow.
    folder = Path(tempfile.mkdtemp(prefix="beamwood-"))
    try:
        with postgres_server(folder) as (address, _):
            yield address
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(params=KINDS)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[HistoryStore]:
    opened = open_store(address_of(request.param, request, tmp_path))
    yield opened
    opened.close()
