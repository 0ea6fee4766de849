"""Models whose input sizes are left open until they are loaded.

What NNAPI sees has fixed sizes. A model with open sizes is therefore a :class:`Template`: its
conversion at one size, and what each number in it that depends on the sizes is, as an expression of
them. The expressions are found by converting the model at some sizes (:mod:`derive`) and checked by
converting it at others.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from functools import cached_property

from nnapi_prof.convert.dynamic_shapes.derive import JUMPS, derive
from nnapi_prof.convert.dynamic_shapes.template import Converted, OpenSize, Sizes, Template
from nnapi_prof.convert.lower import convert_region
from nnapi_prof.errors import InputSpecError, UnsupportedOp, option_name
from nnapi_prof.frontend.flexible import FlexibleModel
from nnapi_prof.frontend.inputs import listed
from nnapi_prof.graph import MAX_RANK
from nnapi_prof.graph.node import constant_value, is_constant
from nnapi_prof.graph.program import Program

FAR = 64
"""The largest jump where a model must run to show its shapes."""


def flexible_region(model: FlexibleModel, level: int) -> Template:
    """The template of all units of a model at a feature level, for stock PyTorch.

    Free sizes that the model wants equal, the same dimension of several inputs, are taken so;
    where that does not do, all that may be equal.
    Raises UnsupportedOp where the model does not convert at its example sizes, InputSpecError
    where a size cannot be left open.
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

    first = convert(model.examples)  # now it is known whether shapes are enough
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
    """:attr:`Template.leading`; InputSpecError where two such dimensions of a value are open."""
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
    """Returns the parts of a model's result that its region does not have: the order of outputs,
    constants."""
    constants = [
        (node.name, constant_value(node).numpy().tobytes())
        for node in program.module.graph.nodes
        if node.name in program.units.outputs and is_constant(node)
    ]
    return (program.units.inputs, program.units.outputs, *constants)


class _Makers:
    """The node of the whole model behind each operation; looked up only for a refusal."""

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
