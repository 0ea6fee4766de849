"""Products of matrices at level 6, which has BATCH_MATMUL.

NumPy computes the models here, the few operations that products and attention consist of, by their
definitions; test_later_levels has the emulator do it.
"""

import numpy as np
import pytest
import torch

from nnapi_prof.convert.lower import convert_region
from nnapi_prof.convert.model import BufferSlice
from nnapi_prof.errors import UnsupportedOp
from nnapi_prof.nnapi.codes import OperandCode, OperationCode
from tests.convert.cases.products import ATTENTION, PRODUCTS
from tests.convert.harness import from_memory, to_memory

LEVELS = (1000006, 1000007)
ELEMENTS = {
    OperandCode.TENSOR_FLOAT32: np.float32,
    OperandCode.TENSOR_INT32: np.int32,
    OperandCode.TENSOR_BOOL8: np.bool_,
    OperandCode.INT32: np.int32,
    OperandCode.FLOAT32: np.float32,
    OperandCode.BOOL: np.bool_,
}
CASES = {**PRODUCTS, **ATTENTION}


def softmax(x, beta, axis=-1):
    powers = np.exp(beta * (x - x.max(axis, keepdims=True)))
    return powers / powers.sum(axis, keepdims=True)


def batch_matmul(x, y, adjoint_x, adjoint_y):
    assert x.shape[:-2] == y.shape[:-2], "BATCH_MATMUL does not broadcast"
    x = x.swapaxes(-1, -2) if adjoint_x else x
    return x @ (y.swapaxes(-1, -2) if adjoint_y else y)


OPERATIONS = {
    OperationCode.RESHAPE: lambda x, shape: x.reshape(shape),
    OperationCode.TRANSPOSE: np.transpose,
    OperationCode.TILE: np.tile,
    OperationCode.ADD: lambda x, y, fuse: x + y,
    OperationCode.SUB: lambda x, y, fuse: x - y,
    OperationCode.MUL: lambda x, y, fuse: x * y,
    OperationCode.DIV: lambda x, y, fuse: x / y,
    OperationCode.EXP: np.exp,
    OperationCode.MAXIMUM: np.maximum,
    OperationCode.MINIMUM: np.minimum,
    OperationCode.SELECT: np.where,
    OperationCode.EQUAL: np.equal,
    OperationCode.LOGICAL_AND: np.logical_and,
    OperationCode.LOGICAL_NOT: np.logical_not,
    OperationCode.REDUCE_ALL: lambda x, axes, keep: x.all(tuple(axes), keepdims=bool(keep)),
    OperationCode.REDUCE_MAX: lambda x, axes, keep: x.max(tuple(axes), keepdims=bool(keep)),
    OperationCode.REDUCE_SUM: lambda x, axes, keep: x.sum(tuple(axes), keepdims=bool(keep)),
    OperationCode.SOFTMAX: softmax,
    OperationCode.BATCH_MATMUL: batch_matmul,
    OperationCode.FULLY_CONNECTED: lambda x, w, b, fuse: x.reshape(-1, w.shape[1]) @ w.T + b,
}


def computed(region, inputs):
    """The model's outputs for these inputs, in NumPy."""
    model = region.model
    values = dict(zip(model.inputs, inputs, strict=True))
    for value in model.values:
        data, operand = value.source, model.operands[value.operand]
        if isinstance(data, BufferSlice):
            data = region.buffers[data.buffer]
        array = np.frombuffer(data, ELEMENTS[operand.type]).reshape(operand.dims)
        values[value.operand] = array if operand.dims else array.item()
    for operation in model.operations:
        (result,) = operation.outputs
        arguments = [values[i] for i in operation.inputs]
        if operation.code is OperationCode.BATCH_MATMUL:
            assert len(arguments) == 4 and 2 <= arguments[0].ndim <= 4
        with np.errstate(invalid="ignore"):
            values[result] = OPERATIONS[operation.code](*arguments)
        assert values[result].shape == model.operands[result].dims
    return [values[i] for i in model.outputs]


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("name", CASES)
def test_products_at_level_6(name, level):
    case = CASES[name]
    if 30 in case.refused and name != "too many products":
        with pytest.raises(UnsupportedOp, match=case.refused[30]):
            convert_region(case.program, [0], level)
        return
    region = convert_region(case.program, [0], level)
    feeds = dict(zip(case.program.units.inputs, case.inputs, strict=True))
    types = zip(region.inputs, region.input_types, strict=True)
    (outcome,) = computed(
        region, [to_memory(feeds[name], value_type).numpy() for name, value_type in types]
    )
    assert "STRIDED_SLICE" not in region.operations
    result = from_memory(torch.from_numpy(outcome), region.output_types[0])
    torch.testing.assert_close(result, case.function(*case.inputs), rtol=1e-5, atol=1e-5)


def test_many_products_are_one_operation():
    for name in ("bmm", "matmul of two batch axes", "too many products"):
        region = convert_region(CASES[name].program, [0], LEVELS[0])
        assert region.operations.count("BATCH_MATMUL") == 1
    crossed = convert_region(CASES["matmul, batches crossed"].program, [0], LEVELS[0])
    assert crossed.operations.count("TILE") == 2
