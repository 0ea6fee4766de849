"""Executions: their arguments, what they promise, when they run and for how long; asynchronous
ones, their events, and descriptors in the place of sync fences."""

import ctypes as C
import os
import time
from functools import partial

import numpy as np
import pytest

from tests.emulator.nnapi import DATA, OK, POSITIVE, Model, Op, R, T, handles, operand_type, relu

ROWS = DATA.reshape(2, 4)
UNAVAILABLE = 2**64 - 1  # what getDuration gives where it cannot tell
MISSED = (R.MISSED_DEADLINE_PERSISTENT, R.MISSED_DEADLINE_TRANSIENT)
floats = partial(operand_type, T.TENSOR_FLOAT32)


@pytest.fixture
def result():
    """Room for the output of an execution of `compiled` or `named`."""
    return np.zeros((1, 8), np.float32)


# ---- arguments and shapes ------------------------------------------------------------------------


def test_unknown_dimensions_are_given_by_the_execution(nn):
    compilation = relu(nn, (0, 4), (0, 0)).compile()
    execution, result = nn.new("Execution_create", compilation), np.zeros(12, np.float32)
    assert nn.set_input(execution, 0, ROWS) == R.BAD_DATA
    for dims in ((0, 4), (2, 5), (2,), (3, 4)):
        assert nn.set_input(execution, 0, ROWS, floats(dims)) == R.BAD_DATA
    assert nn.set_input(execution, 0, ROWS, floats((2, 4))) == OK
    assert nn.set_output(execution, 0, result) == OK  # larger than needed
    assert nn.Execution_compute(execution) == OK
    assert nn.shape_of(execution, 0) == (OK, [2, 4])
    np.testing.assert_array_equal(result[:8], POSITIVE[0])
    assert nn.shape_of(execution, 1) == (R.BAD_DATA, [])

    small = np.zeros(3, np.float32)
    execution = nn.prepared(compilation, [ROWS], [small], [floats((2, 4))])
    assert nn.Execution_compute(execution) == R.OUTPUT_INSUFFICIENT_SIZE
    assert nn.shape_of(execution, 0) == (R.OUTPUT_INSUFFICIENT_SIZE, [2, 4])
    assert not small.any()


def test_arguments(nn, named, result):
    execution = nn.new("Execution_create", named)
    assert nn.set_input(execution, 1, DATA) == R.BAD_DATA
    assert nn.set_input(execution, -1, DATA) == R.BAD_DATA
    assert nn.set_input(execution, 0, DATA[:, :7]) == R.BAD_DATA
    assert nn.set_input(execution, 0, DATA, operand_type(T.FLOAT32)) == R.BAD_DATA
    assert nn.set_input(execution, 0, DATA, floats((2, 4))) == R.BAD_DATA
    assert nn.set_output(execution, 0, result[:, :7]) == R.BAD_DATA
    assert nn.set_output(execution, 1, result) == R.BAD_DATA
    assert nn.Execution_setInput(execution, 0, None, None, 32) == R.UNEXPECTED_NULL
    assert nn.Execution_compute(execution) == R.BAD_DATA  # nothing is set
    assert nn.set_input(execution, 0, DATA) == OK
    assert nn.Execution_compute(execution) == R.BAD_DATA  # the output is not set
    assert nn.Execution_setOutput(execution, 0, None, result.ctypes.data, 0) == R.BAD_DATA
    assert nn.set_output(execution, 0, result) == OK
    assert nn.set_input(execution, 0, DATA) == R.BAD_STATE  # they are set
    assert nn.set_output(execution, 0, result) == R.BAD_STATE
    assert nn.Execution_compute(execution) == OK
    np.testing.assert_array_equal(result, POSITIVE)


@pytest.mark.parametrize("dims", [(1, 4), (1, 0), ()], ids=["known", "one open", "rank open"])
def test_a_type_given_to_an_execution_says_dimensions_only(nn, dims):
    """Android 10 to 13 take another scale and zero point than the model's, as PyTorch gives them
    for an input of other quantisation, and compute with the model's; dimensions must agree, and
    the type be one that may be."""
    bytes_ = partial(operand_type, T.TENSOR_QUANT8_ASYMM)
    compilation = relu(nn, dims, dims, T.TENSOR_QUANT8_ASYMM, 0.5, 10).compile()
    execution = nn.new("Execution_create", compilation)
    data, result = np.array([[0, 9, 10, 255]], np.uint8), np.zeros((1, 4), np.uint8)
    for impossible in (bytes_((1, 4), 0.0, 3), bytes_((1, 4), 0.25, 256)):
        assert nn.set_input(execution, 0, data, impossible) == R.BAD_DATA
        assert nn.set_output(execution, 0, result, impossible) == R.BAD_DATA
    if dims:
        assert nn.set_input(execution, 0, data, bytes_((4, 1), 0.5, 10)) == R.BAD_DATA
    assert nn.set_input(execution, 0, data, bytes_((1, 4), 0.25, 3)) == OK
    assert nn.set_output(execution, 0, result, bytes_((1, 4), 0.25, 3)) == OK
    assert nn.Execution_compute(execution) == OK
    np.testing.assert_array_equal(result, [[10, 10, 10, 255]])


def test_needed_inputs_cannot_be_omitted(nn, named, result):
    """CAST is what the lowering puts between an optional input and its reader: that one may be
    left out, a CAST of the model's may not."""
    model = Model(nn)
    a, b = model.tensors(2, 1, 8)
    model.operation(Op.CAST, [a], [b])
    for compilation in (named, model.finish([a], [b]).compile()):
        execution = nn.prepared(compilation, [DATA[:0]], [result])
        assert nn.Execution_compute(execution) == R.BAD_DATA
        assert nn.shape_of(execution, 0) == (R.BAD_STATE, [])


def test_outputs_may_be_omitted(nn, named):
    execution = nn.prepared(named, [DATA], [])
    assert nn.Execution_setOutput(execution, 0, None, None, 0) == OK
    assert nn.Execution_compute(execution) == OK


def test_scalars_are_inputs(nn):
    model = Model(nn)
    (a, b, c), act = model.tensors(3, 1, 8), model.operand(T.INT32)
    model.operation(Op.ADD, [a, b, act], [c])
    compilation = model.finish([a, b, act], [c]).compile()
    for code, expected in ((0, DATA - 1), (1, np.maximum(DATA - 1, 0))):
        inputs = [DATA, -np.ones((1, 8), np.float32), np.array(code, np.int32)]
        np.testing.assert_array_equal(nn.compute(compilation, *inputs), expected)


@pytest.mark.parametrize(
    ("promised", "expected"),
    [((2, 4), OK), ((2, 0), OK), ((4, 2), R.OP_FAILED), ((0, 2), R.OP_FAILED)],
)
def test_promised_output_shapes_are_kept(nn, promised, expected):
    """An output type given to an execution holds: another shape of the same size is refused."""
    compilation = relu(nn, (0, 0), (0, 0)).compile()
    execution = nn.prepared(compilation, [ROWS], [], [floats((2, 4))])
    result = np.zeros(8, np.float32)
    assert nn.set_output(execution, 0, result, floats(promised)) == OK
    assert nn.Execution_compute(execution) == expected


@pytest.mark.parametrize("rooms", [(8, 7, 8), (1, 9, 7), (8, 8, 8)])
def test_each_output_tells_whether_it_was_too_small(nn, rooms):
    model = Model(nn)
    a, outputs = model.tensor(0, 4), model.tensors(3, 0, 0)
    for output in outputs:
        model.operation(Op.RELU, [a], [output])
    compilation = model.finish([a], outputs).compile()
    results = [np.zeros(room, np.float32) for room in rooms]
    execution = nn.prepared(compilation, [ROWS], results, [floats((2, 4))])
    expected = [OK if room >= 8 else R.OUTPUT_INSUFFICIENT_SIZE for room in rooms]
    assert nn.Execution_compute(execution) == max(expected)
    assert [nn.shape_of(execution, i) for i in range(3)] == [(code, [2, 4]) for code in expected]


# ---- runs and their times --------------------------------------------------------------------


def test_executions_run_once(nn, named, result):
    execution, dims = nn.prepared(named, [DATA], [result]), (C.c_uint32 * 2)()
    assert nn.shape_of(execution, 0) == (R.BAD_STATE, [])
    assert nn.Execution_getOutputOperandDimensions(execution, 0, dims) == R.BAD_STATE
    limits = nn.Execution_setTimeout, nn.Execution_setLoopTimeout
    assert [set_limit(execution, 10**9) for set_limit in limits] == [OK] * 2
    assert nn.Execution_compute(execution) == OK
    assert nn.Execution_compute(execution) == R.BAD_STATE
    assert nn.set_input(execution, 0, DATA) == R.BAD_STATE
    assert nn.set_output(execution, 0, result) == R.BAD_STATE
    assert nn.Execution_setMeasureTiming(execution, True) == R.BAD_STATE
    assert [set_limit(execution, 10**9) for set_limit in limits] == [R.BAD_STATE] * 2
    assert nn.Execution_startCompute(execution, C.byref(C.c_void_p())) == R.BAD_STATE
    assert nn.duration(execution, 0) == (R.BAD_STATE, UNAVAILABLE)


def test_duration_is_real_time(nn, named, result):
    execution = nn.prepared(named, [DATA], [result])
    assert nn.Execution_setMeasureTiming(execution, True) == OK
    assert nn.duration(execution, 0)[0] == R.BAD_STATE
    before = nn.emulator_now()
    assert nn.Execution_compute(execution) == OK
    elapsed = nn.emulator_now() - before
    for code in range(4):
        told, ns = nn.duration(execution, code)
        assert told == OK and 0 < ns <= elapsed
    assert nn.duration(execution, 4)[0] == R.BAD_DATA
    assert nn.Execution_getDuration(execution, 0, None) == R.UNEXPECTED_NULL


each_limit = pytest.mark.parametrize("limit, in_time", [(1, False), (0, True), (2**64 - 1, True)])


@each_limit
def test_compilation_deadline(nn, limit, in_time):
    model, execution = relu(nn, (1, 8), (1, 8)), C.c_void_p()
    device = handles([*nn.devices().values()][:1])
    compilation = nn.new("Compilation_createForDevices", model.handle, device, 1)
    assert nn.Compilation_setTimeout(compilation, limit) == OK
    expected = (OK, OK) if in_time else (R.MISSED_DEADLINE_PERSISTENT, R.BAD_STATE)
    finished = nn.Compilation_finish(compilation)
    assert (finished, nn.Execution_create(compilation, C.byref(execution))) == expected
    nn.Execution_free(execution)


@each_limit
def test_execution_deadline(nn, named, result, limit, in_time):
    execution = nn.prepared(named, [DATA], [result])
    assert nn.Execution_setTimeout(execution, limit) == OK
    assert nn.Execution_compute(execution) in ((OK,) if in_time else MISSED)
    assert nn.shape_of(execution, 0)[0] == (OK if in_time else R.BAD_STATE)
    assert result.any() == in_time


# ---- events and fences -----------------------------------------------------------------------


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


def test_start_compute_refusals(nn, compiled):
    execution, event = nn.new("Execution_create", compiled), C.byref(C.c_void_p())
    assert nn.Execution_startCompute(execution, None) == R.UNEXPECTED_NULL
    assert nn.Execution_startCompute(execution, event) == R.BAD_DATA  # nothing is set
    begin = nn.Execution_startComputeWithDependencies
    assert begin(execution, None, 1, 0, event) == R.UNEXPECTED_NULL
    assert begin(execution, handles([None]), 1, 0, event) == R.UNEXPECTED_NULL
    # No device was named.
    assert begin(execution, None, 0, 5, event) == R.BAD_DATA
    assert nn.Execution_setMeasureTiming(execution, True) == R.BAD_DATA
    assert nn.Execution_setTimeout(execution, 1) == R.BAD_DATA


def test_a_failed_dependency_fails_the_execution(nn, compiled, result, gate):
    fence, end = gate
    end.close()  # nothing will ever be readable
    event = start(nn, nn.prepared(compiled, [DATA], [result]), fence)
    assert nn.Event_wait(event) == R.OP_FAILED
    assert not result.any()
    own = fence_of(nn, event)
    heir = nn.new("Event_createFromSyncFenceFd", own)  # the failure is told on
    assert nn.Event_wait(heir) == R.OP_FAILED
    os.close(own)


def test_what_is_or_has_no_fence(nn, compiled, result):
    create, out = nn.Event_createFromSyncFenceFd, C.byref(C.c_void_p())
    assert [create(descriptor, out) for descriptor in (-1, 1000, 0)] == [R.BAD_DATA] * 3
    execution, descriptor = nn.prepared(compiled, [DATA], [result]), C.c_int(5)
    event = nn.new("Execution_startCompute", execution)
    assert nn.Event_getSyncFenceFd(event, C.byref(descriptor)) == R.BAD_DATA
    assert descriptor.value == -1
    assert nn.Event_getSyncFenceFd(event, None) == R.UNEXPECTED_NULL


def test_fenced_durations_leave_waiting_out(nn, named, result, gate):
    fence, end = gate
    execution, other = (nn.prepared(named, [DATA], [result]) for _ in range(2))
    assert nn.Execution_setMeasureTiming(execution, True) == OK
    event = start(nn, execution, fence, limit=60 * 10**9)
    time.sleep(0.05)
    end.write(b"!")
    assert nn.Event_wait(event) == OK
    codes, times = zip(*(nn.duration(execution, code) for code in range(4)), strict=True)
    assert codes == (OK,) * 4
    hardware, driver, fenced_hardware, fenced_driver = times
    assert 0 < hardware == fenced_hardware <= fenced_driver
    assert fenced_driver + 10**7 < driver  # a busy machine may begin to wait late
    assert nn.Event_wait(start(nn, other, limit=1)) in MISSED  # 1 ns is over at once


def test_fenced_outputs_need_known_shapes(nn, result):
    event, begin = C.c_void_p(1), nn.Execution_startComputeWithDependencies
    compilation = relu(nn, (1, 8), (0, 0)).compile()
    execution = nn.prepared(compilation, [DATA], [result])
    assert begin(execution, None, 0, 0, C.byref(event)) == R.BAD_DATA
    assert event.value is None
    assert nn.Execution_compute(execution) == OK  # the refusal did not start it
    assert begin(execution, None, 0, 0, C.byref(event)) == R.BAD_STATE
