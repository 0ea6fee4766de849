"""Conversions of one model at several sizes, and how they may differ."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from nnapi_prof.convert.dynamic_shapes.template import Words, as_words, word_map
from nnapi_prof.convert.region import Region
from nnapi_prof.errors import NnapiProfError
from nnapi_prof.frontend.torch_logging import essential_line

Sizes = tuple[int, ...]


@dataclass(frozen=True)
class Converted:
    """One conversion: the region (constants not shared), and what a model gives beside it."""

    region: Region
    beside: object


Convert = Callable[[Sizes], Converted]


class NoTemplate(Exception):
    """No template holds for the sizes that were tried; the message says which and why."""


class Prober:
    """Converts at sizes, each once, and compares with the conversion at ``example``.

    ``sizes_text`` turns sizes into the words for a message, ``maker`` the index of an operation
    into the graph's node.
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
        """The words of the model at these sizes. Raises Unfit where the model does not run or
        convert there, or differs in more than its free words."""
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
        """How another conversion differs beyond its free words; None where it does not."""
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
        """Says that a constant operand has another value, and who reads it."""
        readers = [i for i, o in enumerate(self.model.operations) if constant in o.inputs]
        name = self.model.operands[constant].type.name
        by = f" of {self.operation(readers[0])}" if readers else ""
        return f"the constant {name}{by} has another value"

    def operation(self, index: int) -> str:
        """An operation and the node it comes from, for messages."""
        return f"{self.base.region.operations[index]} for {self.maker(index)}"
