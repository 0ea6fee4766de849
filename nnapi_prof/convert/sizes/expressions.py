"""Integers that follow from open sizes: sums of products of floored quotients."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction


@dataclass(frozen=True, slots=True)
class Floor:
    """``factor * ((s + shift) // divisor) + offset``, where s is the open size number ``index``.

    Strided windows, padding and resizing by whole factors, one after another, give nothing else:
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
        """As Python and TorchScript write it."""
        size = names[self.index]
        if self.divisor == 1:
            return _plus(_times(self.factor, size), self.offset + self.factor * self.shift)
        inner = f"({size} + {self.shift})" if self.shift else size
        return _plus(_times(self.factor, f"({inner} // {self.divisor})"), self.offset)


def _times(factor: int, text: str) -> str:
    return text if factor == 1 else f"{factor} * {text}"


def _plus(text: str, offset: int) -> str:
    if not offset:
        return text
    return f"{text} {'+' if offset > 0 else '-'} {abs(offset)}"


@dataclass(frozen=True, slots=True)
class Expression:
    """``constant`` plus the products of ``terms``, each a factor and what it multiplies."""

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
        """As Python and TorchScript write it."""
        parts = []
        for factor, floors in self.terms:
            product = " * ".join(f"({floor.text(names)})" for floor in floors)
            parts.append(_times(factor, product))
        if self.constant or not parts:
            parts.append(str(self.constant))
        return " + ".join(parts)


def floors_through(
    index: int, sizes: Sequence[int], values: Sequence[int], slope: Fraction, period: int
) -> list[Floor]:
    """All Floors with this slope, and a divisor that divides ``period``, that take ``values`` at
    ``sizes``; the smallest divisor first."""
    found = []
    for divisor in range(slope.denominator, period + 1, slope.denominator):
        if period % divisor:
            continue
        factor = int(slope * divisor)
        for shift in range(divisor):
            offset = values[0] - factor * ((sizes[0] + shift) // divisor)
            floor = Floor(index, factor, shift, divisor, offset)
            if all(floor.of(s) == v for s, v in zip(sizes, values, strict=True)):
                found.append(floor)
    return found
