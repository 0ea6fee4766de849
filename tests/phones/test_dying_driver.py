"""(d) A driver whose service dies on one of ten units, and returns after a moment."""

from __future__ import annotations

import dataclasses
import sqlite3
from pathlib import Path

import pytest

import nnapi_prof as np_
from nnapi_prof.costs.measurement import Status
from nnapi_prof.errors import DeviceError
from tests.phones.conftest import CLEAN, Profiler, fault, service

pytestmark = pytest.mark.slow


def test_a_driver_that_died_once_leaves_no_trace(profiled: Profiler) -> None:
    clean = profiled(CLEAN, "clean")
    died = service(CLEAN, returns=1)
    died = fault(died, kind="die", stage="execute", operation="CONV_2D", nth=1, from_run=3, times=1)
    once = profiled(died)
    assert once.failures == {}
    assert once.segments == clean.segments
    assert once.unlike(clean) == []
    assert max(row.attempts for row in once.rows) == 2
    assert once.seconds <= 1.5 * clean.seconds


def test_only_what_kills_the_driver_has_failed(profiled: Profiler) -> None:
    """Its neighbours in the group do not fail with it, nor does NNAPI's own choice count as fast as
    the CPU that it falls back to."""
    clean = profiled(CLEAN, "clean")
    died = service(CLEAN, returns=0.5)
    died = fault(died, kind="die", stage="execute", operation="MAX_POOL_2D", nth=1)
    always = profiled(died)
    assert {(label.split()[0], target) for label, target in always.failures} == {
        ("max_pool2d", "sim-npu")
    }
    assert all("DEAD_OBJECT" in message for message in always.failures.values())
    failed = [row for row in always.rows if row.status is Status.FAILED]
    assert {row.attempts for row in failed} == {2}
    unlike = [words for words in always.unlike(clean) if not words.startswith("max_pool2d")]
    assert unlike == []


def test_failures_of_an_agent_that_did_not_try_again_are_measured_again(
    profiled: Profiler, tmp_path: Path
) -> None:
    """A table that was filled while a driver died, used again by another model."""
    clean = profiled(CLEAN)
    with sqlite3.connect(tmp_path / "phone.sqlite") as table:
        table.execute(
            "update measurements set status = 'failed', samples_ns = '[]', attempts = null"
            " where target like 'nnapi:sim-npu%'"
        )
    again = profiled(CLEAN)
    assert again.failures == {}
    assert again.segments == clean.segments
    assert again.unlike(clean) == []


def test_a_driver_that_hangs_ends_the_request_and_is_named(profiled: Profiler) -> None:
    stopped = service(CLEAN, "sim-gpu", returns=1)
    stopped = fault(stopped, "sim-gpu", kind="stop", stage="execute", operation="CONV_2D", times=1)
    told: list[str] = []

    def note(progress: np_.Progress) -> None:
        told.append(progress.label)

    with pytest.raises(DeviceError, match="the driver sim-gpu hangs"):
        profiled(stopped, progress=note)
    assert any("no progress for 5 s" in words for words in told)
    # From the start, too: nothing is measured of a device that seems to have a CPU only.
    with pytest.raises(DeviceError, match="the driver sim-gpu hangs"):
        profiled(stopped)


def test_what_is_measured_after_a_driver_went_on_is_as_if_it_never_hung(profiled: Profiler) -> None:
    clean = profiled(CLEAN, "clean")
    stopped = service(CLEAN, stops=3)
    stopped = fault(stopped, kind="stop", stage="compile", operation="CONV_2D", nth=1, times=1)
    after = profiled(stopped)
    assert (after.failures, after.segments) == ({}, clean.segments)
    assert after.unlike(clean) == []
    assert dataclasses.astuple(after.plan.plan.segments[0])[0] == clean.plan.plan.segments[0].units
