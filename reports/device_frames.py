"""A device's clocks and temperatures while it was measured, and comparisons of preferences."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import pandas as pd

from nnapi_prof.costs.measurement import Measurement, Round
from nnapi_prof.costs.model import CostModel
from nnapi_prof.errors import PartitionError
from nnapi_prof.graph.plan import AUTO, Engine, Plan, Target
from nnapi_prof.partition import Constraints, SearchLimits, make_problem, plan_problem
from nnapi_prof.reports.frames import NS_PER_MS

PREFERENCE_COLUMNS = (
    "accelerator", "preference", "target", "n_units", "n_measured", "n_inferred", "units_ms",
    "invocation_ms", "relative", "whole_ms", "whole_measured",
)  # fmt: skip

LIMITS = SearchLimits(seconds=2.0, effort=3e6)
"""Limits of the search for one plan, so that a report is not slower than planning."""


def preference_frame(costs: CostModel) -> pd.DataFrame:
    """Returns one row for each accelerator under each preference that has costs.

    ``units_ms`` adds up the marginal costs of the units that the accelerator runs under all of its
    preferences, so that these can be compared. ``relative`` is the relative excess over the fastest
    preference; it is NaN if no unit runs under all preferences, or if the fastest sum is 0 and this
    one is not. ``n_measured`` of the units were measured alone, ``n_inferred`` are inferred from
    another preference. ``whole_ms`` is the latency of the whole model, NaN if a unit is refused.
    """
    rows = []
    by_place: dict[str, list[Target]] = {}
    for target in costs.targets:
        if target.accelerator is not None:
            by_place.setdefault(target.accelerator, []).append(target)
    everything = range(len(costs.graph.units))
    for accelerator in sorted(by_place, key=lambda name: (name == AUTO, name)):
        own = sorted(by_place[accelerator], key=_preference_order)
        common = [u for u in everything if all(costs.unit_cost(u, t) is not None for t in own)]
        sums = {t: sum(costs.unit_cost(u, t) or 0.0 for u in common) for t in own}
        least = min(sums.values())
        for target in own:
            whole = costs.region_cost(everything, target)
            inferred = sum(costs.inferred(u, target) for u in common)
            rows.append(
                {
                    "accelerator": accelerator,
                    "preference": target.preference.short if target.preference else "",
                    "target": target.key,
                    "n_units": len(common),
                    "n_measured": len(common) - inferred,
                    "n_inferred": inferred,
                    "units_ms": sums[target] / NS_PER_MS if common else math.nan,
                    "invocation_ms": costs.overhead(target) / NS_PER_MS,
                    "relative": _relative(sums[target], least) if common else math.nan,
                    "whole_ms": whole.ns / NS_PER_MS if whole else math.nan,
                    "whole_measured": bool(whole and whole.measured),
                }
            )
    return pd.DataFrame(rows, columns=list(PREFERENCE_COLUMNS))


@dataclass(frozen=True)
class PreferencePlan:
    """The best plan with every accelerator under the same preference."""

    preference: str
    plan: Plan | None
    moved: int
    """Number of units on another accelerator or engine than in the report's plan."""
    relative: float = math.nan
    """Its latency over that of the report's plan, both by the costs, minus 1."""
    why_not: str = ""

    @property
    def predicted_ms(self) -> float:
        return math.nan if self.plan is None else self.plan.predicted_ns / NS_PER_MS


def plans_by_preference(costs: CostModel, plan: Plan) -> tuple[PreferencePlan, ...]:
    """Returns the best plan under each preference that has costs, without other constraints, and
    compares it with ``plan``."""
    own_ns = by_costs(costs, plan)
    places = {u: _place(s.target) for s in plan.segments for u in s.units}
    offered = {t.preference for t in costs.targets if t.engine is Engine.NNAPI}
    plans = []
    for preference in sorted((p for p in offered if p is not None), key=lambda p: p.value):
        try:
            best = plan_problem(
                make_problem(costs.graph, costs.table),
                constraints=Constraints(preference=preference),
                limits=LIMITS,
                with_curve=False,
            ).default
        except PartitionError as error:
            plans.append(PreferencePlan(preference.short, None, 0, why_not=str(error)))
            continue
        moved = sum(places.get(u) != _place(s.target) for s in best.segments for u in s.units)
        relative = best.predicted_ns / own_ns - 1 if own_ns else math.nan
        plans.append(PreferencePlan(preference.short, best, moved, relative))
    return tuple(plans)


def by_costs(costs: CostModel, plan: Plan) -> float:
    """Returns a plan's latency in ns as the sum of its segments' current costs: its own prediction
    may come from a run of the whole plan, or from the costs of an earlier day."""
    costs_of_segments = [
        costs.region_cost(segment.units, segment.target) for segment in plan.segments
    ]
    if any(cost is None for cost in costs_of_segments):
        return plan.predicted_ns
    return sum(cost.ns for cost in costs_of_segments if cost is not None)


def _relative(ns: float, least_ns: float) -> float:
    """Returns the relative excess over the fastest; 0 if both are 0."""
    if ns == least_ns:
        return 0.0
    return ns / least_ns - 1 if least_ns else math.nan


def _place(target: Target) -> str:
    return target.accelerator or target.key


def _preference_order(target: Target) -> int:
    return target.preference.value if target.preference else -1


# ---- clocks, temperatures and throttling during measurements -------------------------------------


HISTORY_COLUMNS = (
    "measurement", "measured_at", "label", "target", "round", "runs", "mhz_before", "mhz_after",
    "celsius_before", "celsius_after", "throttled", "repeats",
)  # fmt: skip


@dataclass(frozen=True)
class RoundReadings:
    """The device's readings in all rounds: ``(lowest, median, highest)``, None without readings."""

    measurements: int
    rounds: int
    mhz: tuple[float, float, float] | None
    celsius: tuple[float, float, float] | None
    throttled: int
    """Rounds during which the device was throttled by heat."""
    tells_throttling: bool
    repeated: int
    """Rounds that repeat a throttled one after waiting."""


def history_frame(measurements: Iterable[Measurement]) -> pd.DataFrame:
    """Returns one row per round, with measurements in the order in which they were made (numbered
    from 1).

    A measurement without stored rounds has one row with its own readings. ``throttled`` is None if
    the device does not report it.
    """
    rows = []
    ordered = sorted(measurements, key=lambda m: m.measured_at)
    for number, m in enumerate(ordered, start=1):
        whole = Round(
            len(m.samples_ns),
            (m.cpu_khz_before, m.cpu_khz_after),
            (m.thermal_mc_before, m.thermal_mc_after),
        )
        for index, each in enumerate(m.rounds or (whole,)):
            rows.append(
                {
                    "measurement": number,
                    "measured_at": m.measured_at,
                    "label": m.label,
                    "target": m.target.key,
                    "round": index,
                    "runs": each.runs,
                    "mhz_before": _thousandth(each.cpu_khz[0]),
                    "mhz_after": _thousandth(each.cpu_khz[1]),
                    "celsius_before": _thousandth(each.thermal_mc[0]),
                    "celsius_after": _thousandth(each.thermal_mc[1]),
                    "throttled": each.throttled,
                    "repeats": each.repeats,
                }
            )
    frame = pd.DataFrame(rows, columns=list(HISTORY_COLUMNS))
    return frame.astype({"throttled": object, "repeats": object})


def readings(history: pd.DataFrame) -> RoundReadings:
    """Summarises the history in a few numbers."""
    told = history["throttled"].notna()
    return RoundReadings(
        measurements=int(history["measurement"].nunique()),
        rounds=len(history),
        mhz=_range_and_median(history, "mhz"),
        celsius=_range_and_median(history, "celsius"),
        throttled=int((history["throttled"] == True).sum()),  # noqa: E712 - None is neither
        tells_throttling=bool(told.any()),
        repeated=int(history["repeats"].notna().sum()),
    )


def doubtful(measurements: Iterable[Measurement]) -> list[dict[str, str | float]]:
    """Lists the measurements with flags, which a reader should not trust blindly, worst spread
    first."""
    rows: list[dict[str, str | float]] = [
        {
            "label": m.label,
            "target": m.target.key,
            "median_ms": m.summary.median_ns / 1e6,
            "spread": m.summary.relative_spread,
            "flags": "; ".join(m.flags),
        }
        for m in measurements
        if m.usable and m.flags
    ]
    return sorted(rows, key=lambda row: -float(row["spread"]))


def _range_and_median(history: pd.DataFrame, name: str) -> tuple[float, float, float] | None:
    values = pd.concat([history[f"{name}_before"], history[f"{name}_after"]]).dropna()
    if values.empty:
        return None
    return float(values.min()), float(values.median()), float(values.max())


def _thousandth(value: int | None) -> float:
    return math.nan if value is None else value / 1000
