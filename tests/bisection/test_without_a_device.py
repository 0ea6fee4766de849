"""Halving against planted faults, and what kind of fault values look like."""

import itertools
import math
from collections.abc import Collection, Sequence

import pytest
import torch

from nnapi_prof.bisection import FaultKind, Halving, Region, Verdict
from nnapi_prof.bisection.deviation import deviation, difference
from nnapi_prof.bisection.diagnosis import facts_of, kind_of
from nnapi_prof.cli.bisect import _facts_words
from nnapi_prof.costs import Precision
from nnapi_prof.graph import Quantisation, TensorType


class Driver:
    """A probe of units of which some are wrong, alone or with their neighbours."""

    def __init__(
        self,
        *,
        wrong: Collection[int] = (),
        pairs: Collection[int] = (),
        refused: Collection[int] = (),
    ) -> None:
        self.wrong, self.pairs, self.refused = set(wrong), set(pairs), set(refused)
        self.runs = 0

    def __call__(self, regions: Sequence[Region], repeats: int) -> list[Verdict]:
        self.runs += 1
        return [self.verdict(region, repeats) for region in regions]

    def verdict(self, region: Region, repeats: int) -> Verdict:
        if self.refused & set(region):
            groups = itertools.groupby(region, lambda unit: unit not in self.refused)
            parts = [tuple(group) for is_taken, group in groups if is_taken]
            return Verdict(0.0, refused=True, parts=tuple(parts) if len(region) > 1 else ())
        together = [a for a in self.pairs if {a, a + 1} <= set(region)]
        return Verdict(9.0 if self.wrong & set(region) or together else 0.0)


@pytest.mark.parametrize("n", [1, 2, 3, 17, 64, 300])
def test_each_single_fault_is_found_in_few_runs(n: int) -> None:
    for unit in range(n):
        search = Halving(Driver(wrong={unit}))
        finding = next(search.search([tuple(range(n))]))
        assert finding.region == (unit,)
        assert search.runs <= 2 * math.log2(n) + 4


def test_all_faults_are_found_in_order() -> None:
    wrong = {0, 7, 8, 30}
    regions = [each.region for each in Halving(Driver(wrong=wrong)).search([tuple(range(31))])]
    assert regions == [(0,), (7,), (8,), (30,)]


def test_refused_units_divide_the_model() -> None:
    driver = Driver(wrong={12}, refused={3, 4, 11, 20})
    assert [each.region for each in Halving(driver).search([tuple(range(24))])] == [(12,)]
    nothing = Driver(refused=range(8))
    assert list(Halving(nothing).search([tuple(range(8))])) == []


def test_what_differs_with_its_neighbour_only_is_shrunk_to_both() -> None:
    for first in range(15):
        search = Halving(Driver(pairs={first}))
        (finding,) = search.search([tuple(range(16))])
        assert finding.region == (first, first + 1)
        assert search.runs <= 2 * math.log2(16) + 4


def test_a_fault_that_comes_and_goes_is_found_by_more_executions() -> None:
    class Flaky(Driver):
        def verdict(self, region: Region, repeats: int) -> Verdict:
            lucky = self.runs > 1 and repeats < 8  # seen in the first run, then rarely
            return Verdict(9.0 if 5 in region and not lucky else 0.0)

    (finding,) = Halving(Flaky()).search([tuple(range(16))])
    assert finding.region == (5,)


def test_a_healthy_driver_costs_one_run() -> None:
    search = Halving(Driver())
    assert list(search.search([tuple(range(100))])) == [] and search.runs == 1
    assert list(search.alone([tuple(range(100))])) == [] and search.runs == 2


def test_a_unit_that_its_half_hides_is_found_alone() -> None:
    class Hiding(Driver):
        def verdict(self, region: Region, repeats: int) -> Verdict:
            shows = 5 in region and len(region) in (1, 16)
            return Verdict(9.0 if shows else 0.0)

    search = Halving(Hiding())
    (finding,) = search.search([tuple(range(16))])
    assert finding.region == (5,) and search.runs <= 2 * math.log2(16) + 4


# ---- what values look like -----------------------------------------------------------------------

X = torch.randn(1, 6, 8, 8, generator=torch.Generator().manual_seed(0))


BORDER, CHANNELS, NAN = X.clone(), X.clone(), X.clone()
BORDER[:, :, 0] = 0
BORDER[:, :, :, -1] *= 2
CHANNELS[:, 2] = X[:, 2].square() + 3
NAN[0, 1, 2, 3] = math.nan
MOVED = "are off; the right values at other places"
NANS = "off; 1 are NaN, 0 infinite; only at the borders; only in channels 1"


@pytest.mark.parametrize(
    ("wrong", "kind", "words"),
    [
        (X * 1.03, FaultKind.SCALE, "off; 1.03 times the right values"),
        (X + 0.25, FaultKind.SCALE, "off; the right values plus 0.25"),
        ((X * 1.01).half().float(), FaultKind.SCALE, "off; 1.01 times the right values"),
        (X.clamp(-1, 1), FaultKind.SATURATION, "off; values end at 1"),
        (X.clamp(max=0.5), FaultKind.SATURATION, "off; values end at 0.5"),
        (X.transpose(2, 3).contiguous(), FaultKind.LAYOUT, MOVED),
        (X.flip(1), FaultKind.LAYOUT, MOVED),
        (X.permute(0, 2, 3, 1).reshape(X.shape), FaultKind.LAYOUT, MOVED),
        (BORDER, FaultKind.PADDING, "off; only at the borders"),
        (X.roll((1, -1), (2, 3)), FaultKind.PADDING, "values +1 rows and -1 columns away"),
        (CHANNELS, FaultKind.CHANNELS, "off; only in channels 2"),
        (NAN, FaultKind.NOT_FINITE, NANS),
        (X.square(), FaultKind.KERNEL, "elements are off"),
    ],
)
def test_kinds(wrong: torch.Tensor, kind: FaultKind, words: str) -> None:
    facts = [facts_of(wrong, X)]
    error = difference(wrong.double(), X.double()).max().item()
    told = kind_of(facts, runs=True, repeats=True, n_units=1, error=error, half_movement=1e-4)
    assert told is kind, facts
    assert _facts_words(facts[0]).endswith(words)


def test_what_does_not_repeat_is_a_race_and_half_precision_is_told() -> None:
    half = X.half().float()
    error = difference(half.double(), X.double()).max().item() / X.abs().max().item()
    options = {"runs": True, "n_units": 1, "error": error, "half_movement": 5e-4}
    assert kind_of([facts_of(half, X)], repeats=True, **options) is FaultKind.PRECISION
    assert kind_of([facts_of(half, X)], repeats=False, **options) is FaultKind.RACE


def ratio(mine, reference, type_, precision, n_units=1) -> float:
    """How far a region's output is off, of what its precision allows."""
    return deviation("x", mine, reference, type_, None, precision, n_units=n_units).ratio


def test_deviations_of_8_bits_allow_ties_and_no_more() -> None:
    type_ = TensorType((100,), "uint8", quant=Quantisation(0.1, 128))
    reference = torch.arange(100, dtype=torch.uint8) + 70
    ties = reference.clone()
    ties[::20] += 1  # one value in twenty, by one step
    same, tied, shifted = (
        ratio(mine, reference, type_, Precision.FLOAT32, n_units=2)
        for mine in (reference, ties, reference + 1)
    )
    assert same == 0 and tied < 1 < shifted


def test_other_shapes_nothing_and_truths() -> None:
    float32, truth = TensorType((4,), "float32"), TensorType((100,), "bool")
    assert ratio(X, X[0], float32, Precision.FLOAT32) == math.inf
    assert ratio(X[:0], X[:0], float32, Precision.FLOAT32) == 0
    assert ratio(torch.zeros(4), torch.zeros(4), float32, Precision.RELAXED) == 0
    right = torch.arange(100) < 50
    assert ratio(right, right, truth, Precision.FLOAT32) == 0
    assert ratio(~right, right, truth, Precision.FLOAT32, n_units=2) > 1


def test_infinity_and_denormals() -> None:
    limit = torch.finfo(torch.float32).max
    mine, reference = torch.tensor([limit, 0.0, 1.0]), torch.tensor([math.inf, 1e-40, 1.0])
    assert difference(mine.double(), reference.double()).max() == 0
    assert difference(torch.tensor([math.nan]).double(), torch.tensor([1.0]).double()) == math.inf


def test_what_elements_have_in_common_is_told_from_rounding() -> None:
    expected = (X, TensorType(tuple(X.shape), "float32"), Precision.RELAXED)
    one_channel = X.clone()
    one_channel[:, 3] += 0.01 * X.abs().max()
    generator = torch.Generator().manual_seed(1)
    noise = X + 8e-3 * X.abs().max() * (2 * torch.rand(X.shape, generator=generator) - 1)
    for wrong in (X * 1.01, X * 0.99, (X * 1.01).half().float(), X + 0.05, one_channel):
        assert ratio(wrong, *expected, n_units=2) < 1 < ratio(wrong, *expected)
    for right in (X, X.half().float(), X.bfloat16().float(), noise, X * 1.004):
        assert ratio(right, *expected) < 1


def test_a_factor_moves_large_8_bit_values_alone() -> None:
    type_ = TensorType((1, 4, 8, 8), "uint8", quant=Quantisation(0.1, 128))
    generator = torch.Generator().manual_seed(0)
    steps = torch.randn(1, 4, 8, 8, generator=generator) * 30
    reference = (steps.round() + 128).clamp(0, 255).to(torch.uint8)
    wrong = ((reference.double() - 128) * 1.01 + 128).round().clamp(0, 255).to(torch.uint8)
    ties = reference + (torch.rand(reference.shape, generator=generator) < 0.1)
    expected = (reference, type_, Precision.INT8)
    assert ratio(wrong, *expected) > 1 > ratio(ties.to(torch.uint8), *expected)
    facts = facts_of((reference.double() - 128) * 1.1 + 128, reference, 128)
    assert facts.factor == pytest.approx(1.1)
