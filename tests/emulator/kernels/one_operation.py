"""Models of one operation through the C API, on values of any type."""

from dataclasses import dataclass

import numpy as np

from tests.emulator.nnapi import DTYPES, OK, Model, Op, T

QUANT8 = (T.TENSOR_QUANT8_ASYMM, T.TENSOR_QUANT8_ASYMM_SIGNED)


@dataclass(frozen=True)
class Kind:
    """A type with its quantisation."""

    code: T
    scale: float = 0.0
    zero: int = 0

    @property
    def dtype(self):
        return np.dtype(DTYPES[self.code])

    @property
    def limits(self):
        return np.iinfo(self.dtype).min, np.iinfo(self.dtype).max

    def real(self, array):
        """The numbers that values stand for."""
        return (array.astype(np.float64) - self.zero) * np.float64(np.float32(self.scale or 1.0))

    def nearest(self, real):
        """The values of this type that are nearest to numbers, ties away from zero."""
        real = np.asarray(real, np.float64)
        if not self.scale:
            return real.astype(self.dtype)
        steps = real / np.float64(np.float32(self.scale))
        steps = np.sign(steps) * np.floor(np.abs(steps) + 0.5) + self.zero
        return np.clip(steps, *self.limits).astype(self.dtype)

    def make(self, real):
        """The tensor nearest to numbers."""
        return Tensor(self, self.nearest(real))

    def of(self, values, **others):
        """The tensor that has these values."""
        return Tensor(self, np.asarray(values).astype(self.dtype), **others)

    def random(self, rng, shape, low=-3.0, high=3.0):
        """Numbers between limits; of small integers all that the type has."""
        if self.dtype.kind == "f":
            return self.of(rng.uniform(low, high, shape))
        limits = {T.TENSOR_BOOL8: (0, 1), T.TENSOR_INT32: (-50, 49)}.get(self.code, self.limits)
        return self.of(rng.integers(*limits, shape, endpoint=True))


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


@dataclass(frozen=True)
class Omitted:
    """An optional tensor without a value."""

    kind: Kind


class Half(float):
    """A FLOAT16 scalar."""


F32, F16, I32 = Kind(T.TENSOR_FLOAT32), Kind(T.TENSOR_FLOAT16), Kind(T.TENSOR_INT32)


def quant8(code, scale, zero):
    """A type of 8 bits; the zero point is given as of unsigned values."""
    return Kind(code, scale, zero if code == T.TENSOR_QUANT8_ASYMM else zero - 128)


def of_floats(*shapes):
    """Outputs of floats."""
    return [(F32, shape) for shape in shapes]


def add_operand(model, value, constant=False):
    """The operand of an argument, and its array if the run gives it: that of a tensor that is no
    constant. None is an optional tensor of floats, an array one of floats."""
    if value is None:
        value = Omitted(F32)
    if isinstance(value, Omitted):
        symmetric = value.kind.code in (T.TENSOR_QUANT8_SYMM, T.TENSOR_QUANT16_SYMM)
        index = model.operand(value.kind.code, (0,), 1.0 if symmetric else 0.0)
        return model.value(index, np.zeros(0)), None
    if isinstance(value, Half):
        return model.value(model.operand(T.FLOAT16), np.array(value, np.float16)), None
    if isinstance(value, np.ndarray):
        value = F32.of(value)
    if not isinstance(value, Tensor):
        return model.scalar(value), None
    kind, array = value.kind, np.ascontiguousarray(value.array)
    index = model.operand(
        *(kind.code, value.array.shape, kind.scale, kind.zero),
        *(value.channel_scales, value.channel_dim),
    )
    if constant or value.constant:
        return model.value(index, array), None
    return index, array


def attempt(nn, name, arguments, outputs, device="nnapi-reference", *, constants=False, taken=True):
    """Runs one operation. `outputs` are kinds and dimensions, 0 for unknown ones; with `constants`
    the tensors behind the first argument are some. Gives the result code of the first call that
    refuses, or OK and arrays; the model must take the operation, unless that is no matter."""
    model = Model(nn)
    operands = [add_operand(model, one, constants and i > 0) for i, one in enumerate(arguments)]
    inputs = [(index, array) for index, array in operands if array is not None]
    targets = [model.operand(kind.code, dims, kind.scale, kind.zero) for kind, dims in outputs]
    indices = [index for index, _ in inputs]
    result = model.add_operation(Op[name], [index for index, _ in operands], targets)
    result = result or model.identify(indices, targets) or nn.Model_finish(model.handle)
    assert result == OK or not taken, repr(result)
    if result != OK:
        return result, None
    compilation, result = model.try_compile([nn.devices()[device]])
    if result != OK:
        return result, None
    arrays = [np.full(4096 if 0 in dims else dims, 77, kind.dtype) for kind, dims in outputs]
    execution = nn.prepared(compilation, [array for _, array in inputs], arrays)
    result = nn.Execution_compute(execution)
    if result != OK:
        return result, None
    for i, (_, dims) in enumerate(outputs):
        if 0 in dims:
            shape = nn.shape_of(execution, i)[1]
            arrays[i] = arrays[i][: int(np.prod(shape))].reshape(shape)
    return OK, arrays


def execute(nn, name, arguments, *outputs, device="nnapi-reference", constants=False):
    """The output or outputs of one operation, which must succeed."""
    result, arrays = attempt(nn, name, arguments, outputs, device, constants=constants)
    assert result == OK, repr(result)
    return arrays[0] if len(outputs) == 1 else arrays


def refused(nn, name, arguments, outputs, *, constants=True):
    """Whether any call refuses an operation."""
    return attempt(nn, name, arguments, outputs, constants=constants, taken=False)[0] != OK
