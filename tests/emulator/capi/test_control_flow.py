"""IF and WHILE through the C API: models as operands, what fits them, and what they compute."""

import ctypes as C

import numpy as np
import pytest

from tests.emulator.nnapi import (
    ADD,
    BOOL,
    IF,
    LESS,
    MODEL,
    MUL,
    OK,
    RELU,
    TENSOR_BOOL8,
    TENSOR_FLOAT32,
    TENSOR_INT32,
    TENSOR_QUANT8_ASYMM,
    WHILE,
    Model,
    Result,
    operand_type,
    prepared,
    set_input,
    set_output,
)

R = Result
DATA = np.array([[1, -2, 3, -4]], np.float32)


def unary(nn, code, constant, dims=(1, 4)):
    """x -> x (code) constant."""
    model = Model(nn)
    x, y = model.tensor(*dims), model.tensor(*dims)
    model.operation(code, [x, model.constant(np.float32([constant])), model.scalar(0)], [y])
    return model.finish([x], [y])


def referring(model, value):
    """An operand whose value is another model."""
    index = model.operand(MODEL)
    assert model.nn.Model_setOperandValueFromModel(model.handle, index, value.handle) == OK
    return index


class Frees:
    """Frees in the order of making, backwards."""

    def __init__(self):
        self.models = []

    def __call__(self, model):
        self.models.append(model)
        return model

    def all(self):
        for model in reversed(self.models):
            model.free()


@pytest.fixture
def frees():
    frees = Frees()
    yield frees
    frees.all()


def run(nn, compilation, inputs, outputs):
    execution = prepared(nn, compilation, inputs, outputs)
    result = nn.Execution_compute(execution)
    nn.Execution_free(execution)
    return result


# ---- results -----------------------------------------------------------------------------------


@pytest.mark.parametrize("device", ["nnapi-fast", "nnapi-reference"])
def test_if_takes_a_branch(nn, frees, device):
    if device not in nn.devices():
        pytest.skip("a build without XNNPACK")
    twice, plus = frees(unary(nn, MUL, 2)), frees(unary(nn, ADD, 10))
    model = frees(Model(nn))
    condition = model.operand(TENSOR_BOOL8, (1,))
    x, y = model.tensor(1, 4), model.tensor(1, 4)
    model.operation(IF, [condition, referring(model, twice), referring(model, plus), x], [y])
    compilation = model.finish([condition, x], [y]).compile([nn.devices()[device]])
    for taken, expected in ((1, DATA * 2), (0, DATA + 10), (255, DATA * 2)):
        result = np.zeros((1, 4), np.float32)
        assert run(nn, compilation, [np.uint8([taken]), DATA], [result]) == OK
        np.testing.assert_array_equal(result, expected)
    nn.Compilation_free(compilation)


def counting_loop(nn, frees, step=1):
    """i, x, end -> while i < end: i += step, x *= 2; gives i and x."""
    condition = frees(Model(nn))
    i, x, end = condition.operand(TENSOR_INT32, (1,)), condition.tensor(1, 4), None
    end = condition.operand(TENSOR_INT32, (1,))
    less = condition.operand(TENSOR_BOOL8, (1,))
    condition.operation(LESS, [i, end], [less])
    condition.finish([i, x, end], [less])

    body = frees(Model(nn))
    i, x, end = body.operand(TENSOR_INT32, (1,)), body.tensor(1, 4), None
    end = body.operand(TENSOR_INT32, (1,))
    next_i, next_x = body.operand(TENSOR_INT32, (1,)), body.tensor(1, 4)
    none = body.scalar(0)
    body.operation(ADD, [i, body.constant(np.int32([step])), none], [next_i])
    body.operation(ADD, [x, x, none], [next_x])
    body.finish([i, x, end], [next_i, next_x])

    model = frees(Model(nn))
    i, x, end = model.operand(TENSOR_INT32, (1,)), model.tensor(1, 4), None
    end = model.operand(TENSOR_INT32, (1,))
    last_i, last_x = model.operand(TENSOR_INT32, (1,)), model.tensor(1, 4)
    inner = [referring(model, condition), referring(model, body)]
    model.operation(WHILE, [*inner, i, x, end], [last_i, last_x])
    return model.finish([i, x, end], [last_i, last_x])


def test_while_loops(nn, frees):
    compilation = counting_loop(nn, frees).compile()
    for start, end in ((0, 5), (3, 4), (4, 4), (9, 2)):
        rounds = max(0, end - start)
        last, result = np.zeros(1, np.int32), np.zeros((1, 4), np.float32)
        inputs = [np.int32([start]), DATA, np.int32([end])]
        assert run(nn, compilation, inputs, [last, result]) == OK
        assert last[0] == max(start, end)
        np.testing.assert_array_equal(result, DATA * 2**rounds)
    nn.Compilation_free(compilation)


def test_a_loop_of_one_variable(nn, frees):
    """The fewest inputs: x -> while x < 100: x += x."""
    condition, body = frees(Model(nn)), frees(Model(nn))
    x, less = condition.tensor(1), condition.operand(TENSOR_BOOL8, (1,))
    condition.operation(LESS, [x, condition.constant(np.float32([100]))], [less])
    condition.finish([x], [less])
    x, y = body.tensor(1), body.tensor(1)
    body.operation(ADD, [x, x, body.scalar(0)], [y])
    body.finish([x], [y])
    model = frees(Model(nn))
    x, y = model.tensor(1), model.tensor(1)
    model.operation(WHILE, [referring(model, condition), referring(model, body), x], [y])
    compilation = model.finish([x], [y]).compile()
    for start, expected in ((3, 192), (100, 100)):
        result = np.zeros(1, np.float32)
        assert run(nn, compilation, [np.float32([start])], [result]) == OK
        assert result[0] == expected
    nn.Compilation_free(compilation)


def test_endless_loops_time_out(nn, frees):
    compilation = counting_loop(nn, frees, step=0).compile()
    inputs = [np.int32([0]), np.zeros((1, 4), np.float32), np.int32([1])]
    for nanoseconds in (0, 10**7):
        last, result = np.zeros(1, np.int32), np.zeros((1, 4), np.float32)
        execution = prepared(nn, compilation, inputs, [last, result])
        assert nn.Execution_setLoopTimeout(execution, nanoseconds) == OK
        before = nn.emulator_now()
        assert nn.Execution_compute(execution) == R.MISSED_DEADLINE_TRANSIENT
        assert nanoseconds <= nn.emulator_now() - before < 10**9
        nn.Execution_free(execution)
    nn.Compilation_free(compilation)
    assert nn.Execution_setLoopTimeout(None, 1) == R.UNEXPECTED_NULL


def test_a_model_may_be_named_twice_and_nest(nn, frees):
    """IF in a branch of IF; one model serves in both."""
    twice, plus = frees(unary(nn, MUL, 2)), frees(unary(nn, ADD, 10))
    inner = frees(Model(nn))
    x, y = inner.tensor(1, 4), inner.tensor(1, 4)
    yes = inner.operand(TENSOR_BOOL8, (1,))
    branches = [referring(inner, twice), referring(inner, plus)]
    inner.operation(IF, [yes, *branches, x], [y])
    inner.finish([yes, x], [y])

    other = frees(Model(nn))  # the same inputs, without a look at the first
    yes, x, y = other.operand(TENSOR_BOOL8, (1,)), other.tensor(1, 4), other.tensor(1, 4)
    other.operation(RELU, [x], [y])
    other.finish([yes, x], [y])

    model = frees(Model(nn))
    outer, yes = model.operand(TENSOR_BOOL8, (1,)), model.operand(TENSOR_BOOL8, (1,))
    x, y = model.tensor(1, 4), model.tensor(1, 4)
    branches = [referring(model, inner), referring(model, other)]
    model.operation(IF, [outer, *branches, yes, x], [y])
    compilation = model.finish([outer, yes, x], [y]).compile()
    for first, second, expected in (
        (1, 1, DATA * 2),
        (1, 0, DATA + 10),
        (0, 1, np.maximum(DATA, 0)),
    ):
        result = np.zeros((1, 4), np.float32)
        inputs = [np.uint8([first]), np.uint8([second]), DATA]
        assert run(nn, compilation, inputs, [result]) == OK
        np.testing.assert_array_equal(result, expected)
    nn.Compilation_free(compilation)


def test_branches_of_unknown_shape(nn, frees):
    """Branches whose outputs differ in shape: the run tells which it was."""
    first, second = frees(unary(nn, MUL, 2, (0, 4))), frees(unary(nn, ADD, 10, (0, 4)))
    model = frees(Model(nn))
    condition = model.operand(TENSOR_BOOL8, (1,))
    x, y = model.tensor(0, 4), model.tensor(0, 4)
    model.operation(IF, [condition, referring(model, first), referring(model, second), x], [y])
    compilation = model.finish([condition, x], [y]).compile()
    for rows in (1, 3):
        data = np.repeat(DATA, rows, 0)
        execution = nn.new("Execution_create", compilation)
        result, dims = np.zeros((3, 4), np.float32), (C.c_uint32 * 2)()
        assert set_input(nn, execution, 0, np.uint8([0])) == OK
        shape = operand_type(TENSOR_FLOAT32, (rows, 4))
        assert set_input(nn, execution, 1, data, shape) == OK
        assert set_output(nn, execution, 0, result) == OK
        assert nn.Execution_compute(execution) == OK
        assert nn.Execution_getOutputOperandDimensions(execution, 0, dims) == OK
        assert list(dims) == [rows, 4]
        np.testing.assert_array_equal(result[:rows], data + 10)
        nn.Execution_free(execution)
    nn.Compilation_free(compilation)


# ---- refusals ------------------------------------------------------------------------------------


def test_values_from_models(nn, frees):
    inner, model = frees(unary(nn, MUL, 2)), frees(Model(nn))
    index, tensor = model.operand(MODEL), model.tensor(1, 4)
    call = nn.Model_setOperandValueFromModel
    assert call(None, index, inner.handle) == R.UNEXPECTED_NULL
    assert call(model.handle, index, None) == R.UNEXPECTED_NULL
    assert call(model.handle, index, model.handle) == R.BAD_STATE  # itself: not finished
    assert call(model.handle, 9, inner.handle) == R.BAD_DATA
    assert call(model.handle, tensor, inner.handle) == R.BAD_DATA
    assert call(inner.handle, 0, inner.handle) == R.BAD_STATE  # finished itself
    room = (C.c_uint8 * 8)()
    assert nn.Model_setOperandValue(model.handle, index, room, 8) == R.BAD_DATA
    broken = frees(Model(nn))
    assert nn.Model_finish(broken.handle) == R.BAD_DATA
    assert call(model.handle, index, broken.handle) == R.BAD_STATE
    assert call(model.handle, index, inner.handle) == OK


def if_result(nn, frees, *, condition=(TENSOR_BOOL8, (1,)), branch=None, x=(1, 4), y=(1, 4), n=1):
    """What adding an IF of these parts gives."""
    good = frees(unary(nn, MUL, 2))
    model = frees(Model(nn))
    inputs = [model.operand(*condition), referring(model, good)]
    inputs.append(referring(model, branch or good))
    inputs += [model.tensor(*x) for _ in range(n)]
    return model.add_operation(IF, inputs, [model.tensor(*y)])


def test_what_does_not_fit_an_if(nn, frees):
    assert if_result(nn, frees) == OK
    assert if_result(nn, frees, x=(0, 4), y=(0, 0)) == OK  # unknown fits everything
    assert if_result(nn, frees, x=(), y=()) == OK
    assert if_result(nn, frees, branch=frees(unary(nn, ADD, 1, (0, 4)))) == OK
    assert if_result(nn, frees, condition=(BOOL, ())) == R.BAD_DATA
    assert if_result(nn, frees, condition=(TENSOR_BOOL8, (2,))) == R.BAD_DATA
    assert if_result(nn, frees, condition=(TENSOR_BOOL8, (1, 1))) == R.BAD_DATA
    assert if_result(nn, frees, condition=(TENSOR_INT32, (1,))) == R.BAD_DATA
    assert if_result(nn, frees, x=(1, 5)) == R.BAD_DATA
    assert if_result(nn, frees, x=(4,)) == R.BAD_DATA
    assert if_result(nn, frees, y=(2, 4)) == R.BAD_DATA
    assert if_result(nn, frees, n=0) == R.BAD_DATA
    assert if_result(nn, frees, n=2) == R.BAD_DATA
    assert if_result(nn, frees, branch=frees(unary(nn, ADD, 1, (2, 4)))) == R.BAD_DATA
    two = frees(Model(nn))
    a, b, c = (two.tensor(1, 4) for _ in range(3))
    two.operation(RELU, [a], [b])
    two.operation(RELU, [a], [c])
    assert if_result(nn, frees, branch=two.finish([a], [b, c])) == R.BAD_DATA
    quantised = frees(Model(nn))
    a, b = (quantised.operand(TENSOR_QUANT8_ASYMM, (1, 4), 0.5, 3) for _ in range(2))
    quantised.operation(RELU, [a], [b])
    assert if_result(nn, frees, branch=quantised.finish([a], [b])) == R.BAD_DATA


def test_quantisation_must_fit(nn, frees):
    inner = frees(Model(nn))
    a, b = (inner.operand(TENSOR_QUANT8_ASYMM, (1, 4), 0.5, 3) for _ in range(2))
    inner.operation(RELU, [a], [b])
    inner.finish([a], [b])
    for scale, zero_point, expected in ((0.5, 3, OK), (0.25, 3, R.BAD_DATA), (0.5, 4, R.BAD_DATA)):
        model = frees(Model(nn))
        yes = model.operand(TENSOR_BOOL8, (1,))
        x = model.operand(TENSOR_QUANT8_ASYMM, (1, 4), scale, zero_point)
        y = model.operand(TENSOR_QUANT8_ASYMM, (1, 4), 0.5, 3)
        branches = [referring(model, inner), referring(model, inner)]
        assert model.add_operation(IF, [yes, *branches, x], [y]) == expected


def test_models_that_are_not_set(nn, frees):
    good, model = frees(unary(nn, MUL, 2)), frees(Model(nn))
    yes, x, y = model.operand(TENSOR_BOOL8, (1,)), model.tensor(1, 4), model.tensor(1, 4)
    unset, reference = model.operand(MODEL), referring(model, good)
    assert model.add_operation(IF, [yes, unset, reference, x], [y]) == R.BAD_DATA
    assert model.add_operation(IF, [yes, reference, unset, x], [y]) == R.BAD_DATA
    assert model.add_operation(IF, [yes, reference, x, x], [y]) == R.BAD_DATA
    assert model.add_operation(IF, [yes, reference, reference, x], []) == R.BAD_DATA
    assert model.add_operation(IF, [yes, reference], [y]) == R.BAD_DATA
    assert model.add_operation(WHILE, [unset, reference, x], [y]) == R.BAD_DATA
    assert model.add_operation(WHILE, [reference, unset, x], [y]) == R.BAD_DATA
    assert model.add_operation(WHILE, [reference, reference], [y]) == R.BAD_DATA
    assert model.add_operation(WHILE, [reference, reference, x], []) == R.BAD_DATA
    assert model.add_operation(WHILE, [reference, reference, x], [y]) == R.BAD_DATA  # no condition
    assert nn.Model_setOperandValue(model.handle, reference, None, 0) == OK  # takes it away again
    assert model.add_operation(IF, [yes, reference, reference, x], [y]) == R.BAD_DATA


def test_what_does_not_fit_a_while(nn, frees):
    condition = frees(Model(nn))
    x, y, z = (condition.tensor(1) for _ in range(3))
    less = condition.operand(TENSOR_BOOL8, (1,))
    condition.operation(LESS, [x, y], [less])
    condition.finish([x, y, z], [less])

    def body(dims_in, dims_out, n_outputs=1):
        model = frees(Model(nn))
        ends = [model.tensor(*dims_in) for _ in range(3)]
        outputs = [model.tensor(*dims_out) for _ in range(n_outputs)]
        for output in outputs:
            model.operation(ADD, [*ends[:2], model.scalar(0)], [output])
        return model.finish(ends, outputs)

    def result(inner, y=(1,), n_outputs=1):
        model = frees(Model(nn))
        named = [referring(model, condition), referring(model, inner)]
        x = [model.tensor(1) for _ in range(3)]
        outputs = [model.tensor(*y) for _ in range(n_outputs)]
        return model.add_operation(WHILE, [*named, *x], outputs)

    assert result(body((1,), (1,))) == OK
    assert result(body((1,), (1,), 2)) == OK  # one output, one state
    assert result(body((1,), (1,), 2), n_outputs=2) == OK
    assert result(body((1,), (1,), 1), n_outputs=2) == R.BAD_DATA
    assert result(body((1,), (1,), 4)) == R.BAD_DATA
    assert result(body((1,), (1,)), y=(2,)) == R.BAD_DATA
    assert result(body((2,), (2,))) == R.BAD_DATA
    assert result(body((0,), (2,)), y=(0,)) == OK
    assert result(body((1,), (2,)), y=(0,)) == R.BAD_DATA  # what comes out cannot go in
