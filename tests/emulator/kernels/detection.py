"""What the tests of object detection share: one operation run on real values of any type, and
boxes in numpy."""

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
HARD, LINEAR, GAUSSIAN = 0, 1, 2
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


# ---- Boxes ----


def transform(box, delta, image):
    w, h = box[2] - box[0], box[3] - box[1]
    x, y = (box[0] + box[2]) / 2 + delta[0] * w, (box[1] + box[3]) / 2 + delta[1] * h
    w, h = w * np.exp(delta[2]), h * np.exp(delta[3])
    corners = np.array([x - w / 2, y - h / 2, x + w / 2, y + h / 2])
    return np.clip(corners, 0, [image[1], image[0]] * 2)


def some_boxes(rng, n, size=60):
    corner = rng.uniform(0, size, (n, 2))
    return np.concatenate([corner, corner + rng.uniform(1, size / 2, (n, 2))], 1)


def iou(a, b):
    w = max(0, min(a[2], b[2]) - max(a[0], b[0]))
    h = max(0, min(a[3], b[3]) - max(a[1], b[1]))
    areas = sum((box[2] - box[0]) * (box[3] - box[1]) for box in (a, b))
    return w * h / (areas - w * h)


def soften(kernel, threshold, sigma, overlap):
    if kernel == GAUSSIAN:
        return np.exp(-(overlap**2) / sigma)
    return 1 if overlap < threshold else 1 - overlap if kernel == LINEAR else 0


def suppress(found, kernel, iou_threshold, sigma, minimum, limit):
    """NMS of [score, box, ...] rows, written with lists; no two scores may be equal."""
    left, survivors = list(found), []
    while left and (limit < 0 or len(survivors) < limit):
        best = max(left, key=lambda row: row[0])
        survivors.append(best)
        others = [row for row in left if row is not best]
        left = []
        for score, box, *rest in others:
            score = score * soften(kernel, iou_threshold, sigma, iou(box, best[1]))
            if score >= minimum:
                left.append((score, box, *rest))
    return survivors


SCORES = {
    "float": (FLOAT, FLOAT),
    "half": (HALF, HALF),
    "quant8": (quant8(TENSOR_QUANT8_ASYMM, 1 / 256, 0), BOX),
    "signed": (quant8(TENSOR_QUANT8_ASYMM_SIGNED, 1 / 256, 0), BOX),
}


def distinct(rng, *shape):
    """Scores between 0 and 1, all different, that each type can tell apart."""
    n = int(np.prod(shape))
    assert n <= 255
    return ((1 + rng.permutation(255)[:n]) / 256).reshape(shape)


def limit_outputs(kinds, n=0):
    scores, boxes = kinds
    return [(scores, (n,)), (boxes, (n, 4)), (INT, (n,)), (INT, (n,))]
