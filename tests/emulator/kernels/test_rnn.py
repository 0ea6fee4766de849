"""RNN, its sequences and SVDF: the states that level 4 has as outputs, and refusals."""

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
)

# ---- RNN --------------------------------------------------------------------------------------


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


@pytest.mark.parametrize("merge", [True, False])
@pytest.mark.parametrize("parallel", [True, False])
def test_bidirectional_sequence_rnn_is_torchs(nn, parallel, merge):
    """In parallel, the backward RNN reads a sequence of its own."""
    torch.manual_seed(1)
    modules = torch.nn.RNN(4, 6), torch.nn.RNN(5 if parallel else 4, 6)
    x, h, aux = torch.randn(5, 3, 4), torch.randn(2, 3, 6), torch.randn(5, 3, 5)
    with torch.no_grad():
        forward, first = modules[0](x, h[:1])
        backward, last = modules[1]((aux if parallel else x).flip(0), h[1:])
    expected = [forward.numpy(), backward.flip(0).numpy()]
    cells = []
    for module, state in zip(modules, h, strict=True):
        w, r, b, b2 = (value.detach().numpy() for value in module.parameters())
        cells += [w, r, b + b2, state.numpy()]
    inputs = given(x.numpy(), *cells, aux.numpy() if parallel else None, None, None)
    inputs += [TANH, True, merge]
    rows = [(5, 3, 12)] if merge else [(5, 3, 6)] * 2
    outputs = floats(*rows, (3, 6), (3, 6))
    *out, fw, bw = run(nn, BIDIRECTIONAL_SEQUENCE_RNN, inputs, outputs)
    exact(np.concatenate(out, 2), np.concatenate(expected, 2))
    exact(fw, first[0])
    exact(bw, last[0])
    inputs[14] = not merge
    assert execute(nn, BIDIRECTIONAL_SEQUENCE_RNN, inputs, outputs[: len(rows)]) is None


@pytest.mark.parametrize("act", [NONE, RELU, RELU1, RELU6, SIGMOID])
def test_activations(nn, act):
    rng = np.random.default_rng(act)
    x, w, r, b, h = (rounded(rng, *s) for s in ((3, 9), (5, 9), (5, 5), (5,), (3, 5)))
    _, out = run(nn, RNN, [9 * x, w, r, b, h, act], floats(h.shape, h.shape))
    exact(out, activate(act, 9 * x.astype(np.float64) @ w.T + h @ r.T + b))


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
    shapes = ((3, 4), (5, 4), (5, 5), (5,), (3, 5))
    inputs = [*[rounded(rng, *shape) for shape in shapes], RELU]
    outputs = floats((0, 0), (0, 0))
    assert execute(nn, RNN, inputs, outputs) is not None
    index, value = RNN_REFUSALS[name]
    inputs[index] = value
    assert execute(nn, RNN, inputs, outputs) is None


# ---- SVDF -------------------------------------------------------------------------------------


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
