"""A model on its way through the pipeline: the fx graph and the units cut from it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import torch
from torch import Tensor, fx

from nnapi_prof.graph.node import ScriptCall
from nnapi_prof.graph.types import Quantisation
from nnapi_prof.graph.unit import UnitGraph


@dataclass(frozen=True)
class Program:
    """The normalised model.

    ``module`` is an fx.GraphModule over ATen overloads whose placeholders are the model's inputs
    and whose constants are ``get_attr`` nodes. Every node that makes a tensor carries
    ``node.meta["tensor"]``, its :class:`~nnapi_prof.graph.types.TensorType`. Calling ``module``
    with tensors of the logical shapes gives the model's outputs, flattened to a tuple: dim orders
    change how values lie in memory, never what they are.
    """

    module: fx.GraphModule
    units: UnitGraph
    name: str
    example_inputs: tuple[Tensor, ...]
    """What the model was traced with: shapes are the stated ones, values arbitrary."""
    notes: tuple[str, ...] = ()
    """What the user should know: guessed input shapes, dropped nodes."""
    quantised: Mapping[int, Quantisation] = field(default_factory=dict)
    """Of those inputs that are quantised tensors to the model: the program has their integers."""
    widened: bool = False
    """Computes in float32 what the model computes in other floats, or rounds anew in every step."""

    @cached_property
    def nodes(self) -> Mapping[str, fx.Node]:
        """The module's nodes by name."""
        return {node.name: node for node in self.module.graph.nodes}

    @property
    def draws(self) -> tuple[str, ...]:
        """The nodes that draw random numbers."""
        return tuple(
            name
            for name, node in self.nodes.items()
            if isinstance(node.target, ScriptCall) and node.target.draws
        )

    def as_given(self, inputs: Sequence[Tensor]) -> tuple[Tensor, ...]:
        """The program's inputs as the model itself takes them."""
        return tuple(
            torch._make_per_tensor_quantized_tensor(value, params.scale, params.zero_point)
            if (params := self.quantised.get(index)) is not None
            else value
            for index, value in enumerate(inputs)
        )
