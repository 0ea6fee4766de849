"""A converted model with open sizes."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from nnapi_prof.convert.converted import ConvertedRegion
from nnapi_prof.convert.model import NnapiModel, Operand, OperandId, Operation, Value
from nnapi_prof.convert.serialize import parse, serialize
from nnapi_prof.convert.sizes.expressions import Expression
from nnapi_prof.convert.sizes.words import as_words
from nnapi_prof.errors import InputSpecError
from nnapi_prof.graph.types import MAX_RANK, DimOrder, TensorType


@dataclass(frozen=True, slots=True)
class OpenSize:
    """One size that is left open: dimension ``dim`` (PyTorch's) of the model's input ``input``.

    ``equal`` has the inputs and dimensions that have the same size.

    It may be ``example`` plus or minus multiples of ``step``, from ``least`` to ``most``: the range
    in which the template was checked.
    """

    input: int
    dim: int
    example: int
    step: int = 1
    least: int = 1
    most: int = 1
    equal: tuple[tuple[int, int], ...] = ()

    def why_not(self, size: int) -> str | None:
        """The predicate with which a size is refused; None where it fits."""
        if not self.least <= size <= self.most:
            return f"is {size}, {self.least} to {self.most} are possible"
        if (size - self.example) % self.step:
            remainder = self.example % self.step
            multiples = f"multiples of {self.step}"
            wanted = f"{multiples} plus {remainder}" if remainder else multiples
            return f"is {size}, {wanted} are possible"
        return None


@dataclass(frozen=True)
class Template:
    """``region`` is the conversion at the examples of ``opens``, equal constants not shared.

    ``patches`` has the 32-bit words of its serialized model that depend on the open sizes.
    ``leading`` names the inputs and outputs of more than MAX_RANK dimensions of which one is open
    among the first that are one to NNAPI (operand_shape), and says which.
    """

    opens: tuple[OpenSize, ...]
    region: ConvertedRegion
    patches: Mapping[int, Expression] = field(repr=False)
    leading: Mapping[str, int] = field(default_factory=dict)

    def fill(self, sizes: Sequence[int]) -> ConvertedRegion:
        """What converting the model at these sizes gives. Raises InputSpecError where the template
        does not hold for one."""
        for size, known in zip(sizes, self.opens, strict=True):
            reason = known.why_not(size)
            if reason is not None:
                raise InputSpecError(f"dimension {known.dim} of input {known.input} {reason}")
        words = as_words(self.region.serialized).copy()
        for word, expression in self.patches.items():
            words[word] = expression.at(sizes)
        model = parse(words.tobytes())
        return replace(
            self.region,
            serialized=serialize(with_shared_constants(model)),
            input_types=self._sized(
                self.region.inputs, self.region.input_types, model, model.inputs
            ),
            output_types=self._sized(
                self.region.outputs, self.region.output_types, model, model.outputs
            ),
        )

    def _sized(
        self,
        names: Sequence[str],
        types: Sequence[TensorType],
        model: NnapiModel,
        operands: Sequence[OperandId],
    ) -> tuple[TensorType, ...]:
        """The types with the shapes that the operands have."""
        found = []
        for name, known, operand in zip(names, types, operands, strict=True):
            dims = model.operands[operand].dims
            if known.dim_order is DimOrder.CHANNELS_LAST:
                n, h, w, c = dims
                dims = (n, c, h, w)
            merged = len(known.shape) - MAX_RANK + 1
            if merged > 1:
                first = list(known.shape[:merged])
                if name in self.leading:
                    first[self.leading[name]] = 1
                    first[self.leading[name]] = dims[0] // math.prod(first)
                dims = (*first, *dims[1:])
            found.append(replace(known, shape=dims) if known.shape else known)
        return tuple(found)


def with_shared_constants(model: NnapiModel) -> NnapiModel:
    """The model as ModelBuilder makes it when it shares: of equal constants the first alone."""
    sources = {value.operand: value.source for value in model.values}
    first: dict[tuple[Operand, object], OperandId] = {}
    numbers: list[OperandId] = []
    operands: list[Operand] = []
    for index, operand in enumerate(model.operands):
        source = sources.get(OperandId(index))
        known = first.get((operand, source)) if isinstance(source, bytes) else None
        if known is None:
            known = OperandId(len(operands))
            operands.append(operand)
            first[operand, source] = known
        numbers.append(known)
    values = {numbers[v.operand]: Value(numbers[v.operand], v.source) for v in model.values}

    def renumbered(ids: Sequence[OperandId]) -> tuple[OperandId, ...]:
        return tuple(numbers[index] for index in ids)

    return NnapiModel(
        tuple(operands),
        tuple(values.values()),
        tuple(
            Operation(o.code, renumbered(o.inputs), renumbered(o.outputs)) for o in model.operations
        ),
        renumbered(model.inputs),
        renumbered(model.outputs),
    )
