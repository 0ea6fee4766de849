"""The databases that the cost store is tested on."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.costs.postgres import Server, binaries
from tests.parts import missing


@pytest.fixture(scope="session")
def postgres() -> Iterator[Server]:
    """A server of the programs of Debian's ``postgresql``."""
    result = binaries()
    if result is None:
        missing("no PostgreSQL server on this machine: apt-get install postgresql")
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
