"""Expressions of words that no single floored quotient gives."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from nnapi_prof.convert.sizes.expressions import Expression, Floor
from nnapi_prof.convert.sizes.probing import Prober, Unfit
from nnapi_prof.nnapi.codes import OperationCode


@dataclass(frozen=True, slots=True)
class Column:
    """Words with the same values at all sizes seen: the first at the example.

    ``depends`` are the open sizes that the values change with; ``slope`` has the only one of them
    and how fast they grow with it, where they grow evenly.
    """

    values: tuple[int, ...]
    words: tuple[int, ...]
    slope: tuple[int, Fraction] | None
    depends: tuple[int, ...]


def solve_columns(
    columns: Sequence[Column],
    known: Sequence[Expression | None],
    seen: Sequence[Sequence[int]],
    prober: Prober,
) -> dict[int, Expression]:
    """The expression of every word. ``known`` has those of some columns already.

    Raises Unfit naming a word that has none.
    """
    found = list(known)
    sizes = [Floor(index, 1, 0, 1, 0) for index in range(len(seen[0]))]
    floors = list(dict.fromkeys([*(e.terms[0][1][0] for e in found if e is not None), *sizes]))
    for number, column in enumerate(columns):
        if found[number] is None:
            found[number] = _product(column, floors, seen) or _sum(column, floors, seen)
    where = {word: number for number, column in enumerate(columns) for word in column.words}
    waiting = [number for number, expression in enumerate(found) if expression is None]
    while waiting:
        for number in waiting:
            found[number] = _joined(columns[number], where, found, seen, prober)
        left = [number for number in waiting if found[number] is None]
        if len(left) == len(waiting):
            raise Unfit(_refusal(columns[left[0]], seen, prober))
        waiting = left
    return {
        word: expression
        for column, expression in zip(columns, found, strict=True)
        if expression is not None
        for word in column.words
    }


def _product(
    column: Column, floors: Sequence[Floor], seen: Sequence[Sequence[int]]
) -> Expression | None:
    """``k * f * g + d`` with one known quotient of each size that the column depends on."""
    of_sizes = [[floor for floor in floors if floor.index == index] for index in column.depends]
    if len(column.depends) < 2:
        return None
    for chosen in itertools.product(*of_sizes):
        products = [Expression(0, ((1, chosen),)).at(sizes) for sizes in seen]
        other = 1 + 2 * column.depends[0]
        rise, per = column.values[other] - column.values[0], products[other] - products[0]
        if per == 0 or rise % per:
            continue
        factor = rise // per
        rest = column.values[0] - factor * products[0]
        if all(factor * p + rest == v for p, v in zip(products, column.values, strict=True)):
            return Expression(rest, ((factor, chosen),))
    return None


def _sum(
    column: Column, floors: Sequence[Floor], seen: Sequence[Sequence[int]]
) -> Expression | None:
    """``j * f + k * g + d`` with two known quotients of one size: what a window that hangs over the
    edge lacks, for one."""
    if len(column.depends) > 1:
        return None
    wanted = np.array(column.values)
    for f, g in itertools.combinations(floors, 2):
        if f.index != g.index or column.depends not in ((), (f.index,)):
            continue
        rows = np.array([[f.at(sizes), g.at(sizes), 1] for sizes in seen])
        solved = np.rint(np.linalg.lstsq(rows, wanted, rcond=None)[0]).astype(int)
        if (rows @ solved == wanted).all():
            j, k, rest = map(int, solved)
            return Expression(rest, ((j, (f,)), (k, (g,))))
    return None


def _joined(
    column: Column,
    where: dict[int, int],
    found: Sequence[Expression | None],
    seen: Sequence[Sequence[int]],
    prober: Prober,
) -> Expression | None:
    """The sum of the inputs' sizes, where a word of the column is the joined dimension of a
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
                    part = found[where[word]]
                if part is None:
                    break
                total = total.plus(part)
            if all(total.at(s) == v for s, v in zip(seen, column.values, strict=True)):
                return total
    return None


def _refusal(column: Column, seen: Sequence[Sequence[int]], prober: Prober) -> str:
    operand, what = prober.map.free[column.words[0]]
    operations = enumerate(prober.model.operations)
    index = next(i for i, o in operations if operand in (*o.inputs, *o.outputs))
    role = "result" if operand in prober.model.operations[index].outputs else "argument"
    taken = ", ".join(
        f"{value} with {prober.said(sizes)}"
        for sizes, value in zip(seen[:3], column.values, strict=False)
    )
    return (
        f"{what} of operand {operand}, {role} of {prober.operation(index)}, is no sum or product "
        f"of divided sizes ({taken})"
    )
