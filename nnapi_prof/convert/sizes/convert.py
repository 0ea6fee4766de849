"""A model file with open sizes -> a template for all of it."""

from __future__ import annotations

from functools import cached_property

from nnapi_prof.convert.lower import convert_region
from nnapi_prof.convert.sizes.derive import JUMPS, derive
from nnapi_prof.convert.sizes.probing import Converted, Sizes
from nnapi_prof.convert.sizes.template import OpenSize, Template
from nnapi_prof.errors import InputSpecError, UnsupportedOp
from nnapi_prof.frontend.flexible import FlexibleModel
from nnapi_prof.frontend.inputs import listed
from nnapi_prof.graph.node import constant_value, is_constant
from nnapi_prof.graph.program import Program

FAR = 64
"""The largest jump where a model must run to show its shapes."""


def flexible_region(model: FlexibleModel, level: int) -> Template:
    """The template of all units of a model at a feature level.

    Raises UnsupportedOp where the model does not convert at its example sizes, InputSpecError
    where a size cannot be left open.
    """
    opens = [
        OpenSize(*places[0], example, equal=places[1:])
        for places, example in zip(model.open_sizes, model.examples, strict=True)
    ]

    def convert(sizes: Sizes) -> Converted:
        program = model.program(sizes)
        region = convert_region(program, _all_units(program), level, shared=False)
        return Converted(region, _beside(program))

    first = convert(model.examples)  # now it is known whether shapes are enough
    jumps = JUMPS if model.is_cheap else [jump for jump in JUMPS if jump <= FAR]
    try:
        return derive(
            lambda sizes: first if sizes == model.examples else convert(sizes),
            opens,
            lambda sizes: listed(model.at(sizes)),
            _Makers(model, level).name,
            jumps,
        )
    except InputSpecError as error:
        raise InputSpecError(f"{model.name}: --input {listed(model.specs)}: {error}") from error


def _all_units(program: Program) -> tuple[int, ...]:
    return tuple(range(len(program.units.units)))


def _beside(program: Program) -> tuple[object, ...]:
    """What a model gives that its region does not have: the order of its outputs, constants."""
    constants = [
        (node.name, constant_value(node).numpy().tobytes())
        for node in program.module.graph.nodes
        if node.name in program.units.outputs and is_constant(node)
    ]
    return (program.units.inputs, program.units.outputs, *constants)


class _Makers:
    """Which node an operation of the whole model comes from; asked only for a refusal."""

    def __init__(self, model: FlexibleModel, level: int) -> None:
        self.model = model
        self.level = level

    @cached_property
    def _names(self) -> list[str]:
        program = self.model.program(self.model.examples)
        names = []
        for unit in program.units.units:
            try:
                made = convert_region(program, [unit.index], self.level, shared=False).operations
            except UnsupportedOp:
                return []
            names += [f"{unit.name} ({unit.label})"] * len(made)
        return names

    def name(self, index: int) -> str:
        return self._names[index] if index < len(self._names) else f"operation {index}"
