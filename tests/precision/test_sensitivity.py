"""The noise of single units on a trained net: it adds up, and a whole run corrects it."""

import math
import random
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest

from nnapi_prof.errors import InputSpecError
from nnapi_prof.graph.plan import Precision
from nnapi_prof.precision.metrics import BuiltInMetric, ErrorEstimate, Metric, MetricKind
from nnapi_prof.precision.sensitivity import (
    AccuracyEvaluator,
    Data,
    UnitNoise,
    corrected,
    unit_noise,
)
from nnapi_prof.precision.simulation import PrecisionSimulation
from nnapi_prof.precision.user_files import UserMetric
from tests.precision import digits

pytestmark = pytest.mark.slow("runs a network in 8 bits unit by unit, for all tests of this file")
N_HELD_OUT = 100
INT8, RELAXED, FLOAT32 = Precision.INT8, Precision.RELAXED, Precision.FLOAT32


@cache
def judge() -> AccuracyEvaluator:
    held_out = digits.data("held_out", N_HELD_OUT)
    return AccuracyEvaluator(digits.simulation(), digits.data("calibration", 60), held_out)


def measured(**options: Any) -> UnitNoise:
    judged = judge()
    samples = options.pop("samples", judged.calibration.samples)
    return unit_noise(digits.simulation(), samples, judged.reference, **options)


@cache
def noise() -> UnitNoise:
    return measured(narrow=True)


def n_units() -> int:
    return len(digits.program().units.units)


def test_noise_has_a_row_for_each_unit() -> None:
    power = noise().power
    assert power.shape == (n_units(), 2, 1) and noise().n_samples == 32
    assert np.isfinite(power).all() and not noise().refusals
    error = np.sqrt(power)
    assert (error[:, 1] < 0.05).all() and error[:, 1].max() > 0.003
    assert error[:, 0].max() < 0.002  # float16 is far better than 8 bits
    assert noise().of(3, FLOAT32) == 0
    assert noise().of(3, INT8) == power[3, 1] == noise().of(3, INT8, on_cpu=True)
    own = replace(noise(), in_float32=frozenset({3}))  # by the CPU, where that runs it
    assert own.of(3, RELAXED, on_cpu=True) == 0 < own.of(3, RELAXED) == power[3, 0]
    assert own.of(3, INT8, on_cpu=True) == power[3, 1]


def test_a_cpu_that_adds_up_in_float16_is_noisier_where_products_are_added() -> None:
    summing = sorted(digits.simulation().summing)
    others = [unit for unit in range(n_units()) if unit not in summing]
    narrow, power = noise().narrow, noise().power
    assert narrow is not None and summing and others
    assert (narrow[summing, 0] > power[summing, 0]).all()
    assert (narrow[others] == power[others]).all()
    plan = dict.fromkeys(range(n_units()), RELAXED)
    wide, in_half = judge().error(plan), judge().error(plan, narrow=plan)
    ratio = in_half.relative[0] / math.sqrt(noise().predicted(plan, plan)[0])
    assert 0.5 < ratio < 1.8 and in_half.relative[0] > wide.relative[0]
    better = corrected(noise(), plan, in_half.relative, plan)
    np.testing.assert_allclose(np.sqrt(better.predicted(plan, plan)), in_half.relative)
    np.testing.assert_allclose(better.predicted(plan), noise().predicted(plan))


def test_errors_of_random_halves_are_the_root_of_the_sum_of_powers() -> None:
    choice, ratios, whole = random.Random(1), [], evaluated(None)
    for _ in range(12):
        plan = {unit: INT8 for unit in range(n_units()) if choice.random() < 0.5}
        error = whole.error(plan).calibrated.error
        ratios.append(error / math.sqrt(noise().predicted(plan)[0]))
    assert 0.75 < np.median(ratios) < 1.25
    assert min(ratios) > 0.5 and max(ratios) < 1.8


def test_a_whole_run_corrects_what_adds_up() -> None:
    plan = dict.fromkeys(range(n_units() // 2), INT8) | {n_units() - 1: RELAXED}
    relative = judge().error(plan).relative
    better = corrected(noise(), plan, relative)
    np.testing.assert_allclose(np.sqrt(better.predicted(plan)), relative)
    last = n_units() - 2
    assert better.of(last, INT8) == noise().of(last, INT8)  # not in use
    assert corrected(noise(), {}, [0.0]).power.tolist() == noise().power.tolist()
    assert corrected(noise(), plan, [math.inf]).power.tolist() == noise().power.tolist()


def test_what_cannot_be_is_infinite_and_says_why() -> None:
    without = PrecisionSimulation(digits.program(), digits.simulation()._nnapi)
    samples = judge().calibration.samples
    result = unit_noise(without, samples, judge().reference, [INT8, RELAXED], n_samples=2)
    assert np.isinf(result.power[:, 0]).all() and np.isfinite(result.power[:, 1]).all()
    assert result.refusals[4, INT8] == "nothing was calibrated for 8 bits"
    assert math.isinf(result.predicted({4: INT8})[0])


def test_a_limit_of_time_leaves_two_samples_and_progress_reaches_its_end() -> None:
    steps: list[tuple[int, int]] = []
    short = measured(limit_s=0, progress=lambda done, total: steps.append((done, total)))
    assert short.n_samples == 2
    assert steps[0][0] == 0 and steps[-1][0] == steps[-1][1] == 32 * n_units() * 2
    # Two samples say the size of it already.
    ratio = short.power[:, 1] / noise().power[:, 1]
    assert 0.3 < np.median(ratio) < 2
    with pytest.raises(InputSpecError, match="no samples to measure errors with"):
        measured(samples=[])


def test_who_interrupts_is_heard() -> None:
    def interrupt(done: int, total: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        measured(progress=interrupt)


# Whole plans


def evaluated(held_out: Data | None, *metric: Metric) -> AccuracyEvaluator:
    return AccuracyEvaluator(judge().simulation, judge().calibration, held_out, *metric)


def test_8_bits_cost_a_trained_net_next_to_nothing() -> None:
    plan = dict.fromkeys(range(n_units()), INT8)
    error = judge().error(plan)
    assert error.held_out is not None and error.honest is error.held_out
    assert 0.003 < error.calibrated.error < 0.04
    assert error.relative == error.calibrated.by_output
    assert error.held_out.n_samples == N_HELD_OUT
    metric = UserMetric("digits:wrong", digits.script().wrong)
    wrong = evaluated(judge().held_out, metric).error(plan)
    assert wrong.held_out is not None and abs(wrong.held_out.error) <= 0.01
    assert wrong.relative == error.relative


def test_the_error_on_other_images_lies_in_the_interval() -> None:
    """benchmarks/bench_precision.py tries 50 seeds."""
    judged, plan, inside = judge(), dict.fromkeys(range(n_units()), INT8), 0

    def estimated(part: Data) -> ErrorEstimate:
        floats = judged.reference.over(judged._float32(part))
        return judged.metric.estimate(judged.outputs(plan, part), floats, None)

    for seed in range(5):
        samples = digits.data("held_out", 2 * N_HELD_OUT, seed).samples
        result, theirs = map(estimated, (Data(samples[:N_HELD_OUT]), Data(samples[N_HELD_OUT:])))
        inside += result.low <= theirs.error <= result.high
    assert inside >= 4


def test_without_held_out_data_the_calibration_data_decides() -> None:
    error = evaluated(None, BuiltInMetric(MetricKind.TOP1)).error({0: INT8})
    assert error.held_out is None and error.honest is error.calibrated
    with pytest.raises(InputSpecError, match="give one at least"):
        AccuracyEvaluator(judge().simulation, Data([]))
