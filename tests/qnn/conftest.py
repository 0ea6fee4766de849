"""Graphs of a few nodes, and a compiler with a cache of its own."""

import pytest

from nnapi_prof.errors import UsageError
from tests.cli.conftest import cli as cli
from tests.parts import missing


@pytest.fixture(scope="session")
def wheel() -> None:
    """Qualcomm's compiler is installed."""
    from nnapi_prof.qnn import require_compiler

    try:
        require_compiler()
    except UsageError as error:
        missing(str(error))


@pytest.fixture
def pool(wheel, tmp_path):
    """One worker, and nothing remembered from elsewhere."""
    from nnapi_prof.qnn.compiler import CompilerPool

    with CompilerPool(1, tmp_path / "cache") as made:
        yield made


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    """Remembers what is compiled for the tests of a module alone."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("NNAPI_PROF_CACHE_DIR", str(tmp_path_factory.mktemp("cache")))
        yield
