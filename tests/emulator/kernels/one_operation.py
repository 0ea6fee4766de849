"""Models of one operation through the C API, for tests of kernels against numpy and torch."""

import ctypes as C
from dataclasses import dataclass

import numpy as np

from nnapi_prof.nnapi.codes import OperandCode, OperationCode
from tests.emulator.nnapi import OK, ChannelQuant, Model, set_input, set_output

DTYPES = {
    "TENSOR_FLOAT32": np.float32,
    "TENSOR_FLOAT16": np.float16,
    "TENSOR_INT32": np.int32,
    "TENSOR_BOOL8": np.uint8,
    "TENSOR_QUANT8_ASYMM": np.uint8,
    "TENSOR_QUANT8_ASYMM_SIGNED": np.int8,
    "TENSOR_QUANT8_SYMM": np.int8,
    "TENSOR_QUANT8_SYMM_PER_CHANNEL": np.int8,
    "TENSOR_QUANT16_ASYMM": np.uint16,
    "TENSOR_QUANT16_SYMM": np.int16,
    "INT32": np.int32,
}
QUANT8 = ("TENSOR_QUANT8_ASYMM", "TENSOR_QUANT8_ASYMM_SIGNED")
FLOATS = ("TENSOR_FLOAT32", "TENSOR_FLOAT16")
RTOL = {"TENSOR_FLOAT32": 2e-6, "TENSOR_FLOAT16": 2**-10}
ATOL = {"TENSOR_FLOAT32": 2e-6, "TENSOR_FLOAT16": 1e-6}
SEEDS = range(12)


@dataclass(frozen=True)
class Kind:
    """A type with its quantisation."""

    name: str
    scale: float = 0.0
    zero: int = 0

    @property
    def dtype(self):
        return np.dtype(DTYPES[self.name])

    @property
    def limits(self):
        return np.iinfo(self.dtype).min, np.iinfo(self.dtype).max

    def real(self, array):
        """The numbers that values stand for."""
        if not self.scale:
            return array.astype(np.float64)
        return (array.astype(np.float64) - self.zero) * np.float64(np.float32(self.scale))

    def nearest(self, real):
        """The values of this type that are nearest to numbers, ties away from zero."""
        if not self.scale:
            return real.astype(self.dtype)
        steps = np.asarray(real) / np.float64(np.float32(self.scale))
        steps = np.sign(steps) * np.floor(np.abs(steps) + 0.5) + self.zero
        return np.clip(steps, *self.limits).astype(self.dtype)


@dataclass(frozen=True)
class Tensor:
    kind: Kind
    array: np.ndarray
    constant: bool = False
    channel_scales: tuple[float, ...] = ()
    channel_dim: int = 0

    @property
    def real(self):
        return self.kind.real(self.array)


class Half(float):
    """A FLOAT16 scalar."""


F32, F16, I32, BOOL = (Kind(f"TENSOR_{n}") for n in ("FLOAT32", "FLOAT16", "INT32", "BOOL8"))


def quant8(name, scale, zero):
    """A type of 8 bits; the zero point is given as of unsigned values."""
    return Kind(name, scale, zero if name == "TENSOR_QUANT8_ASYMM" else zero - 128)


def scalar(value, halves):
    return Half(value) if halves else float(value)


def tensor(rng, kind, shape, low=-3.0, high=3.0):
    """Random values; of integers all that the type has (small ones of INT32)."""
    if kind.name in FLOATS:
        return Tensor(kind, rng.uniform(low, high, shape).astype(kind.dtype))
    if kind.name == "TENSOR_BOOL8":
        return Tensor(kind, rng.integers(0, 2, shape).astype(np.uint8))
    if kind.name == "TENSOR_INT32":
        return Tensor(kind, rng.integers(-50, 50, shape).astype(np.int32))
    return Tensor(kind, rng.integers(*kind.limits, shape, endpoint=True).astype(kind.dtype))


def random_quant8(rng, name):
    return quant8(name, float(np.float32(10 ** rng.uniform(-3, 0))), int(rng.integers(0, 256)))


def random_shape(rng, low=1):
    return tuple(rng.integers(1, 6, rng.integers(low, 5)))


def broadcast_shapes(rng):
    """Two shapes that broadcast."""
    whole = random_shape(rng)
    pair = [whole, tuple(int(d) if rng.random() < 0.6 else 1 for d in whole)]
    pair[1] = pair[1][rng.integers(0, len(whole)) :]
    rng.shuffle(pair)
    return pair


def add_operand(model, value):
    """The operand of one argument: a number, or a tensor, which the run gives unless constant."""
    if isinstance(value, Half):
        index, bits = model.operand(OperandCode.FLOAT16), np.array(value, np.float16)
    elif not isinstance(value, Tensor):
        return model.scalar(value)
    else:
        kind, bits = value.kind, np.ascontiguousarray(value.array)
        code = OperandCode[kind.name]
        index = model.operand(code, bits.shape, kind.scale, kind.zero)
        if value.channel_scales:
            scales = (C.c_float * len(value.channel_scales))(*value.channel_scales)
            quant = ChannelQuant(value.channel_dim, len(scales), scales)
            setter = model.nn.Model_setOperandSymmPerChannelQuantParams
            assert setter(model.handle, index, C.byref(quant)) == OK
        if not value.constant:
            return index
    model._keep.append(bits)
    pointer = bits.ctypes.data_as(C.c_void_p)
    assert model.nn.Model_setOperandValue(model.handle, index, pointer, bits.nbytes) == OK
    return index


def attempt(nn, name, arguments, kind, shape, device="nnapi-reference"):
    """Runs one operation on a device. Gives result code and output, None where anything failed."""
    model = Model(nn)
    indices = [add_operand(model, a) for a in arguments]
    is_scalar = not kind.name.startswith("TENSOR")
    out = model.operand(OperandCode[kind.name], () if is_scalar else shape, kind.scale, kind.zero)
    model.operation(OperationCode[name], indices, [out])
    inputs = [
        (i, a.array)
        for i, a in zip(indices, arguments, strict=True)
        if isinstance(a, Tensor) and not a.constant
    ]
    model.finish([i for i, _ in inputs], [out])
    compilation, result = model.try_compile([nn.devices()[device]])
    outcome = np.full(shape, 77, kind.dtype)
    if result == OK:
        execution = nn.new("Execution_create", compilation)
        for i, (_, array) in enumerate(inputs):
            assert set_input(nn, execution, i, np.ascontiguousarray(array)) == OK
        assert set_output(nn, execution, 0, outcome) == OK
        result = nn.Execution_compute(execution)
        nn.Execution_free(execution)
    nn.Compilation_free(compilation)
    model.free()
    return result, outcome if result == OK else None


def execute(nn, name, arguments, kind, shape, device="nnapi-reference"):
    result, outcome = attempt(nn, name, arguments, kind, shape, device)
    assert result == OK, repr(result)
    return outcome


def assert_near(found, wanted, kind):
    np.testing.assert_allclose(
        found.astype(np.float64), wanted, rtol=RTOL[kind.name], atol=ATOL[kind.name]
    )


def assert_rounded(found, real, kind, exact=0.98):
    """Quantised results are the nearest ones: but for a few, which are next to them."""
    off = np.abs(found.astype(np.int64) - kind.nearest(real).astype(np.int64))
    assert off.max(initial=0) <= 1
    assert np.mean(off == 0) >= exact or off.sum() <= 1
