"""The normalised graph, run: views that eager PyTorch refuses, and the check against the model."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, fx

from nnapi_prof.errors import FrontendError

aten = torch.ops.aten
TOLERANCE = 1e-3
"""Largest difference, relative to the largest finite output, between model and normalised graph.
Folding and channels-last kernels reorder float32 sums: 1e-6 is usual, 1e-4 was seen in deep models.
A wrong rewrite is off by far more."""


class _Runner(fx.Interpreter):
    """Runs a graph and notes which views eager's strides forbid."""

    def __init__(self, module: fx.GraphModule) -> None:
        super().__init__(module)
        self.refused: list[fx.Node] = []

    def run_node(self, n: fx.Node) -> Any:
        try:
            return super().run_node(n)
        except RuntimeError:
            if n.target is not aten.view.default:
                raise
            self.refused.append(n)
            args: Any = self.map_nodes_to_values(n.args, n)
            source, shape = args
            return source.reshape(shape)


def settle_views(
    module: fx.GraphModule,
    examples: Sequence[Tensor],
    model: Callable[..., tuple[Tensor, ...]],
    name: str,
) -> int:
    """Turns each view that is none in eager's memory into a reshape; compares with the model.

    Passes drop ``contiguous`` and set dim orders, so that a view may read strided memory.
    Returns the number of views changed. Raises FrontendError where the outputs differ from those of
    ``model`` by more than TOLERANCE: a fault of ours that must not pass silently.
    """
    runner = _Runner(module)
    with torch.no_grad():
        found = runner.run(*(example.clone() for example in examples))
    for node in runner.refused:
        node.target = aten.reshape.default
    module.recompile()
    wanted = model(*(example.clone() for example in examples))
    _compare(found, wanted, name)
    return len(runner.refused)


def _compare(found: Sequence[Tensor], wanted: Sequence[Tensor], name: str) -> None:
    if len(found) != len(wanted):
        raise FrontendError(
            f"{name}: the graph has {len(found)} outputs, the model {len(wanted)}: please report"
        )
    for index, (ours, theirs) in enumerate(zip(found, wanted, strict=True)):
        if ours.shape != theirs.shape:
            raise FrontendError(
                f"{name}: output {index} of the normalised graph has the shape "
                f"{tuple(ours.shape)}, the model's {tuple(theirs.shape)}: please report"
            )
        ours, theirs = ours.double(), theirs.double()
        finite = theirs[theirs.isfinite()].abs()  # a logarithm has others for some inputs
        scale = finite.max().item() if finite.numel() else 0.0
        if not torch.allclose(ours, theirs, rtol=TOLERANCE, atol=TOLERANCE * scale, equal_nan=True):
            raise FrontendError(
                f"{name}: output {index} of the normalised graph differs from the model's by "
                f"{(ours - theirs).abs().max().item():.3g} on example inputs: please report"
            )
