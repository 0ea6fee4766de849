"""(f) Shared memory of some kinds is refused to a driver, as SELinux does it: its runs fail, and
nothing says why."""

from __future__ import annotations

import pytest

from tests.phones.conftest import CLEAN, Profiler, service

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(
    ("kinds", "memory"), [(["file"], "file"), (["memfd"], "memfd"), ([], "pointers")]
)
def test_the_next_kind_of_memory_is_tried(
    profiled: Profiler, kinds: list[str], memory: str
) -> None:
    clean = profiled(CLEAN, "clean")
    refused = profiled(service(CLEAN, memory=kinds))
    assert (refused.failures, refused.segments) == ({}, clean.segments)
    assert refused.unlike(clean) == []
    by_target = {row.target.accelerator: set() for row in refused.rows if row.usable}
    for row in refused.rows:
        if row.usable:
            by_target[row.target.accelerator].add(row.memory)
    assert by_target["sim-npu"] == {memory}
    assert by_target["sim-gpu"] == {"file"}, "each accelerator has its own"
    assert refused.seconds <= 1.5 * clean.seconds
