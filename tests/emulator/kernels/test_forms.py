"""Every operation of levels 1 to 3 in the forms that a model may have: the same results.

AOSP's vectors come in such forms: weights as inputs, inputs that other operations make, shapes that
only the run finds, optional inputs left out of the model or of the run, NCHW, float16, batches of
none; on both devices.
"""

import ctypes as C
from dataclasses import dataclass, replace

import numpy as np
import pytest

from nnapi_prof.nnapi.codes import OperandCode, OperationCode
from nnapi_prof.nnapi.facts import all_facts
from tests.emulator.kernels.cases_elementwise import CASES
from tests.emulator.kernels.cases_windows import KINDS, OTHER_Q8, Q8, TO_NCHW, Maker, Omitted
from tests.emulator.kernels.one_operation import F16, F32, I32, Half, Kind, Tensor, add_operand
from tests.emulator.nnapi import OK, Model, operand_type, prepared, set_input

REFERENCE, FAST = "nnapi-reference", "nnapi-fast"
ADDABLE = ("TENSOR_FLOAT32", "TENSOR_FLOAT16", "TENSOR_QUANT8_ASYMM")
FINDINGS = ("GENERATE_PROPOSALS", "HEATMAP_MAX_KEYPOINT")
SCRATCH = {"LSTM": (0,)}  # outputs whose content is the engine's own
TO_NHWC = np.argsort(TO_NCHW)
ROOM = 4096


@dataclass(frozen=True)
class Form:
    device: str = REFERENCE
    weights_given: bool = False
    open_outputs: bool = False  # dimensions of outputs are unknown to the model
    sized_by_run: bool = False  # so are those of inputs, which the run tells
    passed_on: bool = False  # inputs go through an ADD of zero first
    left_out_of_run: bool = False  # what is omitted is an input of the model
    empty: bool = False  # the first input is cut to a batch of none


FORMS = {
    "constants": Form(),
    "given": Form(weights_given=True),
    "found": Form(open_outputs=True),
    "given, found": Form(weights_given=True, open_outputs=True),
    "passed on": Form(weights_given=True, passed_on=True),
    "sized by the run": Form(sized_by_run=True, open_outputs=True),
    "all sized by the run": Form(sized_by_run=True, weights_given=True, open_outputs=True),
    "left out of the run": Form(left_out_of_run=True),
    "left out, given, found": Form(left_out_of_run=True, weights_given=True, open_outputs=True),
    "left out, passed on": Form(left_out_of_run=True, weights_given=True, passed_on=True),
}


class Builder:
    """A model of one case in one form."""

    def __init__(self, nn, form):
        self.nn, self.form, self.model = nn, form, Model(nn)
        self.inputs = []  # (operand, array or None, its type for the run or None)

    def add(self, value):
        form, model = self.form, self.model
        if isinstance(value, Omitted):
            kind = value.kind
            code = OperandCode[kind.name]
            index = model.operand(code, [0] * value.rank, kind.scale, kind.zero)
            if form.left_out_of_run:
                self.inputs.append((index, None, None))
            else:
                assert self.nn.Model_setOperandValue(model.handle, index, None, 0) == OK
            return index
        if not isinstance(value, Tensor) or (value.constant and not form.weights_given):
            return add_operand(model, value)
        return self.add_input(value)

    def add_input(self, value):
        form, kind = self.form, value.kind
        code, array = OperandCode[kind.name], np.ascontiguousarray(value.array)
        sized = None
        if form.sized_by_run and not value.channel_scales:
            index = self.model.operand(code, [0] * array.ndim, kind.scale, kind.zero)
            sized = operand_type(code, array.shape, kind.scale, kind.zero)
        else:
            index = add_operand(self.model, replace(value, constant=False))
        self.inputs.append((index, array, sized))
        if form.passed_on and kind.name in ADDABLE and array.ndim <= 4:
            zero = add_operand(self.model, Tensor(kind, np.array([kind.zero], kind.dtype), True))
            operand = self.model.operand(code, array.shape, kind.scale, kind.zero)
            self.model.operation(OperationCode.ADD, [index, zero, self.model.scalar(0)], [operand])
            return operand
        return index

    def cut(self, index, value):
        """A batch of none of an operand."""
        rank, kind = value.array.ndim, value.kind
        begins = add_operand(self.model, Tensor(I32, np.zeros(rank, np.int32), True))
        sizes = np.array([0, *[-1] * (rank - 1)], np.int32)
        sizes = add_operand(self.model, Tensor(I32, sizes, True))
        none = self.model.operand(OperandCode[kind.name], [0] * rank, kind.scale, kind.zero)
        self.model.operation(OperationCode.SLICE, [index, begins, sizes], [none])
        return none

    def build(self, operation, arguments, kinds, shapes):
        indices = [self.add(value) for value in arguments]
        if self.form.empty:
            indices[0] = self.cut(indices[0], arguments[0])
        outputs = []
        for i, kind in enumerate(kinds):
            dims = (
                ()
                if shapes is None
                else [0] * len(shapes[i])
                if self.form.open_outputs
                else shapes[i]
            )
            code = OperandCode[kind.name]
            outputs.append(self.model.operand(code, dims, kind.scale, kind.zero))
        self.model.operation(OperationCode[operation], indices, outputs)
        self.model.finish([index for index, *_ in self.inputs], outputs)


def run(nn, form, case, made, shapes=None):
    """Outputs of a case; their shapes are what the engine finds where none are given."""
    arguments, kinds = made
    builder = Builder(nn, form)
    builder.build(case.operation, arguments, kinds, shapes)
    compilation = builder.model.compile([nn.devices()[form.device]])
    execution = nn.new("Execution_create", compilation)
    for i, (_, array, sized) in enumerate(builder.inputs):
        if array is None:
            assert nn.Execution_setInput(execution, i, None, None, 0) == OK
        else:
            assert set_input(nn, execution, i, array, sized) == OK
    sizes = [ROOM if shapes is None else int(np.prod(shapes[i])) for i in range(len(kinds))]
    rooms = [np.full(size, 77, kind.dtype) for size, kind in zip(sizes, kinds, strict=True)]
    for i, room in enumerate(rooms):
        pointer = room.ctypes.data_as(C.c_void_p)
        assert nn.Execution_setOutput(execution, i, None, pointer, room.nbytes) == OK
    assert nn.Execution_compute(execution) == OK
    results = []
    for i, room in enumerate(rooms):
        rank, dims = C.c_uint32(), (C.c_uint32 * 8)()
        assert nn.Execution_getOutputOperandRank(execution, i, C.byref(rank)) == OK
        assert nn.Execution_getOutputOperandDimensions(execution, i, dims) == OK
        shape = tuple(dims[: rank.value])
        assert shapes is None or shape == shapes[i]
        results.append(room[: np.prod(shape, dtype=int)].reshape(shape))
    nn.Execution_free(execution)
    nn.Compilation_free(compilation)
    builder.model.free()
    return results


def widened(made):
    """A case of float16 with float32 in its place."""

    def widen(value):
        if isinstance(value, Half):
            return float(value)
        if getattr(value, "kind", None) is not F16:
            return value
        if isinstance(value, Omitted):
            return Omitted(F32, value.rank)
        return replace(value, kind=F32, array=value.array.astype(np.float32))

    arguments, kinds = made
    return [widen(a) for a in arguments], [F32 if kind is F16 else kind for kind in kinds]


def assert_same(found, wanted, kind, exact):
    """`exact`: by one engine; else as AOSP compares."""
    atol, rtol = 0.0, 0.0
    if kind in (F32, F16):
        atol, rtol = (5 * 2**-10, 5 * 2**-10) if kind is F16 else (1e-5, 5 * 2**-23)
    elif not exact and "QUANT8" in kind.name:
        atol = 1.0
    np.testing.assert_allclose(found.astype(float), wanted.astype(float), rtol=rtol, atol=atol)


def each_case(wanted=lambda case, kind: True):
    """A parametrization over the cases and their kinds that a test wants."""
    parameters = [
        pytest.param(case, KINDS[letter], id=f"{label}-{letter}")
        for label, case in CASES.items()
        for letter in case.kinds
        if wanted(case, KINDS[letter])
    ]
    return pytest.mark.parametrize(("case", "kind"), parameters)


def devices(nn):
    return [name for name in (REFERENCE, FAST) if name in nn.devices()]


def test_every_operation_has_a_case():
    """But those whose vectors are tested as they are: two of level 1, and one of integers alone."""
    elsewhere = {"HASHTABLE_LOOKUP", "LSH_PROJECTION", "QUANTIZED_16BIT_LSTM"}
    names = {code.name for code, op in all_facts().items() if op.since <= 3}
    assert {case.operation for case in CASES.values()} == names - elsewhere


@each_case()
def test_forms_give_the_same(nn, case, kind):
    network = case.make(Maker(kind))
    expected = run(nn, Form(), case, network)
    shapes = [array.shape for array in expected]
    omits = any(isinstance(value, Omitted) for value in network[0])
    for device in devices(nn):
        for form in FORMS.values():
            if form.left_out_of_run and not omits:
                continue
            actual = run(nn, replace(form, device=device), case, network, shapes)
            for i, output_kind in enumerate(network[1]):
                if i not in SCRATCH.get(case.operation, ()):
                    assert_same(actual[i], expected[i], output_kind, device == REFERENCE)


@each_case(lambda case, kind: case.images)
def test_nchw_is_nhwc_transposed(nn, case, kind):
    nhwc, turned = case.make(Maker(kind)), case.make(Maker(kind, nchw=True))
    expected = run(nn, Form(), case, nhwc)
    for device in devices(nn):
        actual = run(nn, Form(device), case, turned)
        if case.operation not in FINDINGS:
            actual[0] = actual[0].transpose(TO_NHWC)
        for one, other, output_kind in zip(actual, expected, nhwc[1], strict=True):
            assert_same(one, other, output_kind, device == REFERENCE)


@each_case(lambda case, kind: kind is F16)
def test_float16_is_float32_rounded(nn, case, kind):
    form = case.make(Maker(kind))
    actual, expected = run(nn, Form(), case, form), run(nn, Form(), case, widened(form))
    for one, other, output_kind in zip(actual, expected, form[1], strict=True):
        assert_same(one, other, output_kind, exact=True)


@each_case(lambda case, kind: case.empty)
def test_batches_of_none(nn, case, kind):
    form = case.make(Maker(kind))
    whole = [array.shape for array in run(nn, Form(), case, form)]
    for device in devices(nn):
        result = run(nn, Form(device, empty=True), case, form)
        for array, shape in zip(result, whole, strict=True):
            if case.operation == "CONCATENATION":
                assert array.shape == (shape[0] // 2, *shape[1:])
            else:
                assert (array.shape[0], array.shape[1:]) == (0, shape[1:])


@pytest.mark.parametrize("rows", [0, 2])
def test_scales_matter_where_there_are_values(nn, rows):
    """Android's reference looks at the scale of a SOFTMAX and of a bias when it computes with
    them, so models of AOSP's that make batches of none may have others."""
    image = Maker(Q8).tensor(2, 3, 3, 1)
    weights = Maker(Q8).weights(1, 1, 1, 1)
    bias = Tensor(Kind("TENSOR_INT32", 0.5), np.zeros(1, np.int32), True)
    window = [2, 1, 1]
    models = [
        ("SOFTMAX", [image, 1.0]),
        ("CONV_2D", [image, weights, bias, *window, 0]),
        ("DEPTHWISE_CONV_2D", [image, weights, bias, *window, 1, 0]),
        ("GROUPED_CONV_2D", [image, weights, bias, *window, 1, 0, False]),
        ("FULLY_CONNECTED", [image, Maker(Q8).weights(1, 3), bias, 0]),
    ]
    for name, arguments in models:
        builder = Builder(nn, Form(empty=rows == 0))
        shape = [(0, 1) if name == "FULLY_CONNECTED" else (0, 3, 3, 1)]
        builder.build(name, arguments, [OTHER_Q8], shape if rows == 0 else None)
        compilation, result = builder.model.try_compile([nn.devices()[REFERENCE]])
        assert (result == OK) == (rows == 0)
        if result == OK:
            execution = prepared(nn, compilation, [image.array], [np.zeros(1, np.uint8)])
            assert nn.Execution_compute(execution) == OK
            nn.Execution_free(execution)
        nn.Compilation_free(compilation)
        builder.model.free()


def box_graph(nn, min_size):
    """Proposals, aligned features, two layers on them, boxes moved, classes, and suppression: a
    model whose every tensor behind the first operation has as many rows as there are proposals."""
    model = Model(nn)

    def constant(*shape, low=0.0, high=0.5):
        rng = np.random.default_rng(7)
        return model.constant(rng.uniform(low, high, shape).astype(np.float32))

    def number(*values):
        return [model.scalar(value) for value in values]

    scores, deltas = model.tensor(1, 2, 2, 1), model.tensor(1, 2, 2, 4)
    anchors = model.constant(np.float32([[0, 1, 4, 3]]))
    size, features = model.tensor(1, 2), model.tensor(1, 4, 4, 1)
    result, rois = model.tensor(0), model.tensor(0, 4)
    batches = model.operand(OperandCode.TENSOR_INT32, (0,))
    limits = number(4.0, 4.0, -1, -1, 0.7, min_size, False)
    model.operation(
        OperationCode.GENERATE_PROPOSALS,
        [scores, deltas, anchors, size, *limits],
        [result, rois, batches],
    )
    aligned = model.tensor(0, 2, 2, 1)
    how = number(2, 2, 4.0, 4.0, 4, 4, False)
    model.operation(OperationCode.ROI_ALIGN, [features, rois, batches, *how], [aligned])
    classes, moves = model.tensor(0, 2), model.tensor(0, 8)
    for width, layer in ((2, classes), (8, moves)):
        arguments = [aligned, constant(width, 4), constant(width), *number(0)]
        model.operation(OperationCode.FULLY_CONNECTED, arguments, [layer])
    moved, shares = model.tensor(0, 8), model.tensor(0, 2)
    model.operation(
        OperationCode.AXIS_ALIGNED_BBOX_TRANSFORM, [rois, moves, batches, size], [moved]
    )
    model.operation(OperationCode.SOFTMAX, [classes, *number(1.0)], [shares])
    results = [model.tensor(0), model.tensor(0, 4)]
    results += [model.operand(OperandCode.TENSOR_INT32, (0,)) for _ in range(2)]
    limits = number(0.1, -1, 0, 0.3, 1.0, 0.3)
    arguments = [shares, moved, batches, *limits]
    model.operation(OperationCode.BOX_WITH_NMS_LIMIT, arguments, results)
    return model.finish([scores, deltas, size, features], [result, *results])


@pytest.mark.parametrize(("min_size", "empty"), [(100.0, True), (1.0, False)])
def test_a_graph_of_boxes(nn, min_size, empty):
    model = box_graph(nn, min_size)
    rng = np.random.default_rng(11)
    arrays = [rng.uniform(0.5, 1, (1, 2, 2, 1)), rng.uniform(-0.1, 0.1, (1, 2, 2, 4))]
    arrays += [np.array([[16.0, 16.0]]), rng.uniform(0, 1, (1, 4, 4, 1))]
    inputs = [array.astype(np.float32) for array in arrays]
    for device in devices(nn):
        compilation = model.compile([nn.devices()[device]])
        dtypes = (np.float32, np.float32, np.float32, np.int32, np.int32)
        outputs = [np.full(64, 77, dtype) for dtype in dtypes]
        execution = prepared(nn, compilation, inputs, outputs)
        assert nn.Execution_compute(execution) == OK
        rows = []
        for i in range(len(outputs)):
            dims = (C.c_uint32 * 2)()
            assert nn.Execution_getOutputOperandDimensions(execution, i, dims) == OK
            rows.append(dims[0])
        assert rows[1:] == [rows[1]] * 4
        assert (rows[0] == 0, rows[1] == 0) == (empty, empty)
        assert (outputs[1][: rows[1]] > 0.1).all() and (outputs[1][rows[1] :] == 77).all()
        nn.Execution_free(execution)
        nn.Compilation_free(compilation)
    model.free()
