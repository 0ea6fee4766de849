"""The builder of models, the registry of lowerings, and regions of one and of several units:
bounds, sharing, fusion, refusals, and numbers through the emulator."""

import operator

import numpy as np
import pytest
import torch

from nnapi_prof.bundle.torchscript import stock_module
from nnapi_prof.convert import BufferSlice, EmissionError, ModelBuilder, Operand
from nnapi_prof.convert.lower import convert_region, why_not
from nnapi_prof.convert.ops.activation import silu
from nnapi_prof.convert.registry import ENTRIES, keeps_order, lowers
from nnapi_prof.errors import NnapiProfError, UnsupportedOp, UsageError
from nnapi_prof.frontend import prepare
from nnapi_prof.graph.grouping import macs
from nnapi_prof.graph.program import all_values
from nnapi_prof.nnapi.codes import OperandCode, OperationCode
from tests.convert.architectures import ARCHITECTURES
from tests.convert.cases.convolution import convolve
from tests.convert.cases.recurrent import RECURRENT
from tests.convert.harness import LEVELS, aten, broken_rules, image, program_of, run_region

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


def test_a_second_registration_names_the_first_owner():
    with pytest.raises(ValueError, match=r"aten.silu.default is lowered by .*activation.silu"):
        lowers(aten.lgamma.default, aten.silu.default)(silu)
    assert aten.lgamma.default not in ENTRIES


def test_every_lowering_says_what_it_does():
    assert all(lowerer.__doc__ for lowerer in ENTRIES.values())


@pytest.mark.parametrize(
    ("shape", "permutation", "kept"),
    [
        ((2, 1, 1, 3), (0, 2, 3, 1), True),
        ((2, 3, 1, 1), (0, 2, 3, 1), True),
        ((2, 1, 4, 5), (0, 2, 3, 1), True),
        ((2, 3, 4, 1), (0, 2, 3, 1), False),
        ((1, 2), (1, 0), True),
        ((2, 2), (1, 0), False),
    ],
)
def test_moving_single_dimensions_moves_no_element(shape, permutation, kept):
    assert keeps_order(shape, permutation) is kept


def test_a_call_that_is_no_aten_operator_is_refused():
    program = program_of(lambda x: operator.add(x, 1), [image(2)])
    with pytest.raises(UnsupportedOp, match="add: add cannot run on NNAPI: NNAPI has no such"):
        convert_region(program, [0], 30)


X = image(1, 4, 6, 6)
W1, B1, W2 = image(8, 4, 1, 1), image(8), image(8, 1, 3, 3)


def inverted_residual(x):
    """Pointwise, depthwise, pointwise and the sum, as MobileNetV2's blocks; 6 calls."""
    y = aten.hardtanh.default(convolve(W1, B1)(x), 0.0, 6.0)
    y = aten.hardtanh.default(convolve(W2, B1, padding=1, groups=8)(y), 0.0, 6.0)
    return aten.add.Tensor(x, convolve(W1.transpose(0, 1))(y))


@pytest.mark.parametrize("level", LEVELS)
def test_one_unit_of_many_nodes(level, nnapi_library):
    program = program_of(inverted_residual, [X])
    region, again = (convert_region(program, [0], level) for _ in range(2))
    assert (again.serialized, again.buffers) == (region.serialized, region.buffers)
    assert region.operations == ("CONV_2D", "DEPTHWISE_CONV_2D", "CONV_2D", "ADD")
    assert broken_rules(region.model, level) == []
    (result,) = run_region(region, {"x": X})
    torch.testing.assert_close(result, inverted_residual(X))


def test_a_region_is_bounded_as_the_unit_graph_says(nnapi_library):
    program = program_of(inverted_residual, [X], split=True)
    whole = convert_region(program, range(6), 27)
    assert (whole.inputs, whole.outputs) == (("x",), ("add_tensor",))
    assert whole.operations.count("RELU6") == 2, "units are not fused across their bounds"

    front = convert_region(program, [0, 1, 2], 27)
    back = convert_region(program, [5, 4, 3], 27)
    assert set(back.inputs) == {front.outputs[0], "x"}
    (middle,) = run_region(front, {"x": X})
    (result,) = run_region(back, {"x": X, front.outputs[0]: middle})
    torch.testing.assert_close(result, inverted_residual(X))


def test_an_activation_with_other_readers_is_not_fused():
    def function(x):
        a = aten.add.Tensor(x, 1.0)
        return aten.mul.Tensor(aten.relu.default(a), a)

    region = convert_region(program_of(function, [X]), [0], 27)
    assert region.operations == ("ADD", "RELU", "MUL")


def test_weights_used_twice_travel_once():
    def function(x):
        y = aten.linear.default(x, torch.ones(6, 6))
        return aten.linear.default(y, torch.ones(6, 6))

    assert len(convert_region(program_of(function, [image(2, 6)]), [0], 27).buffers) == 1


def test_a_refusal_names_the_node_and_the_operator():
    program = program_of(lambda x: aten.lgamma.default(aten.relu.default(x)), [X], split=True)
    with pytest.raises(UnsupportedOp) as refusal:
        convert_region(program, [0, 1], 30)
    assert refusal.value.node == "lgamma_default"
    assert refusal.value.op == "aten.lgamma.default"
    assert why_not(program, 0, 30) is None
    assert why_not(program, 1, 30) == refusal.value.refusal


LSTM = RECURRENT["lstm, both directions, outputs"].program


def test_arguments_that_are_left_out():
    """An LSTM's peepholes and norms, for one."""
    region = convert_region(LSTM, [0], 29)
    model = region.model
    *_, operation = model.operations  # after copies of the states
    left_out = {value.operand for value in model.values if not value.source}
    # peepholes and projections of both directions, auxiliary inputs and weights, norms
    assert sum(operand in left_out for operand in operation.inputs) == 2 * 5 + 1 + 8 + 8
    assert all(0 in model.operands[operand].dims for operand in left_out)
    with pytest.raises(NnapiProfError, match="leave out optional arguments"):
        stock_module(LSTM.units, region, {})


def test_multiply_accumulates_count_recurrent_weights():
    (node,) = (n for n in LSTM.module.graph.nodes if "lstm" in str(n.target))
    assert macs(node) == 3 * 2 * 2 * (20 * 4 + 20 * 5)


REFUSED = {
    ("mobilenet_v3", 27): {"aten.clone.default"},
    ("deeplab", 27): {"aten.clone.default", "aten.convolution.default", "aten.argmax.default"},
    ("deeplab", 28): {"aten.argmax.default"},
    ("inception", 27): {"aten.clone.default", "aten.index.Tensor", "aten.log_softmax.int"},
    ("inception", 28): {"aten.log_softmax.int"},
}
"""The operators of each network that a level cannot say; none at higher levels."""


@pytest.fixture(scope="module", params=["mobilenet_v3", "deeplab", "inception"])
def prepared(request):
    """A program as the front end makes it, and all of its values."""
    torch.manual_seed(5)
    model, inputs = ARCHITECTURES[request.param]()
    program = prepare(model.eval(), inputs, request.param)
    return program, all_values(program, inputs)


@pytest.mark.parametrize("level", LEVELS)
def test_every_unit_is_right_or_refused(prepared, level, nnapi_library):
    program, values = prepared
    refused = set()
    for unit in program.units.units:
        reason = why_not(program, unit.index, level)
        if reason is not None:
            refused.add(reason.operation)
            continue
        region = convert_region(program, [unit.index], level)
        assert broken_rules(region.model, level) == []
        expected = [values[name] for name in region.outputs]
        torch.testing.assert_close(run_region(region, values), expected, rtol=1e-4, atol=1e-5)
    assert refused == REFUSED.get((program.name, level), set())
