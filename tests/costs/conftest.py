"""The databases that the cost store is tested on."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.costs.postgres import Server, binaries


@pytest.fixture(scope="session")
def postgres() -> Iterator[Server]:
    """A server, or a skip where Debian's ``postgresql`` is not installed.

    NNAPI_PROF_REQUIRE_ALL=1 fails there.
    """
    result = binaries()
    if result is None:
        text = "no PostgreSQL server on this machine: apt-get install postgresql"
        if os.environ.get("NNAPI_PROF_REQUIRE_ALL") == "1":
            pytest.fail(text, pytrace=False)
        pytest.skip(text)
    server = Server(result)
    yield server
    server.stop()


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.postgres)])
def anywhere(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """What ``CostStore`` takes for a new database, on each kind of database."""
    if request.param == "sqlite":
        return str(tmp_path / "costs.sqlite")
    server: Server = request.getfixturevalue("postgres")
    return server.empty()
