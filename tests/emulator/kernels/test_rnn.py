"""RNN, its sequences and SVDF: the states that level 4 has as outputs, and refusals."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from tests.emulator.kernels.one_operation import exact, execute, of_floats, refused, uniform

NONE, RELU, TANH = 0, 1, 4
ACTIVATIONS = {0: lambda x: x, 1: F.relu, 2: F.hardtanh, 3: F.relu6, 6: torch.sigmoid}


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


@pytest.mark.parametrize("act", ACTIVATIONS)
def test_activations(nn, act):
    rng = np.random.default_rng(act)
    x, w, r, b, h = (uniform(rng, *s) for s in ((3, 9), (5, 9), (5, 5), (5,), (3, 5)))
    _, out = execute(nn, "RNN", [9 * x, w, r, b, h, act], *of_floats(h.shape, h.shape))
    sums = 9 * x.astype(np.float64) @ w.T + h @ r.T + b
    exact(out, ACTIVATIONS[act](torch.from_numpy(sums)))


GOOD = {  # shapes of tensors, then numbers
    "RNN": ([(3, 4), (5, 4), (5, 5), (5,), (3, 5)], [RELU]),
    "SVDF": ([(2, 3), (4, 3), (4, 5), (2,), (2, 20)], [2, NONE]),
}
REFUSALS = {  # the input that is another: a number, or a tensor of a shape
    ("RNN", "weights too narrow"): (1, (5, 3)),
    ("RNN", "recurrent weights that are not square"): (2, (5, 4)),
    ("RNN", "a short bias"): (3, (4,)),
    ("RNN", "a state of another batch"): (4, (2, 5)),
    ("RNN", "a sign bit"): (5, 5),
    ("RNN", "an unknown activation"): (5, 32),
    ("SVDF", "a rank that does not divide the filters"): (5, 3),
    ("SVDF", "rank 0"): (5, 0),
    ("SVDF", "a negative rank"): (5, -2),
    ("SVDF", "features of another width"): (1, (4, 2)),
    ("SVDF", "times of other filters"): (2, (3, 5)),
    ("SVDF", "a long bias"): (3, (4,)),
    ("SVDF", "a short state"): (4, (2, 19)),
    ("SVDF", "an unknown activation"): (6, 7),
}


@pytest.mark.parametrize(("name", "what"), REFUSALS, ids=lambda text: text)
def test_refused(nn, name, what):
    shapes, numbers = GOOD[name]
    inputs, outputs = [*map(np.float32, map(np.zeros, shapes)), *numbers], of_floats((0, 0), (0, 0))
    execute(nn, name, inputs, *outputs, constants=True)
    index, value = REFUSALS[name, what]
    inputs[index] = value if isinstance(value, int) else np.zeros(value, np.float32)
    assert refused(nn, name, inputs, outputs)
