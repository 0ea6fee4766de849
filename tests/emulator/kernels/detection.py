"""What the tests of object detection share: one operation run on real values of any type."""

import ctypes as C
from dataclasses import dataclass

import numpy as np

from tests.emulator.nnapi import (
    OK,
    TENSOR_FLOAT32,
    TENSOR_INT32,
    TENSOR_QUANT8_ASYMM,
    TENSOR_QUANT8_ASYMM_SIGNED,
    TENSOR_QUANT16_ASYMM,
    TENSOR_QUANT16_SYMM,
    Model,
    Result,
    set_input,
    u32,
)

AXIS_ALIGNED_BBOX_TRANSFORM, BOX_WITH_NMS_LIMIT, DETECTION_POSTPROCESSING = 41, 44, 47
GENERATE_PROPOSALS, HEATMAP_MAX_KEYPOINT, ROI_ALIGN, ROI_POOLING = 52, 56, 81, 82
TENSOR_FLOAT16, FLOAT16 = 8, 10
HARD = 0
NAN, INF = float("nan"), float("inf")
DTYPES = {
    TENSOR_FLOAT32: np.float32,
    TENSOR_FLOAT16: np.float16,
    TENSOR_INT32: np.int32,
    TENSOR_QUANT8_ASYMM: np.uint8,
    TENSOR_QUANT8_ASYMM_SIGNED: np.int8,
    TENSOR_QUANT16_ASYMM: np.uint16,
    TENSOR_QUANT16_SYMM: np.int16,
}
QUANT8 = (TENSOR_QUANT8_ASYMM, TENSOR_QUANT8_ASYMM_SIGNED)


@dataclass(frozen=True)
class Kind:
    """A tensor type with its quantisation."""

    code: int
    scale: float = 0.0
    zero: int = 0

    def make(self, values):
        """The tensor nearest to real values."""
        values, dtype = np.asarray(values, np.float64), DTYPES[self.code]
        if self.scale:
            values = np.rint(values / self.scale) + self.zero
            values = values.clip(np.iinfo(dtype).min, np.iinfo(dtype).max)
        return Tensor(self, np.ascontiguousarray(values.astype(dtype)))

    def real(self, array):
        return (array.astype(np.float64) - self.zero) * (self.scale or 1.0)


@dataclass(frozen=True)
class Tensor:
    kind: Kind
    array: np.ndarray

    @property
    def real(self):
        return self.kind.real(self.array)


FLOAT, HALF, INT = Kind(TENSOR_FLOAT32), Kind(TENSOR_FLOAT16), Kind(TENSOR_INT32)
BOX = Kind(TENSOR_QUANT16_ASYMM, 0.125)
ANCHOR = Kind(TENSOR_QUANT16_SYMM, 0.125)


def quant8(code, scale, zero):
    """A type of 8 bits, whose zero point is given as of unsigned numbers."""
    return Kind(code, scale, zero if code == TENSOR_QUANT8_ASYMM else zero - 128)


def floats(values):
    return FLOAT.make(values)


def ints(values):
    return INT.make(values)


def half_scalar(model, value):
    index, number = model.operand(FLOAT16), np.float16(value)
    pointer = C.c_void_p(np.asarray(number).ctypes.data)
    assert model.nn.Model_setOperandValue(model.handle, index, pointer, 2) == OK
    return index


def scalar_input(model, value, halves):
    return half_scalar(model, value) if halves and type(value) is float else model.scalar(value)


def execute(nn, code, inputs, outputs):
    """Runs one operation; tensors are inputs of its model, numbers constants. `outputs` are pairs
    of a kind and dimensions, 0 for unknown ones. Returns the result and, where that is good, real
    values."""
    model = Model(nn)
    halves = inputs[0].kind is HALF
    tensors, arguments, targets = [], [], []
    for data in inputs:
        if isinstance(data, Tensor):
            kind = data.kind
            index = model.operand(kind.code, data.array.shape, kind.scale, kind.zero)
            tensors.append((index, data.array))
        else:
            index = scalar_input(model, data, halves)
        arguments.append(index)
    for kind, dims in outputs:
        targets.append(model.operand(kind.code, dims, kind.scale, kind.zero))
    model.operation(code, arguments, targets)
    model.finish([index for index, _ in tensors], targets)
    compilation, result = model.try_compile()
    if result == OK:
        result, values = compute(nn, compilation, [array for _, array in tensors], outputs)
    nn.Compilation_free(compilation)
    model.free()
    return (result, values) if result == OK else (result, None)


def compute(nn, compilation, arrays, outputs):
    execution, buffers, values = nn.new("Execution_create", compilation), [], []
    for i, array in enumerate(arrays):
        assert set_input(nn, execution, i, array) == OK
    for i, (kind, dims) in enumerate(outputs):
        size = int(np.prod(dims)) if 0 not in dims else 4096
        buffers.append(np.full(size, 77, DTYPES[kind.code]))
        pointer = buffers[-1].ctypes.data_as(C.c_void_p)
        assert nn.Execution_setOutput(execution, i, None, pointer, buffers[-1].nbytes) == OK
    result = nn.Execution_compute(execution)
    for i, (kind, dims) in enumerate(outputs if result == OK else ()):
        outcome = u32([0] * len(dims))
        assert nn.Execution_getOutputOperandDimensions(execution, i, outcome) == OK
        shape = list(outcome)[: len(dims)]
        values.append(kind.real(buffers[i][: int(np.prod(shape))].reshape(shape)))
    nn.Execution_free(execution)
    return result, values


def run(nn, code, inputs, outputs):
    result, values = execute(nn, code, inputs, outputs)
    assert result == OK, repr(result)
    return values


def fails(nn, code, inputs, outputs):
    result, _ = execute(nn, code, inputs, outputs)
    return result == Result.OP_FAILED


def limit_outputs(kinds, n=0):
    scores, boxes = kinds
    return [(scores, (n,)), (boxes, (n, 4)), (INT, (n,)), (INT, (n,))]
