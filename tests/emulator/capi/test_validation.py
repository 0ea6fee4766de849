"""Bad operands, operations and models: which call refuses them, and with which result code."""

import ctypes as C

import numpy as np
import pytest

from tests.emulator.nnapi import (
    ADD,
    BOOL,
    CONV_2D,
    FLOAT16,
    FLOAT32,
    INT32,
    MODEL,
    OK,
    RELU,
    TENSOR_BOOL8,
    TENSOR_FLOAT16,
    TENSOR_FLOAT32,
    TENSOR_INT32,
    TENSOR_QUANT8_ASYMM,
    TENSOR_QUANT8_ASYMM_SIGNED,
    TENSOR_QUANT8_SYMM,
    TENSOR_QUANT8_SYMM_PER_CHANNEL,
    TENSOR_QUANT16_ASYMM,
    TENSOR_QUANT16_SYMM,
    UINT32,
    ChannelQuant,
    Model,
    OperandType,
    Result,
    handles,
    operand_type,
    prepared,
    relu_chain,
    u32,
)

R = Result
DATA = np.array([[-1, 2, -3, 4, -5, 6, -7, 8]], np.float32)

# ---- operands ----------------------------------------------------------------------------------

GOOD_TYPES = [
    (TENSOR_FLOAT32, (2, 3), 0.0, 0),
    (TENSOR_FLOAT32, (), 0.0, 0),
    (TENSOR_FLOAT32, (2, 0), 0.0, 0),
    (TENSOR_INT32, (2,), 0.5, 0),
    (TENSOR_QUANT8_ASYMM, (2,), 0.5, 255),
    (TENSOR_QUANT8_ASYMM_SIGNED, (2,), 0.5, -128),
    (TENSOR_QUANT16_SYMM, (2,), 0.5, 0),
    (TENSOR_QUANT16_ASYMM, (2,), 0.5, 65535),
    (TENSOR_QUANT8_SYMM, (2,), 0.5, 0),
    (TENSOR_QUANT8_SYMM_PER_CHANNEL, (2,), 0.0, 0),
    (FLOAT32, (), 0.0, 0),
    (BOOL, (), 0.0, 0),
    (FLOAT16, (), 0.0, 0),
    (UINT32, (), 0.0, 0),
    (MODEL, (), 0.0, 0),
    (TENSOR_FLOAT16, (2,), 0.0, 0),
    (TENSOR_BOOL8, (2,), 0.0, 0),
]
OEM_SCALAR, TENSOR_OEM_BYTE = 10000, 10001
BAD_TYPES = [
    (-1, (), 0.0, 0),
    (99, (), 0.0, 0),
    (OEM_SCALAR, (), 0.0, 0),
    (TENSOR_OEM_BYTE, (2,), 0.0, 0),
    (0x10000, (), 0.0, 0),  # an extension's
    (INT32, (1,), 0.0, 0),
    (MODEL, (1,), 0.0, 0),
    (MODEL, (), 0.0, 1),
    (TENSOR_FLOAT16, (2,), 0.5, 0),
    (TENSOR_BOOL8, (2,), 0.0, 1),
    (TENSOR_FLOAT32, (1,) * 9, 0.0, 0),
    (TENSOR_FLOAT32, (2,), float("nan"), 0),
    (TENSOR_QUANT8_ASYMM, (2,), float("inf"), 0),
    (FLOAT32, (), 0.5, 0),
    (TENSOR_FLOAT32, (2,), 0.5, 0),
    (TENSOR_FLOAT32, (2,), 0.0, 1),
    (TENSOR_FLOAT32, (70000, 70000), 0.0, 0),
    (TENSOR_INT32, (2,), -0.5, 0),
    (TENSOR_INT32, (2,), 0.5, 3),
    (TENSOR_QUANT8_ASYMM, (2,), 0.0, 0),
    (TENSOR_QUANT8_ASYMM, (2,), -1.0, 0),
    (TENSOR_QUANT8_ASYMM, (2,), float("nan"), 0),
    (TENSOR_QUANT8_ASYMM, (2,), 0.5, 256),
    (TENSOR_QUANT8_ASYMM, (2,), 0.5, -1),
    (TENSOR_QUANT8_ASYMM_SIGNED, (2,), 0.5, 128),
    (TENSOR_QUANT16_SYMM, (2,), 0.5, 1),
    (TENSOR_QUANT16_ASYMM, (2,), 0.5, 65536),
    (TENSOR_QUANT8_SYMM, (2,), 0.5, 1),
    (TENSOR_QUANT8_SYMM_PER_CHANNEL, (2,), 0.5, 0),
]


def test_operand_types(nn):
    model = nn.new("Model_create")
    for parts in GOOD_TYPES:
        assert nn.Model_addOperand(model, C.byref(operand_type(*parts))) == OK, parts
    for parts in BAD_TYPES:
        assert nn.Model_addOperand(model, C.byref(operand_type(*parts))) == R.BAD_DATA, parts
    unpaired = OperandType(TENSOR_FLOAT32, 2, None, 0.0, 0)
    assert nn.Model_addOperand(model, C.byref(unpaired)) == R.BAD_DATA
    scalar_with_pointer = OperandType(INT32, 0, u32([1]), 0.0, 0)
    assert nn.Model_addOperand(model, C.byref(scalar_with_pointer)) == R.BAD_DATA
    nn.Model_free(model)


def test_operand_values(nn):
    model = Model(nn)
    a, open_shape = model.tensor(1, 8), model.tensor(0, 8)
    buffer, value = (C.c_float * 8)(), nn.Model_setOperandValue
    assert value(model.handle, a, buffer, 31) == R.BAD_DATA
    assert value(model.handle, a, buffer, 33) == R.BAD_DATA
    assert value(model.handle, a, None, 32) == R.UNEXPECTED_NULL
    assert value(model.handle, -1, buffer, 32) == R.BAD_DATA
    assert value(model.handle, 2, buffer, 32) == R.BAD_DATA
    assert value(model.handle, open_shape, buffer, 32) == R.BAD_DATA
    assert value(None, a, buffer, 32) == R.UNEXPECTED_NULL
    assert value(model.handle, a, buffer, 32) == OK
    assert value(model.handle, a, None, 0) == OK  # now an omitted operand
    model.free()


def test_per_channel_scales(nn):
    model = Model(nn)
    plain = model.tensor(2, 3)
    weights = model.operand(TENSOR_QUANT8_SYMM_PER_CHANNEL, (2, 3))
    scales, call = (C.c_float * 3)(0.5, 0.25, 1), nn.Model_setOperandSymmPerChannelQuantParams

    def setting(index, dim, count, values=scales):
        return call(model.handle, index, C.byref(ChannelQuant(dim, count, values)))

    assert setting(weights, 1, 3) == OK and setting(weights, 0, 2) == OK
    assert setting(weights, 1, 2) == R.BAD_DATA
    assert setting(weights, 2, 3) == R.BAD_DATA
    assert setting(weights, 1, 3, None) == R.BAD_DATA
    assert setting(weights, 1, 3, (C.c_float * 3)(1, 0, 1)) == R.BAD_DATA
    assert setting(plain, 1, 3) == R.BAD_DATA
    assert setting(7, 1, 3) == R.BAD_DATA
    assert setting(weights, 1, 3, (C.c_float * 3)(1, -1, 1)) == R.BAD_DATA
    assert setting(weights, 1, 3, (C.c_float * 3)(1, float("nan"), 1)) == R.BAD_DATA
    unknown = model.operand(TENSOR_QUANT8_SYMM_PER_CHANNEL, (2, 0))
    assert setting(unknown, 1, 3) == R.BAD_DATA
    assert setting(unknown, 1, 0) == R.BAD_DATA
    assert call(model.handle, weights, None) == R.UNEXPECTED_NULL
    model.free()


def test_operands_without_channel_scales_are_refused(nn):
    model = Model(nn)
    a, b = model.tensor(1, 8), model.tensor(1, 8)
    model.operand(TENSOR_QUANT8_SYMM_PER_CHANNEL, (2, 3))
    model.operation(RELU, [a], [b])
    assert model.identify([a], [b]) == OK
    assert nn.Model_finish(model.handle) == R.BAD_DATA
    model.free()


def test_values_may_lie_anywhere(nn):
    """A constant of odd address gives what one of even address gives."""
    room = np.zeros(4 * 64 + 1, np.uint8)
    values = np.arange(64, dtype=np.float32)
    room[1:] = values.view(np.uint8)
    model = Model(nn)
    a, b, c = (model.tensor(1, 64) for _ in range(3))
    pointer = C.c_void_p(room.ctypes.data + 1)
    assert nn.Model_setOperandValue(model.handle, b, pointer, 256) == OK
    model.operation(ADD, [a, b, model.scalar(0)], [c])
    compilation = model.finish([a], [c]).compile()
    data, result = np.ones((1, 64), np.float32), np.zeros((1, 64), np.float32)
    execution = prepared(nn, compilation, [data], [result])
    assert nn.Execution_compute(execution) == OK
    np.testing.assert_array_equal(result[0], values + 1)
    nn.Execution_free(execution)
    nn.Compilation_free(compilation)
    model.free()


def test_large_values_are_referenced_and_small_ones_copied(nn):
    """The largest value that is copied has 128 bytes; longer ones are the caller's."""
    for n in (32, 33):
        model, values = Model(nn), np.zeros((1, n), np.float32)
        a, b, c = (model.tensor(1, n) for _ in range(3))
        pointer = values.ctypes.data_as(C.c_void_p)
        assert nn.Model_setOperandValue(model.handle, b, pointer, values.nbytes) == OK
        values[:] = 7  # a change that a copy does not see
        model.operation(ADD, [a, b, model.scalar(0)], [c])
        compilation = model.finish([a], [c]).compile()
        data, result = np.ones((1, n), np.float32), np.zeros((1, n), np.float32)
        execution = prepared(nn, compilation, [data], [result])
        assert nn.Execution_compute(execution) == OK
        np.testing.assert_array_equal(result, data + (0 if n == 32 else 7))
        nn.Execution_free(execution)
        nn.Compilation_free(compilation)
        model.free()


# ---- models ------------------------------------------------------------------------------------


def test_bad_operations(nn):
    model = Model(nn)
    a, b, act = model.tensor(1, 8), model.tensor(1, 8), model.scalar(0)
    assert model.add_operation(RELU, [a], [9]) == R.BAD_DATA
    assert model.add_operation(RELU, [9], [b]) == R.BAD_DATA
    assert model.add_operation(-1, [a], [b]) == R.BAD_DATA
    assert model.add_operation(102, [a], [b]) == R.BAD_DATA  # BATCH_MATMUL: feature level 6
    assert model.add_operation(0x10000, [a], [b]) == R.BAD_DATA  # no operation of NNAPI
    assert model.add_operation(RELU, [a, a], [b]) == R.BAD_DATA
    assert model.add_operation(RELU, [], [b]) == R.BAD_DATA
    assert model.add_operation(RELU, [act], [b]) == R.BAD_DATA
    assert model.add_operation(ADD, [a, b], [b]) == R.BAD_DATA
    assert model.add_operation(ADD, [a, act, act], [b]) == R.BAD_DATA
    assert model.add_operation(CONV_2D, [a, a, a, act, act, act, act], [b]) == R.BAD_DATA
    assert model.add_operation(RELU, [a], [b]) == OK
    model.free()


def test_model_without_parts_is_refused(nn):
    empty = nn.new("Model_create")
    assert nn.Model_finish(empty) == R.BAD_DATA
    assert nn.Model_finish(empty) == R.BAD_STATE
    nn.Model_free(empty)

    unnamed = Model(nn)
    a, b = unnamed.tensor(1, 8), unnamed.tensor(1, 8)
    unnamed.operation(RELU, [a], [b])
    assert nn.Model_finish(unnamed.handle) == R.BAD_DATA
    unnamed.free()


def test_inputs_and_outputs_must_fit(nn):
    model = Model(nn)
    a, b, fixed = model.tensor(1, 8), model.tensor(1, 8), model.constant(DATA)
    model.operation(RELU, [a], [b])
    assert model.identify([7], [b]) == R.BAD_DATA
    assert model.identify([a], [7]) == R.BAD_DATA
    assert model.identify([fixed], [b]) == R.BAD_DATA
    assert model.identify([a, a], [b]) == R.BAD_DATA
    assert model.identify([a], [a]) == R.BAD_DATA
    assert model.identify([a], [b]) == OK
    assert model.identify([a], [b]) == R.BAD_DATA  # once is enough
    buffer = (C.c_float * 8)()
    assert nn.Model_setOperandValue(model.handle, a, buffer, 32) == R.BAD_DATA
    assert nn.Model_finish(model.handle) == OK
    model.free()


def build_cycle(model):
    a, b, c = (model.tensor(1, 8) for _ in range(3))
    act = model.scalar(0)
    model.operation(ADD, [a, c, act], [b])
    model.operation(RELU, [b], [c])
    return [a], [c]


def build_two_writers(model):
    a, b = model.tensor(1, 8), model.tensor(1, 8)
    model.operation(RELU, [a], [b])
    model.operation(RELU, [a], [b])
    return [a], [b]


def build_unwritten_output(model):
    a, b, c = (model.tensor(1, 8) for _ in range(3))
    model.operation(RELU, [a], [b])
    return [a], [c]


def build_unwritten_input(model):
    a, b, c = (model.tensor(1, 8) for _ in range(3))
    act = model.scalar(0)
    model.operation(ADD, [a, b, act], [c])
    return [a], [c]


def build_written_constant(model):
    a, b = model.tensor(1, 8), model.constant(DATA)
    c = model.tensor(1, 8)
    model.operation(RELU, [a], [b])
    model.operation(RELU, [b], [c])
    return [a], [c]


@pytest.mark.parametrize(
    "build",
    [
        build_cycle,
        build_two_writers,
        build_unwritten_output,
        build_unwritten_input,
        build_written_constant,
    ],
)
def test_bad_graphs_are_refused_by_finish_and_stay_closed(nn, build):
    model = Model(nn)
    inputs, outputs = build(model)
    assert model.identify(inputs, outputs) == OK
    assert nn.Model_finish(model.handle) == R.BAD_DATA
    assert nn.Model_finish(model.handle) == R.BAD_STATE
    assert nn.Model_addOperand(model.handle, C.byref(operand_type(FLOAT32))) == R.BAD_STATE
    handle = C.c_void_p()
    assert nn.Compilation_create(model.handle, C.byref(handle)) == R.BAD_STATE
    model.free()


def test_finished_models_are_closed(nn):
    model = relu_chain(nn, 1)
    h, buffer = model.handle, (C.c_float * 8)()
    assert nn.Model_addOperand(h, C.byref(operand_type(FLOAT32))) == R.BAD_STATE
    assert nn.Model_setOperandValue(h, 0, buffer, 32) == R.BAD_STATE
    assert model.add_operation(RELU, [0], [1]) == R.BAD_STATE
    assert model.identify([0], [1]) == R.BAD_STATE
    assert nn.Model_relaxComputationFloat32toFloat16(h, True) == R.BAD_STATE
    assert nn.Model_finish(h) == R.BAD_STATE
    model.free()


def test_unfinished_models_are_not_compiled(nn):
    model, handle = Model(nn), C.c_void_p()
    devices, supported = handles(list(nn.devices().values())), (C.c_bool * 1)()
    assert nn.Compilation_create(model.handle, C.byref(handle)) == R.BAD_STATE
    create = nn.Compilation_createForDevices
    assert create(model.handle, devices, 1, C.byref(handle)) == R.BAD_STATE
    ask = nn.Model_getSupportedOperationsForDevices
    assert ask(model.handle, devices, 1, supported) == R.BAD_STATE
    model.free()
