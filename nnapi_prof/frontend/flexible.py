"""A model as a function of its input sizes: the normalised program at any of them.

Unlike :func:`nnapi_prof.frontend.load`, no program is compared with eager PyTorch: the example's
was, and others are run only to see which sizes follow. Nothing is computed but shapes where the
model is an ExportedProgram or the walker takes it.
"""

from __future__ import annotations

import copy
from collections.abc import Collection, Sequence
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor, fx
from torch.export import ExportedProgram

from nnapi_prof.errors import FrontendError, NnapiProfError
from nnapi_prof.frontend import export, torchscript
from nnapi_prof.frontend.inputs import InputSpec, example_tensors
from nnapi_prof.frontend.loader import (
    ModelKind,
    mark_last,
    model_kind,
    read_exported,
    read_torchscript,
)
from nnapi_prof.frontend.torch_logging import quiet_torch
from nnapi_prof.frontend.torchscript.interpreter import walked_graph
from nnapi_prof.graph.grouping import unit_graph
from nnapi_prof.graph.node import torch_dtype
from nnapi_prof.graph.program import Program
from nnapi_prof.passes.pipeline import DEFAULT_PASSES, run_passes


class FlexibleModel:
    """The model of a file, or one in memory that takes tensors one by one, with the sizes that
    ``specs`` leave open. ``last`` are the inputs whose images lie channels last.

    Raises InputSpecError where an ExportedProgram fixes one of them.
    """

    def __init__(
        self,
        model: Path | torch.jit.ScriptModule | ExportedProgram,
        specs: Sequence[InputSpec],
        name: str = "model",
        last: Collection[int] = (),
    ) -> None:
        self.name = name
        self.specs = tuple(specs)
        self.last = last
        self.model: torch.jit.ScriptModule | ExportedProgram
        if isinstance(model, Path):
            self.name = model.name
            is_exported = model_kind(model) is ModelKind.EXPORTED
            self.model = read_exported(model) if is_exported else read_torchscript(model)
        else:
            self.model = model
        if isinstance(self.model, ExportedProgram):
            export.check_open(self.model, specs, self.name)
        self._walks = True

    @property
    def is_cheap(self) -> bool:
        """Whether large sizes cost nothing: shapes alone are computed."""
        return self._walks

    @property
    def open_sizes(self) -> tuple[tuple[tuple[int, int], ...], ...]:
        """(input, dimension) of every open size, in order; equal ones together."""
        groups: dict[object, list[tuple[int, int]]] = {}
        for index, spec in enumerate(self.specs):
            for dim in spec.open_dims:
                groups.setdefault(spec.name_of(dim) or (index, dim), []).append((index, dim))
        return tuple(map(tuple, groups.values()))

    @property
    def examples(self) -> tuple[int, ...]:
        return tuple(self.specs[i].shape[dim] for (i, dim), *_ in self.open_sizes)

    def at(self, sizes: Sequence[int]) -> tuple[InputSpec, ...]:
        """The specs with these in place of the open sizes."""
        shapes = [list(spec.shape) for spec in self.specs]
        for places, size in zip(self.open_sizes, sizes, strict=True):
            for index, dim in places:
                shapes[index][dim] = size
        return tuple(
            InputSpec(tuple(shape), spec.dtype, quant=spec.quant)
            for shape, spec in zip(shapes, self.specs, strict=True)
        )

    def tied(self, also: bool = False) -> FlexibleModel | None:
        """The model with those free sizes equal that are the same dimension of several inputs and
        must be: it runs when they grow together, and not when one grows alone; with ``also``, those
        that may be. None where there are none."""
        free: dict[tuple[int, int], list[int]] = {}
        for index, spec in enumerate(self.specs):
            for dim in spec.open_dims:
                if not spec.name_of(dim):
                    free.setdefault((dim, spec.shape[dim]), []).append(index)
        named = {
            (index, dim): f"n{dim}_{example}"
            for (dim, example), inputs in free.items()
            if len(inputs) > 1
            and (also or not all(self._runs({(index, dim)}) for index in inputs))
            and self._runs({(index, dim) for index in inputs})
            for index in inputs
        }
        if not named:
            return None
        tied_model = copy.copy(self)
        tied_model.specs = tuple(
            replace(
                spec,
                names=tuple(named.get((i, d), spec.name_of(d)) for d in spec.open_dims),
            )
            for i, spec in enumerate(self.specs)
        )
        return tied_model

    def _runs(self, grown: Collection[tuple[int, int]]) -> bool:
        """Whether the model runs with these open sizes, (input, dimension), larger by one."""
        sizes = [
            example + any(place in grown for place in places)
            for example, places in zip(self.examples, self.open_sizes, strict=True)
        ]
        try:
            self.program(sizes)
        except (NnapiProfError, RuntimeError, ValueError, LookupError, TypeError, ArithmeticError):
            return False
        return True

    def program(self, sizes: Sequence[int]) -> Program:
        """The program at these sizes. Raises what reading the model at them does, and PyTorch's
        own errors where it does not run."""
        with quiet_torch():
            graph, inputs = self._graph(sizes)
            mark_last(graph.graph, self.last)
            run_passes(graph, DEFAULT_PASSES)
        return Program(graph, unit_graph(graph.graph), self.name, inputs)

    def _graph(self, sizes: Sequence[int]) -> tuple[fx.GraphModule, tuple[Tensor, ...]]:
        """The straight graph, and the examples that it was made with."""
        shapes = tuple(map(_without_values, self.at(sizes)))
        if isinstance(self.model, ExportedProgram):
            export.check_sizes(self.model, self.at(sizes), self.name)
            return export.straight_graph(self.model, shapes, self.name), shapes
        if self._walks:
            try:
                return walked_graph(self.model, shapes, self.name), shapes
            except FrontendError:
                raise
            except Exception:
                if tuple(sizes) != self.examples:
                    raise
                self._walks = False  # the example ran: it is a construct, not a size
        examples = example_tensors(self.at(sizes))
        return torchscript.torchscript_graph(self.model, examples, self.name), examples


def _without_values(spec: InputSpec) -> Tensor:
    """A tensor for its shape and type alone. PyTorch has quantised ones in memory only: nothing is
    written there, so that it takes none."""
    if spec.quant is not None:
        scale, zero_point = spec.quant
        dtype = torch.quint8 if spec.dtype == "uint8" else torch.qint8
        return torch._empty_affine_quantized(
            spec.shape, scale=scale, zero_point=zero_point, dtype=dtype
        )
    return torch.empty(spec.shape, dtype=torch_dtype(spec.dtype), device="meta")
