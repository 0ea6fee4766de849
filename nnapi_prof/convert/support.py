"""Whether a unit fits NNAPI, and if not, why: a dry run of its lowering."""

from __future__ import annotations

from weakref import WeakKeyDictionary

from torch import fx

from nnapi_prof.convert.lower import convert_region
from nnapi_prof.errors import UnsupportedOp
from nnapi_prof.graph.program import Program

_ANSWERS: WeakKeyDictionary[fx.GraphModule, dict[tuple[tuple[str, ...], int, bool], str | None]] = (
    WeakKeyDictionary()
)


def why_not(program: Program, unit_index: int, level: int, for_stock: bool = False) -> str | None:
    """The sentence with which a unit is refused at ``level`` (27, 28, ...); None where it fits.

    ``for_stock`` is that of :func:`convert_region`. Answers are remembered as long as the
    program's module lives.
    """
    answers = _ANSWERS.setdefault(program.module, {})
    key = (program.units.units[unit_index].nodes, level, for_stock)
    if key not in answers:
        try:
            convert_region(program, [unit_index], level, for_stock=for_stock)
            answers[key] = None
        except UnsupportedOp as refusal:
            answers[key] = str(refusal)
    return answers[key]
