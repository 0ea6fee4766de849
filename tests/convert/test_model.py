"""The builder: what it keeps, shares and refuses."""

import numpy as np
import pytest

from nnapi_prof.convert import BufferSlice, EmissionError, ModelBuilder, Operand
from nnapi_prof.errors import UsageError
from nnapi_prof.nnapi.codes import OperandCode, OperationCode

IMAGE = Operand(OperandCode.TENSOR_FLOAT32, (1, 4, 4, 2))


def test_equal_constants_are_one_operand():
    builder = ModelBuilder(27)
    weights = np.arange(100, dtype=np.float32)
    assert builder.constant(weights) == builder.constant(weights.copy())
    assert builder.constant(weights) != builder.constant(weights.reshape(10, 10))
    assert builder.scalar(1) == builder.scalar(1)
    assert len({builder.scalar(1), builder.scalar(1.0), builder.scalar(True)}) == 3
    assert len(builder.blobs) == 2


def test_constants_up_to_128_bytes_stand_in_the_model():
    builder = ModelBuilder(27)
    small = builder.constant(np.zeros(32, np.float32))
    large = builder.constant(np.ones(33, np.float32))
    values = {value.operand: value.source for value in builder.finish([]).values}
    assert values[small] == bytes(128)
    assert values[large] == BufferSlice(0, 0, 132)
    assert [blob.data for blob in builder.blobs] == [np.ones(33, np.float32).tobytes()]


def test_constants_are_stored_in_the_order_of_their_shape():
    builder = ModelBuilder(27)
    array = np.arange(6, dtype=np.float32).reshape(2, 3).T
    builder.constant(array)
    (value,) = builder.finish([]).values
    assert np.frombuffer(value.source, np.float32).tolist() == [0, 3, 1, 4, 2, 5]


@pytest.mark.parametrize(
    ("level", "code", "scalars", "dims", "message"),
    [
        (27, OperationCode.SQRT, [], (1, 4, 4, 2), r"SQRT exists from level 3 \(API 29\) on"),
        (28, OperationCode.SOFTMAX, [1.0, 1], (1, 4, 4, 2), r"SOFTMAX takes axis from level 3"),
        (30, OperationCode.SOFTMAX, [1], (1, 4, 4, 2), r"no argument list of the form"),
        (30, OperationCode.RELU, [], (1, 1, 4, 4, 2), "RELU gives rank 4 at most, found 5"),
        (30, OperationCode.RELU, [], (), "a tensor of rank 0"),
        (30, OperationCode.RELU, [], (1, 0), r"an empty tensor \(1x0\)"),
    ],
)
def test_what_a_level_lacks_is_refused(level, code, scalars, dims, message):
    builder = ModelBuilder(level)
    inputs = [builder.input(IMAGE), *map(builder.scalar, scalars)]
    with pytest.raises(EmissionError, match=message):
        builder.add(code, inputs, dims)


def test_an_operation_on_the_wrong_rank_is_refused():
    builder = ModelBuilder(30)
    x = builder.input(Operand(OperandCode.TENSOR_FLOAT32, (4, 2)))
    scalars = [builder.scalar(n) for n in (0, 0, 0, 0, 1, 1, 2, 2, 0)]
    with pytest.raises(EmissionError, match="MAX_POOL_2D takes rank 4 or more, found 2"):
        builder.add(OperationCode.MAX_POOL_2D, [x, *scalars], (4, 2))


def test_there_is_no_nnapi_below_27():
    with pytest.raises(UsageError, match="feature level 26: NNAPI begins with 27"):
        ModelBuilder(26)
