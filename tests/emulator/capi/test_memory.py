"""Memories and bursts: the other ways of getting data in and out."""

import ctypes as C
import fcntl
import mmap
import os

import numpy as np
import pytest

from tests.emulator.nnapi import DATA, OK, POSITIVE, Model, Op, R, T, operand_type, relu, u32

READ, WRITE, PAGE = mmap.PROT_READ, mmap.PROT_WRITE, mmap.PAGESIZE


@pytest.fixture
def shared():
    """A file in memory of two pages, and a view of it."""
    fd = os.memfd_create("nnapi")
    os.ftruncate(fd, 2 * PAGE)
    with mmap.mmap(fd, 2 * PAGE) as view:
        yield fd, view
    os.close(fd)


# ---- memory ------------------------------------------------------------------------------------


def test_inputs_outputs_and_constants_from_a_file(nn, shared):
    fd, view = shared
    view[64:96] = DATA.tobytes()
    view[128:160] = np.full(8, 10, np.float32).tobytes()
    memory = nn.new("Memory_createFromFd", 2 * PAGE, READ | WRITE, fd, 0)
    model = Model(nn)
    a, b, c = model.tensors(3, 1, 8)
    value = nn.Model_setOperandValueFromMemory
    for place in ((128, 31), (2 * PAGE - 31, 32), (2**64 - 8, 32)):
        assert value(model.handle, b, memory, *place) == R.BAD_DATA, place
    assert value(model.handle, b, None, 128, 32) == R.UNEXPECTED_NULL
    assert value(model.handle, 9, memory, 128, 32) == R.BAD_DATA
    assert value(model.handle, b, memory, 128, 32) == OK
    model.operation(Op.ADD, [a, b, model.scalar(0)], [c])
    execution = nn.new("Execution_create", model.finish([a], [c]).compile())
    put, get = nn.Execution_setInputFromMemory, nn.Execution_setOutputFromMemory
    for place in ((2 * PAGE - 16, 32), (64, 28), (0, 0)):  # no length is implied
        assert put(execution, 0, None, memory, *place) == R.BAD_DATA, place
    assert get(execution, 0, None, memory, 0, 0) == R.BAD_DATA
    assert put(execution, 0, None, None, 64, 32) == R.UNEXPECTED_NULL
    assert get(execution, 1, None, memory, 0, 32) == R.BAD_DATA
    assert put(execution, 0, None, memory, 64, 32) == OK
    assert get(execution, 0, None, memory, PAGE, 32) == OK
    assert nn.Execution_compute(execution) == OK
    assert view[PAGE : PAGE + 32] == (DATA + 10).tobytes()


def test_bad_files(nn, shared):
    fd, _ = shared
    make, out = nn.Memory_createFromFd, C.byref(C.c_void_p())
    for bad in (
        *((0, READ, fd, 0), (PAGE, READ, -1, 0), (PAGE, 0, fd, 0), (PAGE, 64, fd, 0)),
        *((3 * PAGE, READ, fd, 0), (PAGE, READ, fd, 2**63)),  # behind the end
    ):
        assert make(*bad, out) == R.BAD_DATA, bad
    assert make(64, READ, fd, 17, out) == R.UNMAPPABLE  # not at a page
    assert make(64, READ, 1000, 0, out) == R.UNEXPECTED_NULL  # not open
    locked = os.memfd_create("nnapi", os.MFD_ALLOW_SEALING)
    os.ftruncate(locked, PAGE)
    fcntl.fcntl(locked, fcntl.F_ADD_SEALS, fcntl.F_SEAL_WRITE)
    assert make(64, READ | WRITE, locked, 0, out) == R.UNMAPPABLE
    ends = os.pipe()
    assert make(64, READ, ends[0], 0, out) == R.UNMAPPABLE  # nothing to map
    for one in (*ends, locked):
        os.close(one)
    assert nn.Memory_createFromAHardwareBuffer(C.c_void_p(1), out) == R.UNMAPPABLE


def test_protection_is_kept(nn, compiled, shared):
    memory = nn.new("Memory_createFromFd", PAGE, READ, shared[0], 0)
    execution = nn.new("Execution_create", compiled)
    assert nn.Execution_setInputFromMemory(execution, 0, None, memory, 0, 32) == OK
    assert nn.Execution_setOutputFromMemory(execution, 0, None, memory, 0, 32) == R.BAD_DATA


def test_roles_of_a_memory(nn, compiled):
    desc, add_in = nn.new("MemoryDesc_create"), nn.MemoryDesc_addInputRole
    assert nn.MemoryDesc_finish(desc) == R.BAD_DATA  # no role
    assert nn.Memory_createFromDesc(desc, C.byref(C.c_void_p())) == R.BAD_STATE
    for role in ((1, 1.0), (0, 0.0), (0, 1.5)):
        assert add_in(desc, compiled, *role) == R.BAD_DATA, role
    assert nn.MemoryDesc_setDimensions(desc, 2, u32([1, 9])) == OK
    assert add_in(desc, compiled, 0, 1.0) == R.BAD_DATA  # contradicts [1, 8]

    desc = nn.new("MemoryDesc_create")
    assert add_in(desc, compiled, 0, 1.0) == OK
    assert add_in(desc, compiled, 0, 1.0) == R.BAD_DATA  # twice
    assert nn.MemoryDesc_addOutputRole(desc, compiled, 0, 1.0) == OK
    assert nn.MemoryDesc_setDimensions(desc, 2, u32([2, 8])) == R.BAD_DATA
    assert nn.MemoryDesc_setDimensions(desc, 2, u32([1, 8])) == OK
    assert nn.MemoryDesc_finish(desc) == OK
    assert nn.MemoryDesc_finish(desc) == R.BAD_STATE
    assert add_in(desc, compiled, 0, 1.0) == R.BAD_STATE


@pytest.fixture
def memory(nn, compiled):
    """For the input and the output of `compiled`."""
    desc = nn.new("MemoryDesc_create")
    assert nn.MemoryDesc_addInputRole(desc, compiled, 0, 1.0) == OK
    assert nn.MemoryDesc_addOutputRole(desc, compiled, 0, 1.0) == OK
    assert nn.MemoryDesc_finish(desc) == OK
    return nn.new("Memory_createFromDesc", desc)


def written(nn, compiled, memory):
    """The result of writing DATA's RELU into a memory."""
    execution = nn.prepared(compiled, [DATA], [])
    assert nn.Execution_setOutputFromMemory(execution, 0, None, memory, 0, 0) == OK
    return nn.Execution_compute(execution)


def read(nn, compiled, memory):
    """The result of reading a memory, and the RELU of what it has."""
    result, execution = np.zeros((1, 8), np.float32), nn.new("Execution_create", compiled)
    assert nn.Execution_setInputFromMemory(execution, 0, None, memory, 0, 32) == R.BAD_DATA
    assert nn.Execution_setInputFromMemory(execution, 0, None, memory, 0, 0) == OK
    assert nn.set_output(execution, 0, result) == OK
    return nn.Execution_compute(execution), result.tolist()


NOTHING = (R.OP_FAILED, np.zeros((1, 8)).tolist())


def test_a_memory_is_the_output_of_one_execution_and_the_input_of_the_next(nn, compiled, memory):
    assert read(nn, compiled, memory) == NOTHING  # nothing has written it
    assert written(nn, compiled, memory) == OK
    assert read(nn, compiled, memory) == (OK, POSITIVE.tolist())
    model = Model(nn)
    target, value = model.tensor(1, 8), nn.Model_setOperandValueFromMemory
    assert value(model.handle, target, memory, 0, 0) == R.BAD_DATA  # not for constants
    assert value(model.handle, target, memory, 0, 32) == R.BAD_DATA


def test_memories_are_copied(nn, compiled, memory, shared):
    fd, view = shared
    copy, other = (
        nn.new("Memory_createFromFd", size, READ | WRITE, fd, 0) for size in (DATA.nbytes, 64)
    )
    assert written(nn, compiled, memory) == OK
    assert nn.Memory_copy(memory, copy) == OK
    assert view[:32] == POSITIVE.tobytes()
    assert nn.Memory_copy(memory, other) == R.BAD_DATA  # sizes differ
    assert nn.Memory_copy(memory, None) == R.UNEXPECTED_NULL
    view[:32] = DATA.tobytes()
    assert nn.Memory_copy(copy, memory) == OK
    assert nn.Memory_copy(memory, memory) == OK
    view[:32] = bytes(32)
    assert nn.Memory_copy(memory, copy) == OK and view[:32] == DATA.tobytes()
    assert nn.Memory_copy(other, memory) == R.BAD_DATA  # which leaves it without content
    assert nn.Memory_copy(memory, copy) == R.BAD_DATA
    assert read(nn, compiled, memory) == NOTHING


def test_memory_has_its_dimensions(nn):
    """A memory made for [2, 4] serves a role whose rows are unknown, as [2, 4] only; none is made
    without them."""
    compilation = relu(nn, (0, 4), (0, 4)).compile()
    unknown, desc = (nn.new("MemoryDesc_create") for _ in range(2))
    for each in (unknown, desc):
        assert nn.MemoryDesc_addOutputRole(each, compilation, 0, 1.0) == OK
    assert nn.MemoryDesc_finish(unknown) == OK
    assert nn.Memory_createFromDesc(unknown, C.byref(C.c_void_p())) == R.OP_FAILED
    assert nn.MemoryDesc_setDimensions(desc, 2, None) == R.UNEXPECTED_NULL
    assert nn.MemoryDesc_setDimensions(desc, 9, u32([1] * 9)) == R.BAD_DATA
    assert nn.MemoryDesc_setDimensions(desc, 2, u32([2, 5])) == R.BAD_DATA
    assert nn.MemoryDesc_setDimensions(desc, 2, u32([2, 0])) == OK
    assert nn.MemoryDesc_finish(desc) == OK
    memory = nn.new("Memory_createFromDesc", desc)
    for rows, expected in ((2, OK), (3, R.OP_FAILED), (1, R.OP_FAILED)):
        execution, data = nn.new("Execution_create", compilation), np.ones((rows, 4), np.float32)
        shape, three = (operand_type(T.TENSOR_FLOAT32, (n, 4)) for n in (rows, 3))
        put = nn.Execution_setOutputFromMemory
        assert nn.set_input(execution, 0, data, shape) == OK
        assert put(execution, 0, C.byref(three), memory, 0, 0) == R.BAD_DATA
        assert put(execution, 0, None, memory, 0, 0) == OK
        assert nn.Execution_compute(execution) == expected, rows


def test_scalar_roles(nn):
    model = Model(nn)
    (a, b, c), act = model.tensors(3, 1, 8), model.operand(T.INT32)
    model.operation(Op.ADD, [a, b, act], [c])
    compilation = model.finish([a, b, act], [c]).compile()
    desc, add = nn.new("MemoryDesc_create"), nn.MemoryDesc_addInputRole
    assert add(desc, compilation, 2, 1.0) == OK
    assert add(desc, compilation, 0, 1.0) == R.BAD_DATA  # another type
    assert nn.MemoryDesc_setDimensions(desc, 1, u32([1])) == R.BAD_DATA
    assert nn.MemoryDesc_finish(desc) == OK
    nn.new("Memory_createFromDesc", desc)
    desc = nn.new("MemoryDesc_create")
    assert nn.MemoryDesc_setDimensions(desc, 1, u32([1])) == OK
    assert add(desc, compilation, 2, 1.0) == R.BAD_DATA
    unfinished, desc = nn.new("Compilation_create", model.handle), nn.new("MemoryDesc_create")
    assert add(desc, unfinished, 0, 1.0) == R.BAD_DATA
    assert nn.Memory_createFromDesc(desc, None) == R.UNEXPECTED_NULL


# ---- bursts ------------------------------------------------------------------------------------


def test_bursts(nn, compiled):
    burst, result = nn.new("Burst_create", compiled), np.zeros((1, 8), np.float32)
    for _ in range(3):
        result[:] = 0
        execution = nn.prepared(compiled, [DATA], [result])
        assert nn.Execution_burstCompute(execution, burst) == OK
        assert nn.Execution_burstCompute(execution, burst) == R.BAD_STATE
        np.testing.assert_array_equal(result, POSITIVE)
    stranger = nn.prepared(relu(nn, (1, 8), (1, 8)).compile(), [DATA], [result])
    assert nn.Execution_burstCompute(stranger, burst) == R.BAD_DATA
    assert nn.Execution_burstCompute(stranger, None) == R.UNEXPECTED_NULL
    assert nn.Execution_compute(stranger) == OK  # the refused attempts did not start it
