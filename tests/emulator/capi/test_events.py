"""Asynchronous executions, their events, and descriptors in the place of sync fences."""

import ctypes as C
import os
import select
import threading
import time

import numpy as np

from tests.emulator.nnapi import (
    OK,
    Model,
    Result,
    handles,
    prepared,
    relu_chain,
)

R = Result
DATA = np.array([[-1, 2, -3, 4, -5, 6, -7, 8]], np.float32)


def test_many_executions_at_once(nn, compiled):
    results = [np.zeros((1, 8), np.float32) for _ in range(16)]
    inputs = [DATA * (i + 1) for i in range(len(results))]
    executions = [prepared(nn, compiled, [i], [o]) for i, o in zip(inputs, results, strict=True)]
    events = [nn.new("Execution_startCompute", e) for e in executions]
    for event in events:
        assert nn.Event_wait(event) == OK
        assert nn.Event_wait(event) == OK
    for i, (execution, event, result) in enumerate(zip(executions, events, results, strict=True)):
        np.testing.assert_array_equal(result, np.maximum(DATA, 0) * (i + 1))
        nn.Execution_free(execution)
        nn.Event_free(event)


def test_freeing_a_running_execution_waits(nn, compiled):
    result = np.zeros((1, 8), np.float32)
    execution = prepared(nn, compiled, [DATA], [result])
    event = nn.new("Execution_startCompute", execution)
    nn.Execution_free(execution)
    np.testing.assert_array_equal(result, np.maximum(DATA, 0))
    assert nn.Event_wait(event) == OK
    nn.Event_free(event)


def test_start_compute_refusals(nn, compiled):
    execution, event = nn.new("Execution_create", compiled), C.c_void_p()
    assert nn.Execution_startCompute(execution, None) == R.UNEXPECTED_NULL
    assert nn.Execution_startCompute(execution, C.byref(event)) == R.BAD_DATA  # nothing is set
    start = nn.Execution_startComputeWithDependencies
    assert start(execution, None, 1, 0, C.byref(event)) == R.UNEXPECTED_NULL
    assert start(execution, handles([None]), 1, 0, C.byref(event)) == R.UNEXPECTED_NULL
    assert start(execution, None, 0, 5, C.byref(event)) == R.BAD_DATA  # no device was named
    assert nn.Event_wait(None) == R.UNEXPECTED_NULL
    nn.Event_free(None)
    nn.Execution_free(execution)


def test_dependencies_are_awaited(nn, compiled):
    """A pipe stands for a sync fence: it signals when it becomes readable."""
    read_end, write_end = os.pipe()
    fence = nn.new("Event_createFromSyncFenceFd", read_end)
    os.close(read_end)
    first, second = (np.zeros((1, 8), np.float32) for _ in range(2))
    one, two = prepared(nn, compiled, [DATA], [first]), prepared(nn, compiled, [DATA], [second])
    start = nn.Execution_startComputeWithDependencies
    event_one, event_two = C.c_void_p(), C.c_void_p()
    assert start(one, handles([fence]), 1, 0, C.byref(event_one)) == OK
    assert start(two, handles([event_one, fence]), 2, 0, C.byref(event_two)) == OK
    waited = []
    thread = threading.Thread(target=lambda: waited.append(nn.Event_wait(event_two)))
    thread.start()
    time.sleep(0.05)
    assert not waited and not first.any() and not second.any()
    os.write(write_end, b"!")
    thread.join(10)
    assert waited == [OK] and nn.Event_wait(event_one) == OK
    np.testing.assert_array_equal(second, np.maximum(DATA, 0))
    duplicate = C.c_int()
    assert nn.Event_getSyncFenceFd(fence, C.byref(duplicate)) == OK
    assert os.read(duplicate.value, 1) == b"!"
    os.close(duplicate.value)
    assert nn.Event_getSyncFenceFd(event_one, C.byref(duplicate)) == OK
    assert select.select([duplicate.value], [], [], 0)[0]  # it has signalled
    os.close(duplicate.value)
    for event in (fence, event_one, event_two):
        nn.Event_free(event)
    nn.Execution_free(one)
    nn.Execution_free(two)
    os.close(write_end)


def test_a_failed_dependency_fails_the_execution(nn, compiled):
    read_end, write_end = os.pipe()
    fence = nn.new("Event_createFromSyncFenceFd", read_end)
    os.close(read_end)
    os.close(write_end)  # nothing will ever be readable
    result, event = np.zeros((1, 8), np.float32), C.c_void_p()
    execution = prepared(nn, compiled, [DATA], [result])
    start = nn.Execution_startComputeWithDependencies
    assert start(execution, handles([fence]), 1, 0, C.byref(event)) == OK
    assert nn.Event_wait(event) == R.OP_FAILED
    assert not result.any()
    own = C.c_int()
    assert nn.Event_getSyncFenceFd(event, C.byref(own)) == OK
    heir = nn.new("Event_createFromSyncFenceFd", own.value)  # the failure is told on
    assert nn.Event_wait(heir) == R.OP_FAILED
    os.close(own.value)
    for each in (fence, event, heir):
        nn.Event_free(each)
    nn.Execution_free(execution)
    handle = C.c_void_p()
    assert nn.Event_createFromSyncFenceFd(-1, C.byref(handle)) == R.BAD_DATA
    assert nn.Event_createFromSyncFenceFd(1000, C.byref(handle)) == R.BAD_DATA
    assert nn.Event_createFromSyncFenceFd(0, C.byref(handle)) == R.BAD_DATA  # as on Android
    assert nn.Event_createFromSyncFenceFd(0, None) == R.UNEXPECTED_NULL


def test_fences_chain_executions(nn, compiled):
    """The fence of one execution, as a descriptor, is the dependency of another."""
    read_end, write_end = os.pipe()
    gate = nn.new("Event_createFromSyncFenceFd", read_end)
    os.close(read_end)
    first, second = (np.zeros((1, 8), np.float32) for _ in range(2))
    one, two = prepared(nn, compiled, [DATA], [first]), prepared(nn, compiled, [DATA], [second])
    start = nn.Execution_startComputeWithDependencies
    event_one, event_two = C.c_void_p(), C.c_void_p()
    assert start(one, handles([gate]), 1, 0, C.byref(event_one)) == OK
    descriptor = C.c_int()
    assert nn.Event_getSyncFenceFd(event_one, C.byref(descriptor)) == OK
    assert not select.select([descriptor.value], [], [], 0.02)[0]  # not yet
    fence = nn.new("Event_createFromSyncFenceFd", descriptor.value)
    assert start(two, handles([fence]), 1, 0, C.byref(event_two)) == OK
    os.write(write_end, b"!")
    assert nn.Event_wait(event_two) == OK
    np.testing.assert_array_equal(first, np.maximum(DATA, 0))
    np.testing.assert_array_equal(second, np.maximum(DATA, 0))
    os.close(descriptor.value)
    os.close(write_end)
    for event in (gate, fence, event_one, event_two):
        nn.Event_free(event)
    nn.Execution_free(one)
    nn.Execution_free(two)


def test_plain_events_have_no_fence(nn, compiled):
    result, descriptor = np.zeros((1, 8), np.float32), C.c_int(5)
    execution = prepared(nn, compiled, [DATA], [result])
    event = nn.new("Execution_startCompute", execution)
    assert nn.Event_getSyncFenceFd(event, C.byref(descriptor)) == R.BAD_DATA
    assert descriptor.value == -1
    assert nn.Event_getSyncFenceFd(event, None) == R.UNEXPECTED_NULL
    descriptor.value = 5
    assert nn.Event_getSyncFenceFd(None, C.byref(descriptor)) == R.UNEXPECTED_NULL
    assert descriptor.value == -1
    nn.Event_free(event)
    nn.Execution_free(execution)


def test_fenced_durations_leave_waiting_out(nn):
    model = relu_chain(nn, 1)
    device = next(iter(nn.devices().values()))
    compilation = model.compile([device])
    read_end, write_end = os.pipe()
    gate = nn.new("Event_createFromSyncFenceFd", read_end)
    os.close(read_end)
    execution = prepared(nn, compilation, [DATA], [np.zeros((1, 8), np.float32)])
    assert nn.Execution_setMeasureTiming(execution, True) == OK
    event, start = C.c_void_p(), nn.Execution_startComputeWithDependencies
    assert start(execution, handles([gate]), 1, 60 * 10**9, C.byref(event)) == OK
    time.sleep(0.05)
    os.write(write_end, b"!")
    assert nn.Event_wait(event) == OK
    times = []
    for code in range(4):
        ns = C.c_uint64()
        assert nn.Execution_getDuration(execution, code, C.byref(ns)) == OK
        times.append(ns.value)
    hardware, driver, fenced_hardware, fenced_driver = times
    assert 0 < hardware == fenced_hardware <= fenced_driver
    assert fenced_driver + 45 * 10**6 < driver
    os.close(write_end)
    for each in (gate, event):
        nn.Event_free(each)
    nn.Execution_free(execution)

    execution = prepared(nn, compilation, [DATA], [np.zeros((1, 8), np.float32)])
    assert start(execution, None, 0, 1, C.byref(event)) == OK  # 1 ns is over at once
    missed = (R.MISSED_DEADLINE_PERSISTENT, R.MISSED_DEADLINE_TRANSIENT)
    assert nn.Event_wait(event) in missed
    nn.Event_free(event)
    nn.Execution_free(execution)
    nn.Compilation_free(compilation)
    model.free()


def test_fenced_outputs_need_known_shapes(nn):
    model = Model(nn)
    a, b = model.tensor(1, 8), model.tensor(0, 0)
    model.operation(19, [a], [b])
    compilation = model.finish([a], [b]).compile()
    result, event = np.zeros((1, 8), np.float32), C.c_void_p(1)
    execution = prepared(nn, compilation, [DATA], [result])
    start = nn.Execution_startComputeWithDependencies
    assert start(execution, None, 0, 0, C.byref(event)) == R.BAD_DATA
    assert event.value is None
    assert nn.Execution_compute(execution) == OK  # the refusal did not start it
    assert start(execution, None, 0, 0, C.byref(event)) == R.BAD_STATE
    nn.Execution_free(execution)
    nn.Compilation_free(compilation)
    model.free()
