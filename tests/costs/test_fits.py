"""Fits of costs: planted parameters come back; several precisions put together, and conversions."""

import functools
import math
from collections.abc import Sequence
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nnapi_prof.costs import Conditions
from nnapi_prof.costs.measurement import Measurement, Status
from nnapi_prof.costs.model import precision, regression
from nnapi_prof.costs.model.fit import chains, fit
from nnapi_prof.costs.model.quantised import (
    CONVERSION_SIZES,
    ConversionLine,
    EightBits,
    conversions_of,
    converting_units,
)
from nnapi_prof.costs.model.regression import RegionSample, TargetFit, fit_target
from nnapi_prof.costs.model.views import marginal, shown_targets
from nnapi_prof.costs.table import drop_dominated_targets, optimistic
from nnapi_prof.errors import CostError
from nnapi_prof.graph import Quantisation, TensorType
from nnapi_prof.graph.plan import CPU, Precision
from nnapi_prof.graph.unit import Unit, UnitGraph
from nnapi_prof.partition import make_problem
from tests.costs.graphs import NPU, chain_graph, row

SIZES = [400_000, 900_000, 700_000, 100_000, 60_000, 60_000]
FLOATS = chain_graph(SIZES, ["conv", "conv2", "pool", "softmax", "relu"])
"""Unit 3 has no 8 bits."""
INT8, RELAXED = Precision.INT8, Precision.RELAXED
FLOAT_NS = {CPU: [2e6, 4e6, 3e5, 2e5, 1e5], NPU: [4e5, 8e5, 6e4, math.inf, 2e4]}
INT8_NS = {CPU: [7e5, 1.3e6, 1e5, math.inf, 4e4], NPU: [1e5, 2e5, 2e4, math.inf, 1e4]}
OVERHEAD, RATE = 4e5, 0.5


CONVERSIONS = {0: ("v0", True), 4: ("v3", False), 6: ("v4", True), 8: ("v5", False)}
UNIT_OF = {0: 1, 1: 2, 2: 3, 4: 7}
"""FLOATS' units that are in 8 bits."""


def quantised(scale: float = 0.1) -> SimpleNamespace:
    """FLOATS with units 0, 1, 2 and 4 in 8 bits, as the quantiser writes it."""
    values = dict(FLOATS.values)
    for n, size in enumerate(SIZES):
        values[f"q{n}"] = TensorType((1, size), "uint8", quant=Quantisation(scale * (n + 1), 3))
    steps = """quantize v0 q0, conv q0 q1, conv2 q1 q2, pool q2 q3, dequantize q3 v3,
        softmax v3 v4, quantize v4 q4, relu q4 q5, dequantize q5 v5"""
    units = []
    for i, step in enumerate(steps.split(",")):
        kind, into, out = step.split()
        signature = kind if kind == "softmax" else f"{kind} {scale} {into}"
        units.append(Unit(i, f"u{i}", kind, (f"n{i}",), (into,), (out,), signature, sizes="8"))
    program = SimpleNamespace(units=UnitGraph(tuple(units), values, ("v0",), ("v5",)))
    return SimpleNamespace(program=program, unit_of=UNIT_OF, conversions=CONVERSIONS)


def regions(units: Sequence[int]) -> list[tuple[int, ...]]:
    return [tuple(units[i:j]) for i in range(len(units)) for j in range(i + 1, len(units) + 1)]


def float_rows(share: float = 1.0) -> list[Measurement]:
    """Chains of FLOATS on both targets; on the NPU arithmetic takes ``share`` of float32's."""
    rows = []
    for region in [chain for n in (1, 2, 3) for chain in chains(FLOATS, n)]:
        boundary = 4 * (SIZES[region[0]] + SIZES[region[-1] + 1])
        rows.append(row(FLOATS, region, CPU, sum(FLOAT_NS[CPU][u] for u in region)))
        ns = OVERHEAD + RATE * boundary + share * sum(FLOAT_NS[NPU][u] for u in region)
        if math.isfinite(ns):
            rows.append(row(FLOATS, region, NPU, ns))
        elif len(region) == 1:
            rows.append(row(FLOATS, region, NPU, None, status=Status.REFUSED, message="softmax"))
    return rows


def int8_rows() -> list[Measurement]:
    graph, rows = quantised().program.units, []
    for unit in CONVERSIONS:
        own = graph.units[unit]
        moved = sum(graph.values[name].n_bytes for name in (*own.inputs, *own.outputs))
        rows.append(row(graph, [unit], CPU, 1000 + moved))
    for region in (*regions((0, 1, 2)), (4,)):
        units = [UNIT_OF[u] for u in region]
        boundary = SIZES[region[0]] + SIZES[region[-1] + 1]
        rows.append(row(graph, units, CPU, sum(INT8_NS[CPU][u] for u in region)))
        ns = OVERHEAD + RATE * boundary + sum(INT8_NS[NPU][u] for u in region)
        rows.append(row(graph, units, NPU, ns))
    return rows


def fitted(
    float32: list[Measurement], relaxed: list[Measurement] | None = None
) -> precision.PrecisionCosts:
    """With 8 bits."""
    there = quantised()
    rows = {Precision.FLOAT32: float32} | ({} if relaxed is None else {RELAXED: relaxed})
    eight_bits = EightBits.of(FLOATS, there, {3: "no softmax in 8 bits"})
    return precision.fit_precisions(FLOATS, rows, eight_bits, conversions_of(FLOATS, there))


@functools.cache
def all_precisions() -> precision.PrecisionCosts:
    return fitted([*float_rows(), *int8_rows()], [r for r in float_rows(0.5) if r.n_units == 1])


def test_targets_of_all_precisions():
    costs = all_precisions()
    assert costs.targets == (CPU, NPU, NPU.at(RELAXED), CPU.at(INT8), NPU.at(INT8))
    assert costs.precisions == (Precision.FLOAT32, RELAXED, INT8) and costs.simulated
    floats = fit(FLOATS, float_rows())
    for unit in range(5):
        for target in (CPU, NPU):
            assert costs.unit_cost(unit, target) == floats.unit_cost(unit, target)
    assert costs.unit_cost(1, NPU.at(INT8)) == pytest.approx(2e5, rel=0.05)
    assert costs.unit_cost(1, NPU.at(RELAXED)) == pytest.approx(4e5, rel=0.15)
    assert costs.unit_cost(1, CPU.at(RELAXED)) is None
    assert costs.unit_cost(3, CPU.at(INT8)) is None
    assert costs.refusals[3, CPU.at(INT8)] == "no softmax in 8 bits"
    assert "softmax" in costs.refusals[3, NPU] and "softmax" in costs.refusals[3, NPU.at(RELAXED)]
    bare = replace(costs, eight_bits=replace(costs.eight_bits, refusals={}))
    assert bare.refusals[3, NPU.at(INT8)] == precision.NO_8_BITS


def test_regions_in_8_bits_are_those_of_the_float_units():
    costs = all_precisions()
    there = costs.region_cost((0, 1, 2), NPU.at(INT8))
    expected = OVERHEAD + RATE * (SIZES[0] + SIZES[3]) + 3.2e5
    assert there.measured and there.ns == pytest.approx(expected, abs=1)
    assert costs.region_cost((2, 3), CPU.at(INT8)) is None
    assert costs.table.region_ns[frozenset((0, 1)), CPU.at(INT8)] == 2e6
    one = costs.whole((1,), NPU.at(INT8))
    assert one.usable and one.target == NPU and not costs.inferred(1, NPU.at(INT8))


def test_what_bytes_of_floats_and_conversions_cost():
    costs = all_precisions()
    here, there = costs.price(NPU), costs.price(NPU.at(INT8))
    assert 0 < there.ns_per_in_byte < 0.3 * here.ns_per_in_byte
    both = RATE * (SIZES[0] + SIZES[3])
    transfer = costs.transfer(NPU.at(INT8), 4 * SIZES[0], 4 * SIZES[3])
    assert transfer == pytest.approx(both, rel=0.1)
    conversions = costs.table.conversions
    assert conversions.format.tolist() == [0, 0, 0, 1, 1]
    assert conversions.to_int8_ns["v0"] == 1000 + 5 * SIZES[0]
    assert conversions.to_int8_ns["v1"] == pytest.approx(1000 + 5 * SIZES[1])  # by the line
    assert conversions.to_float_ns["v5"] == 1000 + 5 * SIZES[5]
    assert fit(FLOATS, float_rows()).table.conversions is None


def test_every_region_costs_the_solver_the_same():
    costs = all_precisions()
    problem = make_problem(FLOATS, costs.table)
    for region in regions(range(5)):
        for k, target in enumerate(problem.targets):
            told = costs.region_cost(region, target)
            expected = math.inf if told is None else told.ns
            assert problem.segment_ns(region, k) == pytest.approx(expected, rel=1e-6)
    assert (make_problem(FLOATS, optimistic(costs.table)).unit_ns <= problem.unit_ns).all()


def test_another_precision_is_inferred_from_a_few_units():
    floats, on_npu = fit(FLOATS, float_rows()), (("conv2",), ("pool",), ("softmax",))
    few = [r for r in float_rows(0.5) if r.target == CPU or r.members in on_npu]
    relaxed = precision.fit_conditional(floats, float_rows(), few)
    assert relaxed.unit_cost(1, NPU) == pytest.approx(4e5, rel=0.15)
    whole = relaxed.region_cost((0, 1, 2), NPU)
    expected = OVERHEAD + 4 * RATE * (SIZES[0] + SIZES[3]) + 0.5 * 1.26e6
    assert not whole.measured and whole.ns == pytest.approx(expected, rel=0.1)
    assert relaxed.inferred(0, NPU) and not relaxed.inferred(1, NPU)
    assert not relaxed.partial and (3, NPU) in relaxed.refusals


def test_equal_units_at_other_scales_are_measured_once():
    eight_bits, again = (EightBits.of(FLOATS, quantised(scale)) for scale in (0.1, 0.7))
    assert eight_bits.graph.units[1].signature != again.graph.units[1].signature
    shared = [unit.signature for unit in eight_bits.canonical_graph.units]
    assert shared == [unit.signature for unit in again.canonical_graph.units]
    assert eight_bits.stretches == ((1, 2, 3), (7,))
    rows = eight_bits.shared_rows([*float_rows(), *int8_rows()])
    expected = {tuple(shared[u] for u in region) for region in (*regions((1, 2, 3)), (7,))}
    assert {r.members for r in rows} == expected
    assert eight_bits.region((0, 2)) == {1, 3} and eight_bits.region((2, 3)) is None
    assert eight_bits.float_region((7,)) == {4} and eight_bits.float_region((0, 1)) is None


def test_what_was_never_measured_is_named():
    with pytest.raises(CostError, match="4 of the model's 4 units were never measured"):
        fitted(float_rows())
    more = [r for r in int8_rows() if r.n_units == 1 and "quantize" not in r.members[0]]
    with pytest.raises(CostError, match="converting values between floats and 8 bits"):
        fitted([*float_rows(), *more])


def test_an_accelerator_that_relaxing_does_not_speed_up_is_one_target():
    costs = fitted([*float_rows(), *int8_rows()], float_rows())
    assert drop_dominated_targets(costs.table).targets == (CPU, NPU, CPU.at(INT8), NPU.at(INT8))
    every = all_precisions()
    assert set(drop_dominated_targets(every.table).targets) == set(every.targets)


def test_what_reports_ask():
    costs = all_precisions()
    one = marginal(costs, 1, NPU.at(INT8))
    assert one.alone_ns is not None and one.alone_ns > one.ns
    names = ("cpu", "npu", "npu@relaxed", "cpu@int8", "npu@int8")
    assert shown_targets(costs, FLOATS) == dict(zip(names, costs.targets, strict=True))
    assert costs.fits.keys() == set(costs.targets)
    times = costs.compile_times((NPU.at(INT8),))
    assert not times.fixed_ns.any() and not times.unit_ns.any() and not times.region_ns


def test_conversions_to_measure_are_few_and_of_several_sizes():
    graph = chain_graph([2**n for n in range(20)])
    units = converting_units(graph, range(19))
    assert len(units) == CONVERSION_SIZES
    assert all(abs(a - b) > 1 for a in units for b in units if a != b)
    sizes = [graph.values[graph.units[u].inputs[0]].n_bytes for u in sorted(units)]
    assert sizes[0] == 4 and sizes[-1] == 4 << 18


@given(
    st.dictionaries(st.integers(1, 1 << 24), st.floats(1, 1e9), min_size=1, max_size=6),
    st.integers(1, 1 << 25),
)
def test_lines_between_measured_sizes(points, n_bytes):
    line, sizes, costs = ConversionLine.of(points.items()), points.keys(), points.values()
    assert [line.ns(size) for size in sizes] == pytest.approx([*costs])
    if min(sizes) <= n_bytes <= max(sizes):
        assert min(costs) * (1 - 1e-9) <= line.ns(n_bytes) <= max(costs) * (1 + 1e-9)
    assert line.ns(n_bytes) >= 0


def test_a_cpu_in_float16_is_a_target_of_its_own():
    """Of a trial's few units: the others are inferred, and bytes at a border cost something."""
    relaxed = Conditions(RELAXED)
    halves = {u: 0.5 * FLOAT_NS[CPU][u] for u in (0, 1, 4)}
    trial = [replace(row(FLOATS, (u,), CPU, ns), conditions=relaxed) for u, ns in halves.items()]
    costs = precision.fit_precisions(FLOATS, {Precision.FLOAT32: float_rows(), RELAXED: trial})
    assert costs.targets == (CPU, NPU, CPU.at(RELAXED))
    for u, ns in halves.items():
        assert costs.region_cost([u], CPU.at(RELAXED)).ns == pytest.approx(ns)
    assert costs.unit_cost(1, CPU.at(RELAXED)) == pytest.approx(2e6, rel=0.1)
    assert costs.inferred(2, CPU.at(RELAXED)) and not costs.inferred(2, CPU)
    slower = [replace(r, conditions=relaxed) for r in float_rows() if r.target == CPU]
    same = precision.fit_precisions(FLOATS, {Precision.FLOAT32: float_rows(), RELAXED: slower})
    assert drop_dominated_targets(same.table).targets == (CPU, NPU)


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


ELEMENTS = [150_528, 401_408, 100_352, 602_112, 150_528, 75_264, 12_544, 50_176, 1_280]
UNITS = [40_000.0, 900_000.0, 30_000.0, 450_000.0, 5_000.0, 220_000.0, 80_000.0, 300_000.0]
TRUTH = 300_000 + 0.2 * 4 * (ELEMENTS[0] + ELEMENTS[8]) + sum(UNITS)


def test_noise_and_outliers_do_not_spoil_the_fit():
    fit = fit_target(planted(ELEMENTS, UNITS, 300_000, 0.2, noise=0.03, seed=4), on_cpu=False)
    assert whole(fit, ELEMENTS, 8) == pytest.approx(TRUTH, rel=0.08)
    samples = planted(ELEMENTS, UNITS, 300_000, 0.2)
    for i in (3, 12):
        samples[i] = replace(samples[i], median_ns=8 * samples[i].median_ns)
    fit = fit_target(samples, on_cpu=False)
    assert whole(fit, ELEMENTS, 8) == pytest.approx(TRUTH, rel=0.1)
    assert fit.residuals[3] < -0.5 and fit.residuals[12] < -0.5


def test_the_cpu_has_no_transfers():
    fit = fit_target(planted(ELEMENTS, UNITS, 2_000, 0.0), on_cpu=True)
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
    gain = regression._gain(errors, n_units)
    assert gain == pytest.approx(0.01 / regression.TAIL_SIGMAS)
    assert gain < regression._error_deviation(errors) / 5
    # Where pairs are all that is known, they are what there is to hope for.
    assert regression._gain(errors[:4], n_units[:4]) == pytest.approx(0.25 / regression.TAIL_SIGMAS)
    assert regression._gain(-abs(errors), n_units) == regression.LEAST_SPREAD
    assert regression._gain(errors[:0], n_units[:0]) == regression.UNKNOWN_SPREAD
    few = regression._gain(np.array([0.0, 0.0]), np.array([2, 2]))
    assert few == pytest.approx(
        math.sqrt((regression.LEAST_SPREAD**2 + regression.UNKNOWN_SPREAD**2) / 2)
    )
