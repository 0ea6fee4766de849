"""The search's loops in C: compiled on first use, wherever that is possible."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from nnapi_prof.errors import BuildError
from nnapi_prof.partition import plan_problem
from nnapi_prof.partition.search import library, pointers
from tests.partition.problems import stem_problem


@pytest.fixture
def no_library_yet() -> Iterator[None]:
    library.cache_clear()
    yield
    library.cache_clear()


@pytest.mark.usefixtures("no_library_yet")
def test_without_a_compiler_the_error_says_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NNAPI_PROF_CACHE_DIR", str(tmp_path))
    monkeypatch.setenv("NNAPI_PROF_CC", "no-such-compiler")
    with pytest.raises(BuildError, match="not a working C compiler: name another"):
        plan_problem(stem_problem(4))


@pytest.mark.usefixtures("no_library_yet")
def test_a_cache_that_cannot_be_written_is_done_without(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("NNAPI_PROF_CACHE_DIR", str(tmp_path / "file"))
    assert plan_problem(stem_problem(4)).best.segments
    assert "compiled for this once" in caplog.text


def test_arrays_that_c_would_misread_are_refused() -> None:
    with pytest.raises(ValueError, match="array 1 of 2 is not contiguous"):
        pointers([np.zeros(4), np.zeros((4, 4))[:, ::2]])
