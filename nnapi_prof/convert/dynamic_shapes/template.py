"""Describe a converted model with open sizes, and how conversions at several sizes may differ."""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from nnapi_prof.convert import (
    BufferSlice,
    ConstantValue,
    NnapiModel,
    Operand,
    OperandId,
    Operation,
)
from nnapi_prof.convert.region import Region
from nnapi_prof.errors import InputSpecError, NnapiProfError
from nnapi_prof.frontend.torch_logging import essential_line
from nnapi_prof.graph import MAX_RANK, DimOrder, TensorType
from nnapi_prof.nnapi.codes import OperandCode


@dataclass(frozen=True, slots=True)
class OpenSize:
    """Size that is left open: dimension ``dim`` (PyTorch's) of the model's input ``input``.

    ``equal`` has the other (input, dimension) pairs of the same size.

    The size may be ``example`` plus or minus multiples of ``step``, from ``least`` to ``most``: the
    range in which the template was checked.
    """

    input: int
    dim: int
    example: int
    step: int = 1
    least: int = 1
    most: int = 1
    equal: tuple[tuple[int, int], ...] = ()

    def why_not(self, size: int) -> str | None:
        """Returns the reason for refusing a size, as a predicate; None where it fits."""
        if not self.least <= size <= self.most:
            return f"is {size}, {self.least} to {self.most} are possible"
        if (size - self.example) % self.step:
            remainder = self.example % self.step
            multiples = f"multiples of {self.step}"
            choices = f"{multiples} plus {remainder}" if remainder else multiples
            return f"is {size}, {choices} are possible"
        return None


@dataclass(frozen=True)
class Template:
    """Conversion of a model with an expression for each number that depends on the open sizes.

    ``region`` is the conversion at the examples of ``opens``, with equal constants not shared.
    ``patches`` has the 32-bit words of its serialized model that depend on the open sizes. NNAPI
    sees the leading dimensions of a value with more than MAX_RANK as one (operand_shape).
    ``leading`` names the inputs and outputs with an open size among those, and the dimension.
    """

    opens: tuple[OpenSize, ...]
    region: Region
    patches: Mapping[int, Expression] = field(repr=False)
    leading: Mapping[str, int] = field(default_factory=dict)

    def fill(self, sizes: Sequence[int]) -> Region:
        """Returns the region that converting the model at these sizes gives. Raises InputSpecError
        where the template does not hold for a size."""
        for size, open_size in zip(sizes, self.opens, strict=True):
            reason = open_size.why_not(size)
            if reason is not None:
                raise InputSpecError(
                    f"dimension {open_size.dim} of input {open_size.input} {reason}"
                )
        numbers = {word: expression.at(sizes) for word, expression in self.patches.items()}
        model = with_words(self.region.model, numbers)
        return replace(
            self.region,
            model=with_shared_constants(model),
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
        """Returns the types with the shapes of the operands."""
        sized = []
        for name, type_, operand in zip(names, types, operands, strict=True):
            dims = model.operands[operand].dims
            if type_.dim_order is DimOrder.CHANNELS_LAST:
                n, h, w, c = dims
                dims = (n, c, h, w)
            n_merged = len(type_.shape) - MAX_RANK + 1
            if n_merged > 1:
                first = list(type_.shape[:n_merged])
                if name in self.leading:
                    first[self.leading[name]] = 1
                    first[self.leading[name]] = dims[0] // math.prod(first)
                dims = (*first, *dims[1:])
            sized.append(replace(type_, shape=dims) if type_.shape else type_)
        return tuple(sized)


def with_shared_constants(model: NnapiModel) -> NnapiModel:
    """Returns the model with equal constants shared, as ModelBuilder makes it with ``shared``."""
    sources = {value.operand: value.source for value in model.values}
    first: dict[tuple[Operand, object], OperandId] = {}
    numbers: list[OperandId] = []
    operands: list[Operand] = []
    for index, operand in enumerate(model.operands):
        source = sources.get(OperandId(index))
        twin = first.get((operand, source)) if isinstance(source, bytes) else None
        if twin is None:
            twin = OperandId(len(operands))
            operands.append(operand)
            first[operand, source] = twin
        numbers.append(twin)
    values = {numbers[v.operand]: ConstantValue(numbers[v.operand], v.source) for v in model.values}

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


# Places of the numbers in a serialized model that may depend on sizes.


Words = NDArray[np.int32]
"""Serialized model as 32-bit words."""

_HEADER, _OPERAND, _VALUE, _OPERATION = 6, 4, 3, 3
_SLICE = 3
_INTEGERS = (OperandCode.INT32, OperandCode.TENSOR_INT32)


def as_words(serialized: bytes) -> Words:
    return np.frombuffer(serialized, dtype="<i4")


class Slot(NamedTuple):
    """Dimension of an operand, or element of a constant one."""

    operand: int
    kind: Literal["dimension", "element"]
    number: int


@dataclass(frozen=True)
class WordMap:
    """Places of an operand's numbers in a serialized model.

    ``dims[i]`` is the word where the dimensions of operand i begin. ``free`` are the words that are
    a dimension or a constant integer, ``constants`` those of other constants with their operands.
    ``buffers`` has the operand of each numbered buffer.
    """

    dims: tuple[int, ...]
    free: dict[int, Slot]
    constants: dict[int, int]
    buffers: dict[int, int]


def word_map(model: NnapiModel) -> WordMap:
    """Returns the map of ``serialize(model)``."""
    at = _HEADER + _OPERAND * len(model.operands)
    at += _VALUE * len(model.values) + _OPERATION * len(model.operations)
    dims = []
    free: dict[int, Slot] = {}
    constants: dict[int, int] = {}
    buffers: dict[int, int] = {}
    for index, operand in enumerate(model.operands):
        dims.append(at)
        for number in range(len(operand.dims)):
            free[at + number] = Slot(index, "dimension", number)
        at += len(operand.dims)
    for value in model.values:
        if isinstance(value.source, BufferSlice):
            buffers[value.source.buffer] = value.operand
            at += _SLICE
            continue
        integers = model.operands[value.operand].type in _INTEGERS
        for number in range(-(-len(value.source) // 4)):
            if integers:
                free[at] = Slot(value.operand, "element", number)
            else:
                constants[at] = value.operand
            at += 1
    return WordMap(tuple(dims), free, constants, buffers)


def with_words(model: NnapiModel, numbers: Mapping[int, int]) -> NnapiModel:
    """Returns the model with ``numbers`` in some of its free words."""
    free = word_map(model).free
    dims = [list(operand.dims) for operand in model.operands]
    elements = {v.operand: v.source for v in model.values}
    for word, number in numbers.items():
        operand, kind, place = free[word]
        if kind == "dimension":
            dims[operand][place] = number
            continue
        source = elements[OperandId(operand)]
        assert isinstance(source, bytes)
        integers = as_words(source).copy()
        integers[place] = number
        elements[OperandId(operand)] = integers.tobytes()
    return replace(
        model,
        operands=tuple(
            replace(operand, dims=tuple(sizes))
            for operand, sizes in zip(model.operands, dims, strict=True)
        ),
        values=tuple(ConstantValue(v.operand, elements[v.operand]) for v in model.values),
    )


# Integers that follow from open sizes: sums of products of floored quotients.


@dataclass(frozen=True, slots=True)
class Floor:
    """Floored quotient ``factor * ((s + shift) // divisor) + offset``; s is open size ``index``.

    Strided windows, padding and resizing by whole factors, in any sequence, give nothing else:
    floored quotients of floored quotients are floored quotients.
    """

    index: int
    factor: int
    shift: int
    divisor: int
    offset: int

    def at(self, sizes: Sequence[int]) -> int:
        return self.of(sizes[self.index])

    def of(self, size: int) -> int:
        return self.factor * ((size + self.shift) // self.divisor) + self.offset

    def text(self, names: Sequence[str]) -> str:
        """Returns the expression in the syntax of Python and TorchScript."""
        size = names[self.index]
        if self.divisor == 1:
            return _plus(_times_text(self.factor, size), self.offset + self.factor * self.shift)
        inner = f"({size} + {self.shift})" if self.shift else size
        return _plus(_times_text(self.factor, f"({inner} // {self.divisor})"), self.offset)


def _times_text(factor: int, text: str) -> str:
    return text if factor == 1 else f"{factor} * {text}"


def _plus(text: str, offset: int) -> str:
    if not offset:
        return text
    return f"{text} {'+' if offset > 0 else '-'} {abs(offset)}"


@dataclass(frozen=True, slots=True)
class Expression:
    """Sum of ``constant`` and the products of ``terms``, each a factor and its quotients."""

    constant: int
    terms: tuple[tuple[int, tuple[Floor, ...]], ...] = ()

    @classmethod
    def of(cls, floor: Floor) -> Expression:
        return cls(0, ((1, (floor,)),))

    def plus(self, other: Expression) -> Expression:
        return Expression(self.constant + other.constant, self.terms + other.terms)

    def at(self, sizes: Sequence[int]) -> int:
        total = self.constant
        for factor, floors in self.terms:
            product = factor
            for floor in floors:
                product *= floor.at(sizes)
            total += product
        return total

    def text(self, names: Sequence[str]) -> str:
        """Returns the expression in the syntax of Python and TorchScript."""
        parts = []
        for factor, floors in self.terms:
            product = " * ".join(f"({floor.text(names)})" for floor in floors)
            parts.append(_times_text(factor, product))
        if self.constant or not parts:
            parts.append(str(self.constant))
        return " + ".join(parts)


def floors_through(
    index: int, sizes: Sequence[int], values: Sequence[int], slope: Fraction, period: int
) -> list[Floor]:
    """Returns all Floors with this slope and a divisor of ``period`` that take ``values`` at
    ``sizes``, the smallest divisor first."""
    floors = []
    for divisor in range(slope.denominator, period + 1, slope.denominator):
        if period % divisor:
            continue
        factor = int(slope * divisor)
        for shift in range(divisor):
            offset = values[0] - factor * ((sizes[0] + shift) // divisor)
            floor = Floor(index, factor, shift, divisor, offset)
            if all(floor.of(s) == v for s, v in zip(sizes, values, strict=True)):
                floors.append(floor)
    return floors


Sizes = tuple[int, ...]


@dataclass(frozen=True)
class Converted:
    """Conversion at one size: the region (constants not shared), and the outputs beside it."""

    region: Region
    beside: object


Convert = Callable[[Sizes], Converted]


class NoTemplate(Exception):
    """No template fits the sizes that were tried. The message has the sizes and the reason."""


class Prober:
    """Converts at sizes, once each, and compares with the conversion at ``example``.

    ``sizes_text`` turns sizes into words for a message, ``maker`` an operation's index into the
    name of the graph's node.
    """

    def __init__(
        self,
        convert: Convert,
        example: Sizes,
        sizes_text: Callable[[Sequence[int]], str],
        maker: Callable[[int], str],
    ) -> None:
        self.convert = convert
        self.example = example
        self.sizes_text = sizes_text
        self.maker = maker
        self.base = convert(example)
        self.base_words = as_words(self.base.region.serialized)
        self.model = self.base.region.model
        self.map = word_map(self.model)
        self._fixed = np.ones(len(self.base_words), dtype=bool)
        self._fixed[list(self.map.free)] = False
        self._words_at: dict[Sizes, Words | NoTemplate] = {example: self.base_words}

    def at(self, sizes: Sequence[int]) -> Words:
        """Returns the words of the model at these sizes. Raises NoTemplate where the model does not
        run or convert there, or differs in more than its free words."""
        key = tuple(sizes)
        if key not in self._words_at:
            try:
                self._words_at[key] = self._words(key)
            except NoTemplate as reason:
                self._words_at[key] = reason
        entry = self._words_at[key]
        if isinstance(entry, NoTemplate):
            raise entry
        return entry

    def _words(self, sizes: Sizes) -> Words:
        try:
            conversion = self.convert(sizes)
        except NnapiProfError as error:
            raise NoTemplate(f"with {self.sizes_text(sizes)} it fails: {error}") from error
        except (
            RuntimeError,
            ValueError,
            LookupError,
            TypeError,
            ArithmeticError,
            struct.error,
        ) as error:
            notes = "".join(f" ({note})" for note in getattr(error, "__notes__", ()))
            raise NoTemplate(
                f"with {self.sizes_text(sizes)} it does not run: {essential_line(error)}{notes}"
            ) from error
        difference = self._difference(conversion)
        if difference is not None:
            raise NoTemplate(f"with {self.sizes_text(sizes)} {difference}")
        return as_words(conversion.region.serialized)

    def _difference(self, other: Converted) -> str | None:
        """Returns how another conversion differs beyond its free words; None where it does not."""
        mine, theirs = self.base.region, other.region
        for index, (a, b) in enumerate(zip(mine.operations, theirs.operations, strict=False)):
            if a != b:
                return f"{self.maker(index)} becomes {b}, not {a}"
        if len(mine.operations) != len(theirs.operations):
            return f"it has {len(theirs.operations)} operations, not {len(mine.operations)}"
        for index, (ours, others) in enumerate(zip(mine.buffers, theirs.buffers, strict=False)):
            if ours != others:
                return self._other(self.map.buffers[index])
        if self.base.beside != other.beside:
            return "an output that is a constant has another value"
        if (mine.inputs, mine.outputs) != (theirs.inputs, theirs.outputs):
            return "it has other inputs or outputs"
        words = as_words(theirs.serialized)
        if len(words) != len(self.base_words) or len(mine.buffers) != len(theirs.buffers):
            return "its operations have other arguments"
        wrong = np.flatnonzero((words != self.base_words) & self._fixed)
        if not len(wrong):
            return None
        constant = self.map.constants.get(int(wrong[0]))
        return "its operations have other arguments" if constant is None else self._other(constant)

    def _other(self, constant: int) -> str:
        """Returns a message that a constant operand has another value, with its reader."""
        readers = [i for i, o in enumerate(self.model.operations) if constant in o.inputs]
        name = self.model.operands[constant].type.name
        by = f" of {self.operation(readers[0])}" if readers else ""
        return f"the constant {name}{by} has another value"

    def operation(self, index: int) -> str:
        """Returns an operation and its node, for messages."""
        return f"{self.base.region.operations[index]} for {self.maker(index)}"
