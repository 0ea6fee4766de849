"""What tests of convolutions and poolings share: random operands and windows, one operation run
through the C API, and quantised arithmetic in Python's integers."""

import ctypes as C
import math
from dataclasses import dataclass, field

import numpy as np
import torch
import torch.nn.functional as F

from nnapi_prof.nnapi.codes import OperationCode
from tests.emulator.nnapi import (
    OK,
    TENSOR_FLOAT32,
    TENSOR_INT32,
    TENSOR_QUANT8_ASYMM,
    TENSOR_QUANT8_ASYMM_SIGNED,
    TENSOR_QUANT8_SYMM_PER_CHANNEL,
    ChannelQuant,
    Model,
    operand_type,
    set_input,
    set_output,
)

TENSOR_FLOAT16 = 8
KINDS = ["float32", "float16", "unsigned", "signed", "unsigned-channels", "signed-channels"]
FUSED = {0: (-math.inf, math.inf), 1: (0.0, math.inf), 2: (-1.0, 1.0), 3: (0.0, 6.0)}
SAME, VALID = 1, 2


@dataclass
class Tensor:
    """Values of an operand and what the model says of it."""

    code: int
    values: np.ndarray
    scale: float = 0.0
    zero_point: int = 0
    channel_scales: np.ndarray | None = None
    channel_dim: int = 0

    def integers(self):
        """The values less their zero point."""
        return self.values.astype(np.int64) - self.zero_point


@dataclass
class Case:
    """One operation: tensors, scalars in order, and where the output goes."""

    name: str
    tensors: list
    scalars: list
    output: Tensor  # values are what is wanted
    constant: bool = True  # weights, bias and shape_input are constants
    dynamic: bool = False  # the model knows ranks only
    shape_input: list = field(default_factory=list)  # a TENSOR_INT32 behind the tensors


def add_operand(model, tensor, dims):
    index = model.operand(tensor.code, dims, tensor.scale, tensor.zero_point)
    if tensor.channel_scales is not None:
        scales = np.ascontiguousarray(tensor.channel_scales, np.float32)
        quant = ChannelQuant(
            tensor.channel_dim, len(scales), scales.ctypes.data_as(C.POINTER(C.c_float))
        )
        result = model.nn.Model_setOperandSymmPerChannelQuantParams(
            model.handle, index, C.byref(quant)
        )
        assert result == OK, repr(result)
    return index


def set_value(model, index, array):
    model._keep.append(array)
    pointer = array.ctypes.data_as(C.c_void_p)
    result = model.nn.Model_setOperandValue(model.handle, index, pointer, array.nbytes)
    assert result == OK, repr(result)


def build(nn, case):
    model = Model(nn)
    operands, inputs, arrays = [], [], []
    for i, tensor in enumerate(case.tensors):
        tensor.values = np.ascontiguousarray(tensor.values)
        constant = i > 0 and case.constant
        dims = [0] * tensor.values.ndim if case.dynamic and i == 0 else tensor.values.shape
        operands.append(add_operand(model, tensor, dims))
        if constant:
            set_value(model, operands[-1], tensor.values)
        else:
            inputs.append(operands[-1])
            arrays.append(tensor)
    if case.shape_input:
        sizes = Tensor(TENSOR_INT32, np.array(case.shape_input, np.int32))
        operands.append(model.operand(TENSOR_INT32, sizes.values.shape))
        if case.constant:
            set_value(model, operands[-1], sizes.values)
        else:
            inputs.append(operands[-1])
            arrays.append(sizes)
    operands += [model.scalar(value) for value in case.scalars]
    rank = case.output.values.ndim
    out = add_operand(model, case.output, [0] * rank if case.dynamic else case.output.values.shape)
    model.operation(OperationCode[case.name], operands, [out])
    return model, inputs, arrays, out


def run(nn, case):
    model, inputs, arrays, out = build(nn, case)
    model.finish(inputs, [out])
    compilation = model.compile([nn.devices()["nnapi-reference"]])
    execution = nn.new("Execution_create", compilation)
    for i, tensor in enumerate(arrays):
        shape = operand_type(tensor.code, tensor.values.shape, tensor.scale, tensor.zero_point)
        dims = shape if case.dynamic and i == 0 else None
        assert set_input(nn, execution, i, tensor.values, dims) == OK
    result = np.zeros_like(case.output.values)
    assert set_output(nn, execution, 0, result) == OK
    assert nn.Execution_compute(execution) == OK, nn.emulator_error()
    nn.Execution_free(execution)
    nn.Compilation_free(compilation)
    model.free()
    return result


def check(nn, case):
    actual = run(nn, case)
    expected = case.output.values
    if case.output.code == TENSOR_FLOAT32:
        np.testing.assert_allclose(actual, expected, atol=1e-5, rtol=2e-6)
    elif case.output.code == TENSOR_FLOAT16:
        np.testing.assert_allclose(actual, expected, atol=5e-3, rtol=5 * 2.0**-10)
    else:
        np.testing.assert_array_equal(actual, expected)


# ---- operands ----------------------------------------------------------------------------------


def data_code(kind):
    return {
        "float32": TENSOR_FLOAT32,
        "float16": TENSOR_FLOAT16,
        "unsigned": TENSOR_QUANT8_ASYMM,
        "signed": TENSOR_QUANT8_ASYMM_SIGNED,
    }[kind.split("-")[0]]


def is_float(kind):
    return kind.startswith("float")


def limits(code):
    return (0, 255) if code == TENSOR_QUANT8_ASYMM else (-128, 127)


def random_data(rng, kind, shape):
    code = data_code(kind)
    if is_float(kind):
        return Tensor(code, rng.uniform(-1, 1, shape).astype(kind))
    low, high = limits(code)
    values = rng.integers(low, high + 1, shape).astype(np.uint8 if low == 0 else np.int8)
    scale = float(np.float32(rng.uniform(0.005, 0.5)))
    return Tensor(code, values, scale, int(rng.integers(low, high + 1)))


def random_weights(rng, kind, shape, channel_dim):
    if not kind.endswith("channels"):
        return random_data(rng, kind, shape)
    values = rng.integers(-128, 128, shape).astype(np.int8)
    scales = rng.uniform(0.002, 0.2, shape[channel_dim]).astype(np.float32)
    code = TENSOR_QUANT8_SYMM_PER_CHANNEL
    return Tensor(code, values, channel_scales=scales, channel_dim=channel_dim)


def product_scales(data, weights, n):
    """Scale of each output channel's sum, a float32 as in NNAPI's reference."""
    scales = weights.channel_scales
    scales = np.full(n, weights.scale) if scales is None else scales
    return np.float32(data.scale) * scales.astype(np.float32)


def random_bias(rng, kind, data, weights, n):
    if is_float(kind):
        return Tensor(data.code, rng.uniform(-1, 1, n).astype(kind))
    bias = rng.integers(-3000, 3000, n).astype(np.int32)
    scale = 0.0 if kind.endswith("channels") else float(product_scales(data, weights, n)[0])
    return Tensor(TENSOR_INT32, bias, scale)


# ---- exact arithmetic --------------------------------------------------------------------------


def half_away(value, divisor):
    """value / divisor rounded to the nearest integer, halves away from zero."""
    quotient = (abs(value) * 2 + divisor) // (2 * divisor)
    return quotient if value >= 0 else -quotient


def scaled(value, factor):
    """value * factor through a multiplier of 31 bits and a shift, as gemmlowp defines it."""
    mantissa, exponent = math.frexp(factor)
    multiplier = math.floor(mantissa * 2**31 + 0.5)
    if multiplier == 2**31:
        multiplier, exponent = multiplier // 2, exponent + 1
    value <<= max(exponent, 0)
    high = (value * multiplier + 2**30) >> 31  # halves go up
    return half_away(high, 1 << max(-exponent, 0))


def fused_limits(output, fuse):
    low, high = limits(output.code)
    for i, limit in enumerate(FUSED[fuse]):
        if math.isfinite(limit):
            q = half_away(
                *np.float32(np.float32(limit) / np.float32(output.scale)).as_integer_ratio()
            )
            low, high = (
                (max(low, q + output.zero_point), high)
                if i == 0
                else (low, min(high, q + output.zero_point))
            )
    return low, high


def quantised_output(rng, kind, data, weights, sums, fuse):
    """An output whose scale spreads the sums [..., channels], and what they become."""
    code = data_code(kind)
    low, high = limits(code)
    products = product_scales(data, weights, sums.shape[-1])
    widest = float(np.max(np.abs(sums) * products)) if sums.size else 1.0
    scale = float(np.float32(max(widest, 1e-3) / 150))
    output = Tensor(code, np.zeros(0), scale, int(rng.integers(low + 60, high - 60)))
    least, most = fused_limits(output, fuse)
    values = np.empty(sums.shape, np.int64)
    for index in np.ndindex(sums.shape):
        factor = float(products[index[-1]]) / scale
        values[index] = scaled(int(sums[index]), factor) + output.zero_point
    clipped = np.clip(values, least, most)
    output.values = clipped.astype(np.uint8 if low == 0 else np.int8)
    return output


def float_output(kind, sums, fuse):
    return Tensor(data_code(kind), np.clip(sums, *FUSED[fuse]).astype(kind))


def weighted_output(rng, kind, tensors, products, fuse):
    """The output of an operation whose sums are `products` of data and weights, plus bias."""
    data, weights, bias = tensors
    if is_float(kind):
        return float_output(kind, products + bias.values.astype(np.float64), fuse)
    sums = np.rint(products).astype(np.int64) + bias.values
    return quantised_output(rng, kind, data, weights, sums, fuse)


def operands(tensors, kind):
    """Data and weights as float64, exact integers where quantised."""
    if is_float(kind):
        return [t.values.astype(np.float64) for t in tensors[:2]]
    return [t.integers().astype(np.float64) for t in tensors[:2]]


# ---- windows -----------------------------------------------------------------------------------


def same_padding(size, filter_, stride, dilation):
    needed = (-(-size // stride) - 1) * stride + (filter_ - 1) * dilation + 1
    total = max(needed - size, 0)
    return total // 2, total - total // 2


@dataclass
class Window:
    """A window's numbers, each (over height, over width)."""

    sizes: tuple
    filters: tuple
    strides: tuple
    dilations: tuple
    pads: tuple  # ((top, bottom), (left, right))
    code: int  # SAME, VALID or 0 for explicit paddings

    def scalars(self):
        (top, bottom), (left, right) = self.pads
        head = [self.code] if self.code else [left, right, top, bottom]
        return [*head, self.strides[1], self.strides[0]]


def random_window(rng, dilated=True):
    filters = tuple(int(v) for v in rng.integers(1, 4, 2))
    dilations = tuple(int(v) for v in rng.integers(1, 3, 2)) if dilated else (1, 1)
    reaches = [(f - 1) * d + 1 for f, d in zip(filters, dilations, strict=True)]
    sizes = tuple(int(r + rng.integers(0, 8)) for r in reaches)
    strides = tuple(int(v) for v in rng.integers(1, 4, 2))
    code = int(rng.choice([SAME, VALID, 0]))
    pads = ((0, 0), (0, 0))
    if code == SAME:
        pads = tuple(map(same_padding, sizes, filters, strides, dilations))
    elif code == 0:
        pads = tuple(tuple(int(p) for p in rng.integers(0, f, 2)) for f in filters)
    return Window(sizes, filters, strides, dilations, pads, code)


def padded(image, pads, value=0.0):
    """[N, H, W, C] to a torch image [N, C, H, W] with a frame of `value`."""
    (top, bottom), (left, right) = pads
    tensor = torch.from_numpy(np.ascontiguousarray(image)).permute(0, 3, 1, 2)
    return F.pad(tensor, (left, right, top, bottom), value=value)


def nhwc(tensor):
    return tensor.permute(0, 2, 3, 1).contiguous().numpy()
