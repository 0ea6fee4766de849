"""Models whose input sizes are left open until they are loaded.

NNAPI's models have fixed sizes. A model with open sizes is therefore a :class:`Template`: its
conversion at one size, and an expression of the sizes for each number that depends on them. The
expressions are found by converting the model at some sizes (:mod:`derive`) and checked by
converting it at others. :class:`FlexibleModel` is the normalised program at any sizes.

Unlike :func:`nnapi_prof.frontend.load`, this compares no program with eager PyTorch: the example's
was compared, and the others are run only to see which sizes follow. Only shapes are computed where
the model is an ExportedProgram or the walker takes it.
"""

from __future__ import annotations

import copy
from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cached_property
from pathlib import Path

import torch
from torch import Tensor, fx
from torch.export import ExportedProgram

from nnapi_prof.convert.dynamic_shapes.derive import JUMPS, derive
from nnapi_prof.convert.dynamic_shapes.template import Converted, OpenSize, Sizes, Template
from nnapi_prof.convert.lower import convert_region
from nnapi_prof.errors import (
    FrontendError,
    InputSpecError,
    NnapiProfError,
    UnsupportedOp,
    option_name,
)
from nnapi_prof.frontend import export, torchscript
from nnapi_prof.frontend.inputs import InputSpec, example_tensors, listed
from nnapi_prof.frontend.loader import mark_last, read
from nnapi_prof.frontend.structure import flat_inputs
from nnapi_prof.frontend.torch_logging import quiet_torch
from nnapi_prof.frontend.torchscript.interpreter import walked_graph
from nnapi_prof.graph import MAX_RANK
from nnapi_prof.graph.grouping import unit_graph
from nnapi_prof.graph.node import constant_value, is_constant, torch_dtype
from nnapi_prof.graph.program import Program
from nnapi_prof.passes.pipeline import DEFAULT_PASSES, run_passes


class FlexibleModel:
    """Model with the sizes open that ``specs`` leave open, from a file or in memory.

    A model in memory takes its tensors one by one. ``last`` are the inputs with channels_last
    images. Raises InputSpecError where an ExportedProgram fixes an open size.
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
            saved = read(model)
            if not isinstance(saved, ExportedProgram):
                saved = flat_inputs(saved, model.name)
            self.model = saved
        else:
            self.model = model
        if isinstance(self.model, ExportedProgram):
            export.check_open(self.model, specs, self.name)
        self._walks = True

    @property
    def is_cheap(self) -> bool:
        """Whether large sizes cost nothing, because only shapes are computed."""
        return self._walks

    @property
    def open_sizes(self) -> tuple[tuple[tuple[int, int], ...], ...]:
        """(input, dimension) of every open size, in order; those of one size are in one group."""
        groups: dict[object, list[tuple[int, int]]] = {}
        for index, spec in enumerate(self.specs):
            for dim in spec.open_dims:
                groups.setdefault(spec.name_of(dim) or (index, dim), []).append((index, dim))
        return tuple(map(tuple, groups.values()))

    @property
    def examples(self) -> tuple[int, ...]:
        return tuple(self.specs[i].shape[dim] for (i, dim), *_ in self.open_sizes)

    def at(self, sizes: Sequence[int]) -> tuple[InputSpec, ...]:
        """Returns the specs with ``sizes`` for the open sizes."""
        shapes = [list(spec.shape) for spec in self.specs]
        for places, size in zip(self.open_sizes, sizes, strict=True):
            for index, dim in places:
                shapes[index][dim] = size
        return tuple(
            InputSpec(tuple(shape), spec.dtype, quant=spec.quant)
            for shape, spec in zip(shapes, self.specs, strict=True)
        )

    def tied(self, also: bool = False) -> FlexibleModel | None:
        """Returns the model with free sizes tied that must be equal; None where there are none.

        Candidates are sizes of the same dimension of several inputs: the model runs when they grow
        together, but not when one grows alone. ``also`` ties those too that need not be equal.
        """
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
        """Returns whether the model runs with these open sizes, (input, dimension), one larger."""
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
        """Returns the program at these sizes. Raises the errors of reading the model at them, and
        PyTorch's own where it does not run."""
        with quiet_torch():
            graph, inputs = self._graph(sizes)
            mark_last(graph.graph, self.last)
            run_passes(graph, DEFAULT_PASSES)
        return Program(graph, unit_graph(graph.graph), self.name, inputs)

    def _graph(self, sizes: Sequence[int]) -> tuple[fx.GraphModule, tuple[Tensor, ...]]:
        """Returns the straight graph, and the example inputs that it was made with."""
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
    """Returns a tensor that only has a shape and a type. PyTorch has no quantised meta tensors:
    such a tensor is never written to, so it takes no memory."""
    if spec.quant is not None:
        scale, zero_point = spec.quant
        dtype = torch.quint8 if spec.dtype == "uint8" else torch.qint8
        return torch._empty_affine_quantized(
            spec.shape, scale=scale, zero_point=zero_point, dtype=dtype
        )
    return torch.empty(spec.shape, dtype=torch_dtype(spec.dtype), device="meta")


FAR = 64
"""Largest jump for a model that must run to show its shapes."""


def flexible_region(model: FlexibleModel, level: int) -> Template:
    """Returns the template of all units of a model at a feature level, for stock PyTorch.

    Free sizes are tied where the model requires them to be equal (the same dimension of several
    inputs). If that does not suffice, all that may be equal are tied.
    Raises UnsupportedOp where the model does not convert at its example sizes, InputSpecError where
    a size cannot be left open.
    """
    try:
        return _template(model, level)
    except InputSpecError as error:
        for tied in filter(None, (model.tied(also) for also in (False, True))):
            with suppress(InputSpecError):
                return _template(tied, level)
        raise error from None


def _template(model: FlexibleModel, level: int) -> Template:
    opens = [
        OpenSize(*places[0], example, equal=places[1:])
        for places, example in zip(model.open_sizes, model.examples, strict=True)
    ]

    def convert(sizes: Sizes) -> Converted:
        program = model.program(sizes)
        region = convert_region(program, _all_units(program), level, shared=False, for_stock=True)
        return Converted(region, _beside(program))

    first = convert(model.examples)  # is_cheap is known from here on
    jumps = JUMPS if model.is_cheap else [jump for jump in JUMPS if jump <= FAR]
    try:
        template = derive(
            lambda sizes: first if sizes == model.examples else convert(sizes),
            opens,
            lambda sizes: listed(model.at(sizes)),
            _Makers(model, level).name,
            jumps,
        )
        return replace(template, leading=_leading(model, template))
    except InputSpecError as error:
        raise InputSpecError(
            f"{model.name}: {option_name('input', listed(model.specs))}: {error}"
        ) from error


def _leading(model: FlexibleModel, template: Template) -> dict[str, int]:
    """Returns :attr:`Template.leading`. Raises InputSpecError where several of a value's leading
    dimensions are open."""
    region = template.region
    types = (*region.input_types, *region.output_types)
    high = {
        name: type_.shape[: len(type_.shape) - MAX_RANK + 1]
        for name, type_ in zip((*region.inputs, *region.outputs), types, strict=True)
        if len(type_.shape) > MAX_RANK
    }
    if not high:
        return {}
    other = model.program([n + k.step for n, k in zip(model.examples, template.opens, strict=True)])
    merged_dims: dict[str, int] = {}
    for name, shape in high.items():
        pairs = zip(shape, other.units.values[name].shape, strict=False)
        open_dims = [dim for dim, (here, there) in enumerate(pairs) if here != there]
        if len(open_dims) > 1:
            raise InputSpecError(
                f"{name} has {len(open_dims)} open sizes among its first {len(shape)} dimensions, "
                f"which NNAPI has as one: one can be open; state fixed sizes"
            )
        merged_dims.update((name, dim) for dim in open_dims)
    return merged_dims


def _all_units(program: Program) -> tuple[int, ...]:
    return tuple(range(len(program.units.units)))


def _beside(program: Program) -> tuple[object, ...]:
    """Returns the parts of a model's result that its region lacks: output order and constants."""
    constants = [
        (node.name, constant_value(node).numpy().tobytes())
        for node in program.module.graph.nodes
        if node.name in program.units.outputs and is_constant(node)
    ]
    return (program.units.inputs, program.units.outputs, *constants)


class _Makers:
    """Names of the model's nodes behind each operation; looked up only for a refusal."""

    def __init__(self, model: FlexibleModel, level: int) -> None:
        self.model = model
        self.level = level

    @cached_property
    def _names(self) -> list[str]:
        program = self.model.program(self.model.examples)
        names = []
        for unit in program.units.units:
            try:
                region = convert_region(
                    program, [unit.index], self.level, shared=False, for_stock=True
                )
                operations = region.operations
            except UnsupportedOp:
                return []
            names += [f"{unit.name} ({unit.label})"] * len(operations)
        return names

    def name(self, index: int) -> str:
        return self._names[index] if index < len(self._names) else f"operation {index}"


__all__ = ["OpenSize", "Template", "flexible_region"]
