"""Measure the error that each unit alone causes in a model's outputs, in each precision.

Errors of single units are treated as noise whose power, the square of a relative error, adds up.
The sum is an approximation, so a plan is also run whole, and the powers of its units are scaled to
match its error (:func:`corrected`).
"""

from __future__ import annotations

import math
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from torch import Tensor

from nnapi_prof.errors import InputSpecError
from nnapi_prof.graph.plan import Precision
from nnapi_prof.precision.metrics import (
    BuiltInMetric,
    ErrorEstimate,
    FloatOutputs,
    Floats,
    Metric,
    stacked,
)
from nnapi_prof.precision.simulation import NARROW_DOUBT, Assignment, PrecisionSimulation
from nnapi_prof.progress import CountCallback

N_SAMPLES = 32
"""Number of calibration samples used. On trained nets the powers of nine units of ten are within
30 % of those from 200 samples, and the roots of their sums within 3 %
(benchmarks/bench_precision.py)."""
ENOUGH = 2
"""Fewest samples that are run, whatever the time limit."""
HALVES = (Precision.RELAXED, Precision.FLOAT16)
"""Precisions that are computed alike on a CPU that has float16."""


@dataclass(frozen=True)
class UnitNoise:
    """Noise powers of units: squares of relative errors (:mod:`nnapi_prof.precision.metrics`)."""

    precisions: tuple[Precision, ...]
    power: Floats
    """[units, precisions, outputs]; infinite where a unit cannot be in a precision."""
    refusals: Mapping[tuple[int, Precision], str]
    """(unit, precision) -> reason why the unit cannot be in it, as a sentence."""
    n_samples: int
    narrow: Floats | None = None
    """Powers on a CPU whose sums are in float16; None without such a CPU."""
    in_float32: frozenset[int] = frozenset()
    """Units that the CPU computes in float32 in every float precision."""

    def of(self, unit: int, precision: Precision, *, on_cpu: bool = False) -> Floats:
        """Returns the powers of a unit; 0 in float32. [outputs]"""
        if precision is Precision.FLOAT32 or (
            on_cpu and unit in self.in_float32 and precision in HALVES
        ):
            return np.zeros(self.power.shape[2])
        power = self.narrow if on_cpu and self.narrow is not None else self.power
        return np.asarray(power[unit, self.precisions.index(precision)])

    def predicted(self, assignment: Assignment, narrow: Collection[int] = ()) -> Floats:
        """Returns the sum over units; ``narrow`` are those on such a CPU. [outputs]"""
        total = np.zeros(self.power.shape[2])
        for unit, precision in assignment.items():
            total += self.of(unit, precision, on_cpu=unit in narrow)
        return total


def unit_noise(
    simulation: PrecisionSimulation,
    samples: Sequence[Sequence[Tensor]],
    reference: FloatOutputs,
    precisions: Sequence[Precision] = (Precision.RELAXED, Precision.INT8),
    *,
    n_samples: int = N_SAMPLES,
    limit_s: float = math.inf,
    narrow: bool = False,
    in_float32: frozenset[int] = frozenset(),
    progress: CountCallback | None = None,
) -> UnitNoise:
    """Measures the noise of each unit of the program alone, in each of ``precisions``; with
    ``narrow`` also on a CPU whose sums are in float16. ``in_float32`` are the units that the CPU
    computes in float32.

    ``reference`` has the float32 outputs of all ``samples``, in their order. ``n_samples`` of them,
    evenly spaced, are run, or fewer (at least two) where that takes longer than ``limit_s``
    seconds. Raises InputSpecError where there is no sample.
    """
    if not samples:
        raise InputSpecError("no samples to measure errors with", "give one at least")
    chosen = np.unique(np.linspace(0, len(samples) - 1, max(1, n_samples)).round().astype(int))
    # Coarse to fine, so that the samples before a time limit are spread over all, too.
    chosen = chosen[np.argsort([_reversed_bits(i) for i in range(len(chosen))], kind="stable")]
    graph = simulation.program.units
    n_units, n_outputs = len(graph.units), len(graph.outputs)
    power = np.zeros((n_units, len(precisions), n_outputs))
    in_half = np.zeros((n_units, n_outputs))
    halves = [p for p, each in enumerate(precisions) if each in HALVES]
    summing = simulation.summing if narrow and halves else frozenset[int]()
    size = np.array(
        [
            _square(np.where(np.isfinite(output), output - mean, 0.0)) / len(samples)
            for output, mean in zip(reference.outputs, reference.means, strict=True)
        ]
    )
    pairs = [(unit, p) for unit in range(n_units) for p in range(len(precisions))]
    refusals: dict[tuple[int, Precision], str] = {}
    begin, n_done = time.monotonic(), 0
    for index in chosen.tolist():
        if n_done >= ENOUGH and time.monotonic() - begin > limit_s * n_done / (n_done + 1):
            break
        values = simulation.values(samples[index])
        theirs = [output[index] for output in reference.outputs]
        for step, (unit, p) in enumerate(pairs):
            if progress is not None and step % 16 == 0:
                progress(n_done * len(pairs) + step, len(chosen) * len(pairs))
            if not np.isfinite(power[unit, p]).any():
                continue
            refusal = simulation.refusal(unit, precisions[p])
            if refusal is not None:
                refusals[unit, precisions[p]] = refusal
                power[unit, p] = math.inf
                continue
            mine = stacked([simulation.alone(unit, precisions[p], values)])
            power[unit, p] += [
                _squared_difference(m[0], t) for m, t in zip(mine, theirs, strict=True)
            ]
        for unit in summing:
            mine = stacked([simulation.alone_narrow(unit, values)])
            in_half[unit] += [
                _squared_difference(m[0], t) for m, t in zip(mine, theirs, strict=True)
            ]
        n_done += 1
    if progress is not None:
        progress(len(chosen) * len(pairs), len(chosen) * len(pairs))
    with np.errstate(divide="ignore", invalid="ignore"):
        relative = np.where(power == 0, 0.0, power / n_done / size)
        in_half = np.where(in_half == 0, 0.0, in_half / n_done / size)
    on_cpu = relative.copy() if narrow else None
    if on_cpu is not None:
        for unit in summing:
            for p in halves:
                if np.isfinite(relative[unit, p]).all():
                    on_cpu[unit, p] = in_half[unit]
    return UnitNoise(tuple(precisions), relative, refusals, n_done, on_cpu, in_float32)


def _reversed_bits(index: int) -> int:
    return int(f"{index:016b}"[::-1], 2)


def _square(values: Floats) -> float:
    return float(np.square(values).sum())


def _squared_difference(mine: Floats, theirs: Floats) -> float:
    """Returns the squared difference; infinite where only one of two numbers is finite."""
    with np.errstate(invalid="ignore"):
        same = (mine == theirs) | (np.isnan(mine) & np.isnan(theirs))
        apart = np.where(same, 0.0, mine - theirs)
    return _square(apart) if np.isfinite(apart).all() else math.inf


def corrected(
    noise: UnitNoise,
    assignment: Assignment,
    measured: Sequence[float],
    narrow: Collection[int] = (),
) -> UnitNoise:
    """Returns the noise, with that of a plan's units scaled so that it adds up to the plan's error.

    ``measured`` are the relative errors of the whole plan, one for each output; ``narrow`` is that
    of :meth:`UnitNoise.predicted`. Units in float32 keep their noise, as do all units where no
    finite error was measured.
    """
    predicted, actual = noise.predicted(assignment, narrow), np.square(measured)
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = actual / predicted
    ratio = np.where(np.isfinite(ratio) & (ratio > 0), ratio, 1.0)
    power = noise.power.copy()
    on_cpu = power if noise.narrow is None else noise.narrow.copy()
    for unit, precision in assignment.items():
        if precision is not Precision.FLOAT32:
            scaled = on_cpu if unit in narrow else power
            scaled[unit, noise.precisions.index(precision)] *= ratio
    return replace(noise, power=power, narrow=None if noise.narrow is None else on_cpu)


# Errors of whole plans, on calibration data and on held-out data.


@dataclass(frozen=True)
class PlanError:
    """Accuracy cost of a plan's precisions."""

    calibrated: ErrorEstimate
    """Error on the data that scales and errors of units come from."""
    held_out: ErrorEstimate | None
    """Error on other data; None without such data."""
    relative: tuple[float, ...]
    """Relative error of each output on the calibration data, under any metric, for
    :func:`nnapi_prof.precision.sensitivity.corrected`."""

    @property
    def honest(self) -> ErrorEstimate:
        """The estimate that decides whether a budget holds: on held-out data, if any."""
        return self.held_out or self.calibrated


@dataclass(frozen=True)
class Data:
    """Samples, each with the program's inputs, and their targets where these are known."""

    samples: Sequence[Sequence[Tensor]]
    targets: Sequence[Any] | None = None

    def __len__(self) -> int:
        return len(self.samples)


class AccuracyEvaluator:
    """Evaluator that runs whole plans of one program and compares their outputs with float32's.

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

    def error(self, assignment: Assignment, narrow: Collection[int] = ()) -> PlanError:
        """Returns the error of a plan; ``narrow`` is that of :meth:`PrecisionSimulation.outputs`.
        Raises ConversionError where a unit cannot be in its precision."""
        mine = self.outputs(assignment, self.calibration, narrow)
        calibrated = self._estimate(mine, self.reference, self.calibration.targets, narrow)
        relative = BuiltInMetric().estimate(mine, self.reference).by_output
        held_out = None
        if self._other is not None and self.held_out is not None:
            theirs = self.outputs(assignment, self.held_out, narrow)
            held_out = self._estimate(theirs, self._other, self.held_out.targets, narrow)
        return PlanError(calibrated, held_out, relative)

    def _estimate(
        self,
        outputs: tuple[Floats, ...],
        reference: FloatOutputs,
        targets: Sequence[Any] | None,
        narrow: Collection[int],
    ) -> ErrorEstimate:
        """Returns the metric's estimate, with a wider interval where sums in float16 are only
        modelled."""
        estimate = self.metric.estimate(outputs, reference, targets)
        if not narrow:
            return estimate
        ends = [
            end * factor
            for end in (estimate.low, estimate.high)
            for factor in (1 / NARROW_DOUBT, NARROW_DOUBT)
        ]
        return replace(estimate, low=min(ends), high=max(ends))

    def outputs(
        self, assignment: Assignment, data: Data, narrow: Collection[int] = ()
    ) -> tuple[Floats, ...]:
        """Returns the plan's outputs, [samples, ...] each."""
        return stacked([self.simulation.outputs(assignment, s, narrow) for s in data.samples])
