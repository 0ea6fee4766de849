"""LSTM and its sequences on floats: refusals. AOSP's examples, and PyTorch's layers in
tests/convert, check what they compute."""

import numpy as np
import pytest

from tests.emulator.kernels.one_operation import execute, of_floats, refused, uniform

RELU1, TANH = 2, 4
SCALARS, NO_NORM = [TANH, 0.0, 0.0], [None] * 4


def zeros(*shape):
    return np.zeros(shape, np.float32)


def weights(w, r, b, projection=None):
    """Inputs from input_to_input_weights to projection_bias: of gates in the order i, f, c, o."""
    return [*w, *r, *[None] * 3, *b, projection, None]


def random_weights(rng, inputs, units):
    return weights(*(uniform(rng, 4, units, *more) for more in ((inputs,), (units,), ())))


LSTM_REFUSALS = {
    "input too wide": (0, zeros(2, 4)),
    "input of rank 3": (0, zeros(2, 3, 1)),
    "weights of the input gate alone": (5, None),
    "forget weights with fewer units": (2, zeros(3, 3)),
    "output weights too narrow": (4, zeros(4, 2)),
    "recurrent weights too wide": (6, zeros(4, 5)),
    "recurrent output weights decide the outputs": (8, zeros(4, 3)),
    "a lone peephole": (10, zeros(4)),
    "no bias of the input gate": (12, None),
    "a short bias": (14, zeros(3)),
    "a projection bias alone": (17, zeros(4)),
    "a projection to another width": (16, zeros(3, 4)),
    "a state of another batch": (18, zeros(1, 4)),
    "a cell state that is too wide": (19, zeros(2, 5)),
    "relu1": (20, RELU1),
    "an unknown activation": (20, 99),
    "a negative activation": (20, -1),
    "a negative clip": (21, -1.0),
    "a clip that is not a number": (22, float("nan")),
    "one norm": (24, zeros(4)),
}


@pytest.mark.parametrize("name", LSTM_REFUSALS)
@pytest.mark.parametrize("constants", [True, False])
def test_lstm_refuses(nn, name, constants):
    rng = np.random.default_rng(0)
    x, h, c = uniform(rng, 2, 3), uniform(rng, 2, 4), uniform(rng, 2, 4)
    inputs = [x, *random_weights(rng, 3, 4), h, c, *SCALARS, *NO_NORM]
    outputs = of_floats(*[(0, 0)] * 4)
    execute(nn, "LSTM", inputs, *outputs, constants=constants)
    index, value = LSTM_REFUSALS[name]
    inputs[index] = value
    assert refused(nn, "LSTM", inputs, outputs, constants=constants)


# ---- Sequences of LSTM steps ------------------------------------------------------------------


def test_unidirectional_sequence_lstm_has_one_output_or_three(nn):
    rng, name = np.random.default_rng(0), "UNIDIRECTIONAL_SEQUENCE_LSTM"
    x, h, c = uniform(rng, 5, 3, 4), uniform(rng, 3, 6), uniform(rng, 3, 6)
    inputs = [x, *random_weights(rng, 4, 6), h, c, *SCALARS, True, *NO_NORM]
    outputs = of_floats((5, 3, 6), h.shape, c.shape)
    assert refused(nn, name, inputs, outputs[:2])
    inputs[23] = False  # so the states are of another batch
    assert refused(nn, name, inputs, outputs[:1])


def bidirectional(x, cells, states, *, merge, aux=None, aux_weights=NO_NORM * 2):
    """Inputs of the operation, time first."""
    inputs = [x, *cells[0], *cells[1], *states, aux, *aux_weights]
    return [*inputs, *SCALARS, merge, True, *NO_NORM, *NO_NORM]


BIDIRECTIONAL_REFUSALS = {
    "aux input of other steps": {39: zeros(2, 2, 4)},
    "aux input of rank 2": {39: zeros(3, 2)},
    "no aux input": {39: None},
    "no aux weights of one direction": {44 + i: None for i in range(4)},
    "no aux weights of a gate": {42: None},
    "an aux weight of another width": {41: zeros(6, 3)},
    "a state of another width": {37: zeros(2, 3)},
    "merged outputs, yet two": {51: True},
}


@pytest.mark.parametrize("name", BIDIRECTIONAL_REFUSALS)
def test_bidirectional_sequence_lstm_refuses(nn, name):
    rng = np.random.default_rng(0)
    cells, states = [random_weights(rng, 4, 6) for _ in range(2)], uniform(rng, 4, 2, 6)
    x, aux, aux_weights = uniform(rng, 3, 2, 4), uniform(rng, 3, 2, 4), uniform(rng, 8, 6, 4)
    inputs = bidirectional(x, cells, states, merge=False, aux=aux, aux_weights=aux_weights)
    outputs = of_floats((0, 0, 0), (0, 0, 0))
    execute(nn, "BIDIRECTIONAL_SEQUENCE_LSTM", inputs, *outputs, constants=True)
    for index, value in BIDIRECTIONAL_REFUSALS[name].items():
        inputs[index] = value
    assert refused(nn, "BIDIRECTIONAL_SEQUENCE_LSTM", inputs, outputs)
