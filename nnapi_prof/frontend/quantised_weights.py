"""Operators of TorchScript whose weights are quantised and whose inputs and results are floats.

Dynamic quantisation rounds what a linear layer reads to 8 bits, with a scale that is computed when
it runs: in the graph's form that is choose_qparams, quantize, dequantize.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from nnapi_prof.frontend.quantised import QuantisedCalls

aten, _decomposed = torch.ops.aten, torch.ops.quantized_decomposed

_SMALLEST_SCALE = 6.1e-5
"""PyTorch's engines choose none below (SMALL_SCALE_THRESHOLD)."""

Form = Callable[[QuantisedCalls, dict[str, Any], str], Any]


def float_form(packet: str) -> Form | None:
    """How an operator of the namespace ``quantized`` is carried out on floats, from its arguments
    by name; None for any that is not of this kind."""
    return _FORMS.get(packet)


def _dynamic_linear(calls: QuantisedCalls, given: dict[str, Any], where: str) -> Any:
    packed, x = given["W_prepack"], given["X"]
    weight, bias = torch.ops.quantized.linear_unpack(packed)
    limits = (0, _largest(packed, weight, bias, bool(given["reduce_range"])))
    choice = (x, *limits, _SMALLEST_SCALE, torch.uint8)
    scale, zero = calls.step(_decomposed.choose_qparams.tensor, choice, where)
    numbers = (scale, zero, *limits, torch.uint8)
    integers = calls.step(_decomposed.quantize_per_tensor.tensor, (x, *numbers), where)
    rounded = calls.step(_decomposed.dequantize_per_tensor.tensor, (integers, *numbers), where)
    return calls.step(aten.linear.default, (rounded, calls.weight(weight, where), bias), where)


def _largest(packed: Any, weight: Tensor, bias: Tensor | None, reduce_range: bool) -> int:
    """The largest integer that this machine's engine rounds inputs to: engines and processors
    differ in whether they do as ``reduce_range`` says, so the layer itself is asked."""
    if not reduce_range:
        return 255
    x = torch.linspace(-1, 2, 4 * weight.shape[1]).reshape(4, -1)
    wanted = torch.ops.quantized.linear_dynamic(x, packed, reduce_range)

    def apart(largest: int) -> float:
        scale, zero = _decomposed.choose_qparams.tensor(x, 0, largest, _SMALLEST_SCALE, torch.uint8)
        numbers = (scale, zero, 0, largest, torch.uint8)
        integers = _decomposed.quantize_per_tensor.tensor(x, *numbers)
        rounded = _decomposed.dequantize_per_tensor.tensor(integers, *numbers)
        found = torch.nn.functional.linear(rounded, weight.dequantize(), bias)
        return float((found - wanted).abs().mean())

    return min((127, 255), key=apart)


def _half_linear(calls: QuantisedCalls, given: dict[str, Any], where: str) -> Any:
    weight, bias = torch.ops.quantized.linear_unpack_fp16(given["W_prepack"])
    bias = None if bias is None else bias.float()
    return calls.step(aten.linear.default, (given["X"], weight.float(), bias), where)


def _embedding(calls: QuantisedCalls, given: dict[str, Any], where: str) -> Any:
    table = torch.ops.quantized.embedding_bag_unpack(given["weight"]).dequantize()
    return calls.step(aten.embedding.default, (table, given["indices"]), where)


def _relu(form: Form) -> Form:
    def then_relu(calls: QuantisedCalls, given: dict[str, Any], where: str) -> Any:
        return calls.step(aten.relu.default, (form(calls, given, where),), where)

    return then_relu


_FORMS: dict[str, Form] = {
    "linear_dynamic": _dynamic_linear,
    "linear_relu_dynamic": _relu(_dynamic_linear),
    "linear_dynamic_fp16": _half_linear,
    "linear_relu_dynamic_fp16": _relu(_half_linear),
    "embedding_byte": _embedding,
    "embedding_4bit": _embedding,
}
