"""(e) A driver that goes on with the run of a client that was killed; (g) one that keeps the
parameters of one model; one that holds few compilations."""

import pytest

from nnapi_prof.execution.profile import measurer, state
from tests.parts import again_but
from tests.phones.conftest import CLEAN, check_like, fault, refuse, service

pytestmark = pytest.mark.slow


def test_after_a_killed_run_the_driver_is_waited_for(profiled):
    """A pooling hangs; while the driver works on it, others' runs take four times as long."""
    clean = profiled(CLEAN, "twin", timeout_s=2)
    busy = service(CLEAN, lingers=1, lingers_factor=4)
    busy = fault(busy, kind="hang", stage="execute", operation="MAX_POOL_2D", nth=1)
    lingering = profiled(busy, timeout_s=2)
    # NNAPI's choice, which takes it, is not asked then.
    failed = {(label.split()[0], target) for label, target in lingering.failures}
    assert failed == {("max_pool2d", "sim-npu")}
    assert [w for w in lingering.unlike(clean) if not w.startswith("max_pool2d")] == []


def test_waiting_for_a_driver_ends(profiled, monkeypatch):
    """What is left is measured by the next profile, which does not try again what hangs."""
    hangs = service(CLEAN, lingers=0.1)
    hangs = fault(hangs, kind="hang", stage="execute", operation="DEPTHWISE_CONV_2D", nth=1)
    clean = profiled(refuse(CLEAN, "DEPTHWISE_CONV_2D"), "twin", timeout_s=2)
    with monkeypatch.context() as patched:
        patched.setattr(state, "LEAST_LOST_S", 0.5)
        patched.setattr(state, "LOST_SHARE", 0.0)
        patched.setattr(measurer, "MAX_ACTIONS", 12)
        first = profiled(hangs, timeout_s=2)
    outcome = first.costs.outcome
    assert 0.5 < outcome.lost_s < 15
    assert [doubt.rpartition(": ")[2] for doubt in outcome.doubts] == ["sim-npu"]
    keys = {(row.signature, row.target) for row in first.rows}
    missing = {row.target for row in clean.rows if (row.signature, row.target) not in keys}
    assert {target.accelerator for target in missing} <= {"sim-npu", "auto"} != set()
    then = profiled(hangs, timeout_s=2)
    outcome = then.costs.outcome
    assert (outcome.doubts, then.segments) == ({}, clean.segments)
    assert outcome.n_measured > 0 and {name for _, name in then.failures} == {"sim-npu"}


@pytest.mark.parametrize("load_runs", again_but([1, 2], 2, why="as with 2"))
def test_models_that_push_each_other_out_are_timed_loaded(profiled, load_runs):
    pushing = service(CLEAN, loaded=1, load=5000, load_runs=load_runs)
    check_like(profiled(pushing), profiled(CLEAN, "twin"))


@pytest.mark.parametrize("room", again_but([1, 2, 3], 1, why="as a driver of one"))
def test_as_many_models_are_compiled_at_once_as_the_driver_holds(profiled, room):
    check_like(profiled(service(CLEAN, compilations=room)), profiled(CLEAN, "twin"))
