"""torchao's observers, with what NNAPI and its kernels need beside.

Importing this module imports torchao, which takes seconds: it is imported where it is used.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, fx
from torchao.quantization.pt2e.observer import (
    HistogramObserver,
    MinMaxObserver,
    PerChannelMinMaxObserver,
    UniformQuantizationObserverBase,
)

SMALLEST_SCALE = 2.0**-40
"""Of ranges of nothing. The product of two is a normal number of float32 yet."""


class FrozenQParamsObserver(UniformQuantizationObserverBase):  # type: ignore[misc]
    """An observer whose scales may be replaced once all samples were seen."""

    _choice: tuple[Tensor, Tensor] | None = None

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, eps=SMALLEST_SCALE, **kwargs)

    def settle(self, scales: Tensor, zero_points: Tensor) -> None:
        """Says what :meth:`calculate_qparams` gives from now on: float32 and int64, of rank 1."""
        self._choice = scales.float(), zero_points.long()

    def calculate_qparams(self) -> tuple[Tensor, Tensor]:
        """Scales and zero points; what was seen is looked at once."""
        if self._choice is None:
            self._choice = super().calculate_qparams()
        return self._choice


class _Finite(FrozenQParamsObserver):
    """Looks at finite values alone: a pad before a maximum writes -inf."""

    def forward(self, x_orig: Tensor) -> Tensor:
        finite = torch.isfinite(x_orig)
        super().forward(x_orig if bool(finite.all()) else x_orig[finite])
        return x_orig


class FiniteMinMaxObserver(_Finite, MinMaxObserver):  # type: ignore[misc]
    """The range from the least to the largest value."""


class LeastError(_Finite, HistogramObserver):  # type: ignore[misc]
    """The range within which values are rounded with the least squared error."""


class WeightObserver(FrozenQParamsObserver, MinMaxObserver):  # type: ignore[misc]
    """One symmetric range for a weight, with as many integers below the zero point as above."""

    def calculate_qparams(self) -> tuple[Tensor, Tensor]:
        if self._choice is None:
            scale, zero_point = super().calculate_qparams()
            unused = 255 / 254 if self.dtype is torch.uint8 else 1.0
            self.settle(scale * unused, zero_point)
        return super().calculate_qparams()


class PerChannelWeights(FrozenQParamsObserver, PerChannelMinMaxObserver):  # type: ignore[misc]
    """A symmetric range for each output channel of a weight. torchao tells by the name that it
    takes an axis."""


CHOICES = {"minmax": FiniteMinMaxObserver, "histogram": LeastError}
"""Ways to choose the range of values."""


def observers_of(observed: fx.GraphModule) -> dict[str, list[Any]]:
    """Value or constant -> its observers. A value has one, which those of its group have, too; a
    constant has one for each node that reads it."""
    observers: dict[str, list[Any]] = {}
    for node in observed.graph.nodes:
        if node.op != "call_module":
            continue
        source = node.args[0]
        observers.setdefault(source.name, []).append(observed.get_submodule(node.target))
    return observers
