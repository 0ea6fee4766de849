"""Halving against planted faults, without a device."""

import itertools
import math
from collections.abc import Collection, Sequence

import pytest

from nnapi_prof.bisection import Halving, Region, Verdict


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
