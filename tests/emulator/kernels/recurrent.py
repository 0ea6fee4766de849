"""What the tests of recurrent operations share: running one of them, and the documented formulas in
float64."""

import ctypes as C
import itertools
from dataclasses import dataclass

import numpy as np

from tests.emulator.nnapi import (
    OK,
    TENSOR_FLOAT32,
    TENSOR_INT32,
    TENSOR_QUANT8_ASYMM,
    TENSOR_QUANT8_ASYMM_SIGNED,
    TENSOR_QUANT8_SYMM,
    TENSOR_QUANT16_SYMM,
    Model,
    set_input,
    u32,
)

RNN, SVDF, BIDIRECTIONAL_SEQUENCE_LSTM, BIDIRECTIONAL_SEQUENCE_RNN = 24, 27, 42, 43
QUANTIZED_16BIT_LSTM, UNIDIRECTIONAL_SEQUENCE_LSTM, UNIDIRECTIONAL_SEQUENCE_RNN = 73, 92, 93
QUANTIZED_LSTM = 95
NONE, RELU, RELU1, RELU6, TANH, SIGMOID = 0, 1, 2, 3, 4, 6
DTYPES = {
    TENSOR_FLOAT32: np.float32,
    TENSOR_INT32: np.int32,
    TENSOR_QUANT8_ASYMM: np.uint8,
    TENSOR_QUANT8_ASYMM_SIGNED: np.int8,
    TENSOR_QUANT8_SYMM: np.int8,
    TENSOR_QUANT16_SYMM: np.int16,
}


@dataclass(frozen=True)
class Quantised:
    """Integers with their type, scale and zero point."""

    values: np.ndarray
    code: int
    scale: float
    zero: int = 0

    @classmethod
    def of(cls, values, code, scale, zero=0):
        return cls(np.ascontiguousarray(values, DTYPES[code]), code, scale, zero)

    @property
    def real(self):
        return (self.values.astype(np.float64) - self.zero) * np.float32(self.scale)


@dataclass(frozen=True)
class Omitted:
    """An optional tensor without a value: in the model or, where it has dimensions, in the run."""

    code: int
    dims: tuple = ()


def add_input(model, given, constant):
    """Adds an input of the operation: its operand, and its values where the caller gives them."""
    if isinstance(given, Omitted):
        has_scale = given.code in (TENSOR_QUANT8_SYMM, TENSOR_QUANT16_SYMM)
        index = model.operand(given.code, given.dims or (0,), 1.0 if has_scale else 0.0)
        if given.dims:
            return index, np.zeros(0, DTYPES[given.code])
        assert model.nn.Model_setOperandValue(model.handle, index, None, 0) == OK
        return index, None
    if not isinstance(given, Quantised | np.ndarray):
        return model.scalar(given), None
    code, scale, zero, values = TENSOR_FLOAT32, 0.0, 0, given
    if isinstance(given, Quantised):
        code, scale, zero, values = given.code, given.scale, given.zero, given.values
    values = np.ascontiguousarray(values, DTYPES[code])
    index = model.operand(code, values.shape, scale, zero)
    if not constant:
        return index, values
    model._keep.append(values)
    pointer = values.ctypes.data_as(C.c_void_p)
    assert model.nn.Model_setOperandValue(model.handle, index, pointer, values.nbytes) == OK
    return index, None


def execute(nn, code, inputs, outputs, constants=True):
    """Runs one operation. Its first input is the model's; the other tensors are constants, or
    inputs of the model as well. `outputs` are (type, dimensions, scale, zero point). Returns the
    outputs, None where any step refuses."""
    model = Model(nn)
    arguments, tensors = [], []
    for i, data in enumerate(inputs):
        index, values = add_input(model, data, constants and i > 0)
        arguments.append(index)
        if values is not None:
            tensors.append((index, values))
    targets = [model.operand(*output) for output in outputs]
    code_of = model.add_operation(code, arguments, targets)
    code_of = code_of or model.identify([index for index, _ in tensors], targets)
    code_of = code_of or nn.Model_finish(model.handle)
    results = None
    if code_of == OK:
        compilation, result = model.try_compile()
        if result == OK:
            results = compute(nn, compilation, [values for _, values in tensors], outputs)
        nn.Compilation_free(compilation)
    model.free()
    return results


def compute(nn, compilation, tensors, outputs):
    execution = nn.new("Execution_create", compilation)
    for i, values in enumerate(tensors):
        if values.size:
            assert set_input(nn, execution, i, values) == OK
        else:
            assert nn.Execution_setInput(execution, i, None, None, 0) == OK
    results = []
    for i, (code, dims, *_) in enumerate(outputs):
        size = int(np.prod(dims)) if all(dims) else 4096
        results.append(np.full(size, 77, DTYPES[code]))
        pointer = results[-1].ctypes.data_as(C.c_void_p)
        assert nn.Execution_setOutput(execution, i, None, pointer, results[-1].nbytes) == OK
    result = nn.Execution_compute(execution)
    for i, (_, dims, *_) in enumerate(outputs if result == OK else ()):
        outcome = u32([0] * len(dims))
        assert nn.Execution_getOutputOperandDimensions(execution, i, outcome) == OK
        shape = list(outcome)[: len(dims)]
        results[i] = results[i][: int(np.prod(shape))].reshape(shape)
    nn.Execution_free(execution)
    return results if result == OK else None


def run(nn, code, inputs, outputs, constants=True):
    results = execute(nn, code, inputs, outputs, constants)
    assert results is not None
    return results


def floats(*shapes):
    return [(TENSOR_FLOAT32, shape, 0.0, 0) for shape in shapes]


# ---- The documented formulas in float64 ---------------------------------------------------------


def activate(code, x):
    return {
        NONE: lambda: x,
        RELU: lambda: np.maximum(x, 0),
        RELU1: lambda: np.clip(x, -1, 1),
        RELU6: lambda: np.clip(x, 0, 6),
        TANH: lambda: np.tanh(x),
        SIGMOID: lambda: 1 / (1 + np.exp(-x)),
    }[code]()


@dataclass(frozen=True)
class Cell:
    """Weights of one LSTM; gates are in the order i, f, c, o, None is left out."""

    w: list
    r: list
    b: list
    p: tuple = (None, None, None)
    norm: tuple = (None, None, None, None)
    aux: tuple = (None, None, None, None)
    proj: np.ndarray | None = None
    proj_b: np.ndarray | None = None
    act: int = TANH
    cell_clip: float = 0.0
    proj_clip: float = 0.0

    @property
    def units(self):
        return self.w[3].shape[0]

    @property
    def outputs(self):
        return self.r[3].shape[1]

    @property
    def weights(self):
        """Inputs from input_to_input_weights to projection_bias."""
        return [*self.w, *self.r, *self.p, *self.b, self.proj, self.proj_b]

    @property
    def scalars(self):
        return [self.act, self.cell_clip, self.proj_clip]

    def step(self, x, h, c):
        def gate(g, peephole, cell, act):
            z = x @ self.w[g].T + h @ self.r[g].T
            if peephole is not None:
                z = z + peephole * cell
            if self.norm[g] is not None:
                z = (z - z.mean(1, keepdims=True)) / z.std(1, keepdims=True) * self.norm[g]
            return activate(act, z + self.b[g])

        f = gate(1, self.p[1], c, SIGMOID)
        i = 1 - f if self.w[0] is None else gate(0, self.p[0], c, SIGMOID)
        c = f * c + i * gate(2, None, None, self.act)
        if self.cell_clip:
            c = c.clip(-self.cell_clip, self.cell_clip)
        h = gate(3, self.p[2], c, SIGMOID) * activate(self.act, c)
        if self.proj is not None:
            h = h @ self.proj.T + (0 if self.proj_b is None else self.proj_b)
            if self.proj_clip:
                h = h.clip(-self.proj_clip, self.proj_clip)
        return h, c


def rounded(rng, *shape):
    return rng.uniform(-0.8, 0.8, shape).astype(np.float32)


def some_cell(
    rng,
    inputs,
    units,
    outputs=None,
    *,
    cifg=False,
    peephole=False,
    projection=0,
    norm=False,
    aux=0,
    **others,
):
    """A random LSTM. projection: 0 none, 1 weights, 2 weights and bias."""
    outputs = outputs if projection else units

    def gates(*shape, there=True):
        return [rounded(rng, *shape) if there and (g or not cifg) else None for g in range(4)]

    p = gates(units, there=peephole)
    return Cell(
        gates(units, inputs),
        gates(units, outputs),
        gates(units),
        (p[0], p[1], p[3]),
        tuple(gates(units, there=norm)),
        tuple(gates(units, aux, there=bool(aux))),
        rounded(rng, outputs, units) if projection else None,
        rounded(rng, outputs) if projection == 2 else None,
        **others,
    )


def given(*values):
    """Inputs of an operation: None is a float tensor without a value."""
    return [Omitted(TENSOR_FLOAT32) if v is None else v for v in values]


VARIANTS = [
    {"cifg": cifg, "peephole": peephole, "projection": projection, "norm": norm}
    for cifg, peephole, projection, norm in itertools.product(
        (False, True), (False, True), (0, 1, 2), (False, True)
    )
]


def variant_id(variant):
    return "-".join(f"{name}{int(value)}" for name, value in variant.items())


def exact(found, wanted):
    np.testing.assert_allclose(found, wanted, rtol=5 * 2.0**-23, atol=1e-5)
