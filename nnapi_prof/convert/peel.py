"""Changes of layout at a region's border, taken out of its model.

A TRANSPOSE that only moves an input into the order that the rest reads, or the rest's result into
the order that the graph wants, need not be an operation: agent and runtime library can change the
layout in the copy that hands the bytes over (PROTOCOL.md, ``order``). Then an accelerator that is
slow at it, or has no TRANSPOSE at all, need not do it.

It is not the default, for either may be faster (benchmarks/bench_layout.py: an image of 224x224
into a network, a mask of 128x128 out of one, 3x1024x1024 both ways): peeled costs up to 21 % more
on the simulated NPU and up to 7 % on GPUs, and saves 3 to 30 % on the simulated slow driver and on
NNAPI's reference. Partitioning chooses between the two as it is: a change of layout is a unit of
its own, and a segment on the CPU that holds it alone writes straight into the shared memory that
NNAPI's segment reads.
"""

from __future__ import annotations

import dataclasses
import math
import struct
from collections.abc import Sequence
from dataclasses import dataclass

from nnapi_prof.convert.model import NnapiModel, Operand, OperandId, Operation
from nnapi_prof.convert.region import ELEMENT_BYTES, ConvertedRegion, Permutes
from nnapi_prof.convert.serialize import parse, serialize
from nnapi_prof.nnapi.codes import OperationCode

Axes = tuple[int, ...]
"""Axis i of the model's operand is axis ``axes[i]`` of the graph's value as it lies in memory."""


@dataclass(frozen=True)
class Peeled:
    """A region without the changes of layout at its border.

    ``region`` is the region with a model of fewer operations; its ``inputs``, ``outputs`` and their
    types are still those of the graph. ``input_axes`` and ``output_axes`` say for each how the
    model's operand stands to it, None where it is as it lies.
    """

    region: ConvertedRegion
    input_axes: tuple[Axes | None, ...]
    output_axes: tuple[Axes | None, ...]

    @property
    def copies(self) -> Permutes:
        """The copies that change a layout, and the bytes they write."""
        model = parse(self.region.serialized)
        moved = [
            model.operands[operand]
            for operand, axes in zip(
                (*model.inputs, *model.outputs),
                (*self.input_axes, *self.output_axes),
                strict=True,
            )
            if axes is not None
        ]
        n_bytes = sum(math.prod(o.dims) * ELEMENT_BYTES.get(o.type, 1) for o in moved)
        return Permutes(len(moved), n_bytes)


def peel(region: ConvertedRegion) -> Peeled:
    """The region with every TRANSPOSE at its border peeled off.

    Given:
        inputs: %a [1, 3, 8, 8]
        %b [1, 8, 8, 3] = TRANSPOSE(%a, [0, 2, 3, 1])
        %c [1, 8, 8, 16] = CONV_2D(%b, ...)
    Result:
        inputs: %b, whose axes are axes 0, 2, 3, 1 of %a
        %c [1, 8, 8, 16] = CONV_2D(%b, ...)

    A TRANSPOSE stays where its permutation is no constant, where something else reads %a too, and
    where %b is an output itself; at outputs likewise.
    """
    model = parse(region.serialized)
    uses = _uses(model)
    removed: set[int] = set()
    inputs: list[OperandId] = []
    input_axes: list[Axes | None] = []
    for operand in model.inputs:
        found = _only_reader(model, operand, uses)
        if found is None or model.operations[found].outputs[0] in model.outputs:
            inputs.append(operand)
            input_axes.append(None)
            continue
        removed.add(found)
        inputs.append(model.operations[found].outputs[0])
        input_axes.append(_permutation(model, model.operations[found]))
    outputs: list[OperandId] = []
    output_axes: list[Axes | None] = []
    for operand in model.outputs:
        found = _writer(model, operand, uses, removed, inputs)
        if found is None:
            outputs.append(operand)
            output_axes.append(None)
            continue
        removed.add(found)
        outputs.append(model.operations[found].inputs[0])
        axes = _permutation(model, model.operations[found])
        assert axes is not None
        output_axes.append(tuple(axes.index(i) for i in range(len(axes))))
    if not removed:
        return Peeled(region, tuple(input_axes), tuple(output_axes))
    kept = [o for index, o in enumerate(model.operations) if index not in removed]
    rest = _compact(model, kept, inputs, outputs)
    return Peeled(
        dataclasses.replace(
            region,
            serialized=serialize(rest),
            operations=tuple(
                name for index, name in enumerate(region.operations) if index not in removed
            ),
        ),
        tuple(input_axes),
        tuple(output_axes),
    )


def unpeeled(region: ConvertedRegion) -> Peeled:
    """The region as it is."""
    return Peeled(region, (None,) * len(region.inputs), (None,) * len(region.outputs))


def _uses(model: NnapiModel) -> dict[OperandId, list[int]]:
    """Operand -> the operations that read it, once for each time."""
    uses: dict[OperandId, list[int]] = {}
    for index, operation in enumerate(model.operations):
        for operand in operation.inputs:
            uses.setdefault(operand, []).append(index)
    return uses


def _only_reader(
    model: NnapiModel, operand: OperandId, uses: dict[OperandId, list[int]]
) -> int | None:
    """The TRANSPOSE that alone reads an operand, if there is one to peel."""
    readers = uses.get(operand, [])
    if len(readers) != 1 or operand in model.outputs:
        return None
    operation = model.operations[readers[0]]
    moves = operation.inputs[0] == operand and _permutation(model, operation) is not None
    return readers[0] if moves else None


def _writer(
    model: NnapiModel,
    operand: OperandId,
    uses: dict[OperandId, list[int]],
    removed: set[int],
    inputs: Sequence[OperandId],
) -> int | None:
    """The TRANSPOSE that writes an output from a value which nothing else wants."""
    for index, operation in enumerate(model.operations):
        if operand not in operation.outputs:
            continue
        source = operation.inputs[0]
        made = any(
            source in other.outputs
            for number, other in enumerate(model.operations)
            if number not in removed
        )
        alone = uses[source] == [index] and source not in model.outputs
        wanted = operand in uses or model.outputs.count(operand) != 1
        fits = made and alone and not wanted and source not in inputs
        return index if fits and _permutation(model, operation) is not None else None
    return None


def _permutation(model: NnapiModel, operation: Operation) -> Axes | None:
    """The constant permutation of a TRANSPOSE that moves something."""
    if operation.code is not OperationCode.TRANSPOSE or len(operation.inputs) != 2:
        return None
    source = next((v.source for v in model.values if v.operand == operation.inputs[1]), None)
    if not isinstance(source, bytes) or not source:
        return None
    axes = struct.unpack(f"<{len(source) // 4}i", source)
    given, made = (model.operands[i] for i in (operation.inputs[0], operation.outputs[0]))
    if sorted(axes) != list(range(len(given.dims))) or list(axes) == sorted(axes):
        return None
    # Sizes that are not known, or do not fit, are for the engines to judge.
    fits = all(given.dims[axis] == dim != 0 for axis, dim in zip(axes, made.dims, strict=True))
    return axes if fits else None


def _compact(
    model: NnapiModel,
    operations: Sequence[Operation],
    inputs: Sequence[OperandId],
    outputs: Sequence[OperandId],
) -> NnapiModel:
    """The model of these operations, without the operands that nothing names any more."""
    named = {*inputs, *outputs}
    for operation in operations:
        named.update((*operation.inputs, *operation.outputs))
    number: dict[OperandId, OperandId] = {}
    operands: list[Operand] = []
    for index, operand in enumerate(model.operands):
        if OperandId(index) in named:
            number[OperandId(index)] = OperandId(len(operands))
            operands.append(operand)

    def renumbered(ids: Sequence[OperandId]) -> tuple[OperandId, ...]:
        return tuple(number[i] for i in ids)

    return NnapiModel(
        tuple(operands),
        tuple(
            dataclasses.replace(value, operand=number[value.operand])
            for value in model.values
            if value.operand in number
        ),
        tuple(Operation(o.code, renumbered(o.inputs), renumbered(o.outputs)) for o in operations),
        renumbered(inputs),
        renumbered(outputs),
    )
