"""Models of one operation that moves values, for tests against numpy and torch.

Each case runs twice: with the lists that it takes (permutations, paddings, ...) as constants, and
with them as inputs of the execution, where shapes follow only from the run.
"""

import ctypes as C
from dataclasses import dataclass

import numpy as np
import pytest

from tests.emulator.nnapi import OK, Result, operand_type, set_input, set_output, u32

FLOAT16, TENSOR_FLOAT16 = 10, 8
CONCATENATION, DEPTH_TO_SPACE, EMBEDDING_LOOKUP, HASHTABLE_LOOKUP = 2, 5, 7, 10
LSH_PROJECTION, RESHAPE, RESIZE_BILINEAR, SPACE_TO_DEPTH = 15, 22, 23, 26
BATCH_TO_SPACE_ND, PAD, SPACE_TO_BATCH_ND, SQUEEZE, STRIDED_SLICE = 29, 32, 33, 34, 35
TRANSPOSE, CHANNEL_SHUFFLE, EXPAND_DIMS, GATHER, PAD_V2 = 37, 46, 50, 51, 69
RANDOM_MULTINOMIAL, SLICE, SPLIT, TILE, TOPK_V2 = 74, 86, 87, 89, 90
RESIZE_NEAREST_NEIGHBOR = 94


@dataclass(frozen=True)
class Type:
    """An operand type of tensors, and what numpy calls it."""

    code: int
    dtype: type
    scale: float = 0.0
    zero_point: int = 0

    def random(self, rng, *shape):
        if np.issubdtype(self.dtype, np.floating):
            return rng.standard_normal(shape).astype(self.dtype)
        info = np.iinfo(self.dtype)
        return rng.integers(info.min, info.max, shape, dtype=self.dtype, endpoint=True)


F32, F16, I32 = Type(3, np.float32), Type(TENSOR_FLOAT16, np.float16), Type(4, np.int32)
Q8, Q8S = Type(5, np.uint8, 0.5, 100), Type(14, np.int8, 0.25, -7)
MOVED = pytest.mark.parametrize("kind", [F32, F16, Q8, Q8S], ids=["f32", "f16", "q8", "q8s"])
WITH_INT32 = pytest.mark.parametrize(
    "kind", [F32, F16, Q8, Q8S, I32], ids=["f32", "f16", "q8", "q8s", "i32"]
)
QUANT8 = pytest.mark.parametrize("kind", [Q8, Q8S], ids=["q8", "q8s"])
SEEDS = pytest.mark.parametrize("seed", range(4))


@dataclass
class Data:
    """A tensor that each execution gives."""

    array: np.ndarray
    kind: Type


@dataclass
class Listed:
    """A TENSOR_INT32 that is a constant or is given, whichever the test tries."""

    values: object


class Omitted:
    """An optional tensor without a value."""


@dataclass
class Empty:
    """A tensor whose first dimension is 0, which only another operation can make."""

    shape: tuple
    kind: Type


SCALARS = {int: (1, C.c_int32), float: (0, C.c_float), bool: (6, C.c_uint8)}


class Runner:
    """A model of one operation."""

    def __init__(self, nn, is_constant):
        self.nn, self.is_constant, self.keep = nn, is_constant, []
        self.model = nn.new("Model_create")
        self.n = 0
        self.inputs = []

    def operand(self, code, dims=(), scale=0.0, zero_point=0):
        kind = operand_type(code, dims, scale, zero_point)
        assert self.nn.Model_addOperand(self.model, C.byref(kind)) == OK
        self.n += 1
        return self.n - 1

    def constant(self, index, array):
        self.keep.append(array)
        pointer = array.ctypes.data_as(C.c_void_p)
        assert self.nn.Model_setOperandValue(self.model, index, pointer, array.nbytes) == OK
        return index

    def add(self, value):
        if isinstance(value, Omitted):
            index = self.operand(I32.code, [1])
            assert self.nn.Model_setOperandValue(self.model, index, None, 0) == OK
            return index
        if isinstance(value, Listed):
            array = np.ascontiguousarray(value.values, np.int32)
            index = self.operand(I32.code, array.shape)
            if not self.is_constant:
                return self.constant(index, array)
            self.inputs.append((index, array))
            return index
        if isinstance(value, Data):
            kind, array = value.kind, np.ascontiguousarray(value.array)
            assert array.dtype == kind.dtype
            index = self.operand(kind.code, array.shape, kind.scale, kind.zero_point)
            self.inputs.append((index, array))
            return index
        if isinstance(value, Empty):
            return self.add_empty(value)
        if isinstance(value, np.float16):
            return self.constant(self.operand(FLOAT16), np.array([value]))
        code, ctype = SCALARS[type(value)]
        return self.constant(self.operand(code), np.array([value], np.dtype(ctype)))

    def add_empty(self, value):
        kind, rank = value.kind, len(value.shape)
        full = self.add(Data(np.zeros((1, *value.shape[1:]), kind.dtype), kind))
        begins = self.constant(self.operand(I32.code, [rank]), np.zeros(rank, np.int32))
        sizes = np.array([0, *[-1] * (rank - 1)], np.int32)
        ins = [full, begins, self.constant(self.operand(I32.code, [rank]), sizes)]
        empty = self.operand(kind.code, [0] * rank, kind.scale, kind.zero_point)
        added = self.nn.Model_addOperation(self.model, SLICE, 3, u32(ins), 1, u32([empty]))
        assert added == OK
        return empty

    def run(self, code, inputs, wanted, kinds):
        """Runs the operation; returns its outputs, after checking what shapes it reports."""
        nn = self.nn
        ins = [self.add(value) for value in inputs]
        outs = []
        for array, kind in zip(wanted, kinds, strict=True):
            dims = [0] * array.ndim if self.is_constant or array.size == 0 else array.shape
            outs.append(self.operand(kind.code, dims, kind.scale, kind.zero_point))
        added = nn.Model_addOperation(self.model, code, len(ins), u32(ins), len(outs), u32(outs))
        assert added == OK, nn.emulator_error()
        indices = [index for index, _ in self.inputs]
        identified = nn.Model_identifyInputsAndOutputs(
            self.model, len(indices), u32(indices), len(outs), u32(outs)
        )
        assert identified == OK
        assert nn.Model_finish(self.model) == OK
        compilation = nn.new("Compilation_create", self.model)
        self.result = nn.Compilation_finish(compilation)
        if self.result == OK:
            result = self.execute(compilation, wanted, kinds)
        nn.Compilation_free(compilation)
        nn.Model_free(self.model)
        return result if self.result == OK else None

    def execute(self, compilation, wanted, kinds):
        nn = self.nn
        execution = nn.new("Execution_create", compilation)
        for i, (_, array) in enumerate(self.inputs):
            assert set_input(nn, execution, i, array) == OK
        items = []
        for i, (array, kind) in enumerate(zip(wanted, kinds, strict=True)):
            room = np.full(max(1, array.size), 77, kind.dtype)  # no length may be 0
            assert set_output(nn, execution, i, room) == OK
            items.append(room[: array.size].reshape(array.shape))
        self.result = nn.Execution_compute(execution)
        for i, array in enumerate(items):
            rank, dims = C.c_uint32(), (C.c_uint32 * 8)()
            if self.result == OK:
                assert nn.Execution_getOutputOperandRank(execution, i, C.byref(rank)) == OK
                assert nn.Execution_getOutputOperandDimensions(execution, i, dims) == OK
                assert list(dims)[: rank.value] == list(array.shape)
        nn.Execution_free(execution)
        return items


def run_both(nn, code, inputs, wanted, kinds):
    for is_constant in (False, True):
        runner = Runner(nn, is_constant)
        yield runner.run(code, inputs, wanted, kinds)
        assert runner.result == OK


def check(nn, code, inputs, expected, kind, atol=0):
    """That the operation's one output is `wanted`."""
    expected = np.ascontiguousarray(expected)
    for (actual,) in run_both(nn, code, inputs, [expected], [kind]):
        np.testing.assert_allclose(
            actual.astype(np.float64), expected.astype(np.float64), rtol=0, atol=atol
        )


def fails(nn, code, inputs, shape, kind):
    """That compilation or run fails, whichever first sees the values."""
    runner = Runner(nn, True)
    runner.run(code, inputs, [np.zeros(shape, kind.dtype)], [kind])
    assert runner.result in (Result.OP_FAILED, Result.BAD_DATA)


def random_shape(rng, low=1, high=4, size=6):
    return tuple(int(d) for d in rng.integers(1, size, rng.integers(low, high, endpoint=True)))
