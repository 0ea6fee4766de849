"""Recurrent layers step by step, for what no operation of NNAPI does as a whole sequence."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from nnapi_prof.convert.model import OperandId
from nnapi_prof.convert.ops.pieces import NONE, add, mul, sub, unary
from nnapi_prof.convert.ops.slicing import strided_slice
from nnapi_prof.convert.registry import FloatArray, Lowering
from nnapi_prof.graph.types import TensorType
from nnapi_prof.nnapi.codes import FuseCode, OperationCode

TANH = 4
"""The activation of an LSTM's cell: 0 none, 1 relu, 3 relu6, 4 tanh, 6 sigmoid."""
NO_CLIP = 0.0


@dataclass(frozen=True)
class Direction:
    """One direction of one layer: G gates of H units that see I inputs and P outputs."""

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
    """[B, P], the output before the first step."""
    cell: OperandId | None
    """[B, H], an LSTM's memory before the first step."""
    backward: bool

    @property
    def width(self) -> int:
        """P, the size of an output."""
        return int(self.w_hidden.shape[1])

    def gates(self, array: FloatArray, count: int) -> list[FloatArray]:
        """An array of the direction, cut into its gates."""
        return list(np.split(array, count))


@dataclass(frozen=True)
class Run:
    """What running one direction or layer gives."""

    outputs: OperandId
    """[T, B, P] or [B, T, P]; of both directions [..., 2 P]."""
    states: list[OperandId]
    """[B, P] after the last step, one for each direction."""
    cells: list[OperandId]
    """[B, H], an LSTM's."""


Layer = Callable[[Lowering, OperandId, list[Direction], bool], Run]
"""Runs the directions of one layer on [T, B, I], or [B, T, I] if not time-major."""
Steps = Callable[[Lowering, list[OperandId], Direction], tuple[list[OperandId], list[OperandId]]]
"""Runs one direction on T inputs [B, I] in its own order: T outputs [B, P], and the final cells."""


def lstm_weights(op: Lowering, one: Direction) -> list[OperandId]:
    """The 17 operands of a direction's weights: torch's gates stand in NNAPI's order, input,
    forget, cell, output; its two biases are one."""
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
    """A layer on [T, B, I] that runs its directions step by step."""

    def run(op: Lowering, x: OperandId, directions: list[Direction], time_major: bool) -> Run:
        length, batch, width = op.dims(x)
        rows = op.reshape(x, (length * batch, width))
        inputs = _step_slices(op, rows, batch)
        states, cells, columns = [], [], []
        for one in directions:
            outputs, last = steps(op, inputs[::-1] if one.backward else inputs, one)
            states.append(outputs[-1])
            cells += last
            columns.append(_join(op, outputs[::-1] if one.backward else outputs, 0))
        merged = _join(op, columns, 1)
        return Run(op.reshape(merged, (length, batch, op.dims(merged)[1])), states, cells)

    return run


def _join(op: Lowering, parts: list[OperandId], axis: int) -> OperandId:
    """Matrices under (axis 0) or beside (axis 1) one another."""
    if len(parts) == 1:
        return parts[0]
    dims = list(op.dims(parts[0]))
    dims[axis] = sum(op.dims(part)[axis] for part in parts)
    return op.emit(OperationCode.CONCATENATION, parts, [axis], dims=dims)


def _step_slices(op: Lowering, rows: OperandId, batch: int) -> list[OperandId]:
    """[T * B, N] -> T times [B, N]."""
    count, width = op.dims(rows)
    return [
        strided_slice(op, rows, (start, 0), (start + batch, width))
        for start in range(0, count, batch)
    ]


def _linear(op: Lowering, x: OperandId, weights: FloatArray, bias: FloatArray) -> OperandId:
    """``x[B, I] @ weights[N, I]^T + bias[N]``."""
    dims = (op.dims(x)[0], weights.shape[0])
    return op.emit(OperationCode.FULLY_CONNECTED, [x, weights, bias], [NONE], dims=dims)


def lstm_steps(
    op: Lowering, inputs: list[OperandId], one: Direction
) -> tuple[list[OperandId], list[OperandId]]:
    """One LSTM operation for each step; its first output is working memory."""
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
    """An LSTM's steps in elementary operations, for stock PyTorch, whose runtime cannot leave out
    the optional arguments of LSTM: ``c' = f * c + i * g``, ``h' = o * tanh(c')``, where i, f and o
    are sigmoids and g is a tanh of the sum of both sides."""
    assert one.cell is not None
    state, cell, outputs = one.state, one.cell, []
    batch, units = op.dims(cell)
    nothing = np.zeros(4 * units, np.float32)
    bias = (one.b_input.astype(np.float64) + one.b_hidden).astype(np.float32)
    w_input, w_hidden, bias = map(_sigmoids_first, (one.w_input, one.w_hidden, bias))

    def columns(x: OperandId, begin: int, end: int) -> OperandId:
        return strided_slice(op, x, (0, begin * units), (batch, end * units))

    for x in inputs:
        sums = add(op, _linear(op, x, w_input, bias), _linear(op, state, w_hidden, nothing))
        gates = unary(op, OperationCode.LOGISTIC, columns(sums, 0, 3))
        new = unary(op, OperationCode.TANH, columns(sums, 3, 4))
        taken, kept, shown = (columns(gates, i, i + 1) for i in range(3))
        cell = add(op, mul(op, kept, cell), mul(op, taken, new))
        state = mul(op, shown, unary(op, OperationCode.TANH, cell))
        if one.projection is not None:
            state = _linear(op, state, one.projection, nothing[: len(one.projection)])
        outputs.append(state)
    return outputs, [cell]


def _sigmoids_first(array: FloatArray) -> FloatArray:
    """torch's gates i, f, g, o as i, f, o, g."""
    i, f, g, o = np.split(array, 4)
    return np.concatenate([i, f, o, g])


def rnn_steps(
    op: Lowering, inputs: list[OperandId], one: Direction
) -> tuple[list[OperandId], list[OperandId]]:
    """One RNN operation with RELU for each step."""
    state, outputs = one.state, []
    known = TensorType(op.dims(state))
    for x in inputs:
        state, output = op.emit_as(
            [known, known],
            OperationCode.RNN,
            [x, *rnn_weights(op, one), state],
            [int(FuseCode.RELU)],
        )
        outputs.append(output)
    return outputs, []


def tanh_steps(
    op: Lowering, inputs: list[OperandId], one: Direction
) -> tuple[list[OperandId], list[OperandId]]:
    """``h' = tanh(W x + b + R h + c)`` for each step."""
    state, outputs = one.state, []
    for x in inputs:
        seen = _linear(op, x, one.w_input, one.b_input)
        kept = _linear(op, state, one.w_hidden, one.b_hidden)
        state = unary(op, OperationCode.TANH, add(op, seen, kept))
        outputs.append(state)
    return outputs, []


def gru_steps(
    op: Lowering, inputs: list[OperandId], one: Direction
) -> tuple[list[OperandId], list[OperandId]]:
    """``h' = n + z * (h - n)`` for each step, with the gates ``r`` and ``z`` (sigmoids of both
    sides' sums) and ``n = tanh(seen + r * kept)``."""
    state, outputs = one.state, []
    w_input, w_hidden, b_input, b_hidden = (
        one.gates(array, 3) for array in (one.w_input, one.w_hidden, one.b_input, one.b_hidden)
    )
    for x in inputs:
        seen = [_linear(op, x, w, b) for w, b in zip(w_input, b_input, strict=True)]
        kept = [_linear(op, state, w, b) for w, b in zip(w_hidden, b_hidden, strict=True)]
        reset, update = (
            unary(op, OperationCode.LOGISTIC, add(op, seen[i], kept[i])) for i in (0, 1)
        )
        new = unary(op, OperationCode.TANH, add(op, seen[2], mul(op, reset, kept[2])))
        state = add(op, new, mul(op, update, sub(op, state, new)))
        outputs.append(state)
    return outputs, []
