"""Operations and types that are new in level 4, against numpy and torch; and operands that
element-wise operations and convolutions refuse."""

import numpy as np
import pytest
import torch

from nnapi_prof.nnapi.codes import OperandCode, OperationCode
from tests.emulator.kernels.one_operation import (
    BOOL,
    DTYPES,
    F16,
    F32,
    I32,
    QUANT8,
    SEEDS,
    Half,
    Kind,
    Tensor,
    add_operand,
    assert_near,
    assert_rounded,
    attempt,
    broadcast_shapes,
    execute,
    quant8,
    random_quant8,
    scalar,
    tensor,
)
from tests.emulator.nnapi import OK, Model, Result, prepared, set_input, set_output

INTEGERS = {"ADD": np.add, "SUB": np.subtract, "MUL": np.multiply, "DIV": np.floor_divide}


@pytest.mark.parametrize("name", INTEGERS)
def test_binary_integers(nn, name):
    for seed in SEEDS:
        rng = np.random.default_rng(seed)
        a, b = (tensor(rng, I32, s) for s in broadcast_shapes(rng))
        b = Tensor(I32, np.where(b.array == 0, 7, b.array).astype(np.int32))
        expected = INTEGERS[name](a.array, b.array)
        actual = execute(nn, name, [a, b, 0], I32, expected.shape)
        np.testing.assert_array_equal(actual, expected)


@pytest.mark.parametrize("numerators", [[7, -7, 0], [2**31 - 1, -(2**31), 1]])
def test_integers_divided_by_zero_are_zero(nn, numerators):
    """NNAPI leaves the quotient open and wants NO_ERROR; AOSP's CPU path gives 0."""
    x = Tensor(I32, np.array(numerators, np.int32))
    for divisors in ([0, 2, 0], [0, 0, 0]):
        result, actual = attempt(
            nn, "DIV", [x, Tensor(I32, np.array(divisors, np.int32)), 0], I32, (3,)
        )
        expected = [a // b if b else 0 for a, b in zip(numerators, divisors, strict=True)]
        assert result == OK
        np.testing.assert_array_equal(actual, expected)


@pytest.mark.parametrize("kind", [F32, F16], ids=lambda k: k.name)
def test_elu_and_hard_swish(nn, kind):
    x = tensor(np.random.default_rng(5), kind, (3, 2, 70), -7, 7)
    expected = torch.nn.functional.elu(torch.from_numpy(x.real), 0.75).numpy()
    actual = execute(nn, "ELU", [x, scalar(0.75, kind is F16)], kind, expected.shape)
    assert_near(actual, expected, kind)
    expected = torch.nn.functional.hardswish(torch.from_numpy(x.real)).numpy()
    assert_near(execute(nn, "HARD_SWISH", [x], kind, expected.shape), expected, kind)


@pytest.mark.parametrize("quant", QUANT8)
def test_hard_swish_quantised(nn, quant):
    for seed in SEEDS:
        rng = np.random.default_rng(seed)
        kind = random_quant8(rng, quant)
        low, high = kind.limits
        x = Tensor(kind, np.arange(low, high + 1).astype(kind.dtype).reshape(4, 64))
        expected = torch.nn.functional.hardswish(torch.from_numpy(x.real)).numpy()
        scale = float(np.ptp(expected)) / rng.uniform(100, 250)
        out = quant8(quant, float(np.float32(scale)), int(rng.integers(5, 30)))
        assert_rounded(execute(nn, "HARD_SWISH", [x], out, (4, 64)), expected, out, 0.9)


def any_kind(type_):
    return Kind(type_, 0.5 if "QUANT" in type_ else 0.0)


def test_cast_beyond_limits(nn):
    values = np.array([3e9, -3e9, np.inf, -np.inf, np.nan, 2147483520.0], np.float32)
    result = execute(nn, "CAST", [Tensor(F32, values)], I32, values.shape)
    limits = np.iinfo(np.int32)
    assert result.tolist() == [limits.max, limits.min, limits.max, limits.min, 0, 2147483520]


@pytest.mark.parametrize("type_", [n for n in DTYPES if "INT32" not in n and "CHANNEL" not in n])
def test_cast_to_itself(nn, type_):
    x = tensor(np.random.default_rng(1), any_kind(type_), (3, 4))
    np.testing.assert_array_equal(execute(nn, "CAST", [x], x.kind, (3, 4)), x.array)


@pytest.mark.parametrize("type_", [*DTYPES][:8])
def test_rank(nn, type_):
    x = tensor(np.random.default_rng(1), any_kind(type_), (2, 3, 1))
    if "CHANNEL" in type_:
        x = Tensor(Kind(type_), x.array, False, (0.5, 0.25), 0)
    assert execute(nn, "RANK", [x], Kind("INT32"), ()) == 3


@pytest.mark.parametrize("constant", [True, False])
@pytest.mark.parametrize("value,kind", [(2.5, F32), (Half(2.5), F16), (-7, I32)])
def test_fill(nn, value, kind, constant):
    dims = Tensor(I32, np.array([2, 3], np.int32), constant)
    anchor = Tensor(I32, np.array([1], np.int32))  # a model needs an input
    if constant:
        model = Model(nn)
        filling, result = (
            model.operand(OperandCode.TENSOR_INT32, (1,)),
            np.zeros((2, 3), kind.dtype),
        )
        copied = model.operand(OperandCode.TENSOR_INT32, (1,))
        out = model.operand(OperandCode[kind.name], (2, 3))
        arguments = [add_operand(model, a) for a in (dims, value)]
        model.operation(OperationCode.FILL, arguments, [out])
        model.operation(OperationCode.CAST, [filling], [copied])
        model.finish([filling], [out, copied])
        execution = nn.new("Execution_create", model.compile())
        assert set_input(nn, execution, 0, anchor.array) == OK
        assert set_output(nn, execution, 0, result) == OK
        assert set_output(nn, execution, 1, np.zeros(1, np.int32)) == OK
        assert nn.Execution_compute(execution) == OK
    else:
        result = execute(nn, "FILL", [dims, value], kind, (2, 3))
    np.testing.assert_array_equal(result, np.full((2, 3), value, kind.dtype))


U8 = quant8(QUANT8[0], 0.5, 128)
X32, XI, X8 = (Tensor(k, np.ones((2, 2), k.dtype)) for k in (F32, I32, U8))


def image(kind, *shape, **others):
    return Tensor(kind, np.ones(shape, kind.dtype), **others)


def convolution(bias=0.25, scales=(), axis=0):
    """Arguments of CONV_2D: [1, 2, 2, 2] by three filters of [2, 2, 2]."""
    kind = Kind("TENSOR_QUANT8_SYMM_PER_CHANNEL") if scales else U8
    weights = image(kind, 3, 2, 2, 2, constant=True, channel_scales=scales, channel_dim=axis)
    offset = image(Kind("TENSOR_INT32", bias), 3, constant=True)
    return [image(U8, 1, 2, 2, 2), weights, offset, 2, 1, 1, 0]


OF_SUMS = quant8(QUANT8[0], 8.0, 0)
EACH = (0.5, 0.25, 0.125)
REFUSED = {
    "fuse code of integers": ("ADD", [XI, XI, 1], I32),
    "unknown fuse code": ("ADD", [X32, X32, 4], F32),
    "scale of a product": ("MUL", [X8, X8, 0], quant8(QUANT8[0], 0.25, 0)),
    "scale of LOGISTIC": ("LOGISTIC", [X8], U8),
    "zero point of TANH": ("TANH", [X8], quant8(QUANT8[0], 1 / 128, 0)),
    "scale of SOFTMAX": ("SOFTMAX", [X8, 1.0], U8),
    "scale of RELU": ("RELU", [X8], quant8(QUANT8[0], 0.25, 128)),
    "scale of L2_NORMALIZATION": ("L2_NORMALIZATION", [X8], U8),
    "cast of booleans": ("CAST", [Tensor(BOOL, X8.array)], F32),
    "axis": ("SOFTMAX", [X32, 1.0, 2], F32),
    "scale of a bias": ("CONV_2D", convolution(0.25 * 1.00001), OF_SUMS),
    "scale of a bias beside scales of channels": ("CONV_2D", convolution(0.5, EACH), OF_SUMS),
    "scales along another dimension": ("CONV_2D", convolution(0.0, EACH[:2], 3), OF_SUMS),
    "scale of a pool": ("MAX_POOL_2D", [image(U8, 1, 2, 2, 1), 2, 1, 1, 2, 2, 0], OF_SUMS),
    "beta": ("SOFTMAX", [X32, 0.0], F32),
    "radius": ("LOCAL_RESPONSE_NORMALIZATION", [X32, -1, 1.0, 1.0, 1.0], F32),
    "shapes": ("ADD", [X32, Tensor(F32, np.ones(3, np.float32)), 0], F32),
    "an output of nothing": (
        "TRANSPOSE_CONV_2D",
        [
            image(F32, 1, 1, 1, 1),
            image(F32, 1, 1, 1, 1),
            image(F32, 1),
            *(2, 2, 2, 2, 1, 1, 0, False),
        ],
        F32,
    ),
    "corners and halves": (
        "RESIZE_NEAREST_NEIGHBOR",
        [image(F32, 1, 2, 2, 1), 2, 2, False, True, True],
        F32,
    ),
}
SHAPES = {
    "CONV_2D": (1, 1, 1, 3),
    "MAX_POOL_2D": (1, 1, 1, 1),
    "RESIZE_NEAREST_NEIGHBOR": (1, 2, 2, 1),
}
SHAPES["TRANSPOSE_CONV_2D"] = (1, 0, 0, 1)


@pytest.mark.parametrize("name,arguments,kind", REFUSED.values(), ids=REFUSED)
def test_refused(nn, name, arguments, kind):
    shape = SHAPES.get(name, (2, 2))
    assert attempt(nn, name, arguments, kind, shape)[0] in (Result.BAD_DATA, Result.OP_FAILED)


def test_the_same_that_fits_is_not_refused(nn):
    for arguments in (convolution(), convolution(0.25 * 1.0000005), convolution(0.0, EACH)):
        execute(nn, "CONV_2D", arguments, OF_SUMS, (1, 1, 1, 3))
    execute(nn, "MAX_POOL_2D", REFUSED["scale of a pool"][1], U8, (1, 1, 1, 1))


def test_long_sums_do_not_overflow(nn):
    """255 x 255 x 40000 does not fit 32 bits; the sum saturates and with it the output."""
    full = Tensor(Kind(QUANT8[0], 1.0), np.full((1, 40000), 255, np.uint8))
    bias = Tensor(Kind("TENSOR_INT32", 1.0), np.zeros(1, np.int32))
    out = execute(nn, "FULLY_CONNECTED", [full, full, bias, 0], Kind(QUANT8[0], 1e7), (1, 1))
    assert out == 215


@pytest.mark.parametrize("depthwise", [False, True])
@pytest.mark.parametrize("kind", [F32, Kind(QUANT8[0], 1.0, 3)], ids=lambda k: k.name)
def test_windows_that_differ_by_axis(nn, kind, depthwise):
    """Strides, dilations and paddings of AOSP's examples are alike in height and width."""
    rng = np.random.default_rng(3)
    groups, out, zero = (3, 6, kind.zero) if depthwise else (1, 4, kind.zero)
    data, filters = (
        rng.integers(-2, 3, (2, 9, 11, 3)),
        rng.integers(-2, 3, (out, 3, 2, 3 // groups)),
    )
    values, weights = torch.from_numpy(data).double(), torch.from_numpy(filters).double()
    padded = torch.nn.functional.pad(values.permute(0, 3, 1, 2), (1, 0, 2, 1))
    sums = torch.nn.functional.conv2d(
        padded, weights.permute(0, 3, 1, 2), stride=(1, 2), dilation=(2, 3), groups=groups
    ).permute(0, 2, 3, 1)
    laid = filters.transpose(3, 1, 2, 0) if depthwise else filters
    tensors = [Tensor(kind, (v + zero).astype(kind.dtype)) for v in (data, laid)]
    bias = Tensor(F32 if kind is F32 else Kind("TENSOR_INT32", 1.0), np.zeros(out, np.float32))
    bias = Tensor(bias.kind, bias.array.astype(bias.kind.dtype))
    window = [1, 0, 2, 1, 2, 1, *([out // groups] if depthwise else []), 0, False, 3, 2]
    target = kind if kind is F32 else Kind(kind.name, 1.0001, 100)
    name = "DEPTHWISE_CONV_2D" if depthwise else "CONV_2D"
    actual = execute(nn, name, [*tensors, bias, *window], target, tuple(sums.shape))
    np.testing.assert_array_equal(actual.astype(float) - target.zero, sums.numpy())


def test_centres_and_corners_of_pixels(nn):
    x = tensor(np.random.default_rng(2), F32, (2, 5, 7, 3))
    image_of = torch.from_numpy(x.array).permute(0, 3, 1, 2)

    def resized(name, height, width, *flags):
        arguments = [x, width, height, False, *flags]
        return execute(nn, name, arguments, F32, (2, height, width, 3))

    def expected(height, width, **options):
        size = (height, width)
        wide = torch.nn.functional.interpolate(image_of, size=size, **options)
        return wide.permute(0, 2, 3, 1).numpy()

    for size in ((8, 13), (3, 2)):
        centred = expected(*size, mode="bilinear", align_corners=False)
        assert_near(resized("RESIZE_BILINEAR", *size, False, True), centred, F32)
        cornered = expected(*size, mode="bilinear", align_corners=True)
        assert_near(resized("RESIZE_BILINEAR", *size, True, False), cornered, F32)
        nearest = expected(*size, mode="nearest-exact")
        assert_near(resized("RESIZE_NEAREST_NEIGHBOR", *size, False, True), nearest, F32)


def test_of_equal_values_the_last_comes_first(nn):
    x = Tensor(F32, np.float32([[1, 2, 0, 2, 1, 2, 1]]))
    model = Model(nn)
    values, places = model.tensor(1, 4), model.operand(OperandCode.TENSOR_INT32, (1, 4))
    source = add_operand(model, x)
    model.operation(OperationCode.TOPK_V2, [source, model.scalar(4)], [values, places])
    compilation = model.finish([source], [values, places]).compile()
    outputs = [np.zeros((1, 4), np.float32), np.zeros((1, 4), np.int32)]
    execution = prepared(nn, compilation, [x.array], outputs)
    assert nn.Execution_compute(execution) == OK
    assert [output.tolist() for output in outputs] == [[[2, 2, 2, 1]], [[5, 3, 1, 6]]]


def test_of_an_odd_padding_most_is_behind(nn):
    x, weights = (tensor(np.random.default_rng(2), F32, s) for s in ((1, 3, 4, 2), (2, 3, 3, 2)))
    bias = Tensor(F32, np.zeros(2, np.float32))
    shape = Tensor(I32, np.array([1, 6, 8, 2], np.int32), True)
    arguments = [x, weights, bias, shape, 1, 2, 2, 0, False]  # SAME
    actual = execute(nn, "TRANSPOSE_CONV_2D", arguments, F32, (1, 6, 8, 2))
    image_of, filters = (
        torch.from_numpy(t.array).permute(order)
        for t, order in ((x, (0, 3, 1, 2)), (weights, (3, 0, 1, 2)))
    )
    whole = torch.nn.functional.conv_transpose2d(image_of, filters, stride=2)  # [1, 2, 7, 9]
    expected = whole[:, :, :6, :8].permute(0, 2, 3, 1).numpy()
    np.testing.assert_allclose(actual, expected, rtol=1e-5, atol=1e-5)
