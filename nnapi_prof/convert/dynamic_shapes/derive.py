"""Find the expressions of a template.

1. Far from the example, change one size at a time: this shows which words depend on which sizes,
   and how fast they grow. The denominators of these slopes are the strides of the model. After
   their least common multiple, the period, every word has grown by a whole number.
2. Near the example, try remainders of the period: of all floored quotients with the right slope,
   keep those that agree with every conversion so far. Each next size is the one at which the rest
   differ most, until they agree at every remainder. Where a model runs at some remainders only (a
   U-Net that halves twice needs multiples of 4), sizes move in larger steps.
3. Words that depend on several sizes are products of those found, or sums along the dimension of a
   concatenation.
4. Compare the template with conversions at other sizes, from small to large.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np

from nnapi_prof.convert.dynamic_shapes.template import (
    Convert,
    Expression,
    Floor,
    NoTemplate,
    OpenSize,
    Prober,
    Template,
    floors_through,
)
from nnapi_prof.errors import InputSpecError
from nnapi_prof.nnapi.codes import OperationCode

JUMPS = (960, 1344, 192, 64, 32)
"""Distances of the far sizes from the example, tried in order. Many strides divide them; the small
ones are for models with a largest size."""

CHECKS, WIDE = 4, 4
"""Number of sizes that step 4 checks, and their limit in multiples of the example."""

FRACTIONS = 64
"""Fractions of the example's size in which the smallest size is searched."""

SMALL = 32
"""Sizes up to this one are tried one by one."""


def derive(
    convert: Convert,
    opens: Sequence[OpenSize],
    sizes_text: Callable[[Sequence[int]], str],
    maker: Callable[[int], str],
    jumps: Sequence[int] = JUMPS,
) -> Template:
    """Returns the template of a model with these sizes left open.

    ``convert`` converts at any sizes; ``sizes_text`` and ``maker`` are Prober's. Raises the errors
    of ``convert`` at the examples, and InputSpecError with the reason where no template fits.
    """
    prober = Prober(convert, tuple(open_size.example for open_size in opens), sizes_text, maker)
    reasons = []
    for jump in jumps:
        try:
            return _SizeSearch(prober, opens, jump).template()
        except NoTemplate as reason:
            reasons.append(reason)
    raise InputSpecError(
        f"these sizes cannot be left open: {reasons[0]}; state fixed sizes"
    ) from reasons[0]


class _SizeSearch:
    def __init__(self, prober: Prober, opens: Sequence[OpenSize], jump: int) -> None:
        self.prober = prober
        self.opens = opens
        self.jump = jump
        self.example = prober.example
        self.seen = [self.example]
        """Sizes that the expressions are fitted to. The example is followed by two far sizes for
        each open size i: ``seen[1 + 2 * i]`` and ``seen[2 + 2 * i]``."""
        for index in range(len(self.example)):
            self.seen += [self._moved({index: jump}), self._moved({index: 2 * jump})]
        for sizes in self.seen:
            prober.at(sizes)
        slopes = [c.slope for c in self._columns() if c.slope is not None]
        self.periods = [
            math.lcm(1, *(slope.denominator for index, slope in slopes if index == number))
            for number in range(len(self.example))
        ]

    def _moved(self, by: dict[int, int]) -> tuple[int, ...]:
        return tuple(size + by.get(index, 0) for index, size in enumerate(self.example))

    def template(self) -> Template:
        whole = math.lcm(*self.periods)
        far = len(self.seen)
        reasons = []
        for step in (n for n in range(1, whole + 1) if whole % n == 0):
            steps = [math.gcd(step, period) for period in self.periods]
            del self.seen[far:]
            try:
                return self._fitted(steps)
            except NoTemplate as reason:
                reasons.append(reason)
        raise reasons[-1]

    def _columns(self) -> list[Column]:
        """Returns the words that vary over ``seen``; words with equal values share a column."""
        rows = np.stack([self.prober.at(sizes) for sizes in self.seen])
        varying = np.flatnonzero((rows != rows[0]).any(axis=0))
        together: dict[tuple[int, ...], list[int]] = {}
        for word in varying:
            together.setdefault(tuple(map(int, rows[:, word])), []).append(int(word))
        return [
            Column(values, tuple(words), self._slope(values), self._depends(values))
            for values, words in together.items()
        ]

    def _depends(self, values: Sequence[int]) -> tuple[int, ...]:
        return tuple(i for i in range(len(self.example)) if values[1 + 2 * i] != values[0])

    def _slope(self, values: Sequence[int]) -> tuple[int, Fraction] | None:
        """Returns the only size that a column depends on, and how fast the column grows with it."""
        depends = self._depends(values)
        if len(depends) != 1:
            return None
        (index,) = depends
        rise = values[1 + 2 * index] - values[0]
        if values[2 + 2 * index] - values[1 + 2 * index] != rise:
            return None
        return index, Fraction(rise, self.jump)

    def _fitted(self, steps: list[int]) -> Template:
        """Returns the template for sizes that differ from the example by multiples of ``steps``."""
        offsets: list[int] | None = list(steps)
        turn = 0
        while offsets is not None:
            turn += 1
            sizes = self._moved(
                {i: n + self.periods[i] * (1 + turn % 3) for i, n in enumerate(offsets)}
            )
            self.prober.at(sizes)
            self.seen.append(sizes)
            columns = self._columns()
            candidates = [self._candidates(column) for column in columns]
            offsets = self._next(steps, candidates)
        if any(not c and len(k.depends) < 2 for c, k in zip(candidates, columns, strict=True)):
            self._see_a_period(steps)
        columns = self._columns()
        expressions = [Expression.of(c[0]) if c else None for c in map(self._candidates, columns)]
        patches = solve_columns(columns, expressions, self.seen, self.prober)
        return self._checked(patches, steps)

    def _see_a_period(self, steps: list[int]) -> None:
        """Converts at every remainder: :meth:`_next` does not distinguish sums of quotients."""
        counts = [period // step for period, step in zip(self.periods, steps, strict=True)]
        for number in range(max(counts)):
            sizes = self._moved({i: step * (number + i) for i, step in enumerate(steps)})
            self.prober.at(sizes)
            self.seen.append(sizes)

    def _candidates(self, column: Column) -> list[Floor]:
        if column.slope is None:
            return []
        index, slope = column.slope
        sizes = [sample[index] for sample in self.seen]
        return floors_through(index, sizes, column.values, slope, self.periods[index])

    def _next(self, steps: list[int], candidates: list[list[Floor]]) -> list[int] | None:
        """Returns, for each size, the distance from the example at which candidates differ most;
        None where they all agree."""
        offsets, is_ambiguous = [], False
        for index, (step, period) in enumerate(zip(steps, self.periods, strict=True)):
            mine = [floors for floors in candidates if floors and floors[0].index == index]
            best, most = step, 0
            for offset in range(0, period, step):
                size = self.example[index] + offset + period
                kinds = sum(len({floor.of(size) for floor in floors}) - 1 for floors in mine)
                if kinds > most:
                    best, most = offset, kinds
            offsets.append(best)
            is_ambiguous = is_ambiguous or most > 0
        return offsets if is_ambiguous else None

    def _checked(self, patches: dict[int, Expression], steps: list[int]) -> Template:
        """Returns the template with its valid range, checked at sizes that it was not fitted to."""
        least = self._smallest(patches, steps)
        most = self._moved(dict.fromkeys(range(len(self.example)), 2 * self.jump))
        spread = [
            tuple(
                low + step * ((WIDE * size - low) // step * part // CHECKS + part + index)
                for index, (low, size, step) in enumerate(
                    zip(least, self.example, steps, strict=True)
                )
            )
            for part in range(CHECKS)
        ]
        for sizes in spread:
            if not self._holds(patches, sizes):
                text = self.prober.sizes_text(sizes)
                raise NoTemplate(f"with {text} its sizes are not those foreseen")
        opens = tuple(
            replace(open_size, step=step, least=low, most=high)
            for open_size, step, low, high in zip(self.opens, steps, least, most, strict=True)
        )
        return Template(opens, self.prober.base.region, patches)

    def _smallest(self, patches: dict[int, Expression], steps: list[int]) -> tuple[int, ...]:
        """Returns the smallest sizes, about in the example's proportions, at which the template
        holds. It is assumed to hold between them and the example."""
        low, high = 0, FRACTIONS  # in FRACTIONS: the template fails at low, holds at high
        smallest = self.example
        while high - low > 1:
            part = low + (high - low) // 2 if low else high // 2
            sizes = tuple(
                _at_least(example * part // FRACTIONS, example, step)
                for example, step in zip(self.example, steps, strict=True)
            )
            if sizes == smallest or self._fits(patches, sizes):
                high, smallest = part, sizes
            else:
                low = part
        for index in range(
            len(smallest)
        ):  # one alone may be smaller than the proportions let it be
            smallest = self._smaller(patches, steps, smallest, index)
        return smallest

    def _smaller(
        self, patches: dict[int, Expression], steps: list[int], sizes: tuple[int, ...], index: int
    ) -> tuple[int, ...]:
        """Returns ``sizes`` with the size ``index`` reduced in steps while the template holds."""
        while sizes[index] <= SMALL:
            tried = (*sizes[:index], sizes[index] - steps[index], *sizes[index + 1 :])
            if tried[index] < 1 or not self._fits(patches, tried):
                break
            sizes = tried
        return sizes

    def _fits(self, patches: dict[int, Expression], sizes: Sequence[int]) -> bool:
        try:
            return self._holds(patches, sizes)
        except NoTemplate:
            return False

    def _holds(self, patches: dict[int, Expression], sizes: Sequence[int]) -> bool:
        """Returns whether the patches give the conversion at ``sizes``. Raises NoTemplate where the
        model has no conversion of the same form there."""
        expected = self.prober.at(sizes)
        words = self.prober.base_words.copy()
        for word, expression in patches.items():
            words[word] = expression.at(sizes)
        return bool((words == expected).all())


def _at_least(size: int, example: int, step: int) -> int:
    """Returns the smallest size from ``size`` (and 1) on that is whole steps from the example."""
    size = max(size, 1)
    return size + (example - size) % step


# Expressions of words that no single floored quotient gives.


@dataclass(frozen=True, slots=True)
class Column:
    """Words with the same values at all sizes seen; the first value is the example's.

    ``depends`` are the open sizes that the values change with. If there is only one and the values
    grow evenly, ``slope`` has its index and the growth.
    """

    values: tuple[int, ...]
    words: tuple[int, ...]
    slope: tuple[int, Fraction] | None
    depends: tuple[int, ...]


def solve_columns(
    columns: Sequence[Column],
    solved_before: Sequence[Expression | None],
    samples: Sequence[Sequence[int]],
    prober: Prober,
) -> dict[int, Expression]:
    """Returns the expression of every word; ``solved_before`` has those of some columns.

    Raises NoTemplate with the name of a word that has none.
    """
    expressions = list(solved_before)
    sizes = [Floor(index, 1, 0, 1, 0) for index in range(len(samples[0]))]
    floors = list(
        dict.fromkeys([*(e.terms[0][1][0] for e in expressions if e is not None), *sizes])
    )
    for number, column in enumerate(columns):
        if expressions[number] is None:
            expressions[number] = _as_product(column, floors, samples) or _as_sum(
                column, floors, samples
            )
    where = {word: number for number, column in enumerate(columns) for word in column.words}
    waiting = [number for number, expression in enumerate(expressions) if expression is None]
    while waiting:
        for number in waiting:
            expressions[number] = _as_joined_size(
                columns[number], where, expressions, samples, prober
            )
        unsolved = [number for number in waiting if expressions[number] is None]
        if len(unsolved) == len(waiting):
            raise NoTemplate(_refusal(columns[unsolved[0]], samples, prober))
        waiting = unsolved
    return {
        word: expression
        for column, expression in zip(columns, expressions, strict=True)
        if expression is not None
        for word in column.words
    }


def _as_product(
    column: Column, floors: Sequence[Floor], samples: Sequence[Sequence[int]]
) -> Expression | None:
    """Returns ``k * f * g + d`` with one known quotient of each size that the column depends on."""
    of_sizes = [[floor for floor in floors if floor.index == index] for index in column.depends]
    if len(column.depends) < 2:
        return None
    for floor_set in itertools.product(*of_sizes):
        products = [Expression(0, ((1, floor_set),)).at(sizes) for sizes in samples]
        other = 1 + 2 * column.depends[0]
        rise, per = column.values[other] - column.values[0], products[other] - products[0]
        if per == 0 or rise % per:
            continue
        factor = rise // per
        rest = column.values[0] - factor * products[0]
        if all(factor * p + rest == v for p, v in zip(products, column.values, strict=True)):
            return Expression(rest, ((factor, floor_set),))
    return None


def _as_sum(
    column: Column, floors: Sequence[Floor], samples: Sequence[Sequence[int]]
) -> Expression | None:
    """Returns ``j * f + k * g + d`` with two known quotients of one size. An example is the part of
    a window that is beyond the edge."""
    if len(column.depends) > 1:
        return None
    targets = np.array(column.values)
    for f, g in itertools.combinations(floors, 2):
        if f.index != g.index or column.depends not in ((), (f.index,)):
            continue
        rows = np.array([[f.at(sizes), g.at(sizes), 1] for sizes in samples])
        coefficients = np.rint(np.linalg.lstsq(rows, targets, rcond=None)[0]).astype(int)
        if (rows @ coefficients == targets).all():
            j, k, rest = map(int, coefficients)
            return Expression(rest, ((j, (f,)), (k, (g,))))
    return None


def _as_joined_size(
    column: Column,
    where: dict[int, int],
    expressions: Sequence[Expression | None],
    samples: Sequence[Sequence[int]],
    prober: Prober,
) -> Expression | None:
    """Returns the sum of the inputs' sizes, if a word of the column is the joined dimension of a
    concatenation's result."""
    words = set(column.words)
    for operation in prober.model.operations:
        if operation.code is not OperationCode.CONCATENATION:
            continue
        (result,) = operation.outputs
        for axis in range(len(prober.model.operands[result].dims)):
            if prober.map.dims[result] + axis not in words:
                continue
            total = Expression(0)
            for operand in operation.inputs[:-1]:
                word = prober.map.dims[operand] + axis
                part: Expression | None = Expression(int(prober.base_words[word]))
                if word in where:
                    part = expressions[where[word]]
                if part is None:
                    break
                total = total.plus(part)
            if all(total.at(s) == v for s, v in zip(samples, column.values, strict=True)):
                return total
    return None


def _refusal(column: Column, samples: Sequence[Sequence[int]], prober: Prober) -> str:
    operand, kind, place = prober.map.free[column.words[0]]
    operations = enumerate(prober.model.operations)
    index = next(i for i, o in operations if operand in (*o.inputs, *o.outputs))
    role = "result" if operand in prober.model.operations[index].outputs else "argument"
    examples = ", ".join(
        f"{value} with {prober.sizes_text(sizes)}"
        for sizes, value in zip(samples[:3], column.values, strict=False)
    )
    return (
        f"{kind} {place} of operand {operand}, {role} of {prober.operation(index)}, is not a sum or"
        f" product of divided sizes ({examples})"
    )
