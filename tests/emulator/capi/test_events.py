"""Asynchronous executions, their events, and descriptors in the place of sync fences."""

import ctypes as C
import os
import select
import time

import numpy as np
import pytest

from tests.emulator.nnapi import (
    DATA,
    MISSED,
    OK,
    POSITIVE,
    R,
    duration,
    handles,
    prepared,
    relu,
    relu_chain,
)


@pytest.fixture
def ready(nn, compiled):
    """Makes an execution ready to start; gives it and its result."""

    def make():
        result = np.zeros((1, 8), np.float32)
        return prepared(nn, compiled, [DATA], [result]), result

    return make


@pytest.fixture
def gate(nn):
    """A pipe stands for a sync fence: it signals when it becomes readable. Gives the event, and the
    end to write to."""
    read_end, write_end = os.pipe()
    event = nn.new("Event_createFromSyncFenceFd", read_end)
    os.close(read_end)
    with os.fdopen(write_end, "wb", buffering=0) as end:
        yield event, end


def start(nn, execution, *dependencies, limit=0):
    fences, count = handles(dependencies), len(dependencies)
    return nn.new("Execution_startComputeWithDependencies", execution, fences, count, limit)


def fence_of(nn, event):
    """The descriptor of an event's fence."""
    descriptor = C.c_int()
    assert nn.Event_getSyncFenceFd(event, C.byref(descriptor)) == OK
    return descriptor.value


def test_many_executions_at_once(nn, compiled):
    results = np.zeros((16, 1, 8), np.float32)
    executions = [prepared(nn, compiled, [DATA * i], [one]) for i, one in enumerate(results)]
    events = [nn.new("Execution_startCompute", execution) for execution in executions]
    for event in events:
        assert nn.Event_wait(event) == OK
        assert nn.Event_wait(event) == OK
    np.testing.assert_array_equal(results, [POSITIVE * i for i in range(16)])


def test_start_compute_refusals(nn, compiled):
    execution, event = nn.new("Execution_create", compiled), C.byref(C.c_void_p())
    assert nn.Execution_startCompute(execution, None) == R.UNEXPECTED_NULL
    assert nn.Execution_startCompute(execution, event) == R.BAD_DATA  # nothing is set
    begin = nn.Execution_startComputeWithDependencies
    assert begin(execution, None, 1, 0, event) == R.UNEXPECTED_NULL
    assert begin(execution, handles([None]), 1, 0, event) == R.UNEXPECTED_NULL
    assert begin(execution, None, 0, 5, event) == R.BAD_DATA  # no device was named


def test_a_failed_dependency_fails_the_execution(nn, ready, gate):
    fence, end = gate
    end.close()  # nothing will ever be readable
    execution, result = ready()
    event = start(nn, execution, fence)
    assert nn.Event_wait(event) == R.OP_FAILED
    assert not result.any()
    own = fence_of(nn, event)
    heir = nn.new("Event_createFromSyncFenceFd", own)  # the failure is told on
    assert nn.Event_wait(heir) == R.OP_FAILED
    os.close(own)


def test_what_is_no_fence(nn):
    for descriptor in (-1, 1000, 0):  # 0: as on Android
        create = nn.Event_createFromSyncFenceFd
        assert create(descriptor, C.byref(C.c_void_p())) == R.BAD_DATA


def test_fences_chain_executions(nn, ready, gate):
    """The fence of one execution, as a descriptor, is the dependency of another."""
    fence, end = gate
    (one, first), (two, second) = ready(), ready()
    event_one = start(nn, one, fence)
    descriptor, duplicate = fence_of(nn, event_one), fence_of(nn, fence)
    event_two = start(nn, two, nn.new("Event_createFromSyncFenceFd", descriptor), event_one, fence)
    time.sleep(0.02)
    assert not select.select([descriptor, duplicate], [], [], 0)[0]  # not yet
    assert not first.any() and not second.any()
    end.write(b"!")
    assert nn.Event_wait(event_two) == OK and nn.Event_wait(event_one) == OK
    assert len(select.select([descriptor, duplicate], [], [], 0)[0]) == 2
    np.testing.assert_array_equal([first, second], [POSITIVE] * 2)
    os.close(descriptor)
    os.close(duplicate)


def test_plain_events_have_no_fence(nn, ready):
    event, descriptor = nn.new("Execution_startCompute", ready()[0]), C.c_int(5)
    assert nn.Event_getSyncFenceFd(event, C.byref(descriptor)) == R.BAD_DATA
    assert descriptor.value == -1
    assert nn.Event_getSyncFenceFd(event, None) == R.UNEXPECTED_NULL


def test_fenced_durations_leave_waiting_out(nn, gate):
    fence, end = gate
    compilation = relu_chain(nn, 1).compile([*nn.devices().values()][:1])
    execution, other = (
        prepared(nn, compilation, [DATA], [np.zeros((1, 8), np.float32)]) for _ in range(2)
    )
    assert nn.Execution_setMeasureTiming(execution, True) == OK
    event = start(nn, execution, fence, limit=60 * 10**9)
    time.sleep(0.05)
    end.write(b"!")
    assert nn.Event_wait(event) == OK
    codes, times = zip(*(duration(nn, execution, code) for code in range(4)), strict=True)
    assert codes == (OK,) * 4
    hardware, driver, fenced_hardware, fenced_driver = times
    assert 0 < hardware == fenced_hardware <= fenced_driver
    assert fenced_driver + 45 * 10**6 < driver
    assert nn.Event_wait(start(nn, other, limit=1)) in MISSED  # 1 ns is over at once


def test_fenced_outputs_need_known_shapes(nn):
    event, begin = C.c_void_p(1), nn.Execution_startComputeWithDependencies
    compilation = relu(nn, (1, 8), (0, 0)).compile()
    execution = prepared(nn, compilation, [DATA], [np.zeros((1, 8), np.float32)])
    assert begin(execution, None, 0, 0, C.byref(event)) == R.BAD_DATA
    assert event.value is None
    assert nn.Execution_compute(execution) == OK  # the refusal did not start it
    assert begin(execution, None, 0, 0, C.byref(event)) == R.BAD_STATE
