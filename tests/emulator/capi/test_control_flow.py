"""IF and WHILE through the C API: models as operands, what fits them, and what they compute."""

import ctypes as C

import numpy as np
import pytest

from tests.emulator.nnapi import OK, Model, Op, R, T, relu

DATA = np.array([[1, -2, 3, -4]], np.float32)
TRUTH, NUMBER = (T.TENSOR_BOOL8, (1,)), (T.TENSOR_INT32, (1,))


def unary(nn, code, constant, dims=(1, 4)):
    """x -> x (code) constant."""
    model = Model(nn)
    x, y = model.tensors(2, *dims)
    model.operation(code, [x, model.constant(np.float32([constant])), model.scalar(0)], [y])
    return model.finish([x], [y])


def choice(nn, yes, no, dims=(1, 4)):
    """condition, x -> yes(x) or no(x)."""
    model = Model(nn)
    condition, (x, y) = model.operand(*TRUTH), model.tensors(2, *dims)
    model.operation(Op.IF, [condition, model.model(yes), model.model(no), x], [y])
    return model.finish([condition, x], [y])


def counting_loop(nn, n, step=1):
    """i, x -> while i < 5: i += step, x *= 2; or, the fewest variables, i alone."""
    condition, body, model = (Model(nn) for _ in range(3))

    def variables(model):
        return [model.operand(*NUMBER), *model.tensors(n - 1, 1, 4)]

    state, less = variables(condition), condition.operand(*TRUTH)
    condition.operation(Op.LESS, [state[0], condition.constant(np.int32([5]))], [less])
    condition.finish(state, [less])
    state, after, none = variables(body), variables(body), body.scalar(0)
    added = [body.constant(np.int32([step])), *state[1:]]
    for before, addend, result in zip(state, added, after, strict=True):
        body.operation(Op.ADD, [before, addend, none], [result])
    body.finish(state, after)
    state, after = variables(model), variables(model)
    model.operation(Op.WHILE, [model.model(condition), model.model(body), *state], after)
    return model.finish(state, after).compile()


# ---- results -----------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [1, 2])
@pytest.mark.parametrize("start", [0, 4, 5, 9])
def test_while_loops(nn, start, n):
    inputs, outputs = [np.int32([start]), DATA], [np.zeros(1, np.int32), np.zeros_like(DATA)]
    execution = nn.prepared(counting_loop(nn, n), inputs[:n], outputs[:n])
    assert nn.Execution_compute(execution) == OK
    assert outputs[0] == max(start, 5)
    expected = DATA * 2 ** max(0, 5 - start) if n == 2 else 0
    np.testing.assert_array_equal(outputs[1], expected)


@pytest.mark.parametrize("nanoseconds", [0, 10**7])
def test_endless_loops_time_out(nn, nanoseconds):
    loop = counting_loop(nn, 1, step=0)
    execution = nn.prepared(loop, [np.int32([0])], [np.zeros(1, np.int32)])
    assert nn.Execution_setLoopTimeout(execution, nanoseconds) == OK
    before = nn.emulator_now()
    assert nn.Execution_compute(execution) == R.MISSED_DEADLINE_TRANSIENT
    assert nanoseconds <= nn.emulator_now() - before < 10**9


def test_a_model_may_be_named_twice_and_nest(nn):
    """IF in a branch of IF; one model serves in both."""
    inner = choice(nn, unary(nn, Op.MUL, 2), unary(nn, Op.ADD, 10))
    other = Model(nn)  # the same inputs, without a look at the first
    yes, (x, y) = other.operand(*TRUTH), other.tensors(2, 1, 4)
    other.operation(Op.RELU, [x], [y])
    other.finish([yes, x], [y])

    model = Model(nn)
    outer, yes, (x, y) = model.operand(*TRUTH), model.operand(*TRUTH), model.tensors(2, 1, 4)
    model.operation(Op.IF, [outer, model.model(inner), model.model(other), yes, x], [y])
    compilation = model.finish([outer, yes, x], [y]).compile()
    of_the_inner = (1, 1, DATA * 2), (1, 255, DATA * 2), (1, 0, DATA + 10)
    for first, second, expected in (*of_the_inner, (0, 1, np.maximum(DATA, 0))):
        result = nn.compute(compilation, np.uint8([first]), np.uint8([second]), DATA, dims=(1, 4))
        np.testing.assert_array_equal(result, expected)


# ---- refusals ------------------------------------------------------------------------------------


def test_values_from_models(nn):
    inner, model, broken = unary(nn, Op.MUL, 2), Model(nn), Model(nn)
    index, tensor = model.operand(T.MODEL), model.tensor(1, 4)
    call = nn.Model_setOperandValueFromModel
    assert call(model.handle, index, None) == R.UNEXPECTED_NULL
    assert call(model.handle, index, model.handle) == R.BAD_STATE  # itself: not finished
    assert call(model.handle, 9, inner.handle) == R.BAD_DATA
    assert call(model.handle, tensor, inner.handle) == R.BAD_DATA
    assert call(inner.handle, 0, inner.handle) == R.BAD_STATE  # finished itself
    assert nn.Model_setOperandValue(model.handle, index, (C.c_uint8 * 8)(), 8) == R.BAD_DATA
    assert nn.Model_finish(broken.handle) == R.BAD_DATA
    assert call(model.handle, index, broken.handle) == R.BAD_STATE
    assert call(model.handle, index, inner.handle) == OK


def if_result(nn, *, condition=TRUTH, branch=None, x=(1, 4), y=(1, 4), n=1):
    """What adding an IF of these parts gives."""
    good, model = unary(nn, Op.MUL, 2), Model(nn)
    inputs = [model.operand(*condition), model.model(good), model.model(branch or good)]
    return model.add_operation(Op.IF, inputs + model.tensors(n, *x), [model.tensor(*y)])


def test_what_does_not_fit_an_if(nn):
    assert if_result(nn) == OK
    assert if_result(nn, x=(0, 4), y=(0, 0)) == OK  # unknown fits everything
    assert if_result(nn, x=(), y=()) == OK
    assert if_result(nn, branch=unary(nn, Op.ADD, 1, (0, 4))) == OK
    two = Model(nn)
    a, b, c = two.tensors(3, 1, 4)
    two.operation(Op.RELU, [a], [b])
    two.operation(Op.RELU, [a], [c])
    quantised = relu(nn, (1, 4), (1, 4), T.TENSOR_QUANT8_ASYMM, 0.5, 3)
    others = unary(nn, Op.ADD, 1, (2, 4)), two.finish([a], [b, c]), quantised
    tensors = (T.BOOL, ()), (T.TENSOR_BOOL8, (2,)), (T.TENSOR_BOOL8, (1, 1)), NUMBER
    for parts in (
        *(dict(condition=condition) for condition in tensors),
        *(dict(branch=branch) for branch in others),
        *(dict(x=(1, 5)), dict(x=(4,)), dict(y=(2, 4)), dict(n=0), dict(n=2)),
    ):
        assert if_result(nn, **parts) == R.BAD_DATA, parts


@pytest.mark.parametrize(
    ("scale", "zero_point", "expected"), [(0.5, 3, OK), (0.25, 3, R.BAD_DATA), (0.5, 4, R.BAD_DATA)]
)
def test_quantisation_must_fit(nn, scale, zero_point, expected):
    inner, model = relu(nn, (1, 4), (1, 4), T.TENSOR_QUANT8_ASYMM, 0.5, 3), Model(nn)
    x = model.operand(T.TENSOR_QUANT8_ASYMM, (1, 4), scale, zero_point)
    y = model.operand(T.TENSOR_QUANT8_ASYMM, (1, 4), 0.5, 3)
    inputs = [model.operand(*TRUTH), model.model(inner), model.model(inner), x]
    assert model.add_operation(Op.IF, inputs, [y]) == expected


def test_models_that_are_not_set(nn):
    good, model = unary(nn, Op.MUL, 2), Model(nn)
    yes, (x, y) = model.operand(*TRUTH), model.tensors(2, 1, 4)
    unset, reference = model.operand(T.MODEL), model.model(good)
    for code, inputs, outputs in (
        (Op.IF, [yes, unset, reference, x], [y]),
        (Op.IF, [yes, reference, unset, x], [y]),
        (Op.IF, [yes, reference, x, x], [y]),
        (Op.IF, [yes, reference, reference, x], []),
        (Op.IF, [yes, reference], [y]),
        (Op.WHILE, [unset, reference, x], [y]),
        (Op.WHILE, [reference, unset, x], [y]),
        (Op.WHILE, [reference, reference], [y]),
        (Op.WHILE, [reference, reference, x], []),
        (Op.WHILE, [reference, reference, x], [y]),  # no condition
    ):
        assert model.add_operation(code, inputs, outputs) == R.BAD_DATA, (code, inputs, outputs)
    assert nn.Model_setOperandValue(model.handle, reference, None, 0) == OK  # takes it away again
    assert model.add_operation(Op.IF, [yes, reference, reference, x], [y]) == R.BAD_DATA


def test_what_does_not_fit_a_while(nn):
    condition = Model(nn)
    x, less = condition.tensors(3, 1), condition.operand(*TRUTH)
    condition.operation(Op.LESS, x[:2], [less])
    condition.finish(x, [less])

    def body(dims_in, dims_out, n_outputs=1):
        model = Model(nn)
        ends, outputs = model.tensors(3, *dims_in), model.tensors(n_outputs, *dims_out)
        for output in outputs:
            model.operation(Op.ADD, [*ends[:2], model.scalar(0)], [output])
        return model.finish(ends, outputs)

    def result(inner, y=(1,), n_outputs=1):
        model = Model(nn)
        inputs = [model.model(condition), model.model(inner), *model.tensors(3, 1)]
        return model.add_operation(Op.WHILE, inputs, model.tensors(n_outputs, *y))

    assert result(body((1,), (1,))) == OK
    assert result(body((1,), (1,), 2)) == OK  # one output, one state
    assert result(body((1,), (1,), 2), n_outputs=2) == OK
    assert result(body((1,), (1,), 1), n_outputs=2) == R.BAD_DATA
    assert result(body((1,), (1,), 4)) == R.BAD_DATA
    assert result(body((1,), (1,)), y=(2,)) == R.BAD_DATA
    assert result(body((2,), (2,))) == R.BAD_DATA
    assert result(body((0,), (2,)), y=(0,)) == OK
    assert result(body((1,), (2,)), y=(0,)) == R.BAD_DATA  # what comes out cannot go in
