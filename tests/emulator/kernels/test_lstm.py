"""LSTM and its sequences on floats, through the C API: plain forms against torch, the others
against the documented formulas in float64."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from tests.emulator.kernels.recurrent import (
    BIDIRECTIONAL_SEQUENCE_LSTM,
    NONE,
    RELU,
    RELU1,
    RELU6,
    SIGMOID,
    TANH,
    TENSOR_FLOAT16,
    UNIDIRECTIONAL_SEQUENCE_LSTM,
    VARIANTS,
    Cell,
    Omitted,
    activate,
    as_halves,
    exact,
    execute,
    floats,
    given,
    rounded,
    run,
    some_cell,
    swap,
    variant_id,
)
from tests.emulator.nnapi import LSTM, TENSOR_FLOAT32

# ---- LSTM on floats ---------------------------------------------------------------------------


@pytest.mark.parametrize("variant", VARIANTS, ids=variant_id)
def test_lstm(nn, variant):
    rng = np.random.default_rng(VARIANTS.index(variant))
    cell = some_cell(rng, 11, 5, 3, **variant)
    x, h, c = rounded(rng, 4, 11), rounded(rng, 4, cell.outputs), rounded(rng, 4, 5)
    inputs = given(x, *cell.weights, h, c, *cell.scalars, *cell.norm)
    if not variant["norm"]:
        inputs = inputs[:23]
    scratch = (4, 15 if variant["cifg"] else 20)
    wanted_h, wanted_c = cell.step(*(v.astype(np.float64) for v in (x, h, c)))
    for constants in (True, False):
        outputs = floats(scratch, h.shape, c.shape, h.shape)
        _, state, new_c, out = run(nn, LSTM, inputs, outputs, constants)
        exact(out, wanted_h)
        exact(state, wanted_h)
        exact(new_c, wanted_c)


@pytest.mark.parametrize("act", [NONE, RELU, RELU6, TANH, SIGMOID])
@pytest.mark.parametrize("clips", [(0.0, 0.0), (0.25, 0.0), (0.0, 0.125), (0.25, 0.125)])
def test_lstm_activations_and_clips(nn, act, clips):
    rng = np.random.default_rng(act)
    cell = some_cell(rng, 3, 8, 2, projection=2, act=act)
    cell = replace(cell, cell_clip=clips[0], proj_clip=clips[1])
    x, h, c = 4 * rounded(rng, 5, 3), rounded(rng, 5, 2), 4 * rounded(rng, 5, 8)
    inputs = given(x, *cell.weights, h, c, *cell.scalars)
    outputs = floats((5, 32), h.shape, c.shape, h.shape)
    _, _, new_c, out = run(nn, LSTM, inputs, outputs)
    wanted_h, wanted_c = cell.step(*(v.astype(np.float64) for v in (x, h, c)))
    exact(out, wanted_h)
    exact(new_c, wanted_c)
    if clips[0]:
        assert abs(new_c).max() == clips[0]


def test_lstm_scratch_holds_the_gates(nn):
    """As the reference leaves them: i, act(c'), f, o act(c'), each of the whole batch."""
    rng = np.random.default_rng(0)
    cell = some_cell(rng, 3, 4)
    x, h, c = rounded(rng, 2, 3), rounded(rng, 2, 4), rounded(rng, 2, 4)
    inputs = given(x, *cell.weights, h, c, *cell.scalars)
    scratch, _, new_c, out = run(nn, LSTM, inputs, floats((2, 16), h.shape, c.shape, h.shape))
    gates = scratch.reshape(4, 2, 4)
    forget = x @ cell.w[1].T + h @ cell.r[1].T + cell.b[1]
    exact(gates[1], np.tanh(new_c))
    exact(gates[2], activate(SIGMOID, forget))
    exact(gates[3], out)


@pytest.mark.parametrize("halves", [False, True])
def test_lstm_inputs_left_out_of_a_run(nn, halves):
    """The model tells their shapes, which do not fit those of the outputs then."""
    rng = np.random.default_rng(0)
    dtype = np.float16 if halves else np.float32
    cell = some_cell(rng, 3, 4, cifg=True, dtype=dtype)
    x, h, c = (rounded(rng, *s, dtype=dtype) for s in ((2, 3), (2, 4), (2, 4)))
    inputs = given(x, *cell.weights, h, c, *cell.scalars, *cell.norm)
    shapes = {1: (4, 3), 5: (4, 4), 12: (4,), 9: (4,), 10: (4,), 16: (4, 4), 24: (4,)}
    for index, dims in shapes.items():
        inputs[index] = Omitted(TENSOR_FLOAT32, dims)
    inputs = as_halves(inputs) if halves else inputs
    code = TENSOR_FLOAT16 if halves else TENSOR_FLOAT32
    outputs = [(code, dims, 0.0, 0) for dims in ((2, 12), h.shape, c.shape, h.shape)]
    _, _, new_c, out = run(nn, LSTM, inputs, outputs, constants=False)
    wanted_h, wanted_c = cell.step(*(v.astype(np.float64) for v in (x, h, c)))
    np.testing.assert_allclose(out, wanted_h, atol=2e-3 if halves else 1e-5)
    np.testing.assert_allclose(new_c, wanted_c, atol=2e-3 if halves else 1e-5)


def test_lstm_unknown_shapes_and_nan(nn):
    rng = np.random.default_rng(0)
    cell = some_cell(rng, 3, 4)
    x, h, c = rounded(rng, 2, 3), rounded(rng, 2, 4), rounded(rng, 2, 4)
    x[0, 0] = np.nan
    inputs = given(x, *cell.weights, h, c, *cell.scalars)
    outputs = floats((0, 0), (0, 0), (0, 0), (0, 0))
    scratch, state, new_c, out = run(nn, LSTM, inputs, outputs)
    assert [v.shape for v in (scratch, state, new_c, out)] == [(2, 16), (2, 4), (2, 4), (2, 4)]
    assert np.isnan(out[0]).all()
    assert np.isfinite(out[1]).all()


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


@pytest.mark.parametrize("variant", VARIANTS, ids=variant_id)
@pytest.mark.parametrize("time_major", [True, False])
def test_unidirectional_sequence_lstm(nn, variant, time_major):
    rng = np.random.default_rng(VARIANTS.index(variant))
    cell = some_cell(rng, 4, 6, 3, cell_clip=0.7, proj_clip=0.6, **variant)
    x, h, c = rounded(rng, 5, 3, 4), rounded(rng, 3, cell.outputs), rounded(rng, 3, 6)
    expected, wanted_h, wanted_c = cell.sequence(*(v.astype(np.float64) for v in (x, h, c)))
    source, expected = (x, expected) if time_major else (swap(x), swap(expected))
    inputs = given(source, *cell.weights, h, c, *cell.scalars, time_major, *cell.norm)
    outputs = floats(expected.shape, h.shape, c.shape)
    for constants in (True, False):
        out, state, new_c = run(nn, UNIDIRECTIONAL_SEQUENCE_LSTM, inputs, outputs, constants)
        exact(out, expected)
        exact(state, wanted_h)
        exact(new_c, wanted_c)
    (alone,) = run(nn, UNIDIRECTIONAL_SEQUENCE_LSTM, inputs, outputs[:1])
    np.testing.assert_array_equal(alone, out)


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


@pytest.mark.parametrize("linking", ["none", "parallel", "crossed"])
@pytest.mark.parametrize("merge", [True, False])
@pytest.mark.parametrize("time_major", [True, False])
@pytest.mark.parametrize("variant", VARIANTS[::3] + VARIANTS[5:6], ids=variant_id)
def test_bidirectional_sequence_lstm(nn, linking, merge, time_major, variant):
    rng = np.random.default_rng(VARIANTS.index(variant))
    width = {"none": 0, "parallel": 6, "crossed": 5}[linking]
    extra = width if linking == "crossed" else 0
    forward = some_cell(rng, 4, 6, 3, aux=extra, cell_clip=0.6, **variant)
    backward = some_cell(
        rng, width if linking == "parallel" else 4, 5, 2, aux=extra, cell_clip=0.6, **variant
    )
    x = rounded(rng, 3, 2, 4)
    aux = rounded(rng, 3, 2, width) if width else None
    sizes = (forward.outputs, 6, backward.outputs, 5)
    states = [rounded(rng, 2, n) for n in sizes]
    wide = [v.astype(np.float64) for v in states]
    crossed = aux if linking == "crossed" else None
    wanted_fw, *fw = forward.sequence(x, *wide[:2], crossed)
    source = aux if linking == "parallel" else x
    wanted_bw, *bw = backward.sequence(source, *wide[2:], crossed, backward=True)
    merged = np.concatenate([wanted_fw, wanted_bw], 2)
    rows = [merged] if merge else [wanted_fw, wanted_bw]
    if not time_major:
        x, rows = swap(x), [swap(v) for v in rows]
        aux = None if aux is None else swap(aux)
    inputs = bidirectional_lstm(
        x, (forward, backward), states, merge=merge, time_major=time_major, aux=aux
    )
    outputs = floats(*[v.shape for v in rows], *[v.shape for v in states])
    code = BIDIRECTIONAL_SEQUENCE_LSTM
    for actual, expected in zip(run(nn, code, inputs, outputs), [*rows, *fw, *bw], strict=True):
        exact(actual, expected)
    short = outputs[: len(rows)]
    for actual, expected in zip(run(nn, code, inputs, short, constants=False), rows, strict=True):
        exact(actual, expected)


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


def test_halves(nn):
    """float16: computed in float32, outputs rounded."""
    rng = np.random.default_rng(0)
    cell = some_cell(rng, 4, 6, 3, projection=2, peephole=True, norm=True, dtype=np.float16)
    x, h, c = (rounded(rng, *s, dtype=np.float16) for s in ((5, 3, 4), (3, 3), (3, 6)))
    inputs = as_halves(given(x, *cell.weights, h, c, *cell.scalars, True, *cell.norm))
    (out,) = run(nn, UNIDIRECTIONAL_SEQUENCE_LSTM, inputs, [(TENSOR_FLOAT16, (5, 3, 3), 0.0, 0)])
    wide = replace(
        cell,
        **{
            name: [None if v is None else v.astype(np.float64) for v in getattr(cell, name)]
            for name in ("w", "r", "b", "p", "norm")
        },
    )
    expected, _, _ = wide.sequence(*(v.astype(np.float64) for v in (x, h, c)))
    np.testing.assert_allclose(out, expected, rtol=5 * 2.0**-10, atol=5 * 2.0**-10)
