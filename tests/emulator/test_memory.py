"""Memories, bursts, events: the other ways of getting data in and out and of waiting."""

import ctypes as C
import mmap
import os
import threading
import time

import numpy as np
import pytest

from tests.emulator.nnapi import (
    ADD,
    OK,
    Model,
    Result,
    handles,
    prepared,
    relu_chain,
    set_input,
    set_output,
    u32,
)

R = Result
DATA = np.array([[-1, 2, -3, 4, -5, 6, -7, 8]], np.float32)
READ, WRITE = mmap.PROT_READ, mmap.PROT_WRITE


@pytest.fixture
def chain(nn):
    model = relu_chain(nn, 2)
    compilation = model.compile()
    yield compilation
    nn.Compilation_free(compilation)
    model.free()


@pytest.fixture
def shared():
    """A file in memory of two pages, and a view of it."""
    fd = os.memfd_create("nnapi")
    os.ftruncate(fd, 2 * mmap.PAGESIZE)
    with mmap.mmap(fd, 2 * mmap.PAGESIZE) as view:
        yield fd, view
    os.close(fd)


# ---- memory ------------------------------------------------------------------------------------


def test_inputs_outputs_and_constants_from_a_file(nn, shared):
    fd, view = shared
    view[64:96] = DATA.tobytes()
    view[128:160] = np.full(8, 10, np.float32).tobytes()
    memory = nn.new("Memory_createFromFd", 2 * mmap.PAGESIZE, READ | WRITE, fd, 0)
    model = Model(nn)
    a, b, c = (model.tensor(1, 8) for _ in range(3))
    value = nn.Model_setOperandValueFromMemory
    assert value(model.handle, b, memory, 128, 31) == R.BAD_DATA
    assert value(model.handle, b, memory, 2 * mmap.PAGESIZE - 31, 32) == R.BAD_DATA
    assert value(model.handle, b, memory, 2**64 - 8, 32) == R.BAD_DATA
    assert value(model.handle, b, None, 128, 32) == R.UNEXPECTED_NULL
    assert value(model.handle, 9, memory, 128, 32) == R.BAD_DATA
    assert value(model.handle, b, memory, 128, 32) == OK
    model.operation(ADD, [a, b, model.scalar(0)], [c])
    model.finish([a], [c])
    compilation = model.compile()
    execution = nn.new("Execution_create", compilation)
    put, get = nn.Execution_setInputFromMemory, nn.Execution_setOutputFromMemory
    assert put(execution, 0, None, memory, 2 * mmap.PAGESIZE - 16, 32) == R.BAD_DATA
    assert put(execution, 0, None, memory, 64, 28) == R.BAD_DATA
    assert put(execution, 0, None, None, 64, 32) == R.UNEXPECTED_NULL
    assert get(execution, 1, None, memory, 0, 32) == R.BAD_DATA
    assert put(execution, 0, None, memory, 64, 32) == OK
    assert get(execution, 0, None, memory, mmap.PAGESIZE, 32) == OK
    assert nn.Execution_compute(execution) == OK
    found = np.frombuffer(view[mmap.PAGESIZE : mmap.PAGESIZE + 32], np.float32)
    np.testing.assert_array_equal(found, DATA[0] + 10)
    nn.Execution_free(execution)
    nn.Compilation_free(compilation)
    model.free()
    nn.Memory_free(memory)


def test_bad_files(nn, shared):
    fd, _ = shared
    make, handle = nn.Memory_createFromFd, C.c_void_p()
    out = C.byref(handle)
    assert make(mmap.PAGESIZE, READ, fd, 0, None) == R.UNEXPECTED_NULL
    assert make(0, READ, fd, 0, out) == R.BAD_DATA
    assert make(mmap.PAGESIZE, READ, -1, 0, out) == R.BAD_DATA
    assert make(mmap.PAGESIZE, 0, fd, 0, out) == R.BAD_DATA
    assert make(mmap.PAGESIZE, 64, fd, 0, out) == R.BAD_DATA
    assert make(3 * mmap.PAGESIZE, READ, fd, 0, out) == R.BAD_DATA  # behind the end
    assert make(mmap.PAGESIZE, READ, fd, 2**63, out) == R.BAD_DATA
    assert make(64, READ, fd, 17, out) == R.UNMAPPABLE  # not at a page
    assert make(64, READ, 1000, 0, out) == R.UNMAPPABLE  # not open
    hardware_buffer = nn.Memory_createFromAHardwareBuffer
    assert hardware_buffer(C.c_void_p(1), out) == R.UNMAPPABLE
    assert hardware_buffer(None, out) == R.UNEXPECTED_NULL
    nn.Memory_free(None)


def test_protection_is_kept(nn, chain, shared):
    memory = nn.new("Memory_createFromFd", mmap.PAGESIZE, READ, shared[0], 0)
    execution = nn.new("Execution_create", chain)
    assert nn.Execution_setInputFromMemory(execution, 0, None, memory, 0, 32) == OK
    assert nn.Execution_setOutputFromMemory(execution, 0, None, memory, 0, 32) == R.BAD_DATA
    nn.Execution_free(execution)
    nn.Memory_free(memory)


def test_memory_from_roles(nn, chain, shared):
    """One memory is the output of one execution and the input of the next."""
    desc = nn.new("MemoryDesc_create")
    handle, one = C.c_void_p(), C.c_float(1)
    add_in, add_out = nn.MemoryDesc_addInputRole, nn.MemoryDesc_addOutputRole
    assert nn.MemoryDesc_finish(desc) == R.BAD_DATA  # no role
    assert nn.Memory_createFromDesc(desc, C.byref(handle)) == R.BAD_STATE
    assert add_in(None, chain, 0, one) == R.UNEXPECTED_NULL
    assert add_in(desc, chain, 1, one) == R.BAD_DATA
    assert add_in(desc, chain, 0, 0.0) == R.BAD_DATA
    assert add_in(desc, chain, 0, 1.5) == R.BAD_DATA
    assert nn.MemoryDesc_setDimensions(desc, 2, u32([1, 9])) == OK
    assert add_in(desc, chain, 0, one) == R.BAD_DATA  # contradicts [1, 8]
    nn.MemoryDesc_free(desc)

    desc = nn.new("MemoryDesc_create")
    assert add_in(desc, chain, 0, one) == OK
    assert add_in(desc, chain, 0, one) == R.BAD_DATA  # twice
    assert add_out(desc, chain, 0, one) == OK
    assert nn.MemoryDesc_setDimensions(desc, 2, u32([2, 8])) == R.BAD_DATA
    assert nn.MemoryDesc_setDimensions(desc, 2, u32([1, 8])) == OK
    assert nn.MemoryDesc_finish(desc) == OK
    assert nn.MemoryDesc_finish(desc) == R.BAD_STATE
    assert add_in(desc, chain, 0, one) == R.BAD_STATE
    memory = nn.new("Memory_createFromDesc", desc)
    nn.MemoryDesc_free(desc)

    result = np.zeros((1, 8), np.float32)
    early = nn.new("Execution_create", chain)
    assert nn.Execution_setInputFromMemory(early, 0, None, memory, 0, 32) == R.BAD_DATA
    assert nn.Execution_setInputFromMemory(early, 0, None, memory, 0, 0) == OK
    assert set_output(nn, early, 0, result) == OK
    assert nn.Execution_compute(early) == R.OP_FAILED  # nothing has written it
    nn.Execution_free(early)

    writer = nn.new("Execution_create", chain)
    assert set_input(nn, writer, 0, DATA) == OK
    assert nn.Execution_setOutputFromMemory(writer, 0, None, memory, 0, 0) == OK
    assert nn.Execution_compute(writer) == OK
    nn.Execution_free(writer)
    reader = nn.new("Execution_create", chain)
    assert nn.Execution_setInputFromMemory(reader, 0, None, memory, 0, 0) == OK
    assert set_output(nn, reader, 0, result) == OK
    assert nn.Execution_compute(reader) == OK
    np.testing.assert_array_equal(result, np.maximum(DATA, 0))
    nn.Execution_free(reader)

    fd, view = shared
    copy = nn.new("Memory_createFromFd", 32, READ | WRITE, fd, 0)
    other = nn.new("Memory_createFromFd", 64, READ | WRITE, fd, 0)
    assert nn.Memory_copy(memory, copy) == OK
    assert view[:32] == np.maximum(DATA, 0).tobytes()
    assert nn.Memory_copy(memory, other) == R.BAD_DATA  # sizes differ
    assert nn.Memory_copy(memory, None) == R.UNEXPECTED_NULL
    for each in (memory, copy, other):
        nn.Memory_free(each)


def test_memory_of_unknown_size_is_not_made(nn):
    model = Model(nn)
    a, b = model.tensor(0, 8), model.tensor(0, 8)
    model.operation(19, [a], [b])
    compilation = model.finish([a], [b]).compile()
    desc, handle = nn.new("MemoryDesc_create"), C.c_void_p()
    assert nn.MemoryDesc_addInputRole(desc, compilation, 0, 1.0) == OK
    assert nn.MemoryDesc_finish(desc) == OK
    assert nn.Memory_createFromDesc(desc, C.byref(handle)) == R.OP_FAILED
    nn.MemoryDesc_free(desc)
    nn.Compilation_free(compilation)
    model.free()


# ---- bursts ------------------------------------------------------------------------------------


def test_bursts(nn, chain):
    model = relu_chain(nn, 1)
    other = model.compile()
    burst, result = nn.new("Burst_create", chain), np.zeros((1, 8), np.float32)
    for _ in range(3):
        result[:] = 0
        execution = prepared(nn, chain, [DATA], [result])
        assert nn.Execution_burstCompute(execution, burst) == OK
        assert nn.Execution_burstCompute(execution, burst) == R.BAD_STATE
        np.testing.assert_array_equal(result, np.maximum(DATA, 0))
        nn.Execution_free(execution)
    stranger = prepared(nn, other, [DATA], [result])
    assert nn.Execution_burstCompute(stranger, burst) == R.BAD_DATA
    assert nn.Execution_burstCompute(stranger, None) == R.UNEXPECTED_NULL
    assert nn.Execution_compute(stranger) == OK  # the refused attempts did not start it
    nn.Execution_free(stranger)
    nn.Burst_free(burst)
    nn.Burst_free(None)
    nn.Compilation_free(other)
    model.free()


# ---- events ------------------------------------------------------------------------------------


def test_many_executions_at_once(nn, chain):
    results = [np.zeros((1, 8), np.float32) for _ in range(16)]
    inputs = [DATA * (i + 1) for i in range(len(results))]
    executions = [prepared(nn, chain, [i], [o]) for i, o in zip(inputs, results, strict=True)]
    events = [nn.new("Execution_startCompute", e) for e in executions]
    for event in events:
        assert nn.Event_wait(event) == OK
        assert nn.Event_wait(event) == OK
    for i, (execution, event, result) in enumerate(zip(executions, events, results, strict=True)):
        np.testing.assert_array_equal(result, np.maximum(DATA, 0) * (i + 1))
        nn.Execution_free(execution)
        nn.Event_free(event)


def test_freeing_a_running_execution_waits(nn, chain):
    result = np.zeros((1, 8), np.float32)
    execution = prepared(nn, chain, [DATA], [result])
    event = nn.new("Execution_startCompute", execution)
    nn.Execution_free(execution)
    np.testing.assert_array_equal(result, np.maximum(DATA, 0))
    assert nn.Event_wait(event) == OK
    nn.Event_free(event)


def test_start_compute_refusals(nn, chain):
    execution, event = nn.new("Execution_create", chain), C.c_void_p()
    assert nn.Execution_startCompute(execution, None) == R.UNEXPECTED_NULL
    assert nn.Execution_startCompute(execution, C.byref(event)) == R.BAD_DATA  # nothing is set
    start = nn.Execution_startComputeWithDependencies
    assert start(execution, None, 1, 0, C.byref(event)) == R.UNEXPECTED_NULL
    assert start(execution, handles([None]), 1, 0, C.byref(event)) == R.UNEXPECTED_NULL
    assert start(execution, None, 0, 5, C.byref(event)) == R.BAD_DATA  # no device was named
    assert nn.Event_wait(None) == R.UNEXPECTED_NULL
    nn.Event_free(None)
    nn.Execution_free(execution)


def test_dependencies_are_awaited(nn, chain):
    """A pipe stands for a sync fence: it signals when it becomes readable."""
    read_end, write_end = os.pipe()
    fence = nn.new("Event_createFromSyncFenceFd", read_end)
    os.close(read_end)
    first, second = (np.zeros((1, 8), np.float32) for _ in range(2))
    one, two = prepared(nn, chain, [DATA], [first]), prepared(nn, chain, [DATA], [second])
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
    assert nn.Event_getSyncFenceFd(event_one, C.byref(duplicate)) == R.BAD_DATA
    assert duplicate.value == -1
    for event in (fence, event_one, event_two):
        nn.Event_free(event)
    nn.Execution_free(one)
    nn.Execution_free(two)
    os.close(write_end)


def test_a_failed_dependency_fails_the_execution(nn, chain):
    read_end, write_end = os.pipe()
    fence = nn.new("Event_createFromSyncFenceFd", read_end)
    os.close(read_end)
    os.close(write_end)  # nothing will ever be readable
    result, event = np.zeros((1, 8), np.float32), C.c_void_p()
    execution = prepared(nn, chain, [DATA], [result])
    start = nn.Execution_startComputeWithDependencies
    assert start(execution, handles([fence]), 1, 0, C.byref(event)) == OK
    assert nn.Event_wait(event) == R.OP_FAILED
    assert not result.any()
    for each in (fence, event):
        nn.Event_free(each)
    nn.Execution_free(execution)
    handle = C.c_void_p()
    assert nn.Event_createFromSyncFenceFd(-1, C.byref(handle)) == R.BAD_DATA
    assert nn.Event_createFromSyncFenceFd(1000, C.byref(handle)) == R.BAD_DATA
    assert nn.Event_createFromSyncFenceFd(0, None) == R.UNEXPECTED_NULL
