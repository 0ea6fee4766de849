"""Element-wise operations, casts and selections against numpy and torch."""

import math

import numpy as np
import pytest
import torch

from nnapi_prof.nnapi.codes import OperandCode, OperationCode
from tests.emulator.kernels.one_operation import (
    BOOL,
    DTYPES,
    F16,
    F32,
    FLOATS,
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
    fixed_output,
    quant8,
    random_quant8,
    scalar,
    tensor,
)
from tests.emulator.nnapi import OK, Model, Result, set_input, set_output


def times(value, number):
    """value * number as gemmlowp multiplies: with 31 bits, rounded to an integer, then shifted to
    the right and rounded once more. In Python's integers."""
    significand, shift = math.frexp(number)
    doubled = 2 * (int(value) << max(shift, 0)) * math.floor(abs(significand) * 2**31 + 0.5)
    doubled = doubled if number > 0 else -doubled
    high, right = (doubled + 2**31) // 2**32, max(-shift, 0)  # ties go up
    return (abs(high) + (1 << right >> 1) >> right) * (-1 if high < 0 else 1)


def integer_binary(name, a, b, out):
    """One quantised result as Android's reference computes it; inputs are less their zero
    points, scales of two inputs and the output are `out`'s."""
    scale_a, scale_b, scale = (np.float32(s) for s in out)
    if name in ("ADD", "SUB"):
        twice = 2 * float(max(scale_a, scale_b))
        first = times(a << 20, float(scale_a) / twice)
        second = times(b << 20, float(scale_b) / twice * (-1 if name == "SUB" else 1))
        return times(first + second, twice / (2**20 * float(scale)))
    if name == "PRELU" and a >= 0:
        return times(a, float(scale_a / scale))
    return times(a * b, float(scale_a * scale_b) / float(scale))


BINARY = {
    "ADD": np.add,
    "SUB": np.subtract,
    "MUL": np.multiply,
    "DIV": np.divide,
    "MAXIMUM": np.maximum,
    "MINIMUM": np.minimum,
    "POW": np.power,
    "PRELU": lambda x, a: np.where(x >= 0, x, x * a),
}
FUSED = ("ADD", "SUB", "MUL", "DIV")
FUSES = [(-np.inf, np.inf), (0, np.inf), (-1, 1), (0, 6)]


def with_fuse(name, arguments, fuse):
    return [*arguments, fuse] if name in FUSED else arguments


def fuse_limits(name, fuse):
    return FUSES[fuse if name in FUSED else 0]


@pytest.mark.parametrize("kind", [F32, F16], ids=lambda k: k.name)
@pytest.mark.parametrize("name", BINARY)
def test_binary_float(nn, name, kind):
    for seed in SEEDS:
        rng = np.random.default_rng(seed)
        shapes, fuse = broadcast_shapes(rng), int(rng.integers(0, 4))
        positive = name in ("POW", "DIV")
        a = tensor(rng, kind, shapes[0], 0.5 if name == "POW" else -3)
        b = tensor(rng, kind, shapes[1], 0.5 if positive else -3)
        expected = BINARY[name](a.real, b.real)
        expected = np.clip(expected, *fuse_limits(name, fuse))
        actual = execute(nn, name, with_fuse(name, [a, b], fuse), kind, expected.shape)
        assert_near(actual, expected, kind)


@pytest.mark.parametrize("quant", QUANT8)
@pytest.mark.parametrize("name", ["ADD", "SUB", "MUL", "MAXIMUM", "MINIMUM", "PRELU"])
def test_binary_quantised(nn, name, quant):
    for seed in SEEDS:
        rng = np.random.default_rng(seed)
        shapes, fuse = broadcast_shapes(rng), int(rng.integers(0, 4))
        kinds = [random_quant8(rng, quant) for _ in range(2)]
        a, b = (tensor(rng, k, s) for k, s in zip(kinds, shapes, strict=True))
        real = BINARY[name](a.real, b.real)
        least = kinds[0].scale * kinds[1].scale * 1.01
        scale = max(least, float(np.abs(real).max()) / rng.uniform(50, 200), 1e-6)
        kind = quant8(quant, float(np.float32(scale)), int(rng.integers(60, 200)))
        real = np.clip(real, *fuse_limits(name, fuse))
        result = execute(nn, name, with_fuse(name, [a, b], fuse), kind, real.shape)
        assert_rounded(result, real, kind, 0.8)
        if name in ("MAXIMUM", "MINIMUM"):
            continue
        centred = (t.array.astype(np.int64) - t.kind.zero for t in (a, b))
        scales = (a.kind.scale, b.kind.scale, kind.scale)
        each = np.nditer(np.broadcast_arrays(*centred))
        exact = [integer_binary(name, int(x), int(y), scales) + kind.zero for x, y in each]
        low, high = kind.nearest(np.array(fuse_limits(name, fuse)))
        np.testing.assert_array_equal(result.ravel(), np.clip(exact, low, high))


@pytest.mark.parametrize("name", ["ADD", "SUB", "MUL", "DIV", "MAXIMUM", "MINIMUM"])
def test_binary_integers(nn, name):
    for seed in SEEDS:
        rng = np.random.default_rng(seed)
        a, b = (tensor(rng, I32, s) for s in broadcast_shapes(rng))
        b = Tensor(I32, np.where(b.array == 0, 7, b.array).astype(np.int32))
        compute = np.floor_divide if name == "DIV" else BINARY[name]
        expected = compute(a.array, b.array)
        actual = execute(nn, name, with_fuse(name, [a, b], 0), I32, expected.shape)
        np.testing.assert_array_equal(actual, expected)


UNARY = {
    "RELU": lambda x: np.maximum(x, 0),
    "RELU1": lambda x: np.clip(x, -1, 1),
    "RELU6": lambda x: np.clip(x, 0, 6),
    "LOGISTIC": lambda x: 1 / (1 + np.exp(-x)),
    "TANH": np.tanh,
    "HARD_SWISH": lambda x: torch.nn.functional.hardswish(torch.from_numpy(x)).numpy(),
    "FLOOR": np.floor,
    "ABS": np.abs,
    "EXP": np.exp,
    "NEG": np.negative,
    "SQRT": np.sqrt,
    "RSQRT": lambda x: 1 / np.sqrt(x),
    "LOG": np.log,
    "SIN": np.sin,
}


@pytest.mark.parametrize("kind", [F32, F16], ids=lambda k: k.name)
@pytest.mark.parametrize("name", [*UNARY, "ELU"])
def test_unary_float(nn, name, kind):
    rng = np.random.default_rng(5)
    positive = name in ("SQRT", "RSQRT", "LOG")
    x = tensor(rng, kind, (3, 2, 70), 0.1 if positive else -7, 7)
    halves = kind is F16
    if name == "ELU":
        expected = torch.nn.functional.elu(torch.from_numpy(x.real), 0.75).numpy()
        actual = execute(nn, name, [x, scalar(0.75, halves)], kind, expected.shape)
    else:
        expected = UNARY[name](x.real)
        actual = execute(nn, name, [x], kind, expected.shape)
    assert_near(actual, expected, kind)


@pytest.mark.parametrize("name", ["ABS", "NEG"])
def test_unary_integers(nn, name):
    x = tensor(np.random.default_rng(5), I32, (3, 2, 7))
    np.testing.assert_array_equal(execute(nn, name, [x], I32, (3, 2, 7)), UNARY[name](x.array))


@pytest.mark.parametrize("quant", QUANT8)
@pytest.mark.parametrize("name", ["RELU", "RELU1", "RELU6", "LOGISTIC", "TANH", "HARD_SWISH"])
def test_unary_quantised(nn, name, quant):
    for seed in SEEDS:
        rng = np.random.default_rng(seed)
        kind = random_quant8(rng, quant)
        low, high = kind.limits
        x = Tensor(kind, np.arange(low, high + 1).astype(kind.dtype).reshape(4, 64))
        expected = UNARY[name](x.real)
        if name in ("LOGISTIC", "TANH"):
            out = fixed_output(name, quant)
        elif name == "HARD_SWISH":
            scale = float(np.ptp(expected)) / rng.uniform(100, 250)
            out = quant8(quant, float(np.float32(scale)), int(rng.integers(5, 30)))
        else:
            out = kind
        actual = execute(nn, name, [x], out, (4, 64))
        assert_rounded(actual, expected, out, 0.9 if name == "HARD_SWISH" else 0.98)


COMPARISONS = {
    "EQUAL": np.equal,
    "NOT_EQUAL": np.not_equal,
    "LESS": np.less,
    "LESS_EQUAL": np.less_equal,
    "GREATER": np.greater,
    "GREATER_EQUAL": np.greater_equal,
}


@pytest.mark.parametrize("type_", [*FLOATS, "TENSOR_INT32", "TENSOR_BOOL8", *QUANT8])
@pytest.mark.parametrize("name", COMPARISONS)
def test_comparison(nn, name, type_):
    for seed in SEEDS:
        rng = np.random.default_rng(seed)
        a, b = Kind(type_), Kind(type_)
        if type_ in QUANT8:  # values that are equal in spite of scales that differ
            a, b = quant8(type_, 0.5, 128), quant8(type_, 0.25, 90)
        shapes = broadcast_shapes(rng)
        a, b = (tensor(rng, k, s) for k, s in zip((a, b), shapes, strict=True))
        if type_ in FLOATS:
            a, b = (Tensor(t.kind, np.round(t.array)) for t in (a, b))
        expected = COMPARISONS[name](a.real, b.real)
        actual = execute(nn, name, [a, b], BOOL, expected.shape)
        np.testing.assert_array_equal(actual, expected)


@pytest.mark.parametrize("name", ["LOGICAL_AND", "LOGICAL_OR", "LOGICAL_NOT"])
def test_logical(nn, name):
    compute = getattr(np, name.lower())
    for seed in SEEDS:
        rng = np.random.default_rng(seed)
        tensors = [tensor(rng, BOOL, s) for s in broadcast_shapes(rng)]
        tensors = tensors[:1] if name == "LOGICAL_NOT" else tensors
        expected = compute(*(t.array for t in tensors))
        np.testing.assert_array_equal(execute(nn, name, tensors, BOOL, expected.shape), expected)


@pytest.mark.parametrize("type_", [*FLOATS, "TENSOR_INT32", *QUANT8])
def test_select(nn, type_):
    rng = np.random.default_rng(3)
    kinds = [Kind(type_)] * 3
    if type_ in QUANT8:
        kinds = [quant8(type_, s, z) for s, z in ((0.5, 100), (0.25, 120), (0.75, 128))]
    condition = tensor(rng, BOOL, (2, 3, 5))
    a, b = (tensor(rng, k, (2, 3, 5)) for k in kinds[:2])
    expected = kinds[2].nearest(np.where(condition.array, a.real, b.real))
    actual = execute(nn, "SELECT", [condition, a, b], kinds[2], (2, 3, 5))
    np.testing.assert_array_equal(actual, expected)


NUMBERS = ["TENSOR_FLOAT16", "TENSOR_FLOAT32", "TENSOR_INT32", "TENSOR_QUANT8_ASYMM"]
COPIED = [
    "TENSOR_BOOL8",
    "TENSOR_QUANT16_ASYMM",
    "TENSOR_QUANT16_SYMM",
    "TENSOR_QUANT8_ASYMM_SIGNED",
    "TENSOR_QUANT8_SYMM",
]


def any_kind(type_):
    return Kind(type_, 0.5 if "QUANT" in type_ else 0.0)


@pytest.mark.parametrize("target", NUMBERS)
@pytest.mark.parametrize("source", NUMBERS)
def test_cast(nn, source, target):
    source, target = any_kind(source), any_kind(target)
    values = np.array([-300, -2.75, -1.5, -0.5, 0, 0.5, 1.5, 2.25, 254.5, 255, 256, 1000.5, 2049])
    if source.dtype.kind in "iu":
        values = np.clip(np.trunc(values), *source.limits)
    values = values.astype(source.dtype)
    expected = values.astype(np.float64)
    if target.dtype.kind in "iu":
        expected = np.clip(np.trunc(expected), *target.limits)
    actual = execute(nn, "CAST", [Tensor(source, values)], target, values.shape)
    np.testing.assert_array_equal(actual, expected.astype(target.dtype))


def test_cast_beyond_limits(nn):
    values = np.array([3e9, -3e9, np.inf, -np.inf, np.nan, 2147483520.0], np.float32)
    result = execute(nn, "CAST", [Tensor(F32, values)], I32, values.shape)
    limits = np.iinfo(np.int32)
    assert result.tolist() == [limits.max, limits.min, limits.max, limits.min, 0, 2147483520]


@pytest.mark.parametrize("type_", COPIED)
def test_cast_to_itself(nn, type_):
    x = tensor(np.random.default_rng(1), any_kind(type_), (3, 4))
    np.testing.assert_array_equal(execute(nn, "CAST", [x], x.kind, (3, 4)), x.array)


@pytest.mark.parametrize("quant", QUANT8)
@pytest.mark.parametrize("kind", [F32, F16], ids=lambda k: k.name)
def test_quantize(nn, kind, quant):
    rng = np.random.default_rng(2)
    x = tensor(rng, kind, (2, 3, 40), -200, 200)
    x.array[0, 0, :5] = [0.5, 1.5, -0.5, -1.5, 2.5]  # ties go away from zero
    out = quant8(quant, 1.0, 100)
    np.testing.assert_array_equal(
        execute(nn, "QUANTIZE", [x], out, x.array.shape), out.nearest(x.real)
    )


@pytest.mark.parametrize("out", [F32, F16], ids=lambda k: k.name)
@pytest.mark.parametrize("type_", [*QUANT8, "TENSOR_QUANT8_SYMM"])
def test_dequantize(nn, type_, out):
    kind = Kind(type_, 0.0625, 0 if type_.endswith("SYMM") and "ASYMM" not in type_ else 30)
    x = tensor(np.random.default_rng(2), kind, (2, 3, 40))
    result = execute(nn, "DEQUANTIZE", [x], out, x.array.shape)
    np.testing.assert_array_equal(result, x.real.astype(out.dtype))


@pytest.mark.parametrize("dim", [0, 1, 2])
def test_dequantize_channels(nn, dim):
    x = tensor(np.random.default_rng(2), Kind("TENSOR_QUANT8_SYMM_PER_CHANNEL"), (3, 4, 5))
    scales = tuple(0.25 * (i + 1) for i in range(x.array.shape[dim]))
    x = Tensor(x.kind, x.array, False, scales, dim)
    sides = [1, 1, 1]
    sides[dim] = len(scales)
    expected = x.array * np.reshape(np.array(scales, np.float32), sides)
    np.testing.assert_array_equal(execute(nn, "DEQUANTIZE", [x], F32, (3, 4, 5)), expected)


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
}


@pytest.mark.parametrize("name,arguments,kind", REFUSED.values(), ids=REFUSED)
def test_refused(nn, name, arguments, kind):
    assert attempt(nn, name, arguments, kind, (2, 2))[0] == Result.BAD_DATA


FAILING = {
    "beta": ("SOFTMAX", [X32, 0.0], F32),
    "radius": ("LOCAL_RESPONSE_NORMALIZATION", [X32, -1, 1.0, 1.0, 1.0], F32),
    "shapes": ("ADD", [X32, Tensor(F32, np.ones(3, np.float32)), 0], F32),
}


@pytest.mark.parametrize("name,arguments,kind", FAILING.values(), ids=FAILING)
def test_failing(nn, name, arguments, kind):
    result, _ = attempt(nn, name, arguments, kind, (2, 2))
    assert result in (Result.OP_FAILED, Result.BAD_DATA)


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
