"""Operations and types that are new in level 4, against numpy and torch; and operands that
element-wise operations and convolutions refuse."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from tests.emulator.kernels import one_operation
from tests.emulator.kernels.one_operation import F16, F32, I32, QUANT8, Half, Kind, execute, quant8
from tests.emulator.nnapi import DTYPES, OK, Model, Op, R, T

RTOL, ATOL = {F32: 2e-6, F16: 2**-10}, {F32: 2e-6, F16: 1e-6}
INTEGERS = {"ADD": np.add, "SUB": np.subtract, "MUL": np.multiply, "DIV": np.floor_divide}
BROADCAST = [((2, 3, 4), (2, 3, 4)), ((5, 1, 3), (4, 1)), ((3,), (2, 4, 1, 3)), ((1,), (2, 5))]


def named(value):
    """The id of a kind or type; other parameters have theirs."""
    return getattr(getattr(value, "code", value), "name", None)


def assert_near(actual, expected, kind):
    actual = actual.astype(np.float64)
    np.testing.assert_allclose(actual, expected, rtol=RTOL[kind], atol=ATOL[kind])


@pytest.mark.parametrize("name", INTEGERS)
@pytest.mark.parametrize("shapes", BROADCAST)
def test_binary_integers(nn, name, shapes):
    rng = np.random.default_rng(0)
    a, b = (rng.integers(-50, 50, shape).astype(np.int32) for shape in shapes)
    b.flat[0], b[b == 0] = -1, 7
    expected = INTEGERS[name](a, b)
    actual = execute(nn, name, [I32.of(a), I32.of(b), 0], (I32, expected.shape))
    np.testing.assert_array_equal(actual, expected)


@pytest.mark.parametrize("numerators", [[7, -7, 0], [2**31 - 1, -(2**31), 1]])
@pytest.mark.parametrize("divisors", [[0, 2, 0], [0, 0, 0]])
def test_integers_divided_by_zero_are_zero(nn, numerators, divisors):
    """NNAPI leaves the quotient open and wants NO_ERROR; AOSP's CPU path gives 0."""
    actual = execute(nn, "DIV", [I32.of(numerators), I32.of(divisors), 0], (I32, (3,)))
    expected = [a // b if b else 0 for a, b in zip(numerators, divisors, strict=True)]
    assert actual.tolist() == expected


@pytest.mark.parametrize("kind", [F32, F16], ids=named)
def test_elu_and_hard_swish(nn, kind):
    x = kind.random(np.random.default_rng(5), (3, 2, 70), -7, 7)
    alpha, real = (Half if kind is F16 else float)(0.75), torch.from_numpy(x.real)
    for name, inputs, expected in (
        ("ELU", [x, alpha], F.elu(real, 0.75)),
        ("HARD_SWISH", [x], F.hardswish(real)),
    ):
        assert_near(execute(nn, name, inputs, (kind, expected.shape)), expected, kind)


@pytest.mark.parametrize("code", QUANT8, ids=named)
@pytest.mark.parametrize("seed", range(12))
def test_hard_swish_quantised(nn, code, seed):
    """Results are the nearest ones: but for a few, which are next to them."""
    rng = np.random.default_rng(seed)
    kind = quant8(code, float(10 ** rng.uniform(-3, 0)), int(rng.integers(0, 256)))
    low, high = kind.limits
    x = kind.of(np.arange(low, high + 1).reshape(4, 64))
    expected = F.hardswish(torch.from_numpy(x.real)).numpy()
    scale, zero = float(np.ptp(expected)) / rng.uniform(100, 250), int(rng.integers(5, 30))
    out = quant8(code, scale, zero)
    actual = execute(nn, "HARD_SWISH", [x], (out, (4, 64)))
    off = np.abs(actual.astype(int) - out.nearest(expected))
    assert off.max() <= 1
    assert np.mean(off == 0) >= 0.9 or off.sum() <= 1


def any_tensor(code, shape):
    kind = Kind(code, 0.5 if "QUANT" in code.name and "CHANNEL" not in code.name else 0.0)
    x = kind.random(np.random.default_rng(1), shape)
    return one_operation.Tensor(kind, x.array, False, (0.5, 0.25)) if "CHANNEL" in code.name else x


TENSORS = [code for code in DTYPES if code.name.startswith("TENSOR")]


def test_cast_beyond_limits(nn):
    values = F32.of([3e9, -3e9, np.inf, -np.inf, np.nan, 2147483520.0])
    limits = np.iinfo(np.int32)
    expected = [limits.max, limits.min, limits.max, limits.min, 0, 2147483520]
    assert execute(nn, "CAST", [values], (I32, (6,))).tolist() == expected


@pytest.mark.parametrize(
    "code", [c for c in TENSORS if "INT32" not in c.name and "CHANNEL" not in c.name], ids=named
)
def test_cast_to_itself(nn, code):
    x = any_tensor(code, (3, 4))
    np.testing.assert_array_equal(execute(nn, "CAST", [x], (x.kind, (3, 4))), x.array)


@pytest.mark.parametrize("code", [c for c in TENSORS if "QUANT16" not in c.name], ids=named)
def test_rank(nn, code):
    assert execute(nn, "RANK", [any_tensor(code, (2, 3, 1))], (Kind(T.INT32), ())) == 3


@pytest.mark.parametrize(("value", "kind"), [(2.5, F32), (Half(2.5), F16), (-7, I32)], ids=named)
def test_fill(nn, value, kind):
    dims, result = I32.of([2, 3]), np.zeros((2, 3), kind.dtype)
    from_run = execute(nn, "FILL", [dims, value], (kind, (2, 3)))
    model = Model(nn)
    anchor, out = model.tensor(1), model.operand(kind.code, (2, 3))  # a model needs an input
    constants = [one_operation.add_operand(model, one, constant=True)[0] for one in (dims, value)]
    copied = model.tensor(1)
    model.operation(Op.FILL, constants, [out])
    model.operation(Op.RELU, [anchor], [copied])
    compilation = model.finish([anchor], [out, copied]).compile()
    one = np.zeros(1, np.float32)
    assert nn.Execution_compute(nn.prepared(compilation, [one], [result, one])) == OK
    np.testing.assert_array_equal([from_run, result], np.full((2, 2, 3), value, kind.dtype))


U8 = quant8(QUANT8[0], 0.5, 128)
X32, XI, X8 = (kind.of(np.ones((2, 2))) for kind in (F32, I32, U8))


def ones(kind, *shape, **others):
    return kind.of(np.ones(shape), **others)


def convolution(bias=0.25, scales=(), axis=0):
    """Arguments of CONV_2D: [1, 2, 2, 2] by three filters of [2, 2, 2]."""
    kind = Kind(T.TENSOR_QUANT8_SYMM_PER_CHANNEL) if scales else U8
    weights = ones(kind, 3, 2, 2, 2, constant=True, channel_scales=scales, channel_dim=axis)
    offset = ones(Kind(T.TENSOR_INT32, bias), 3, constant=True)
    return [ones(U8, 1, 2, 2, 2), weights, offset, 2, 1, 1, 0]


OF_SUMS, EACH = quant8(QUANT8[0], 8.0, 0), (0.5, 0.25, 0.125)
POOL = [ones(U8, 1, 2, 2, 1), 2, 1, 1, 2, 2, 0]
ONE_PIXEL = ones(F32, 1, 1, 1, 1)
TRANSPOSED = [ONE_PIXEL, ONE_PIXEL, ones(F32, 1), 2, 2, 2, 2, 1, 1, 0, False]
RESIZED = [ones(F32, 1, 2, 2, 1), 2, 2, False, True, True]
REFUSED = {
    "fuse code of integers": ("ADD", [XI, XI, 1], I32),
    "unknown fuse code": ("ADD", [X32, X32, 4], F32),
    "scale of a product": ("MUL", [X8, X8, 0], quant8(QUANT8[0], 0.25, 0)),
    "scale of LOGISTIC": ("LOGISTIC", [X8], U8),
    "zero point of TANH": ("TANH", [X8], quant8(QUANT8[0], 1 / 128, 0)),
    "scale of SOFTMAX": ("SOFTMAX", [X8, 1.0], U8),
    "scale of RELU": ("RELU", [X8], quant8(QUANT8[0], 0.25, 128)),
    "scale of L2_NORMALIZATION": ("L2_NORMALIZATION", [X8], U8),
    "cast of booleans": ("CAST", [Kind(T.TENSOR_BOOL8).of(X8.array)], F32),
    "axis": ("SOFTMAX", [X32, 1.0, 2], F32),
    "scale of a bias": ("CONV_2D", convolution(0.25 * 1.00001), OF_SUMS),
    "scale of a bias beside scales of channels": ("CONV_2D", convolution(0.5, EACH), OF_SUMS),
    "scales along another dimension": ("CONV_2D", convolution(0.0, EACH[:2], 3), OF_SUMS),
    "scale of a pool": ("MAX_POOL_2D", POOL, OF_SUMS),
    "beta": ("SOFTMAX", [X32, 0.0], F32),
    "radius": ("LOCAL_RESPONSE_NORMALIZATION", [X32, -1, 1.0, 1.0, 1.0], F32),
    "shapes": ("ADD", [X32, ones(F32, 3), 0], F32),
    "an output of nothing": ("TRANSPOSE_CONV_2D", TRANSPOSED, F32),
    "corners and halves": ("RESIZE_NEAREST_NEIGHBOR", RESIZED, F32),
}
SHAPES = {
    "CONV_2D": (1, 1, 1, 3),
    "MAX_POOL_2D": (1, 1, 1, 1),
    "RESIZE_NEAREST_NEIGHBOR": (1, 2, 2, 1),
    "TRANSPOSE_CONV_2D": (1, 0, 0, 1),
}


@pytest.mark.parametrize(("name", "arguments", "kind"), REFUSED.values(), ids=REFUSED)
def test_refused(nn, name, arguments, kind):
    outputs = [(kind, SHAPES.get(name, (2, 2)))]
    assert one_operation.attempt(nn, name, arguments, outputs)[0] in (R.BAD_DATA, R.OP_FAILED)


def test_the_same_that_fits_is_not_refused(nn):
    for arguments in (convolution(), convolution(0.25 * 1.0000005), convolution(0.0, EACH)):
        execute(nn, "CONV_2D", arguments, (OF_SUMS, (1, 1, 1, 3)))
    execute(nn, "MAX_POOL_2D", POOL, (U8, (1, 1, 1, 1)))


def test_long_sums_do_not_overflow(nn):
    """255 x 255 x 40000 does not fit 32 bits; the sum saturates and with it the output."""
    full, bias = Kind(QUANT8[0], 1.0).of(np.full((1, 40000), 255)), Kind(T.TENSOR_INT32, 1.0)
    inputs = [full, full, bias.of(np.zeros(1)), 0]
    assert execute(nn, "FULLY_CONNECTED", inputs, (Kind(QUANT8[0], 1e7), (1, 1))) == 215


def channels_first(tensor):
    return torch.from_numpy(tensor.real).permute(0, 3, 1, 2)


def channels_last(image):
    return image.permute(0, 2, 3, 1).numpy()


@pytest.mark.parametrize("depthwise", [False, True])
@pytest.mark.parametrize("kind", [F32, Kind(QUANT8[0], 1.0, 3)], ids=named)
def test_windows_that_differ_by_axis(nn, kind, depthwise):
    """Strides, dilations and paddings of AOSP's examples are alike in height and width."""
    rng = np.random.default_rng(3)
    groups, out = (3, 6) if depthwise else (1, 4)
    x = kind.make(rng.integers(-2, 3, (2, 9, 11, 3)))
    weights = kind.make(rng.integers(-2, 3, (out, 3, 2, 3 // groups)))
    padded = F.pad(channels_first(x), (1, 0, 2, 1))
    strides = dict(stride=(1, 2), dilation=(2, 3))
    sums = channels_last(F.conv2d(padded, channels_first(weights), **strides, groups=groups))
    if depthwise:
        weights = kind.of(weights.array.transpose(3, 1, 2, 0))
    bias = (F32 if kind is F32 else Kind(T.TENSOR_INT32, 1.0)).of(np.zeros(out))
    window = [1, 0, 2, 1, 2, 1, *([out // groups] if depthwise else []), 0, False, 3, 2]
    target = kind if kind is F32 else Kind(kind.code, 1.0001, 100)
    name = "DEPTHWISE_CONV_2D" if depthwise else "CONV_2D"
    actual = execute(nn, name, [x, weights, bias, *window], (target, sums.shape))
    np.testing.assert_array_equal(actual.astype(float) - target.zero, sums)


@pytest.mark.parametrize(("height", "width"), [(8, 13), (3, 2)])
@pytest.mark.parametrize(
    ("name", "flags", "options"),
    [
        ("RESIZE_BILINEAR", (False, True), dict(mode="bilinear", align_corners=False)),
        ("RESIZE_BILINEAR", (True, False), dict(mode="bilinear", align_corners=True)),
        ("RESIZE_NEAREST_NEIGHBOR", (False, True), dict(mode="nearest-exact")),
    ],
)
def test_centres_and_corners_of_pixels(nn, height, width, name, flags, options):
    x = F32.random(np.random.default_rng(2), (2, 5, 7, 3))
    actual = execute(nn, name, [x, width, height, False, *flags], (F32, (2, height, width, 3)))
    expected = F.interpolate(channels_first(x).float(), size=(height, width), **options)
    assert_near(actual, channels_last(expected), F32)


def test_of_equal_values_the_last_comes_first(nn):
    outputs = (F32, (1, 4)), (I32, (1, 4))
    values, places = execute(nn, "TOPK_V2", [F32.of([[1, 2, 0, 2, 1, 2, 1]]), 4], *outputs)
    assert (values.tolist(), places.tolist()) == ([[2, 2, 2, 1]], [[5, 3, 1, 6]])


def test_of_an_odd_padding_most_is_behind(nn):
    rng = np.random.default_rng(2)
    x, weights = F32.random(rng, (1, 3, 4, 2)), F32.random(rng, (2, 3, 3, 2))
    shape = I32.of([1, 6, 8, 2], constant=True)
    arguments = [x, weights, F32.of(np.zeros(2)), shape, 1, 2, 2, 0, False]  # SAME
    actual = execute(nn, "TRANSPOSE_CONV_2D", arguments, (F32, (1, 6, 8, 2)))
    filters = channels_first(weights).transpose(0, 1)
    whole = F.conv_transpose2d(channels_first(x), filters, stride=2)  # [1, 2, 7, 9]
    expected = channels_last(whole[:, :, :6, :8])
    np.testing.assert_allclose(actual, expected, rtol=1e-5, atol=1e-5)
