"""Executions: their arguments, what they promise, when they run and for how long."""

import ctypes as C

import numpy as np
import pytest

from tests.emulator.nnapi import (
    ADD,
    BOX_WITH_NMS_LIMIT,
    CAST,
    FLOAT32,
    INT32,
    OK,
    RELU,
    TENSOR_FLOAT32,
    TENSOR_INT32,
    TENSOR_QUANT8_ASYMM,
    UNAVAILABLE,
    Model,
    Result,
    handles,
    operand_type,
    prepared,
    set_input,
    set_output,
)

R = Result
DATA = np.array([[-1, 2, -3, 4, -5, 6, -7, 8]], np.float32)


def test_unknown_dimensions_are_given_by_the_execution(nn):
    model = Model(nn)
    a, b = model.tensor(0, 4), model.tensor(0, 0)
    model.operation(RELU, [a], [b])
    model.finish([a], [b])
    compilation, result = model.compile(), np.zeros(12, np.float32)
    execution = nn.new("Execution_create", compilation)
    data = DATA.reshape(2, 4)
    assert set_input(nn, execution, 0, data) == R.BAD_DATA
    assert set_input(nn, execution, 0, data, operand_type(3, (0, 4))) == R.BAD_DATA
    assert set_input(nn, execution, 0, data, operand_type(3, (2, 5))) == R.BAD_DATA
    assert set_input(nn, execution, 0, data, operand_type(3, (2,))) == R.BAD_DATA
    assert set_input(nn, execution, 0, data, operand_type(3, (3, 4))) == R.BAD_DATA
    assert set_input(nn, execution, 0, data, operand_type(3, (2, 4))) == OK
    assert set_output(nn, execution, 0, result) == OK  # larger than needed
    assert nn.Execution_compute(execution) == OK
    rank, dims = C.c_uint32(), (C.c_uint32 * 4)()
    assert nn.Execution_getOutputOperandRank(execution, 0, C.byref(rank)) == OK
    assert nn.Execution_getOutputOperandDimensions(execution, 0, dims) == OK
    assert rank.value == 2 and list(dims)[:2] == [2, 4]
    np.testing.assert_array_equal(result[:8], np.maximum(DATA.ravel(), 0))
    assert nn.Execution_getOutputOperandRank(execution, 1, C.byref(rank)) == R.BAD_DATA
    nn.Execution_free(execution)

    small = np.zeros(3, np.float32)
    execution = nn.new("Execution_create", compilation)
    assert set_input(nn, execution, 0, data, operand_type(3, (2, 4))) == OK
    assert set_output(nn, execution, 0, small) == OK
    assert nn.Execution_compute(execution) == R.OUTPUT_INSUFFICIENT_SIZE
    call = nn.Execution_getOutputOperandDimensions
    assert call(execution, 0, dims) == R.OUTPUT_INSUFFICIENT_SIZE and list(dims)[:2] == [2, 4]
    assert not small.any()
    nn.Execution_free(execution)
    nn.Compilation_free(compilation)
    model.free()


# ---- executions --------------------------------------------------------------------------------


def test_arguments(nn, chain):
    execution, result = nn.new("Execution_create", chain[1]), np.zeros((1, 8), np.float32)
    assert set_input(nn, execution, 1, DATA) == R.BAD_DATA
    assert set_input(nn, execution, -1, DATA) == R.BAD_DATA
    assert set_input(nn, execution, 0, DATA[:, :7]) == R.BAD_DATA
    assert set_input(nn, execution, 0, DATA, operand_type(FLOAT32)) == R.BAD_DATA
    assert set_input(nn, execution, 0, DATA, operand_type(TENSOR_FLOAT32, (2, 4))) == R.BAD_DATA
    assert set_output(nn, execution, 0, result[:, :7]) == R.BAD_DATA
    assert set_output(nn, execution, 1, result) == R.BAD_DATA
    assert nn.Execution_setInput(execution, 0, None, None, 32) == R.UNEXPECTED_NULL
    assert nn.Execution_setOutput(None, 0, None, None, 0) == R.UNEXPECTED_NULL
    assert nn.Execution_compute(execution) == R.BAD_DATA  # nothing is set
    assert set_input(nn, execution, 0, DATA) == OK
    assert nn.Execution_compute(execution) == R.BAD_DATA  # the output is not set
    assert nn.Execution_setOutput(execution, 0, None, result.ctypes.data, 0) == R.BAD_DATA
    assert set_output(nn, execution, 0, result) == OK
    assert set_input(nn, execution, 0, DATA) == R.BAD_STATE  # they are set
    assert set_output(nn, execution, 0, result) == R.BAD_STATE
    assert nn.Execution_compute(execution) == OK
    np.testing.assert_array_equal(result, np.maximum(DATA, 0))
    nn.Execution_free(execution)
    nn.Execution_free(None)


def quantised_relu(nn, dims):
    """A compilation of RELU on bytes of scale 0.5 and zero point 10, and its model."""
    model = Model(nn)
    a, b = (model.operand(TENSOR_QUANT8_ASYMM, dims, 0.5, 10) for _ in range(2))
    model.operation(RELU, [a], [b])
    return model.finish([a], [b]), model.compile()


@pytest.mark.parametrize("dims", [(1, 4), (1, 0), ()], ids=["known", "one open", "rank open"])
def test_a_type_given_to_an_execution_says_dimensions_only(nn, dims):
    """Android 10 to 13 take another scale and zero point than the model's, as PyTorch gives them
    for an input of other quantisation, and compute with the model's; dimensions must agree, and
    the type be one that may be."""
    model, compilation = quantised_relu(nn, dims)
    data, result = np.array([[0, 9, 10, 255]], np.uint8), np.zeros((1, 4), np.uint8)
    execution = nn.new("Execution_create", compilation)
    other = operand_type(TENSOR_QUANT8_ASYMM, (1, 4), 0.25, 3)
    for impossible in (
        operand_type(TENSOR_QUANT8_ASYMM, (1, 4), 0.0, 3),
        operand_type(TENSOR_QUANT8_ASYMM, (1, 4), 0.25, 256),
    ):
        assert set_input(nn, execution, 0, data, impossible) == R.BAD_DATA
        assert set_output(nn, execution, 0, result, impossible) == R.BAD_DATA
    if dims:
        wide = operand_type(TENSOR_QUANT8_ASYMM, (4, 1), 0.5, 10)
        assert set_input(nn, execution, 0, data, wide) == R.BAD_DATA
    assert set_input(nn, execution, 0, data, other) == OK
    assert set_output(nn, execution, 0, result, other) == OK
    assert nn.Execution_compute(execution) == OK
    np.testing.assert_array_equal(result, [[10, 10, 10, 255]])
    nn.Execution_free(execution)
    nn.Compilation_free(compilation)
    model.free()


def test_needed_inputs_cannot_be_omitted(nn, chain):
    result = np.zeros((1, 8), np.float32)
    execution = nn.new("Execution_create", chain[1])
    assert nn.Execution_setInput(execution, 0, None, None, 0) == OK
    assert set_output(nn, execution, 0, result) == OK
    assert nn.Execution_compute(execution) == R.BAD_DATA
    rank = C.c_uint32()
    assert nn.Execution_getOutputOperandRank(execution, 0, C.byref(rank)) == R.BAD_STATE
    nn.Execution_free(execution)


def test_a_cast_needs_its_input(nn):
    """CAST is what the lowering puts between an optional input and its reader: that one may be
    left out, a CAST of the model's may not."""
    model = Model(nn)
    a, b = model.tensor(1, 8), model.tensor(1, 8)
    model.operation(CAST, [a], [b])
    compilation = model.finish([a], [b]).compile()
    execution, result = nn.new("Execution_create", compilation), np.zeros((1, 8), np.float32)
    assert nn.Execution_setInput(execution, 0, None, None, 0) == OK
    assert set_output(nn, execution, 0, result) == OK
    assert nn.Execution_compute(execution) == R.BAD_DATA
    nn.Execution_free(execution)
    nn.Compilation_free(compilation)
    model.free()


def test_outputs_may_be_omitted(nn, chain):
    execution = nn.new("Execution_create", chain[1])
    assert set_input(nn, execution, 0, DATA) == OK
    assert nn.Execution_setOutput(execution, 0, None, None, 0) == OK
    assert nn.Execution_compute(execution) == OK
    nn.Execution_free(execution)


def test_scalars_are_inputs(nn):
    model = Model(nn)
    a, b, act, c = model.tensor(1, 8), model.tensor(1, 8), model.operand(INT32), model.tensor(1, 8)
    model.operation(ADD, [a, b, act], [c])
    compilation = model.finish([a, b, act], [c]).compile()
    for code, expected in ((0, DATA - 1), (1, np.maximum(DATA - 1, 0))):
        result = np.zeros((1, 8), np.float32)
        inputs = [DATA, -np.ones((1, 8), np.float32), np.array(code, np.int32)]
        execution = prepared(nn, compilation, inputs, [result])
        assert nn.Execution_compute(execution) == OK
        np.testing.assert_array_equal(result, expected)
        nn.Execution_free(execution)
    nn.Compilation_free(compilation)
    model.free()


def test_promised_output_shapes_are_kept(nn):
    """An output type given to an execution holds: another shape of the same size is refused."""
    model = Model(nn)
    a, b = model.tensor(0, 0), model.tensor(0, 0)
    model.operation(RELU, [a], [b])
    compilation = model.finish([a], [b]).compile()
    data = DATA.reshape(2, 4)
    for promised, expected in (
        ((2, 4), OK),
        ((2, 0), OK),
        ((4, 2), R.OP_FAILED),
        ((0, 2), R.OP_FAILED),
    ):
        result = np.zeros(8, np.float32)
        execution = nn.new("Execution_create", compilation)
        assert set_input(nn, execution, 0, data, operand_type(3, (2, 4))) == OK
        assert set_output(nn, execution, 0, result, operand_type(3, promised)) == OK
        assert nn.Execution_compute(execution) == expected, promised
        nn.Execution_free(execution)
    nn.Compilation_free(compilation)
    model.free()


def test_executions_run_once(nn, chain):
    result, rank, ns = np.zeros((1, 8), np.float32), C.c_uint32(), C.c_uint64(5)
    execution = prepared(nn, chain[1], [DATA], [result])
    dims = (C.c_uint32 * 2)()
    assert nn.Execution_getOutputOperandRank(execution, 0, C.byref(rank)) == R.BAD_STATE
    assert nn.Execution_getOutputOperandDimensions(execution, 0, dims) == R.BAD_STATE
    assert nn.Execution_setTimeout(execution, 10**9) == OK
    assert nn.Execution_setLoopTimeout(execution, 10**9) == OK
    assert nn.Execution_compute(execution) == OK
    assert nn.Execution_compute(execution) == R.BAD_STATE
    assert set_input(nn, execution, 0, DATA) == R.BAD_STATE
    assert set_output(nn, execution, 0, result) == R.BAD_STATE
    assert nn.Execution_setMeasureTiming(execution, True) == R.BAD_STATE
    assert nn.Execution_setTimeout(execution, 10**9) == R.BAD_STATE
    assert nn.Execution_setLoopTimeout(execution, 10**9) == R.BAD_STATE
    event = C.c_void_p()
    assert nn.Execution_startCompute(execution, C.byref(event)) == R.BAD_STATE
    assert nn.Execution_getDuration(execution, 0, C.byref(ns)) == R.BAD_STATE
    assert ns.value == UNAVAILABLE
    nn.Execution_free(execution)


def test_duration_is_real_time(nn, chain):
    result, ns = np.zeros((1, 8), np.float32), C.c_uint64()
    execution = prepared(nn, chain[1], [DATA], [result])
    assert nn.Execution_setMeasureTiming(execution, True) == OK
    assert nn.Execution_getDuration(execution, 0, C.byref(ns)) == R.BAD_STATE
    before = nn.emulator_now()
    assert nn.Execution_compute(execution) == OK
    elapsed = nn.emulator_now() - before
    for code in range(4):
        assert nn.Execution_getDuration(execution, code, C.byref(ns)) == OK
        assert 0 < ns.value <= elapsed
    assert nn.Execution_getDuration(execution, 4, C.byref(ns)) == R.BAD_DATA
    assert nn.Execution_getDuration(execution, 0, None) == R.UNEXPECTED_NULL
    nn.Execution_free(execution)


def test_timing_needs_one_named_device(nn, chain):
    compilation = chain[0].compile()
    execution = nn.new("Execution_create", compilation)
    assert nn.Execution_setMeasureTiming(execution, True) == R.BAD_DATA
    assert nn.Execution_setTimeout(execution, 1) == R.BAD_DATA
    nn.Execution_free(execution)
    nn.Compilation_free(compilation)


# ---- shapes that the run finds -----------------------------------------------------------------


def shape_of(nn, execution, index):
    """Result code and dimensions of an output."""
    rank, dims = C.c_uint32(), (C.c_uint32 * 8)()
    code = nn.Execution_getOutputOperandRank(execution, index, C.byref(rank))
    assert nn.Execution_getOutputOperandDimensions(execution, index, dims) == code
    return code, list(dims)[: rank.value]


def test_each_output_tells_whether_it_was_too_small(nn):
    model = Model(nn)
    a = model.tensor(0, 4)
    outputs = [model.tensor(0, 0) for _ in range(3)]
    for output in outputs:
        model.operation(RELU, [a], [output])
    compilation = model.finish([a], outputs).compile()
    data, shape = DATA.reshape(2, 4), operand_type(TENSOR_FLOAT32, (2, 4))
    small = R.OUTPUT_INSUFFICIENT_SIZE
    for rooms in ((8, 7, 8), (1, 9, 7), (8, 8, 8)):
        execution = nn.new("Execution_create", compilation)
        results = [np.zeros(n, np.float32) for n in rooms]
        assert set_input(nn, execution, 0, data, shape) == OK
        for i, result in enumerate(results):
            assert set_output(nn, execution, i, result) == OK
        fits = all(n >= 8 for n in rooms)
        assert nn.Execution_compute(execution) == (OK if fits else small)
        for i, room in enumerate(rooms):
            expected = OK if room >= 8 else small
            assert shape_of(nn, execution, i) == (expected, [2, 4])
        nn.Execution_free(execution)
    nn.Compilation_free(compilation)
    model.free()


def test_tensors_without_elements(nn):
    """No box reaches the score: four outputs of [0] and [0, 4], and a RELU that reads one."""
    model = Model(nn)
    scores, boxes = model.tensor(3, 2), model.tensor(3, 8)
    batches = model.constant(np.zeros(3, np.int32))
    limits = [model.scalar(v) for v in (0.9, -1, 0, 0.4, 1.0, 0.3)]
    outcome = [model.tensor(0), model.tensor(0, 4)]
    outcome += [model.operand(TENSOR_INT32, (0,)) for _ in range(2)]
    relu = model.tensor(0, 0)
    model.operation(BOX_WITH_NMS_LIMIT, [scores, boxes, batches, *limits], outcome)
    model.operation(RELU, [outcome[1]], [relu])
    outputs = [outcome[0], *outcome[2:], relu]
    compilation = model.finish([scores, boxes], outputs).compile()
    inputs = [np.full((3, 2), 0.5, np.float32), np.tile(np.float32([0, 0, 5, 5]), (3, 2))]
    for room in (1, 4):
        results = [np.full(room, 77, np.float32), *np.full((2, room), 77, np.int32)]
        results.append(np.full(room, 77, np.float32))
        execution = prepared(nn, compilation, inputs, results)
        assert nn.Execution_compute(execution) == OK
        shapes = [shape_of(nn, execution, i) for i in range(4)]
        assert shapes == [(OK, [0]), (OK, [0]), (OK, [0]), (OK, [0, 4])]
        assert all((result == 77).all() for result in results)
        nn.Execution_free(execution)
    nn.Compilation_free(compilation)
    model.free()


# ---- deadlines -----------------------------------------------------------------------------------


def test_compilation_deadline(nn, chain):
    model, device = chain[0], next(iter(nn.devices().values()))
    make = nn.Compilation_createForDevices
    for duration, expected in ((1, R.MISSED_DEADLINE_PERSISTENT), (0, OK), (2**64 - 1, OK)):
        compilation = C.c_void_p()
        assert make(model.handle, handles([device]), 1, C.byref(compilation)) == OK
        assert nn.Compilation_setTimeout(compilation, duration) == OK
        assert nn.Compilation_finish(compilation) == expected
        execution = C.c_void_p()
        code = nn.Execution_create(compilation, C.byref(execution))
        assert code == (OK if expected == OK else R.BAD_STATE)
        nn.Execution_free(execution)
        nn.Compilation_free(compilation)


def test_execution_deadline(nn, chain):
    missed = (R.MISSED_DEADLINE_PERSISTENT, R.MISSED_DEADLINE_TRANSIENT)
    for duration, expected in ((1, missed), (0, (OK,)), (2**64 - 1, (OK,))):
        result, rank = np.zeros((1, 8), np.float32), C.c_uint32()
        execution = prepared(nn, chain[1], [DATA], [result])
        assert nn.Execution_setTimeout(execution, duration) == OK
        assert nn.Execution_compute(execution) in expected
        shape = nn.Execution_getOutputOperandRank(execution, 0, C.byref(rank))
        assert shape == (OK if expected == (OK,) else R.BAD_STATE)
        assert result.any() == (expected == (OK,))
        nn.Execution_free(execution)
