import pytest

from nnapi_prof.costs.store import CostStore


@pytest.fixture
def store(tmp_path):
    """A new cost table."""
    with CostStore(tmp_path / "costs.sqlite") as opened:
        yield opened
