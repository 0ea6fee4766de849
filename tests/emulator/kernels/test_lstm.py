"""LSTM and its sequences on floats: the states that level 4 has as outputs, and refusals."""

import numpy as np
import pytest
import torch

from tests.emulator.kernels.recurrent import (
    BIDIRECTIONAL_SEQUENCE_LSTM,
    RELU1,
    UNIDIRECTIONAL_SEQUENCE_LSTM,
    Cell,
    exact,
    execute,
    floats,
    given,
    rounded,
    run,
    some_cell,
)
from tests.emulator.nnapi import LSTM

LSTM_REFUSALS = {
    "input too wide": (0, np.zeros((2, 4), np.float32)),
    "input of rank 3": (0, np.zeros((2, 3, 1), np.float32)),
    "weights of the input gate alone": (5, None),
    "forget weights with fewer units": (2, np.zeros((3, 3), np.float32)),
    "output weights too narrow": (4, np.zeros((4, 2), np.float32)),
    "recurrent weights too wide": (6, np.zeros((4, 5), np.float32)),
    "recurrent output weights decide the outputs": (8, np.zeros((4, 3), np.float32)),
    "a lone peephole": (10, np.zeros(4, np.float32)),
    "no bias of the input gate": (12, None),
    "a short bias": (14, np.zeros(3, np.float32)),
    "a projection bias alone": (17, np.zeros(4, np.float32)),
    "a projection to another width": (16, np.zeros((3, 4), np.float32)),
    "a state of another batch": (18, np.zeros((1, 4), np.float32)),
    "a cell state that is too wide": (19, np.zeros((2, 5), np.float32)),
    "relu1": (20, RELU1),
    "an unknown activation": (20, 99),
    "a negative activation": (20, -1),
    "a negative clip": (21, -1.0),
    "a clip that is not a number": (22, float("nan")),
    "one norm": (24, np.zeros(4, np.float32)),
}


@pytest.mark.parametrize("name", LSTM_REFUSALS)
@pytest.mark.parametrize("constants", [True, False])
def test_lstm_refuses(nn, name, constants):
    rng = np.random.default_rng(0)
    cell = some_cell(rng, 3, 4)
    x, h, c = rounded(rng, 2, 3), rounded(rng, 2, 4), rounded(rng, 2, 4)
    inputs = given(x, *cell.weights, h, c, *cell.scalars, *cell.norm)
    outputs = floats((0, 0), (0, 0), (0, 0), (0, 0))
    assert execute(nn, LSTM, inputs, outputs, constants) is not None
    index, value = LSTM_REFUSALS[name]
    inputs[index] = given(value)[0]
    assert execute(nn, LSTM, inputs, outputs, constants) is None


# ---- Sequences of LSTM steps ------------------------------------------------------------------


def test_unidirectional_sequence_lstm_has_one_output_or_three(nn):
    rng = np.random.default_rng(0)
    cell = some_cell(rng, 4, 6)
    x, h, c = rounded(rng, 5, 3, 4), rounded(rng, 3, 6), rounded(rng, 3, 6)
    inputs = given(x, *cell.weights, h, c, *cell.scalars, True, *cell.norm)
    outputs = floats((5, 3, 6), h.shape, c.shape)
    assert execute(nn, UNIDIRECTIONAL_SEQUENCE_LSTM, inputs, outputs[:2]) is None
    inputs[23] = False  # so the states are of another batch
    assert execute(nn, UNIDIRECTIONAL_SEQUENCE_LSTM, inputs, outputs[:1]) is None


def torch_cell(parameters, suffix):
    """The weights of one direction of torch.nn.LSTM, whose gates are i, f, g, o."""
    named = {name: value.detach().numpy() for name, value in parameters}
    w = np.split(named["weight_ih_l0" + suffix], 4)
    r = np.split(named["weight_hh_l0" + suffix], 4)
    b = np.split(named["bias_ih_l0" + suffix] + named["bias_hh_l0" + suffix], 4)
    return Cell(w, r, b, proj=named.get("weight_hr_l0" + suffix))


@pytest.mark.filterwarnings("ignore:LSTM with projections is not supported with oneDNN")
@pytest.mark.parametrize("proj_size", [0, 3])
def test_unidirectional_sequence_lstm_is_torchs(nn, proj_size):
    torch.manual_seed(0)
    module = torch.nn.LSTM(9, 16, batch_first=True, proj_size=proj_size)
    x = torch.randn(2, 7, 9)
    h, c = torch.randn(1, 2, proj_size or 16), torch.randn(1, 2, 16)
    with torch.no_grad():
        expected, (wanted_h, wanted_c) = module(x, (h, c))
    cell = torch_cell(module.named_parameters(), "")
    inputs = given(
        x.numpy(), *cell.weights, h[0].numpy(), c[0].numpy(), *cell.scalars, False, *cell.norm
    )
    outputs = floats(expected.shape, wanted_h[0].shape, wanted_c[0].shape)
    out, state, new_c = run(nn, UNIDIRECTIONAL_SEQUENCE_LSTM, inputs, outputs)
    exact(out, expected)
    exact(state, wanted_h[0])
    exact(new_c, wanted_c[0])


def bidirectional_lstm(x, cells, states, *, merge, time_major, aux=None):
    """Inputs of the operation."""
    forward, backward = cells
    return given(
        x,
        *forward.weights,
        *backward.weights,
        *states,
        aux,
        *forward.aux,
        *backward.aux,
        *forward.scalars,
        merge,
        time_major,
        *forward.norm,
        *backward.norm,
    )


@pytest.mark.parametrize("merge", [True, False])
def test_bidirectional_sequence_lstm_is_torchs(nn, merge):
    torch.manual_seed(1)
    module = torch.nn.LSTM(5, 8, bidirectional=True)
    x, h, c = torch.randn(6, 3, 5), torch.randn(2, 3, 8), torch.randn(2, 3, 8)
    with torch.no_grad():
        expected, (wanted_h, wanted_c) = module(x, (h, c))
    cells = [torch_cell(module.named_parameters(), suffix) for suffix in ("", "_reverse")]
    states = [v.numpy() for v in (h[0], c[0], h[1], c[1])]
    inputs = bidirectional_lstm(x.numpy(), cells, states, merge=merge, time_major=True)
    rows = [(6, 3, 16)] if merge else [(6, 3, 8), (6, 3, 8)]
    outputs = floats(*rows, *[(3, 8)] * 4)
    *rows, fw_h, fw_c, bw_h, bw_c = run(nn, BIDIRECTIONAL_SEQUENCE_LSTM, inputs, outputs)
    exact(np.concatenate(rows, 2), expected)
    for actual, one in zip((fw_h, bw_h, fw_c, bw_c), (*wanted_h, *wanted_c), strict=True):
        exact(actual, one)


BIDIRECTIONAL_REFUSALS = {
    "aux input of other steps": {39: np.zeros((2, 2, 4), np.float32)},
    "aux input of rank 2": {39: np.zeros((3, 2), np.float32)},
    "no aux input": {39: None},
    "no aux weights of one direction": {44 + i: None for i in range(4)},
    "no aux weights of a gate": {42: None},
    "an aux weight of another width": {41: np.zeros((6, 3), np.float32)},
    "a state of another width": {37: np.zeros((2, 3), np.float32)},
    "merged outputs, yet two": {51: True},
}


@pytest.mark.parametrize("name", BIDIRECTIONAL_REFUSALS)
def test_bidirectional_sequence_lstm_refuses(nn, name):
    rng = np.random.default_rng(0)
    cells = [some_cell(rng, 4, 6, aux=4) for _ in range(2)]
    states = [rounded(rng, 2, 6) for _ in range(4)]
    x, aux = rounded(rng, 3, 2, 4), rounded(rng, 3, 2, 4)
    inputs = bidirectional_lstm(x, cells, states, merge=False, time_major=True, aux=aux)
    outputs = floats((0, 0, 0), (0, 0, 0))
    assert execute(nn, BIDIRECTIONAL_SEQUENCE_LSTM, inputs, outputs) is not None
    for index, value in BIDIRECTIONAL_REFUSALS[name].items():
        inputs[index] = given(value)[0]
    assert execute(nn, BIDIRECTIONAL_SEQUENCE_LSTM, inputs, outputs) is None
