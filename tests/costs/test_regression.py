"""Planted parameters come back from the latencies they make."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nnapi_prof.costs.model.regression import (
    LEAST_SPREAD,
    TAIL_SIGMAS,
    UNKNOWN_SPREAD,
    RegionSample,
    TargetFit,
    _error_deviation,
    _gain,
    fit_target,
)


def planted(
    sizes: list[int],
    unit_ns: list[float],
    overhead: float,
    rate: float,
    *,
    longest: int = 3,
    noise: float = 0.0,
    seed: int = 0,
) -> list[RegionSample]:
    """Samples of every chain up to ``longest`` of a chain of units, by the model itself."""
    random = np.random.default_rng(seed)
    samples = []
    for length in range(1, longest + 1):
        for first in range(len(unit_ns) - length + 1):
            into, out = 4 * sizes[first], 4 * sizes[first + length]
            ns = overhead + rate * (into + out) + sum(unit_ns[first : first + length])
            ns *= float(np.exp(noise * random.standard_normal()))
            members = tuple(f"u{i}" for i in range(first, first + length))
            samples.append(RegionSample(members, "+".join(members), "npu", into, out, ns))
    return samples


def whole(fit: TargetFit, sizes: list[int], n: int) -> float:
    members = tuple(f"u{i}" for i in range(n))
    return fit.predict(RegionSample(members, "", "", 4 * sizes[0], 4 * sizes[n], 1))


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.floats(1e3, 1e6), min_size=5, max_size=12),
    st.floats(1e4, 1e6),
    st.floats(0.01, 2.0),
    st.lists(st.integers(10, 10**5), min_size=13),
)
def test_a_long_region_is_predicted_from_short_chains(unit_ns, overhead, rate, sizes):
    fit = fit_target(planted(sizes, unit_ns, overhead, rate), on_cpu=False)
    n = len(unit_ns)
    truth = overhead + rate * 4 * (sizes[0] + sizes[n]) + sum(unit_ns)
    assert whole(fit, sizes, n) == pytest.approx(truth, rel=0.02)
    assert min(fit.overhead_ns, fit.ns_per_in_byte, fit.ns_per_out_byte, *fit.unit_ns.values()) >= 0


SIZES = [150_528, 401_408, 100_352, 602_112, 150_528, 75_264, 12_544, 50_176, 1_280]
UNITS = [40_000.0, 900_000.0, 30_000.0, 450_000.0, 5_000.0, 220_000.0, 80_000.0, 300_000.0]
TRUTH = 300_000 + 0.2 * 4 * (SIZES[0] + SIZES[8]) + sum(UNITS)


def test_overhead_rate_and_unit_costs_come_back():
    fit = fit_target(planted(SIZES, UNITS, 300_000, 0.2), on_cpu=False)
    assert fit.overhead_ns == pytest.approx(300_000, rel=0.02)
    assert fit.ns_per_in_byte + fit.ns_per_out_byte == pytest.approx(0.4, rel=0.02)
    assert max(abs(r) for r in fit.residuals) < 0.01


def test_noise_and_outliers_do_not_spoil_the_fit():
    fit = fit_target(planted(SIZES, UNITS, 300_000, 0.2, noise=0.03, seed=4), on_cpu=False)
    assert whole(fit, SIZES, 8) == pytest.approx(TRUTH, rel=0.08)
    samples = planted(SIZES, UNITS, 300_000, 0.2)
    for i in (3, 12):
        samples[i] = replace(samples[i], median_ns=8 * samples[i].median_ns)
    fit = fit_target(samples, on_cpu=False)
    assert whole(fit, SIZES, 8) == pytest.approx(TRUTH, rel=0.1)
    assert fit.residuals[3] < -0.5 and fit.residuals[12] < -0.5


def test_the_cpu_has_no_transfers():
    fit = fit_target(planted(SIZES, UNITS, 2_000, 0.0), on_cpu=True)
    assert fit.ns_per_in_byte == fit.ns_per_out_byte == 0
    assert fit.overhead_ns == pytest.approx(2_000, rel=0.2)
    assert fit.unit_ns["u1"] == pytest.approx(900_000, rel=0.01)


def test_without_chains_the_floor_of_small_units_is_the_overhead_but_on_the_cpu():
    costs = [1_000.0, 2_000.0, 1_500.0, 400_000.0, 90_000.0, 3_000.0, 1_000.0, 2_500.0]
    fit = fit_target(planted([10] * 9, costs, 200_000, 0.0, longest=1), on_cpu=False)
    assert fit.overhead_ns == pytest.approx(200_000, rel=0.03)
    assert fit.unit_ns["u3"] == pytest.approx(400_000, rel=0.03)
    assert max(abs(r) for r in fit.residuals) < 0.02
    costs = [100_000.0, 90_000.0, 110_000.0]
    fit = fit_target(planted([10] * 4, costs, 0.0, 0.0, longest=1), on_cpu=True)
    assert fit.overhead_ns < 5_000
    assert fit.unit_ns["u1"] == pytest.approx(90_000, rel=0.05)


def test_one_sample_is_reproduced_and_a_unit_twice_in_a_region_counts_twice():
    sample = RegionSample(("a",), "a", "npu", 100, 100, 5_000)
    assert fit_target([sample], on_cpu=False).predict(sample) == pytest.approx(5_000, rel=1e-3)
    samples = [RegionSample(("a",) * n, "a" * n, "cpu", 4, 4, 10_000 * n) for n in (1, 2, 3)]
    fit = fit_target(samples, on_cpu=True)
    assert fit.unit_ns["a"] == pytest.approx(10_000, rel=0.01)
    assert fit.overhead_ns < 200


def test_what_may_be_gained_is_told_by_regions_that_were_cheaper():
    """Pairs differ by a quarter either way; the long regions, which caches make dearer, do not."""
    errors = np.array([0.25, -0.25, 0.2, -0.2, 0.01, 0.0, -0.1, -0.15])
    n_units = np.array([2, 2, 2, 2, 60, 60, 60, 60])
    gain = _gain(errors, n_units)
    assert gain == pytest.approx(0.01 / TAIL_SIGMAS)
    assert gain < _error_deviation(errors) / 5
    # Where pairs are all that is known, they are what there is to hope for.
    assert _gain(errors[:4], n_units[:4]) == pytest.approx(0.25 / TAIL_SIGMAS)
    assert _gain(-abs(errors), n_units) == LEAST_SPREAD
    assert _gain(errors[:0], n_units[:0]) == UNKNOWN_SPREAD
    few = _gain(np.array([0.0, 0.0]), np.array([2, 2]))
    assert few == pytest.approx(math.sqrt((LEAST_SPREAD**2 + UNKNOWN_SPREAD**2) / 2))
