"""Bad operands, operations and models: which call refuses them, and with which result code."""

import ctypes as C

import numpy as np
import pytest

from tests.emulator import nnapi
from tests.emulator.nnapi import DATA, OK, POSITIVE, Model, Op, R, T, operand_type

# ---- operands ----------------------------------------------------------------------------------

GOOD_TYPES = [
    *[(T.TENSOR_FLOAT32, dims) for dims in ((2, 3), (), (2, 0))],
    *[(code, (2,)) for code in (T.TENSOR_FLOAT16, T.TENSOR_BOOL8)],
    *[(code,) for code in (T.FLOAT32, T.BOOL, T.FLOAT16, T.UINT32, T.MODEL)],
    (T.TENSOR_INT32, (2,), 0.5),
    (T.TENSOR_QUANT8_ASYMM, (2,), 0.5, 255),
    (T.TENSOR_QUANT8_ASYMM_SIGNED, (2,), 0.5, -128),
    (T.TENSOR_QUANT16_SYMM, (2,), 0.5),
    (T.TENSOR_QUANT16_ASYMM, (2,), 0.5, 65535),
    (T.TENSOR_QUANT8_SYMM, (2,), 0.5),
    (T.TENSOR_QUANT8_SYMM_PER_CHANNEL, (2,)),
]
OEM_SCALAR, TENSOR_OEM_BYTE, OF_AN_EXTENSION = 10000, 10001, 0x10000
BAD_TYPES = [
    *[(code,) for code in (-1, 99, OEM_SCALAR, OF_AN_EXTENSION)],
    (TENSOR_OEM_BYTE, (2,)),
    (T.INT32, (1,)),
    (T.MODEL, (1,)),
    (T.MODEL, (), 0.0, 1),
    (T.FLOAT32, (), 0.5),
    (T.TENSOR_FLOAT16, (2,), 0.5),
    (T.TENSOR_BOOL8, (2,), 0.0, 1),
    *[(T.TENSOR_FLOAT32, (2,), scale) for scale in (float("nan"), 0.5)],
    (T.TENSOR_FLOAT32, (2,), 0.0, 1),
    *[(T.TENSOR_FLOAT32, dims) for dims in ((1,) * 9, (70000, 70000))],
    (T.TENSOR_INT32, (2,), -0.5),
    (T.TENSOR_INT32, (2,), 0.5, 3),
    *[(T.TENSOR_QUANT8_ASYMM, (2,), s) for s in (0.0, -1.0, float("inf"), float("nan"))],
    *[(T.TENSOR_QUANT8_ASYMM, (2,), 0.5, zero) for zero in (256, -1)],
    (T.TENSOR_QUANT8_ASYMM_SIGNED, (2,), 0.5, 128),
    (T.TENSOR_QUANT16_SYMM, (2,), 0.5, 1),
    (T.TENSOR_QUANT16_ASYMM, (2,), 0.5, 65536),
    (T.TENSOR_QUANT8_SYMM, (2,), 0.5, 1),
    (T.TENSOR_QUANT8_SYMM_PER_CHANNEL, (2,), 0.5),
]


@pytest.mark.parametrize(("types", "expected"), [(GOOD_TYPES, OK), (BAD_TYPES, R.BAD_DATA)])
def test_operand_types(nn, types, expected):
    model = nn.new("Model_create")
    for parts in types:
        assert nn.Model_addOperand(model, C.byref(operand_type(*parts))) == expected, parts


def test_dimensions_and_their_number_belong_together(nn):
    model = nn.new("Model_create")
    for wrong in (
        nnapi.OperandType(T.TENSOR_FLOAT32, 2, None),
        nnapi.OperandType(T.INT32, 0, nnapi.u32([1])),
    ):
        assert nn.Model_addOperand(model, C.byref(wrong)) == R.BAD_DATA


def test_operand_values(nn):
    model = Model(nn)
    a, open_shape = model.tensor(1, 8), model.tensor(0, 8)
    buffer, value = (C.c_float * 8)(), nn.Model_setOperandValue
    for operand, n_bytes in ((a, 31), (a, 33), (-1, 32), (2, 32), (open_shape, 32)):
        assert value(model.handle, operand, buffer, n_bytes) == R.BAD_DATA, (operand, n_bytes)
    assert value(model.handle, a, None, 32) == R.UNEXPECTED_NULL
    assert value(model.handle, a, buffer, 32) == OK
    assert value(model.handle, a, None, 0) == OK  # now an omitted operand


def test_per_channel_scales(nn):
    model = Model(nn)
    plain = model.tensor(2, 3)
    weights = model.operand(T.TENSOR_QUANT8_SYMM_PER_CHANNEL, (2, 3))
    unknown = model.operand(T.TENSOR_QUANT8_SYMM_PER_CHANNEL, (2, 0))
    call = nn.Model_setOperandSymmPerChannelQuantParams

    def setting(index, dim, count, values=(0.5, 0.25, 1)):
        scales = None if values is None else (C.c_float * 3)(*values)
        return call(model.handle, index, C.byref(nnapi.ChannelQuant(dim, count, scales)))

    assert setting(weights, 1, 3) == OK and setting(weights, 0, 2) == OK
    for index, dim, count in (
        *[(weights, 1, 2), (weights, 2, 3), (plain, 1, 3), (unknown, 1, 3), (unknown, 1, 0)],
        (7, 1, 3),  # no operand
    ):
        assert setting(index, dim, count) == R.BAD_DATA, (index, dim, count)
    for values in (None, (1, 0, 1), (1, -1, 1), (1, float("nan"), 1)):
        assert setting(weights, 1, 3, values) == R.BAD_DATA, values
    assert call(model.handle, weights, None) == R.UNEXPECTED_NULL


def sum_of(nn, n, pointer):
    """A compilation that adds n floats at an address to its input."""
    model = Model(nn)
    a, b, c = model.tensors(3, 1, n)
    assert nn.Model_setOperandValue(model.handle, b, pointer, 4 * n) == OK
    model.operation(Op.ADD, [a, b, model.scalar(0)], [c])
    return model.finish([a], [c])


def test_values_may_lie_anywhere(nn):
    """A constant of odd address gives what one of even address gives."""
    room, values = np.zeros(4 * 64 + 1, np.uint8), np.arange(64, dtype=np.float32)
    room[1:] = values.view(np.uint8)
    compilation = sum_of(nn, 64, room.ctypes.data + 1).compile()
    result = nn.compute(compilation, np.ones((1, 64), np.float32), dims=(1, 64))
    np.testing.assert_array_equal(result[0], values + 1)


@pytest.mark.parametrize(("n", "added"), [(32, 0), (33, 7)])
def test_large_values_are_referenced_and_small_ones_copied(nn, n, added):
    """The largest value that is copied has 128 bytes; longer ones are the caller's."""
    values, data = np.zeros((1, n), np.float32), np.ones((1, n), np.float32)
    model = sum_of(nn, n, values.ctypes.data)
    values[:] = 7  # a change that a copy does not see
    result = nn.compute(model.compile(), data, dims=(1, n))
    np.testing.assert_array_equal(result, data + added)


# ---- models ------------------------------------------------------------------------------------


def test_bad_operations(nn):
    model = Model(nn)
    (a, b), act = model.tensors(2, 1, 8), model.scalar(0)
    for code, inputs, outputs in (
        (Op.RELU, [a], [9]),
        (Op.RELU, [9], [b]),
        (-1, [a], [b]),
        (102, [a], [b]),  # BATCH_MATMUL: feature level 6
        (0x10000, [a], [b]),  # no operation of NNAPI
        (Op.RELU, [a, a], [b]),
        (Op.RELU, [], [b]),
        (Op.RELU, [act], [b]),
        (Op.ADD, [a, b], [b]),
        (Op.ADD, [a, act, act], [b]),
        (Op.CONV_2D, [a, a, a, act, act, act, act], [b]),
    ):
        assert model.add_operation(code, inputs, outputs) == R.BAD_DATA, (code, inputs, outputs)
    assert model.add_operation(Op.RELU, [a], [b]) == OK


def test_model_without_parts_is_refused(nn):
    empty = nn.new("Model_create")
    assert nn.Model_finish(empty) == R.BAD_DATA
    assert nn.Model_finish(empty) == R.BAD_STATE
    unnamed = Model(nn)
    a, b = unnamed.tensors(2, 1, 8)
    unnamed.operation(Op.RELU, [a], [b])
    assert nn.Model_finish(unnamed.handle) == R.BAD_DATA


def test_operations_may_be_added_in_any_order(nn):
    model = Model(nn)
    a, b, c = model.tensors(3, 1, 8)
    model.operation(Op.ADD, [b, b, model.scalar(0)], [c])
    model.operation(Op.RELU, [a], [b])
    model.finish([a], [c])
    assert model.supported([*nn.devices().values()][:1], 2) == [True, True]
    np.testing.assert_array_equal(nn.compute(model.compile(), DATA), 2 * POSITIVE)


def test_inputs_and_outputs_must_fit(nn):
    model = Model(nn)
    (a, b), fixed = model.tensors(2, 1, 8), model.constant(DATA)
    model.operation(Op.RELU, [a], [b])
    for ends in (([7], [b]), ([a], [7]), ([fixed], [b]), ([a, a], [b]), ([a], [a])):
        assert model.identify(*ends) == R.BAD_DATA, ends
    assert model.identify([a], [b]) == OK
    assert model.identify([a], [b]) == R.BAD_DATA  # once is enough
    assert nn.Model_setOperandValue(model.handle, a, DATA.ctypes.data, 32) == R.BAD_DATA
    assert nn.Model_finish(model.handle) == OK


ACT = 4


def graph(nn, operations, output, weights=False):
    """A model of operations on tensors 0 to 2, the first its input, a constant, a scalar, and
    weights that lack the scales of their channels; and what its finish gives."""
    model = Model(nn)
    assert [*model.tensors(3, 1, 8), model.constant(DATA), model.scalar(0)][-1] == ACT
    if weights:
        model.operand(T.TENSOR_QUANT8_SYMM_PER_CHANNEL, (2, 3))
    for code, inputs, result in operations:
        model.operation(code, inputs, [result])
    assert model.identify([0], [output]) == OK
    return model.handle, nn.Model_finish(model.handle)


BAD_GRAPHS = {
    "cycle": dict(operations=[(Op.ADD, [0, 2, ACT], 1), (Op.RELU, [1], 2)], output=2),
    "two writers": dict(operations=[(Op.RELU, [0], 1), (Op.RELU, [0], 1)], output=1),
    "unwritten output": dict(operations=[(Op.RELU, [0], 1)], output=2),
    "unwritten input": dict(operations=[(Op.ADD, [0, 1, ACT], 2)], output=2),
    "written constant": dict(operations=[(Op.RELU, [0], 3), (Op.RELU, [3], 2)], output=2),
    "no scales of channels": dict(operations=[(Op.RELU, [0], 1)], output=1, weights=True),
}


@pytest.mark.parametrize("parts", BAD_GRAPHS.values(), ids=BAD_GRAPHS)
def test_bad_graphs_are_refused_by_finish_and_stay_closed(nn, parts):
    assert graph(nn, [(Op.RELU, [0], 1)], output=1)[1] == OK  # without a fault
    model, result = graph(nn, **parts)
    assert result == R.BAD_DATA
    assert nn.Model_finish(model) == R.BAD_STATE
    assert nn.Model_addOperand(model, C.byref(operand_type(T.FLOAT32))) == R.BAD_STATE
    assert nn.Compilation_create(model, C.byref(C.c_void_p())) == R.BAD_STATE


def test_finished_models_are_closed(nn):
    model = nnapi.relu_chain(nn, 1)
    h = model.handle
    assert nn.Model_addOperand(h, C.byref(operand_type(T.FLOAT32))) == R.BAD_STATE
    assert nn.Model_setOperandValue(h, 0, DATA.ctypes.data, 32) == R.BAD_STATE
    assert model.add_operation(Op.RELU, [0], [1]) == R.BAD_STATE
    assert model.identify([0], [1]) == R.BAD_STATE
    assert nn.Model_relaxComputationFloat32toFloat16(h, True) == R.BAD_STATE
    assert nn.Model_finish(h) == R.BAD_STATE


def test_unfinished_models_are_not_compiled(nn):
    model, out = nn.new("Model_create"), C.byref(C.c_void_p())
    devices, supported = nnapi.handles(list(nn.devices().values())), (C.c_bool * 1)()
    assert nn.Compilation_create(model, out) == R.BAD_STATE
    assert nn.Compilation_createForDevices(model, devices, 1, out) == R.BAD_STATE
    ask = nn.Model_getSupportedOperationsForDevices
    assert ask(model, devices, 1, supported) == R.BAD_STATE
