"""The error of whole plans, on the data that they were calibrated with and on data held out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from nnapi_prof.errors import InputSpecError
from nnapi_prof.precision.metrics import (
    BuiltInMetric,
    ErrorEstimate,
    FloatOutputs,
    Floats,
    Metric,
    stacked,
)
from nnapi_prof.precision.simulation import Assignment, PrecisionSimulation


@dataclass(frozen=True)
class PlanError:
    """The accuracy cost of a plan's precisions."""

    calibrated: ErrorEstimate
    """On the data that scales and errors of units come from."""
    held_out: ErrorEstimate | None
    """On other data; None where there is none."""
    relative: tuple[float, ...]
    """The relative error of each output on the calibration data, whatever the metric: what
    :func:`nnapi_prof.precision.sensitivity.corrected` takes."""

    @property
    def honest(self) -> ErrorEstimate:
        """The estimate that decides whether a budget holds: on held-out data, where there is
        some."""
        return self.held_out or self.calibrated


@dataclass(frozen=True)
class Data:
    """Samples, each the program's inputs, and what the outputs should be, where that is known."""

    samples: Sequence[Sequence[Tensor]]
    targets: Sequence[Any] | None = None

    def __len__(self) -> int:
        return len(self.samples)


class AccuracyEvaluator:
    """Runs plans of one program whole, and says how far their outputs are from float32's.

    Float32 runs once over the data. Raises InputSpecError where there is no calibration data.
    """

    def __init__(
        self,
        simulation: PrecisionSimulation,
        calibration: Data,
        held_out: Data | None = None,
        metric: Metric | None = None,
    ) -> None:
        if not len(calibration):
            raise InputSpecError("no samples to measure errors with", "give one at least")
        self.simulation = simulation
        self.metric: Metric = metric or BuiltInMetric()
        self.calibration = calibration
        self.held_out = held_out if held_out else None
        self.reference = FloatOutputs.calibrated(self._float32(calibration))
        self._other = self.reference.over(self._float32(held_out)) if held_out else None

    def _float32(self, data: Data) -> tuple[Floats, ...]:
        return stacked([self.simulation.reference(sample) for sample in data.samples])

    def error(self, assignment: Assignment) -> PlanError:
        """The error of a plan. Raises ConversionError where a unit cannot be in its precision."""
        mine = self.outputs(assignment, self.calibration)
        calibrated = self.metric.estimate(mine, self.reference, self.calibration.targets)
        relative = BuiltInMetric().estimate(mine, self.reference).by_output
        held_out = None
        if self._other is not None and self.held_out is not None:
            theirs = self.outputs(assignment, self.held_out)
            held_out = self.metric.estimate(theirs, self._other, self.held_out.targets)
        return PlanError(calibrated, held_out, relative)

    def outputs(self, assignment: Assignment, data: Data) -> tuple[Floats, ...]:
        """The plan's outputs, [samples, ...] each."""
        return stacked([self.simulation.outputs(assignment, sample) for sample in data.samples])
