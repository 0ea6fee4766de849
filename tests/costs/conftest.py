"""The databases that the cost store is tested on."""

import pytest

from nnapi_prof.costs.store import CostStore
from tests.costs.postgres import Server, binaries
from tests.parts import missing


@pytest.fixture(scope="session")
def postgres():
    """A server of the programs of Debian's ``postgresql``."""
    result = binaries()
    if result is None:
        missing("no PostgreSQL server on this machine: apt-get install postgresql")
    server = Server(result)
    yield server
    server.stop()


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.postgres)])
def anywhere(request, tmp_path):
    """What ``CostStore`` takes for a new database, on each kind of database."""
    if request.param == "sqlite":
        return str(tmp_path / "costs.sqlite")
    return request.getfixturevalue("postgres").empty()


@pytest.fixture
def store(anywhere):
    """A new cost table on each kind of database."""
    with CostStore(anywhere) as opened:
        yield opened
