"""Graphs of a few nodes, and a compiler with a cache of its own."""

from __future__ import annotations

import os

import pytest

from nnapi_prof.errors import UsageError


@pytest.fixture(scope="session")
def wheel() -> None:
    """Skips where Qualcomm's compiler is not installed; NNAPI_PROF_REQUIRE_ALL=1 fails there."""
    from nnapi_prof.qnn.wheel import require

    try:
        require()
    except UsageError as error:
        if os.environ.get("NNAPI_PROF_REQUIRE_ALL") == "1":
            pytest.fail(f"{error}, and NNAPI_PROF_REQUIRE_ALL=1", pytrace=False)
        pytest.skip(str(error))


@pytest.fixture
def pool(wheel, tmp_path):
    """One worker, and nothing remembered from elsewhere."""
    from nnapi_prof.qnn.compiler import CompilerPool

    with CompilerPool(1, tmp_path / "cache") as made:
        yield made
