"""Quantised inputs, weights and the form of a case that the tables of quantised cases share."""

import torch
from torch import fx

from nnapi_prof.graph.quantisation import DEQUANTIZE, DEQUANTIZE_CHANNELS, QUANTIZE
from tests.convert.cases.common import call, case
from tests.convert.harness import aten, image

U8, I8 = (0, 255, torch.uint8), (-128, 127, torch.int8)
IN, OUT = (0.05, 120), (0.1, 100)


def integers(*shape, low=0, high=256, dtype=torch.uint8, seed=0):
    numbers = torch.Generator().manual_seed(seed + sum(shape))
    return torch.randint(low, high, shape, generator=numbers).to(dtype)


def weights(*shape):
    return integers(*shape, low=-127, high=128, dtype=torch.int8)


floats = image


IMAGE, OTHER = integers(1, 4, 6, 8), integers(1, 4, 6, 8, seed=5)
ROWS = integers(3, 8)


def quantised(function, *arguments, given=(IN, (0.04, 110)), out=OUT, limits=U8, **options):
    """A case of a function, or of a call, on the numbers of its tensors, quantized to the scale and
    zero point ``out``. ``given`` has those of the tensors. One step is allowed."""
    inputs = [value for value in arguments if isinstance(value, torch.Tensor)]
    function = call(function, arguments, {})

    def one(x):
        return QUANTIZE(function(DEQUANTIZE(x, *given[0], *limits)), *out, *limits)

    def two(x, y):
        numbers = function(DEQUANTIZE(x, *given[0], *limits), DEQUANTIZE(y, *given[1], *limits))
        return QUANTIZE(numbers, *out, *limits)

    options = {"atol": 1, "rtol": 0, **options}
    return case(one if len(inputs) == 1 else two, *inputs, **options)


def constant(beside, values):
    """A constant of its own in the graph that is traced: a call on none but constants is not."""
    if not isinstance(beside, fx.Proxy):
        return values
    return fx.Proxy(beside.tracer.create_arg(values), beside.tracer)


def per_tensor(values, scale=0.01, zero=0):
    return lambda x: DEQUANTIZE(constant(x, values), scale, zero, *I8)


def per_channel(values, axis=0, zeros=None):
    n = values.shape[axis]
    scales = torch.linspace(0.004, 0.012, n, dtype=torch.float64)
    zeros = torch.zeros(n, dtype=torch.int64) if zeros is None else zeros
    return lambda x: DEQUANTIZE_CHANNELS(constant(x, values), scales, zeros, axis, *I8)


def relu6(x):
    return aten.hardtanh.default(x, 0.0, 6.0)


def in_floats(names):
    """The operations of a composition that is not quant8."""
    return {29: f"DEQUANTIZE {names} QUANTIZE"}
