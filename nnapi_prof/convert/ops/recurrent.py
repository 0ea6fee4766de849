"""Lower recurrent layers: LSTM, RNN and GRU.

NNAPI has whole sequences of LSTM and RNN from level 3 on, and single steps of both at every level.
It has no GRU. Layers without a sequence operation are unrolled step by step.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from nnapi_prof.convert import OperandId
from nnapi_prof.convert.ops.formula import FormulaValue, fully_connected
from nnapi_prof.convert.ops.slicing import concatenate, strided_slice
from nnapi_prof.convert.registry import FloatArray, Lowering, lowers
from nnapi_prof.graph import DimOrder, TensorType
from nnapi_prof.graph.node import results_of
from nnapi_prof.nnapi.codes import FuseCode, OperationCode

aten = torch.ops.aten

MAX_STEPS = 256
"""Most steps of 1 to 16 operations that a node may be unrolled to, over all layers and
directions."""
MAX_STEPS_FOR_STOCK = 1024
"""MAX_STEPS for a file for stock PyTorch, which is converted only once."""


@lowers(aten.lstm.input)
def lstm(op: Lowering) -> tuple[OperandId, ...]:
    """Lowers ``lstm(x[T, B, I], (h, c)) -> (outputs, h_n, c_n)``.

    From level 3 on, each layer is a UNIDIRECTIONAL_ or BIDIRECTIONAL_SEQUENCE_LSTM; c_n, their
    third output, came with level 4. Below, each step is an LSTM. All of these omit arguments, which
    stock PyTorch cannot do; for it, steps are made of elementary operations.
    """
    if op.model.for_stock:
        return _layers(op, 4, unrolled(gate_steps))
    level = 4 if 2 in _outputs_in_use(op) else 3
    return _layers(op, 4, _lstm_sequence if op.level >= level else unrolled(lstm_steps))


@lowers(aten.rnn_relu.input)
def rnn_relu(op: Lowering) -> tuple[OperandId, ...]:
    """Lowers ``rnn_relu(x[T, B, I], h) -> (outputs, h_n)``: UNIDIRECTIONAL_ or
    BIDIRECTIONAL_SEQUENCE_RNN from level 3 on, one RNN for each step below. Stock PyTorch needs
    steps for both directions too, because that operation omits arguments."""
    steps = op.level < 3 or (op.model.for_stock and op.arg("bidirectional"))
    return _layers(op, 1, unrolled(rnn_steps) if steps else _rnn_sequence)


@lowers(aten.rnn_tanh.input)
def rnn_tanh(op: Lowering) -> tuple[OperandId, ...]:
    """Lowers ``rnn_tanh(x[T, B, I], h) -> (outputs, h_n)``, unrolled: NNAPI's RNN takes its
    activation as a fuse code, and there is none for tanh."""
    return _layers(op, 1, unrolled(tanh_steps))


@lowers(aten.gru.input)
def gru(op: Lowering) -> tuple[OperandId, ...]:
    """Lowers ``gru(x[T, B, I], h) -> (outputs, h_n)``, unrolled."""
    return _layers(op, 3, unrolled(gru_steps))


@lowers(aten.lstm_cell.default)
def lstm_cell(op: Lowering) -> tuple[OperandId, ...]:
    """Lowers ``lstm_cell(x[B, I], (h, c)) -> (h', c')``: one LSTM, or its elementary operations."""
    one = _cell_direction(op, op.arg("hx"))
    steps = gate_steps if op.model.for_stock else lstm_steps
    outputs, cells = steps(op, [op.tensor("input")], one)
    return outputs[0], cells[0]


@lowers(aten.gru_cell.default, aten.rnn_tanh_cell.default, aten.rnn_relu_cell.default)
def cell(op: Lowering) -> OperandId:
    """Lowers ``gru_cell(x[B, I], h) -> h'`` and the other cells: one step."""
    outputs, _ = CELLS[op.target](op, [op.tensor("input")], _cell_direction(op, [op.arg("hx")]))
    return outputs[0]


def _cell_direction(op: Lowering, states: Sequence[torch.fx.Node]) -> Direction:
    """Returns the weights and states of a single step."""
    w_input, w_hidden = op.array("w_ih"), op.array("w_hh")
    biases = [op.optional_array(name) for name in ("b_ih", "b_hh")]
    b_input, b_hidden = (np.zeros(len(w_input), np.float32) if b is None else b for b in biases)
    first, *more = [op.tensor(node) for node in states]
    memory = more[0] if more else None
    return Direction(w_input, w_hidden, b_input, b_hidden, None, first, memory, backward=False)


def _outputs_in_use(op: Lowering) -> set[object]:
    """Returns the outputs of the node that other nodes read."""
    return {reader.args[1] for reader in results_of(op.node)}


def _layers(op: Lowering, gates: int, layer: Layer) -> tuple[OperandId, ...]:
    """Runs all layers of a node, each on the outputs of the one before, and returns its results."""
    op.require(not op.arg("train") or float(op.arg("dropout")) == 0, "dropout in training mode")
    x = op.tensor("input", DimOrder.CONTIGUOUS)
    time_major = not op.arg("batch_first")
    unroll = layer not in (_lstm_sequence, _rnn_sequence)
    if unroll:
        _require_short(op, op.dims(x)[0 if time_major else 1])
        x = x if time_major else op.transpose(x, (1, 0, 2))
    states: list[OperandId] = []
    cells: list[OperandId] = []
    for index in range(int(op.arg("num_layers"))):
        run = layer(op, x, _directions(op, index, gates), time_major)
        x = run.outputs
        states += run.states
        cells += run.cells
    if unroll and not time_major:
        x = op.transpose(x, (1, 0, 2))
    results = [x]
    for index, values in enumerate((states, cells), start=1):
        if index in _outputs_in_use(op):
            results.append(_stack(op, values))
        elif values:
            results.append(x)  # no node reads it
    return tuple(results)


def _require_short(op: Lowering, length: int) -> None:
    """Refuses more than MAX_STEPS steps, or MAX_STEPS_FOR_STOCK for stock PyTorch."""
    steps = length * int(op.arg("num_layers")) * (2 if op.arg("bidirectional") else 1)
    whole = (
        "stock PyTorch's runtime has whole sequences of RNN with relu in one direction alone"
        if op.model.for_stock
        else "whole sequences: LSTM and RNN with relu from level 3 (API 29) on, with c_n from "
        "level 4 (API 30) on"
    )
    most = MAX_STEPS_FOR_STOCK if op.model.for_stock else MAX_STEPS
    op.require(steps <= most, f"{steps} steps, up to {most} are unrolled ({whole})")


def _stack(op: Lowering, values: Sequence[OperandId]) -> OperandId:
    """Stacks tensors [B, N] to [count, B, N]."""
    dims = op.dims(values[0])
    rows = [op.reshape(value, (1, *dims)) for value in values]
    if len(rows) == 1:
        return rows[0]
    return op.emit(OperationCode.CONCATENATION, rows, [0], dims=(len(rows), *dims))


def _directions(op: Lowering, layer: int, gates: int) -> list[Direction]:
    """Returns the one or two directions of a layer, with weights and initial states."""
    count = 2 if op.arg("bidirectional") else 1
    params = [op.array(node) for node in op.arg("params")]
    size = len(params) // (count * int(op.arg("num_layers")))
    biases = 2 if op.arg("has_biases") else 0
    initial = op.arg("hx")
    nodes = list(initial) if isinstance(initial, list | tuple) else [initial]
    directions = []
    for place in range(layer * count, (layer + 1) * count):
        own = params[place * size : (place + 1) * size]
        w_input, w_hidden, *rest = own
        zeros = np.zeros(w_input.shape[0], np.float32)
        b_input, b_hidden = rest[:2] if biases else (zeros, zeros)
        states = [_initial(op, node, place) for node in nodes]
        directions.append(
            Direction(
                w_input,
                w_hidden,
                b_input,
                b_hidden,
                rest[biases] if len(rest) > biases else None,
                states[0],
                states[1] if len(states) > 1 else None,
                backward=place % count == 1,
            )
        )
    return directions


def _initial(op: Lowering, node: torch.fx.Node, place: int) -> OperandId:
    """Returns one state [B, N] of ``node`` [places, B, N]."""
    if node.op == "get_attr":
        return op.constant(op.array(node)[place])
    states = op.tensor(node, DimOrder.CONTIGUOUS)
    _, batch, width = op.dims(states)
    one = strided_slice(op, states, (place, 0, 0), (place + 1, batch, width))
    return op.reshape(one, (batch, width))


# Whole sequences


def _last_states(
    op: Lowering, outputs: OperandId, directions: list[Direction], time_major: bool
) -> list[OperandId]:
    """Returns the last output of each direction, sliced; backward it is that of the first step."""
    dims = op.dims(outputs)
    time = 0 if time_major else 1
    states, column = [], 0
    for one in directions:
        begin, end = [0, 0, column], [*dims[:2], column + one.width]
        begin[time] = 0 if one.backward else dims[time] - 1
        end[time] = begin[time] + 1
        cut = strided_slice(op, outputs, begin, end)
        states.append(op.reshape(cut, (dims[1 - time], one.width)))
        column += one.width
    return states


def _merged_shape(op: Lowering, x: OperandId, directions: list[Direction]) -> TensorType:
    return TensorType((*op.dims(x)[:2], sum(one.width for one in directions)))


def _lstm_sequence(
    op: Lowering, x: OperandId, directions: list[Direction], time_major: bool
) -> Run:
    """Returns a layer of LSTMs as one operation. Peepholes, auxiliary inputs and norms, which
    torch's LSTM lacks, are omitted.

    Android 10's BIDIRECTIONAL_SEQUENCE_LSTM overwrites the first states with the last ones. At
    level 3 each first state is therefore a separate value of the model, copied for every run.
    """
    with_cells = 2 in _outputs_in_use(op)
    inputs: list[OperandId] = [x]
    for one in directions:
        inputs += lstm_weights(op, one)
    overwritten = len(directions) == 2 and op.level == 3
    for one in directions:
        assert one.cell is not None
        states = [one.state, one.cell]
        inputs += [op.copy(state) for state in states] if overwritten else states
    clips = [op.model.scalar(value) for value in (TANH, NO_CLIP, NO_CLIP)]
    norm = op.model.omitted(1)
    if len(directions) == 1:
        code = OperationCode.UNIDIRECTIONAL_SEQUENCE_LSTM
        inputs += [*clips, op.model.scalar(time_major), *[norm] * 4]
    else:
        code = OperationCode.BIDIRECTIONAL_SEQUENCE_LSTM
        inputs += [op.model.omitted(3), *[op.model.omitted(2)] * 8]
        inputs += [*clips, op.model.scalar(True), op.model.scalar(time_major), *[norm] * 8]
    types = [_merged_shape(op, x, directions)]
    if with_cells:
        for one in directions:
            assert one.cell is not None
            types += [TensorType(op.dims(one.state)), TensorType(op.dims(one.cell))]
    outputs, *rest = op.emit_as(types, code, inputs)
    states = (
        _last_states(op, outputs, directions, time_major) if 1 in _outputs_in_use(op) else [outputs]
    )
    return Run(outputs, states, rest[1::2] or [outputs])


def _rnn_sequence(op: Lowering, x: OperandId, directions: list[Direction], time_major: bool) -> Run:
    """Returns a layer of RNNs with RELU as one operation."""
    inputs = [x]
    for one in directions:
        inputs += [*rnn_weights(op, one), one.state]
    relu = int(FuseCode.RELU)
    if len(directions) == 1:
        code = OperationCode.UNIDIRECTIONAL_SEQUENCE_RNN
        scalars: list[bool | int] = [relu, int(time_major)]
    else:
        code = OperationCode.BIDIRECTIONAL_SEQUENCE_RNN
        inputs += [op.model.omitted(3), *[op.model.omitted(2)] * 2]
        scalars = [relu, time_major, True]  # the last: outputs are merged
    (outputs,) = op.emit_as([_merged_shape(op, x, directions)], code, inputs, scalars)
    states = (
        _last_states(op, outputs, directions, time_major) if 1 in _outputs_in_use(op) else [outputs]
    )
    return Run(outputs, states, [])


# Recurrent layers step by step, where NNAPI has no operation for the whole sequence.


TANH = 4
"""Activation of an LSTM's cell: 0 none, 1 relu, 3 relu6, 4 tanh, 6 sigmoid."""
NO_CLIP = 0.0


@dataclass(frozen=True)
class Direction:
    """One direction of one layer: G gates of H units with I inputs and P outputs."""

    w_input: FloatArray
    """[G * H, I]"""
    w_hidden: FloatArray
    """[G * H, P]"""
    b_input: FloatArray
    """[G * H]"""
    b_hidden: FloatArray
    """[G * H]"""
    projection: FloatArray | None
    """[P, H]; None where P = H."""
    state: OperandId
    """[B, P]: the output before the first step."""
    cell: OperandId | None
    """[B, H]: an LSTM's memory before the first step."""
    backward: bool

    @property
    def width(self) -> int:
        """Size P of an output."""
        return int(self.w_hidden.shape[1])

    def gates(self, array: FloatArray, count: int) -> list[FloatArray]:
        """Returns an array of the direction, split into its gates."""
        return list(np.split(array, count))


@dataclass(frozen=True)
class Run:
    """Results of one direction or layer."""

    outputs: OperandId
    """[T, B, P] or [B, T, P]; for both directions [..., 2 P]."""
    states: list[OperandId]
    """[B, P] after the last step, one for each direction."""
    cells: list[OperandId]
    """[B, H] after the last step, for an LSTM."""


Layer = Callable[[Lowering, OperandId, list[Direction], bool], Run]
"""Runs the directions of one layer on [T, B, I], or [B, T, I] if not time-major."""
Steps = Callable[[Lowering, list[OperandId], Direction], tuple[list[OperandId], list[OperandId]]]
"""Runs one direction on T inputs [B, I] in its own order: T outputs [B, P], and the final cells."""


def lstm_weights(op: Lowering, one: Direction) -> list[OperandId]:
    """Returns the 17 operands of a direction's weights. torch's gates are put in NNAPI's order
    (input, forget, cell, output), and its two biases are added."""
    biases = (one.b_input.astype(np.float64) + one.b_hidden).astype(np.float32)
    matrices = [*one.gates(one.w_input, 4), *one.gates(one.w_hidden, 4)]
    projection = op.model.omitted(2) if one.projection is None else op.constant(one.projection)
    return [
        *map(op.constant, matrices),
        *[op.model.omitted(1)] * 3,
        *map(op.constant, one.gates(biases, 4)),
        projection,
        op.model.omitted(1),
    ]


def rnn_weights(op: Lowering, one: Direction) -> list[OperandId]:
    bias = (one.b_input.astype(np.float64) + one.b_hidden).astype(np.float32)
    return [op.constant(array) for array in (one.w_input, one.w_hidden, bias)]


def unrolled(steps: Steps) -> Layer:
    """Returns a layer on [T, B, I] that runs its directions step by step."""

    def run(op: Lowering, x: OperandId, directions: list[Direction], time_major: bool) -> Run:
        length, batch, width = op.dims(x)
        rows = op.reshape(x, (length * batch, width))
        inputs = _step_slices(op, rows, batch)
        states, cells, columns = [], [], []
        for one in directions:
            outputs, last = steps(op, inputs[::-1] if one.backward else inputs, one)
            states.append(outputs[-1])
            cells += last
            columns.append(concatenate(op, outputs[::-1] if one.backward else outputs, 0))
        outputs_of_all = concatenate(op, columns, 1)
        return Run(
            op.reshape(outputs_of_all, (length, batch, op.dims(outputs_of_all)[1])), states, cells
        )

    return run


def _step_slices(op: Lowering, rows: OperandId, batch: int) -> list[OperandId]:
    """Slices [T * B, N] into T times [B, N]."""
    count, width = op.dims(rows)
    return [
        strided_slice(op, rows, (start, 0), (start + batch, width))
        for start in range(0, count, batch)
    ]


def _linear(x: FormulaValue, weights: FloatArray, bias: FloatArray) -> FormulaValue:
    """Returns ``x[B, I] @ weights[N, I]^T + bias[N]``."""
    return FormulaValue(x.op, fully_connected(x.op, x.operand, weights, bias))


def lstm_steps(
    op: Lowering, inputs: list[OperandId], one: Direction
) -> tuple[list[OperandId], list[OperandId]]:
    """Adds one LSTM operation for each step; its first output is working memory."""
    assert one.cell is not None
    state, cell, outputs = one.state, one.cell, []
    weights = lstm_weights(op, one)
    (batch, width), units = op.dims(state), op.dims(cell)[1]
    shapes = [(batch, 4 * units), (batch, width), (batch, units), (batch, width)]
    for x in inputs:
        _, state, cell, output = op.emit_as(
            [TensorType(shape) for shape in shapes],
            OperationCode.LSTM,
            [x, *weights, state, cell],
            [TANH, NO_CLIP, NO_CLIP],
        )
        outputs.append(output)
    return outputs, [cell]


def gate_steps(
    op: Lowering, inputs: list[OperandId], one: Direction
) -> tuple[list[OperandId], list[OperandId]]:
    """Adds an LSTM's steps in elementary operations, because the runtime of stock PyTorch cannot
    omit the optional arguments of LSTM: ``c' = f * c + i * g``, ``h' = o * tanh(c')``. i, f and o
    are sigmoids, g is a tanh, each of the sum of both sides."""
    assert one.cell is not None
    state, cell, outputs = FormulaValue(op, one.state), FormulaValue(op, one.cell), []
    batch, units = cell.dims
    nothing = np.zeros(4 * units, np.float32)
    bias = (one.b_input.astype(np.float64) + one.b_hidden).astype(np.float32)
    w_input, w_hidden, bias = map(_sigmoids_first, (one.w_input, one.w_hidden, bias))

    def columns(x: FormulaValue, begin: int, end: int) -> FormulaValue:
        return FormulaValue(
            op, strided_slice(op, x.operand, (0, begin * units), (batch, end * units))
        )

    for x in inputs:
        sums = _linear(FormulaValue(op, x), w_input, bias) + _linear(state, w_hidden, nothing)
        gates = columns(sums, 0, 3).unary(OperationCode.LOGISTIC)
        new = columns(sums, 3, 4).unary(OperationCode.TANH)
        write, forget, show = (columns(gates, i, i + 1) for i in range(3))
        cell = forget * cell + write * new
        state = show * cell.unary(OperationCode.TANH)
        if one.projection is not None:
            state = _linear(state, one.projection, nothing[: len(one.projection)])
        outputs.append(state.operand)
    return outputs, [cell.operand]


def _sigmoids_first(array: FloatArray) -> FloatArray:
    """Reorders torch's gates i, f, g, o to i, f, o, g."""
    i, f, g, o = np.split(array, 4)
    return np.concatenate([i, f, o, g])


def rnn_steps(
    op: Lowering, inputs: list[OperandId], one: Direction
) -> tuple[list[OperandId], list[OperandId]]:
    """Adds one RNN operation with RELU for each step."""
    state, outputs = one.state, []
    type_ = TensorType(op.dims(state))
    for x in inputs:
        state, output = op.emit_as(
            [type_, type_],
            OperationCode.RNN,
            [x, *rnn_weights(op, one), state],
            [int(FuseCode.RELU)],
        )
        outputs.append(output)
    return outputs, []


def tanh_steps(
    op: Lowering, inputs: list[OperandId], one: Direction
) -> tuple[list[OperandId], list[OperandId]]:
    """Adds ``h' = tanh(W x + b + R h + c)`` for each step."""
    state, outputs = FormulaValue(op, one.state), []
    for x in inputs:
        from_input = _linear(FormulaValue(op, x), one.w_input, one.b_input)
        hidden = _linear(state, one.w_hidden, one.b_hidden)
        state = (from_input + hidden).unary(OperationCode.TANH)
        outputs.append(state.operand)
    return outputs, []


def gru_steps(
    op: Lowering, inputs: list[OperandId], one: Direction
) -> tuple[list[OperandId], list[OperandId]]:
    """Adds ``h' = n + z * (h - n)`` for each step, with the gates ``r`` and ``z`` (sigmoids of both
    sides' sums) and ``n = tanh(seen + r * hidden)``."""
    state, outputs = FormulaValue(op, one.state), []
    w_input, w_hidden, b_input, b_hidden = (
        one.gates(array, 3) for array in (one.w_input, one.w_hidden, one.b_input, one.b_hidden)
    )
    for x in inputs:
        from_input = [
            _linear(FormulaValue(op, x), w, b) for w, b in zip(w_input, b_input, strict=True)
        ]
        hidden = [_linear(state, w, b) for w, b in zip(w_hidden, b_hidden, strict=True)]
        reset, update = ((from_input[i] + hidden[i]).unary(OperationCode.LOGISTIC) for i in (0, 1))
        new = (from_input[2] + reset * hidden[2]).unary(OperationCode.TANH)
        state = new + update * (state - new)
        outputs.append(state.operand)
    return outputs, []


CELLS = {
    aten.gru_cell.default: gru_steps,
    aten.rnn_tanh_cell.default: tanh_steps,
    aten.rnn_relu_cell.default: rnn_steps,
}
