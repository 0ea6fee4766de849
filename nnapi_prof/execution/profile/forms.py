"""The forms that a float model is measured in: as it is, in 8 bits, and for conversions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from nnapi_prof.costs.measurement import Measurement
from nnapi_prof.costs.model.precision import PrecisionCosts, fit_precisions
from nnapi_prof.costs.model.quantised import (
    Conversion,
    EightBits,
    conversions_of,
    converting_units,
)
from nnapi_prof.graph.plan import Precision

if TYPE_CHECKING:
    from nnapi_prof.graph.program import Program
    from nnapi_prof.precision.recipe import Recipe


@dataclass(frozen=True)
class EightBitForms:
    """A program in 8 bits, and one with a few units in 8 bits whose borders have conversions of
    several sizes."""

    whole: Program
    parts: Program
    eight_bits: EightBits
    """Of ``whole``."""
    conversions: tuple[Conversion, ...]
    """Units of ``parts`` that are timed."""

    @classmethod
    def of(cls, program: Program, recipe: Recipe) -> EightBitForms | None:
        """None where the recipe has no unit in 8 bits. Raises ConversionError where it was made for
        another program."""
        from nnapi_prof.precision.program import quantise  # which imports torch

        if not recipe.units:
            return None
        whole = quantise(program, recipe)
        parts = quantise(program, recipe, converting_units(program.units, recipe.units))
        eight_bits = EightBits.of(program.units, whole, recipe.refusals)
        return cls(whole.program, parts.program, eight_bits, conversions_of(program.units, parts))


def read_precision_costs(
    program: Program,
    recipe: Recipe | None,
    rows: Mapping[Precision, Sequence[Measurement]],
) -> PrecisionCosts:
    """Reads a program's costs on one device from rows, without measuring more.

    ``rows`` are the table's of that device (:meth:`.CostStore.measurements`), under conditions that
    differ in their precision alone: FLOAT32 always, RELAXED and FLOAT16 where these are asked for.
    With a recipe there is what can be in 8 bits as well.

    Raises CostError where something of it was never measured.
    """
    forms = None if recipe is None else EightBitForms.of(program, recipe)
    if forms is None:
        return fit_precisions(program.units, rows)
    return fit_precisions(program.units, rows, forms.eight_bits, forms.conversions)
