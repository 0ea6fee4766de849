"""Nested tensors, which PyTorch's transformer encoders make of padded ones to skip the padding.

Here they stay padded, and go along with what of them is none: attention then hides the padding, and
in the end it is overwritten, as PyTorch's is.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from nnapi_prof.frontend.steps import Moving, Step
from nnapi_prof.graph.node import bind

aten = torch.ops.aten

OVER_KEYS = 1
"""The kind of a mask [B, T] in PyTorch's own encoder layer."""


@dataclass(eq=False)
class Padded:
    """``value`` [B, T, D] of which ``valid`` [B, T] is no padding."""

    value: Moving | Tensor
    valid: Moving | Tensor


def on_padded(
    call: Callable[[Step], Any], target: Any, inputs: Sequence[Any], where: str
) -> Any | None:
    """What an operator makes of a nested tensor, or makes one of; None for any other operator."""
    if target is aten._nested_tensor_from_mask.default:
        return Padded(inputs[0], inputs[1])
    found = next(value for value in inputs if isinstance(value, Padded))
    arg = bind(target, [found.value if value is found else value for value in inputs], {})
    hidden = call(Step(aten.logical_not.default, (found.valid,), {}, where, "padding"))
    if target is aten._transformer_encoder_layer_fwd.default and arg["mask"] is None:
        args = tuple((arg | {"mask": hidden, "mask_type": OVER_KEYS}).values())
        return Padded(call(Step(target, args, {}, where, "encoder_layer")), found.valid)
    shape = found.value.fake.shape if isinstance(found.value, Moving) else found.value.shape
    if target is aten.to_padded_tensor.default and list(arg["output_size"] or ()) == list(shape):
        places = call(Step(aten.unsqueeze.default, (hidden, -1), {}, where, "padding"))
        args = found.value, places, arg["padding"]
        return call(Step(aten.masked_fill.Scalar, args, {}, where, "padded"))
    return None
