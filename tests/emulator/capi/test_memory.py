"""Memories and bursts: the other ways of getting data in and out."""

import ctypes as C
import fcntl
import mmap
import os

import numpy as np
import pytest

from tests.emulator.nnapi import (
    ADD,
    OK,
    Model,
    Result,
    operand_type,
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
    assert put(execution, 0, None, memory, 0, 0) == R.BAD_DATA  # no length is implied
    assert get(execution, 0, None, memory, 0, 0) == R.BAD_DATA
    assert put(execution, 0, None, None, 64, 32) == R.UNEXPECTED_NULL
    assert get(execution, 1, None, memory, 0, 32) == R.BAD_DATA
    assert put(execution, 0, None, memory, 64, 32) == OK
    assert get(execution, 0, None, memory, mmap.PAGESIZE, 32) == OK
    assert nn.Execution_compute(execution) == OK
    result = np.frombuffer(view[mmap.PAGESIZE : mmap.PAGESIZE + 32], np.float32)
    np.testing.assert_array_equal(result, DATA[0] + 10)
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
    assert make(64, READ, 1000, 0, out) == R.UNEXPECTED_NULL  # not open
    ends = os.pipe()
    assert make(64, READ, ends[0], 0, out) == R.UNMAPPABLE  # nothing to map
    for end in ends:
        os.close(end)
    locked = os.memfd_create("nnapi", os.MFD_ALLOW_SEALING)
    os.ftruncate(locked, mmap.PAGESIZE)
    fcntl.fcntl(locked, fcntl.F_ADD_SEALS, fcntl.F_SEAL_WRITE)
    assert make(64, READ | WRITE, locked, 0, out) == R.UNMAPPABLE
    os.close(locked)
    hardware_buffer = nn.Memory_createFromAHardwareBuffer
    assert hardware_buffer(C.c_void_p(1), out) == R.UNMAPPABLE
    assert hardware_buffer(None, out) == R.UNEXPECTED_NULL
    nn.Memory_free(None)


def test_protection_is_kept(nn, compiled, shared):
    memory = nn.new("Memory_createFromFd", mmap.PAGESIZE, READ, shared[0], 0)
    execution = nn.new("Execution_create", compiled)
    assert nn.Execution_setInputFromMemory(execution, 0, None, memory, 0, 32) == OK
    assert nn.Execution_setOutputFromMemory(execution, 0, None, memory, 0, 32) == R.BAD_DATA
    nn.Execution_free(execution)
    nn.Memory_free(memory)


def test_memory_from_roles(nn, compiled, shared):
    """One memory is the output of one execution and the input of the next."""
    desc = nn.new("MemoryDesc_create")
    handle, one = C.c_void_p(), C.c_float(1)
    add_in, add_out = nn.MemoryDesc_addInputRole, nn.MemoryDesc_addOutputRole
    assert nn.MemoryDesc_finish(desc) == R.BAD_DATA  # no role
    assert nn.Memory_createFromDesc(desc, C.byref(handle)) == R.BAD_STATE
    assert add_in(None, compiled, 0, one) == R.UNEXPECTED_NULL
    assert add_in(desc, compiled, 1, one) == R.BAD_DATA
    assert add_in(desc, compiled, 0, 0.0) == R.BAD_DATA
    assert add_in(desc, compiled, 0, 1.5) == R.BAD_DATA
    assert nn.MemoryDesc_setDimensions(desc, 2, u32([1, 9])) == OK
    assert add_in(desc, compiled, 0, one) == R.BAD_DATA  # contradicts [1, 8]
    nn.MemoryDesc_free(desc)

    desc = nn.new("MemoryDesc_create")
    assert add_in(desc, compiled, 0, one) == OK
    assert add_in(desc, compiled, 0, one) == R.BAD_DATA  # twice
    assert add_out(desc, compiled, 0, one) == OK
    assert nn.MemoryDesc_setDimensions(desc, 2, u32([2, 8])) == R.BAD_DATA
    assert nn.MemoryDesc_setDimensions(desc, 2, u32([1, 8])) == OK
    assert nn.MemoryDesc_finish(desc) == OK
    assert nn.MemoryDesc_finish(desc) == R.BAD_STATE
    assert add_in(desc, compiled, 0, one) == R.BAD_STATE
    memory = nn.new("Memory_createFromDesc", desc)
    nn.MemoryDesc_free(desc)

    result = np.zeros((1, 8), np.float32)
    early = nn.new("Execution_create", compiled)
    assert nn.Execution_setInputFromMemory(early, 0, None, memory, 0, 32) == R.BAD_DATA
    assert nn.Execution_setInputFromMemory(early, 0, None, memory, 0, 0) == OK
    assert set_output(nn, early, 0, result) == OK
    assert nn.Execution_compute(early) == R.OP_FAILED  # nothing has written it
    nn.Execution_free(early)

    writer = nn.new("Execution_create", compiled)
    assert set_input(nn, writer, 0, DATA) == OK
    assert nn.Execution_setOutputFromMemory(writer, 0, None, memory, 0, 0) == OK
    assert nn.Execution_compute(writer) == OK
    nn.Execution_free(writer)
    reader = nn.new("Execution_create", compiled)
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
    view[:32] = DATA.tobytes()
    assert nn.Memory_copy(copy, memory) == OK
    assert nn.Memory_copy(memory, memory) == OK
    view[:32] = bytes(32)
    assert nn.Memory_copy(memory, copy) == OK and view[:32] == DATA.tobytes()
    assert nn.Memory_copy(other, memory) == R.BAD_DATA  # which leaves it without content
    assert nn.Memory_copy(memory, copy) == R.BAD_DATA
    reader = nn.new("Execution_create", compiled)
    assert nn.Execution_setInputFromMemory(reader, 0, None, memory, 0, 0) == OK
    assert set_output(nn, reader, 0, result) == OK
    assert nn.Execution_compute(reader) == R.OP_FAILED
    nn.Execution_free(reader)
    model = Model(nn)
    target = model.tensor(1, 8)
    value = nn.Model_setOperandValueFromMemory
    assert value(model.handle, target, memory, 0, 0) == R.BAD_DATA  # not for constants
    assert value(model.handle, target, memory, 0, 32) == R.BAD_DATA
    model.free()
    for each in (memory, copy, other):
        nn.Memory_free(each)


def test_memory_has_its_dimensions(nn):
    """A memory made for [2, 4] serves a role whose rows are unknown, as [2, 4] only."""
    model = Model(nn)
    a, b = model.tensor(0, 4), model.tensor(0, 4)
    model.operation(19, [a], [b])
    compilation = model.finish([a], [b]).compile()
    desc = nn.new("MemoryDesc_create")
    assert nn.MemoryDesc_addOutputRole(desc, compilation, 0, 1.0) == OK
    assert nn.MemoryDesc_setDimensions(desc, 2, None) == R.UNEXPECTED_NULL
    assert nn.MemoryDesc_setDimensions(desc, 9, u32([1] * 9)) == R.BAD_DATA
    assert nn.MemoryDesc_setDimensions(desc, 2, u32([2, 5])) == R.BAD_DATA
    assert nn.MemoryDesc_setDimensions(desc, 2, u32([2, 0])) == OK
    assert nn.MemoryDesc_finish(desc) == OK
    memory = nn.new("Memory_createFromDesc", desc)
    nn.MemoryDesc_free(desc)
    data = np.arange(12, dtype=np.float32)
    for rows, expected in ((2, OK), (3, R.OP_FAILED), (1, R.OP_FAILED)):
        execution = nn.new("Execution_create", compilation)
        shape, put = operand_type(3, (rows, 4)), nn.Execution_setOutputFromMemory
        assert set_input(nn, execution, 0, data[: 4 * rows].copy(), shape) == OK
        assert put(execution, 0, C.byref(operand_type(3, (3, 4))), memory, 0, 0) == R.BAD_DATA
        assert put(execution, 0, None, memory, 0, 0) == OK
        assert nn.Execution_compute(execution) == expected, rows
        nn.Execution_free(execution)
    nn.Memory_free(memory)
    nn.Compilation_free(compilation)
    model.free()


def test_scalar_roles(nn):
    model = Model(nn)
    a, b, act, c = model.tensor(1, 8), model.tensor(1, 8), model.operand(1), model.tensor(1, 8)
    model.operation(ADD, [a, b, act], [c])
    compilation = model.finish([a, b, act], [c]).compile()
    desc = nn.new("MemoryDesc_create")
    add = nn.MemoryDesc_addInputRole
    assert add(desc, compilation, 2, 1.0) == OK
    assert add(desc, compilation, 0, 1.0) == R.BAD_DATA  # another type
    assert nn.MemoryDesc_setDimensions(desc, 1, u32([1])) == R.BAD_DATA
    assert nn.MemoryDesc_finish(desc) == OK
    memory = nn.new("Memory_createFromDesc", desc)
    nn.MemoryDesc_free(desc)
    nn.Memory_free(memory)
    desc = nn.new("MemoryDesc_create")
    assert nn.MemoryDesc_setDimensions(desc, 1, u32([1])) == OK
    assert add(desc, compilation, 2, 1.0) == R.BAD_DATA
    nn.MemoryDesc_free(desc)
    nn.MemoryDesc_free(None)
    assert nn.MemoryDesc_create(None) == R.UNEXPECTED_NULL
    assert nn.MemoryDesc_finish(None) == R.UNEXPECTED_NULL
    assert nn.MemoryDesc_setDimensions(None, 1, u32([1])) == R.UNEXPECTED_NULL
    unfinished, handle = nn.new("Compilation_create", model.handle), C.c_void_p()
    desc = nn.new("MemoryDesc_create")
    assert add(desc, unfinished, 0, 1.0) == R.BAD_DATA
    assert nn.Memory_createFromDesc(None, C.byref(handle)) == R.UNEXPECTED_NULL
    assert nn.Memory_createFromDesc(desc, None) == R.UNEXPECTED_NULL
    nn.MemoryDesc_free(desc)
    nn.Compilation_free(unfinished)
    nn.Compilation_free(compilation)
    model.free()


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


def test_bursts(nn, compiled):
    model = relu_chain(nn, 1)
    other = model.compile()
    burst, result = nn.new("Burst_create", compiled), np.zeros((1, 8), np.float32)
    for _ in range(3):
        result[:] = 0
        execution = prepared(nn, compiled, [DATA], [result])
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
