"""RNN, LSTM, their sequences and SVDF on floats: the states that level 4 has as outputs, and
refusals."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from tests.emulator.kernels.one_operation import execute, of_floats, refused

NONE, RELU, RELU1, TANH = 0, 1, 2, 4
ACTIVATIONS = {0: lambda x: x, 1: F.relu, 2: F.hardtanh, 3: F.relu6, 6: torch.sigmoid}


def exact(actual, expected):
    np.testing.assert_allclose(actual, expected, rtol=5 * 2.0**-23, atol=1e-5)


def weights(module):
    """Those of torch.nn.RNN as NNAPI has them, of one bias."""
    w, r, b, b2 = (value.detach().numpy() for value in module.parameters())
    return [w, r, b + b2]


@pytest.mark.parametrize("time_major", [0, 1])
@pytest.mark.parametrize("kind", ["tanh", "relu"])
def test_unidirectional_sequence_rnn_is_torchs(nn, time_major, kind):
    module = torch.nn.RNN(4, 6, nonlinearity=kind, batch_first=not time_major)
    x, h = torch.randn(5, 3, 4), torch.randn(1, 3 if time_major else 5, 6)
    with torch.no_grad():
        expected, last = module(x, h)
    code = {"tanh": TANH, "relu": RELU}[kind]
    inputs = [x.numpy(), *weights(module), h[0].numpy(), code, time_major]
    outputs = of_floats(expected.shape, last[0].shape)
    out, state = execute(nn, "UNIDIRECTIONAL_SEQUENCE_RNN", inputs, *outputs, constants=True)
    exact(out, expected)
    exact(state, last[0])
    alone = execute(nn, "UNIDIRECTIONAL_SEQUENCE_RNN", inputs, outputs[0])
    np.testing.assert_array_equal(alone, out)


@pytest.mark.parametrize("merge", [True, False])
@pytest.mark.parametrize("parallel", [True, False])
def test_bidirectional_sequence_rnn_is_torchs(nn, parallel, merge):
    """In parallel, the backward RNN reads a sequence of its own."""
    modules = torch.nn.RNN(4, 6), torch.nn.RNN(5 if parallel else 4, 6)
    x, h, aux = torch.randn(5, 3, 4), torch.randn(2, 3, 6), torch.randn(5, 3, 5)
    with torch.no_grad():
        forward, first = modules[0](x, h[:1])
        backward, last = modules[1]((aux if parallel else x).flip(0), h[1:])
    expected = np.concatenate([forward, backward.flip(0)], 2)
    cells = [one for i in (0, 1) for one in (*weights(modules[i]), h[i].numpy())]
    inputs = [x.numpy(), *cells, aux.numpy() if parallel else None, None, None, TANH, True, merge]
    rows = [(5, 3, 12)] if merge else [(5, 3, 6)] * 2
    outputs = of_floats(*rows, (3, 6), (3, 6))
    *out, fw, bw = execute(nn, "BIDIRECTIONAL_SEQUENCE_RNN", inputs, *outputs, constants=True)
    exact(np.concatenate(out, 2), expected)
    exact([fw, bw], [first[0], last[0]])
    inputs[14] = not merge
    assert refused(nn, "BIDIRECTIONAL_SEQUENCE_RNN", inputs, outputs[: len(rows)])


def uniform(*shape):
    return np.random.default_rng(0).uniform(-0.8, 0.8, shape).astype(np.float32)


@pytest.mark.parametrize("act", ACTIVATIONS)
def test_activations(nn, act):
    x, w, r, b, h = 9 * uniform(3, 9), uniform(5, 9), uniform(5, 5), uniform(5), uniform(3, 5)
    _, out = execute(nn, "RNN", [x, w, r, b, h, act], *of_floats(h.shape, h.shape))
    sums = x.astype(np.float64) @ w.T + h @ r.T + b
    exact(out, ACTIVATIONS[act](torch.from_numpy(sums)))


SCALARS, NO_NORM = [TANH, 0.0, 0.0], [None] * 4


def lstm_weights(w, r, b, projection=None):
    """Inputs from input_to_input_weights to projection_bias."""
    return [*w, *r, None, None, None, *b, projection, None]


def lstm_of_torch(module, suffix=""):
    """The weights of one direction of torch.nn.LSTM, whose gates are i, f, g, o."""
    named = {name: value.detach().numpy() for name, value in module.named_parameters()}
    w, r, b, b2 = (
        np.split(named[f"{name}_l0{suffix}"], 4)
        for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
    )
    return lstm_weights(w, r, np.add(b, b2), named.get("weight_hr_l0" + suffix))


@pytest.mark.filterwarnings("ignore:LSTM with projections is not supported with oneDNN")
@pytest.mark.parametrize("proj_size", [0, 3])
def test_unidirectional_sequence_lstm_is_torchs(nn, proj_size):
    module = torch.nn.LSTM(9, 16, batch_first=True, proj_size=proj_size)
    x, h, c = torch.randn(2, 7, 9), torch.randn(1, 2, proj_size or 16), torch.randn(1, 2, 16)
    with torch.no_grad():
        out, states = module(x, (h, c))
    expected = [out, *(state[0] for state in states)]
    inputs = [x.numpy(), *lstm_of_torch(module), h[0].numpy(), c[0].numpy()]
    inputs += [*SCALARS, False, *NO_NORM]
    outputs = of_floats(*(one.shape for one in expected))
    result = execute(nn, "UNIDIRECTIONAL_SEQUENCE_LSTM", inputs, *outputs, constants=True)
    for actual, one in zip(result, expected, strict=True):
        exact(actual, one)


@pytest.mark.parametrize("merge", [True, False])
def test_bidirectional_sequence_lstm_is_torchs(nn, merge):
    module = torch.nn.LSTM(5, 8, bidirectional=True)
    x, h, c = torch.randn(6, 3, 5), torch.randn(2, 3, 8), torch.randn(2, 3, 8)
    with torch.no_grad():
        expected, (last_h, last_c) = module(x, (h, c))
    cells = [*lstm_of_torch(module), *lstm_of_torch(module, "_reverse")]
    states = [v.numpy() for v in (h[0], c[0], h[1], c[1])]
    inputs = [x.numpy(), *cells, *states, *[None] * 9, *SCALARS, merge, True, *NO_NORM, *NO_NORM]
    outputs = of_floats(*([(6, 3, 16)] if merge else [(6, 3, 8)] * 2), *[(3, 8)] * 4)
    result = execute(nn, "BIDIRECTIONAL_SEQUENCE_LSTM", inputs, *outputs, constants=True)
    exact(np.concatenate(result[:-4], 2), expected)
    exact(result[-4:], [last_h[0], last_c[0], last_h[1], last_c[1]])


# ---- refusals ------------------------------------------------------------------------------------


def lstm(inputs, units):
    return lstm_weights(uniform(4, units, inputs), uniform(4, units, units), uniform(4, units))


STATES = [uniform(2, 6)] * 4
X, STATE = uniform(2, 3), uniform(2, 4)
GOOD = {  # inputs, and dimensions of outputs
    "RNN": (
        [uniform(3, 4), uniform(5, 4), uniform(5, 5), uniform(5), uniform(3, 5), RELU],
        [(0, 0)] * 2,
    ),
    "SVDF": ([X, uniform(4, 3), uniform(4, 5), uniform(2), uniform(2, 20), 2, NONE], [(0, 0)] * 2),
    "LSTM": ([X, *lstm(3, 4), STATE, STATE, *SCALARS, *NO_NORM], [(0, 0)] * 4),
    "UNIDIRECTIONAL_SEQUENCE_LSTM": (
        [uniform(5, 3, 4), *lstm(4, 6), *[uniform(3, 6)] * 2, *SCALARS, True, *NO_NORM],
        [(5, 3, 6)],
    ),
    "BIDIRECTIONAL_SEQUENCE_LSTM": (
        [
            *(uniform(3, 2, 4), *lstm(4, 6), *lstm(4, 6), *STATES, uniform(3, 2, 4)),
            *(*uniform(8, 6, 4), *SCALARS, False, True, *NO_NORM, *NO_NORM),
        ],
        [(0, 0, 0)] * 2,
    ),
}
BIDIRECTIONAL = "BIDIRECTIONAL_SEQUENCE_LSTM"
REFUSALS = {  # inputs that are others: a number, a tensor of a shape, or None, left out
    ("RNN", "weights too narrow"): {1: (5, 3)},
    ("RNN", "recurrent weights that are not square"): {2: (5, 4)},
    ("RNN", "a short bias"): {3: (4,)},
    ("RNN", "a state of another batch"): {4: (2, 5)},
    ("RNN", "a sign bit"): {5: 5},
    ("RNN", "an unknown activation"): {5: 32},
    ("SVDF", "a rank that does not divide the filters"): {5: 3},
    ("SVDF", "rank 0"): {5: 0},
    ("SVDF", "a negative rank"): {5: -2},
    ("SVDF", "features of another width"): {1: (4, 2)},
    ("SVDF", "times of other filters"): {2: (3, 5)},
    ("SVDF", "a long bias"): {3: (4,)},
    ("SVDF", "a short state"): {4: (2, 19)},
    ("SVDF", "an unknown activation"): {6: 7},
    ("LSTM", "input too wide"): {0: (2, 4)},
    ("LSTM", "input of rank 3"): {0: (2, 3, 1)},
    ("LSTM", "weights of the input gate alone"): {5: None},
    ("LSTM", "forget weights with fewer units"): {2: (3, 3)},
    ("LSTM", "output weights too narrow"): {4: (4, 2)},
    ("LSTM", "recurrent weights too wide"): {6: (4, 5)},
    ("LSTM", "recurrent output weights decide the outputs"): {8: (4, 3)},
    ("LSTM", "a lone peephole"): {10: (4,)},
    ("LSTM", "no bias of the input gate"): {12: None},
    ("LSTM", "a short bias"): {14: (3,)},
    ("LSTM", "a projection bias alone"): {17: (4,)},
    ("LSTM", "a projection to another width"): {16: (3, 4)},
    ("LSTM", "a state of another batch"): {18: (1, 4)},
    ("LSTM", "a cell state that is too wide"): {19: (2, 5)},
    ("LSTM", "relu1"): {20: RELU1},
    ("LSTM", "an unknown activation"): {20: 99},
    ("LSTM", "a negative activation"): {20: -1},
    ("LSTM", "a negative clip"): {21: -1.0},
    ("LSTM", "a clip that is not a number"): {22: float("nan")},
    ("LSTM", "one norm"): {24: (4,)},
    ("UNIDIRECTIONAL_SEQUENCE_LSTM", "states of another batch"): {23: False},
    (BIDIRECTIONAL, "aux input of other steps"): {39: (2, 2, 4)},
    (BIDIRECTIONAL, "aux input of rank 2"): {39: (3, 2)},
    (BIDIRECTIONAL, "no aux input"): {39: None},
    (BIDIRECTIONAL, "no aux weights of one direction"): {44 + i: None for i in range(4)},
    (BIDIRECTIONAL, "no aux weights of a gate"): {42: None},
    (BIDIRECTIONAL, "an aux weight of another width"): {41: (6, 3)},
    (BIDIRECTIONAL, "a state of another width"): {37: (2, 3)},
    (BIDIRECTIONAL, "merged outputs, yet two"): {51: True},
}


@pytest.mark.parametrize(("name", "what"), REFUSALS)
def test_refused(nn, name, what):
    inputs, outputs = [*GOOD[name][0]], of_floats(*GOOD[name][1])
    for index, value in REFUSALS[name, what].items():
        inputs[index] = np.zeros(value, np.float32) if isinstance(value, tuple) else value
    for constants in (True, False):
        execute(nn, name, GOOD[name][0], *outputs, constants=constants)
        assert refused(nn, name, inputs, outputs, constants=constants)


def test_unidirectional_sequence_lstm_has_one_output_or_three(nn):
    inputs, _ = GOOD["UNIDIRECTIONAL_SEQUENCE_LSTM"]
    outputs = of_floats((5, 3, 6), (3, 6))
    assert refused(nn, "UNIDIRECTIONAL_SEQUENCE_LSTM", inputs, outputs)
