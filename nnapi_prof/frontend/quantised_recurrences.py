"""Recurrent layers and cells in dynamic quantisation, computed in floats.

They round what they read in every step, with a scale of that step. In floats the layer is one
operation of NNAPI's, or one step after another without those scales; the weights stay what they
were rounded to.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch._ops import OpOverload

from nnapi_prof.frontend.quant import NoFloatForm, QuantisedCalls
from nnapi_prof.frontend.tracer import IN_FLOATS

aten = torch.ops.aten
Form = Callable[[QuantisedCalls, dict[str, Any], str], Any]


def recurrence_form(packet: str) -> Form | None:
    """How a quantised recurrence is computed in floats, from its arguments by name; None for any
    other operator."""
    return _FORMS.get(packet)


def _weights(packed: Any) -> tuple[Tensor, Tensor | None]:
    """The weight and the bias of a packed linear layer."""
    try:
        weight, bias = torch.ops.quantized.linear_unpack(packed)
    except RuntimeError:  # packed in float16, which another operator unpacks
        weight, bias = torch.ops.quantized.linear_unpack_fp16(packed)
    weight = weight.dequantize() if weight.is_quantized else weight.float()
    return weight, None if bias is None else bias.float()


def _cell_weights(packed: Sequence[Any]) -> list[Tensor]:
    """The weights of a cell's two linear layers, then their biases, zeros where there are none."""
    pairs = [_weights(one) for one in packed]
    weights = [weight for weight, _ in pairs]
    biases = [torch.zeros(w.shape[0]) if bias is None else bias for w, bias in pairs]
    return [*weights, *biases]


def _layer(target: OpOverload) -> Form:
    def form(calls: QuantisedCalls, args: dict[str, Any], where: str) -> Any:
        parameters: list[Tensor] = []
        for cell in args["params"]:
            (kind, *_, packed), _ = cell.__getstate__()  # the state, and the name of its class
            if len(packed) != 2:
                raise NoFloatForm(f"weights of the kind {kind}")
            parameters += _cell_weights(packed)
        names = ("num_layers", "dropout", "train", "bidirectional", "batch_first")
        x, hx = args["input"], args["hx"]
        _count(calls)
        return calls.step(target, (x, hx, parameters, True, *(args[n] for n in names)), where)

    return form


def _cell(target: OpOverload) -> Form:
    def form(calls: QuantisedCalls, args: dict[str, Any], where: str) -> Any:
        weights = _cell_weights([args["w_ih"], args["w_hh"]])
        _count(calls)
        return calls.step(target, (args["input"], args["hx"], *weights), where)

    return form


def _count(calls: QuantisedCalls) -> None:
    meta = calls.tracer.module.meta
    meta[IN_FLOATS] = meta.get(IN_FLOATS, 0) + 1


_FORMS: dict[str, Form] = {
    "quantized_lstm": _layer(aten.lstm.input),
    "quantized_gru": _layer(aten.gru.input),
    "quantized_lstm_cell_dynamic": _cell(aten.lstm_cell.default),
    "quantized_gru_cell_dynamic": _cell(aten.gru_cell.default),
    "quantized_rnn_tanh_cell_dynamic": _cell(aten.rnn_tanh_cell.default),
    "quantized_rnn_relu_cell_dynamic": _cell(aten.rnn_relu_cell.default),
}
