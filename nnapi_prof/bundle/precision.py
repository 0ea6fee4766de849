"""The part of a bundle that mixed precision adds: the quantisation of the model, and the front that
its plan was chosen from."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from nnapi_prof.errors import SerializationError
from nnapi_prof.graph.plan import Precision

if TYPE_CHECKING:
    from nnapi_prof.graph.program import Program

MOST_ROWS = 10_000


@dataclass(frozen=True, slots=True)
class FrontRow:
    """A plan on the front, or a baseline beside it."""

    name: str
    is_baseline: bool
    latency_ns: float
    """As predicted."""
    error: float
    """On the calibration data."""
    held_out_error: float
    held_out_low: float
    held_out_high: float
    """95 %: errors on other data of the same kind lie between these."""
    n_segments: int
    n_units: Mapping[Precision, int]
    """How many units compute in which precision."""


@dataclass(frozen=True, slots=True)
class Sensitivity:
    """The errors that a unit of the float model causes alone."""

    label: str
    errors: Mapping[Precision, float]
    """Those that it can run in."""


@dataclass(frozen=True)
class MixedPrecision:
    """The precision data of a bundle whose regions differ in precision."""

    recipe: Mapping[str, Any] = field(repr=False)
    """As :meth:`nnapi_prof.precision.recipe.Recipe.to_json` has it: bundles are read without
    PyTorch, which a recipe needs."""
    int8_units: frozenset[int]
    """Units of the float model that compute in 8 bits."""
    metric: str
    """The error's name, for people."""
    budget: float | None
    """The largest error that was allowed."""
    chosen: str
    """The name of the front's row that became the plan."""
    front: tuple[FrontRow, ...] = ()
    sensitivity: tuple[Sensitivity, ...] = ()
    """Of each unit of the float model."""

    @property
    def chosen_row(self) -> FrontRow | None:
        """The row that became the plan."""
        return next((row for row in self.front if row.name == self.chosen), None)

    def applied(self, program: Program) -> Program:
        """The float model with its units in 8 bits where the bundle has them so: what the bundle's
        graph is of. Raises ConversionError where it is another model, SerializationError where the
        recipe is none."""
        if not self.int8_units:
            return program
        from nnapi_prof.precision.program import quantise
        from nnapi_prof.precision.recipe import Recipe

        return quantise(program, Recipe.from_json(self.recipe), self.int8_units).program

    def to_json(self) -> dict[str, Any]:
        return {
            "recipe": dict(self.recipe),
            "int8_units": sorted(self.int8_units),
            "metric": self.metric,
            "budget": self.budget,
            "chosen": self.chosen,
            "front": [
                {
                    "name": row.name,
                    "is_baseline": row.is_baseline,
                    "latency_ns": row.latency_ns,
                    "error": _finite_or_null(row.error),
                    "held_out": [
                        _finite_or_null(row.held_out_error),
                        _finite_or_null(row.held_out_low),
                        _finite_or_null(row.held_out_high),
                    ],
                    "n_segments": row.n_segments,
                    "n_units": _by_word(row.n_units),
                }
                for row in self.front
            ],
            "sensitivity": [
                {"label": row.label, "errors": _by_word(row.errors)} for row in self.sensitivity
            ],
        }

    @classmethod
    def from_json(cls, data: Any) -> MixedPrecision:
        """The inverse of :meth:`to_json`. SerializationError where ``data`` is something else."""
        try:
            rows, sensitivity = data["front"], data["sensitivity"]
            if max(len(rows), len(sensitivity)) > MOST_ROWS:
                raise ValueError(f"it has more than {MOST_ROWS} rows")
            budget = data["budget"]
            return cls(
                recipe=dict(data["recipe"]),
                int8_units=frozenset(_read_count(unit) for unit in data["int8_units"]),
                metric=str(data["metric"]),
                budget=None if budget is None else _read_finite(budget),
                chosen=str(data["chosen"]),
                front=tuple(_read_front_row(row) for row in rows),
                sensitivity=tuple(
                    Sensitivity(
                        str(row["label"]),
                        {Precision(p): _read_finite(e) for p, e in row["errors"].items()},
                    )
                    for row in sensitivity
                ),
            )
        except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
            raise SerializationError(f"the front of precisions: {error!r}") from error


def _read_front_row(data: Any) -> FrontRow:
    held_out, low, high = map(_read_error, data["held_out"])
    low = -low if low == math.inf else low
    return FrontRow(
        name=str(data["name"]),
        is_baseline=bool(data["is_baseline"]),
        latency_ns=_read_finite(data["latency_ns"]),
        error=_read_error(data["error"]),
        held_out_error=held_out,
        held_out_low=low,
        held_out_high=high,
        n_segments=_read_count(data["n_segments"]),
        n_units={Precision(p): _read_count(n) for p, n in data["n_units"].items()},
    )


def _by_word(by_precision: Mapping[Precision, float]) -> dict[str, float]:
    return {precision.value: number for precision, number in by_precision.items()}


def _finite_or_null(error: float) -> float | None:
    """JSON has no word for an error that nothing bounds."""
    return error if math.isfinite(error) else None


def _read_error(value: Any) -> float:
    return math.inf if value is None else _read_finite(value)


def _read_finite(value: Any) -> float:
    number = float(value)
    if not math.isfinite(number):
        raise ValueError(f"{value!r} is not a finite number")
    return number


def _read_count(value: Any) -> int:
    if type(value) is not int or value < 0:
        raise ValueError(f"{value!r} is not a count")
    return value
