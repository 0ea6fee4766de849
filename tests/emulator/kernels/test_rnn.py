"""RNN, its sequences and SVDF through the C API: against torch, or formulas in float64."""

from dataclasses import dataclass

import numpy as np
import pytest
import torch

from tests.emulator.kernels.recurrent import (
    BIDIRECTIONAL_SEQUENCE_RNN,
    NONE,
    RELU,
    RELU1,
    RELU6,
    RNN,
    SIGMOID,
    SVDF,
    TANH,
    UNIDIRECTIONAL_SEQUENCE_RNN,
    activate,
    exact,
    execute,
    floats,
    given,
    rounded,
    run,
    swap,
)

# ---- RNN --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Simple:
    """Weights of one RNN."""

    w: np.ndarray
    r: np.ndarray
    b: np.ndarray
    aux: np.ndarray | None = None

    def sequence(self, x, h, act, a=None, backward=False):
        steps = range(len(x))
        result = np.zeros((*x.shape[:2], len(self.b)))
        for t in reversed(steps) if backward else steps:
            z = x[t] @ self.w.T.astype(np.float64) + h @ self.r.T + self.b
            h = result[t] = activate(act, z if a is None else z + a[t] @ self.aux.T)
        return result, h


def some_rnn(rng, inputs, units, aux=0):
    return Simple(
        rounded(rng, units, inputs),
        rounded(rng, units, units),
        rounded(rng, units),
        rounded(rng, units, aux) if aux else None,
    )


@pytest.mark.parametrize("act", [NONE, RELU, RELU1, RELU6, TANH, SIGMOID])
@pytest.mark.parametrize("constants", [True, False])
def test_rnn(nn, act, constants):
    rng = np.random.default_rng(act)
    cell = some_rnn(rng, 9, 5)
    x, h = 4 * rounded(rng, 3, 9), rounded(rng, 3, 5)
    outputs = floats(h.shape, h.shape)
    state, out = run(nn, RNN, [x, cell.w, cell.r, cell.b, h, act], outputs, constants)
    _, expected = cell.sequence(x[None], h, act)
    exact(out, expected)
    exact(state, expected)


@pytest.mark.parametrize("time_major", [0, 1])
@pytest.mark.parametrize("kind", ["tanh", "relu"])
def test_unidirectional_sequence_rnn_is_torchs(nn, time_major, kind):
    torch.manual_seed(0)
    module = torch.nn.RNN(4, 6, nonlinearity=kind, batch_first=not time_major)
    x, h = torch.randn(5, 3, 4), torch.randn(1, 3 if time_major else 5, 6)
    with torch.no_grad():
        expected, wanted_h = module(x, h)
    w, r, b, b2 = (value.detach().numpy() for value in module.parameters())
    code = {"tanh": TANH, "relu": RELU}[kind]
    inputs = [x.numpy(), w, r, b + b2, h[0].numpy(), code, time_major]
    outputs = floats(expected.shape, wanted_h[0].shape)
    out, state = run(nn, UNIDIRECTIONAL_SEQUENCE_RNN, inputs, outputs)
    exact(out, expected)
    exact(state, wanted_h[0])
    (alone,) = run(nn, UNIDIRECTIONAL_SEQUENCE_RNN, inputs, outputs[:1], constants=False)
    np.testing.assert_array_equal(alone, out)


@pytest.mark.parametrize("linking", ["none", "parallel", "crossed"])
@pytest.mark.parametrize("merge", [True, False])
@pytest.mark.parametrize("time_major", [True, False])
@pytest.mark.parametrize("act", [NONE, RELU, TANH])
def test_bidirectional_sequence_rnn(nn, linking, merge, time_major, act):
    rng = np.random.default_rng(act)
    width = {"none": 0, "parallel": 6, "crossed": 5}[linking]
    extra = width if linking == "crossed" else 0
    forward = some_rnn(rng, 4, 3, extra)
    backward = some_rnn(rng, width if linking == "parallel" else 4, 2, extra)
    x, states = rounded(rng, 3, 2, 4), [rounded(rng, 2, 3), rounded(rng, 2, 2)]
    aux = rounded(rng, 3, 2, width) if width else None
    crossed = aux if linking == "crossed" else None
    wanted_fw, fw = forward.sequence(x, states[0], act, crossed)
    source = aux if linking == "parallel" else x
    wanted_bw, bw = backward.sequence(source, states[1], act, crossed, backward=True)
    merged = np.concatenate([wanted_fw, wanted_bw], 2)
    rows = [merged] if merge else [wanted_fw, wanted_bw]
    if not time_major:
        x, rows = swap(x), [swap(v) for v in rows]
        aux = None if aux is None else swap(aux)
    inputs = given(
        *(x, forward.w, forward.r, forward.b, states[0]),
        *(backward.w, backward.r, backward.b, states[1]),
        *(aux, forward.aux, backward.aux, act, time_major, merge),
    )
    outputs = floats(*[v.shape for v in rows], *[v.shape for v in states])
    code = BIDIRECTIONAL_SEQUENCE_RNN
    for actual, expected in zip(run(nn, code, inputs, outputs), [*rows, fw, bw], strict=True):
        exact(actual, expected)
    short = outputs[: len(rows)]
    for actual, expected in zip(run(nn, code, inputs, short, constants=False), rows, strict=True):
        exact(actual, expected)
    inputs[14] = not merge
    assert execute(nn, code, inputs, short) is None


RNN_REFUSALS = {
    "weights too narrow": (1, np.zeros((5, 3), np.float32)),
    "recurrent weights that are not square": (2, np.zeros((5, 4), np.float32)),
    "a short bias": (3, np.zeros(4, np.float32)),
    "a state of another batch": (4, np.zeros((2, 5), np.float32)),
    "a sign bit": (5, 5),
    "an unknown activation": (5, 32),
}


@pytest.mark.parametrize("name", RNN_REFUSALS)
def test_rnn_refuses(nn, name):
    rng = np.random.default_rng(0)
    cell = some_rnn(rng, 4, 5)
    inputs = [rounded(rng, 3, 4), cell.w, cell.r, cell.b, rounded(rng, 3, 5), RELU]
    outputs = floats((0, 0), (0, 0))
    assert execute(nn, RNN, inputs, outputs) is not None
    index, value = RNN_REFUSALS[name]
    inputs[index] = value
    assert execute(nn, RNN, inputs, outputs) is None


# ---- SVDF -------------------------------------------------------------------------------------


@pytest.mark.parametrize("rank", [1, 2, 3])
@pytest.mark.parametrize("memory", [1, 2, 10])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("act", [NONE, RELU, RELU6])
def test_svdf(nn, rank, memory, bias, act):
    """Steps in a row, against a convolution over time of the features of all steps."""
    rng = np.random.default_rng(rank)
    units, inputs, batch, steps = 4, 3, 2, 5
    filters = units * rank
    features, times = rounded(rng, filters, inputs), rounded(rng, filters, memory)
    offset = rounded(rng, units) if bias else None
    x = 3 * rounded(rng, steps, batch, inputs)
    state = np.zeros((batch, filters * memory), np.float32)
    past = np.zeros((batch, filters, memory + steps))
    for t in range(steps):
        arguments = given(x[t], features, times, offset, state, rank, act)
        state, out = run(nn, SVDF, arguments, floats(state.shape, (batch, units)), bool(t % 2))
        past[:, :, memory + t] = x[t] @ features.T.astype(np.float64)
        window = past[:, :, t + 1 : t + 1 + memory]
        sums = (window * times).sum(2).reshape(batch, units, rank).sum(2)
        exact(out, activate(act, sums + (0 if offset is None else offset)))
        places = state.reshape(batch, filters, memory)
        exact(places[:, :, :-1], window[:, :, 1:])
        assert (places[:, :, -1] == 0).all()


SVDF_REFUSALS = {
    "a rank that does not divide the filters": (5, 3),
    "rank 0": (5, 0),
    "a negative rank": (5, -2),
    "features of another width": (1, np.zeros((4, 2), np.float32)),
    "times of other filters": (2, np.zeros((3, 5), np.float32)),
    "a long bias": (3, np.zeros(4, np.float32)),
    "a short state": (4, np.zeros((2, 19), np.float32)),
    "an unknown activation": (6, 7),
}


@pytest.mark.parametrize("name", SVDF_REFUSALS)
def test_svdf_refuses(nn, name):
    rng = np.random.default_rng(0)
    inputs = [rounded(rng, 2, 3), rounded(rng, 4, 3), rounded(rng, 4, 5), rounded(rng, 2)]
    inputs += [rounded(rng, 2, 20), 2, NONE]
    outputs = floats((0, 0), (0, 0))
    assert execute(nn, SVDF, inputs, outputs) is not None
    index, value = SVDF_REFUSALS[name]
    inputs[index] = value
    assert execute(nn, SVDF, inputs, outputs) is None
