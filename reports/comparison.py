"""Compare two sides, which are bundles, runs or cost tables: latencies, placement and facts.

Times are in ns, None if unknown. Units of two models are the same if their signatures are.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
import statistics
from collections import defaultdict, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from functools import cached_property

from nnapi_prof.costs import Conditions
from nnapi_prof.costs.diff import CostDiff as LatencyComparison
from nnapi_prof.costs.diff import (
    Difference,
    DiffVerdict,
    compare,
    ratio_interval,
    verdict_of,
)
from nnapi_prof.costs.measurement import Measurement, p95
from nnapi_prof.device import device_name
from nnapi_prof.errors import SlowerError
from nnapi_prof.graph.plan import AUTO, CPU, Plan, Segment
from nnapi_prof.reports.data import ReportData
from nnapi_prof.reports.facts import device_facts
from nnapi_prof.reports.frames import all_targets

THRESHOLD = 0.05
"""Relative change below which a latency counts as unchanged if no limit is set: clock rates drift
between sessions, which the noise of a measurement does not show."""


@dataclass(frozen=True)
class Side:
    """A bundle with its costs and its run, a run alone, or the measurements of one device."""

    name: str
    model: str
    device: str
    """Name of the device, for people."""
    simulated: bool
    fingerprint: str = ""
    conditions: str = ""
    """Options of the run that set conditions other than the defaults."""
    samples_ns: tuple[int, ...] = ()
    """Latencies of the whole plan's warm runs, in order; empty if it did not run to its end."""
    error: str | None = None
    """Reason why the plan did not run to its end."""
    measurements: tuple[Measurement, ...] = ()
    """Measurements of units and regions."""
    data: ReportData | None = None
    """All data of a bundle; None for only a run or a table."""
    notes: tuple[str, ...] = ()

    @classmethod
    def of(cls, name: str, data: ReportData) -> Side:
        """Returns the side of a bundle, with its run if there is one."""
        run, ran = data.run, data.run_of_plan
        return cls(
            name=name,
            model=data.model,
            device=device_name(data.device_name),
            simulated=data.simulated,
            fingerprint=run.fingerprint if run else "",
            conditions=run.conditions if run else "",
            samples_ns=ran.total_ns if ran and ran.error is None else (),
            error=ran.error if ran else None,
            measurements=data.own_measurements,
            data=data,
            notes=data.all_notes,
        )

    @property
    def median_ns(self) -> float | None:
        return float(statistics.median(self.samples_ns)) if self.samples_ns else None

    @property
    def p95_ns(self) -> float | None:
        return p95(self.samples_ns) if self.samples_ns else None

    @property
    def predicted_ns(self) -> float | None:
        """The plan's prediction; after a run, of the timed segments only."""
        if self.data is None:
            return None
        ran = self.data.run_of_plan
        ns = (self.data.plan if ran is None else ran).predicted_ns
        return ns if math.isfinite(ns) else None

    @property
    def segments(self) -> int | None:
        return None if self.data is None else len(self.data.plan.segments)

    @property
    def outputs(self) -> str | None:
        """``agree`` or ``differ`` with eager PyTorch; None if they were not compared."""
        checks = self.data.run.checks if self.data and self.data.run else ()
        if not checks:
            return None
        return "agree" if all(check.ok for check in checks) else "differ"

    def against(self, baseline: Plan) -> float | None:
        """Returns how many times as fast as a baseline the plan is, by measurements of both, else
        by predictions."""
        runs = self.data.run.runs if self.data and self.data.run else ()
        theirs = next((run.median_ns for run in runs if run.plan.name == baseline.name), None)
        if theirs and self.median_ns:
            return theirs / self.median_ns
        own = self.data.plan.predicted_ns if self.data else 0.0
        return baseline.predicted_ns / own if own and math.isfinite(own) else None

    @property
    def fastest_baseline(self) -> tuple[str, float] | None:
        """The fastest baseline, and how many times as fast the plan is."""
        rivals = [(p.name, self.against(p)) for p in (self.data.baselines if self.data else ())]
        known = [(name, ratio) for name, ratio in rivals if ratio and math.isfinite(ratio)]
        return min(known, key=lambda rival: rival[1], default=None)


@dataclass(frozen=True, slots=True)
class Row:
    """One latency on both sides: of the whole plan, or of a unit or region on a target."""

    name: str
    target: str | None
    """Key of the target; None for the plan."""
    base_ns: float | None
    """Median; None if it did not run."""
    new_ns: float | None
    verdict: DiffVerdict
    ratio: float | None = None
    """The new latency over the base's: above 1 is slower."""
    low: float | None = None
    high: float | None = None
    """Ends of the ratio's interval at :data:`~nnapi_prof.costs.diff.CONFIDENCE`."""
    simulated: bool = False

    @property
    def changed(self) -> bool:
        return self.verdict in (DiffVerdict.SLOWER, DiffVerdict.FASTER, DiffVerdict.STATUS)

    @property
    def failed(self) -> bool:
        """Whether it became slower, or no longer runs."""
        gone = self.verdict is DiffVerdict.STATUS and self.new_ns is None
        return self.verdict is DiffVerdict.SLOWER or gone

    @property
    def label(self) -> str:
        return self.name if self.target is None else f"{self.name} on {self.target}"


@dataclass(frozen=True, slots=True)
class Move:
    """Neighbouring units of both models that the two plans run on different targets."""

    label: str
    base_units: tuple[int, ...]
    new_units: tuple[int, ...]
    base: Segment
    new: Segment


@dataclass(frozen=True, slots=True)
class RefusalChange:
    """A unit that a target refuses on only one side, or on both for different reasons."""

    unit: int
    """Index in the base's model."""
    label: str
    target: str
    base: str | None
    """The reason; None if it is not refused."""
    new: str | None


@dataclass(frozen=True, slots=True)
class ConditionChange:
    """A condition, version or description that differs; None if a side does not have it."""

    name: str
    base: str | None
    new: str | None


@dataclass(frozen=True)
class Compared:
    """Two sides, the new one against the base."""

    base: Side
    new: Side
    limit: float | None = None
    """Slowdown that fails the comparison: 0.05 is 5 %; None if none does."""

    @property
    def sides(self) -> tuple[Side, Side]:
        return self.base, self.new

    @property
    def simulated(self) -> bool:
        return self.base.simulated or self.new.simulated

    @property
    def threshold(self) -> float:
        """Smallest relative change of a unit's median that counts: :data:`THRESHOLD`, or half of
        the limit, so that no change passes and a change by the limit fails."""
        return THRESHOLD if self.limit is None else self.limit / 2

    @cached_property
    def plan(self) -> Row | None:
        """Comparison of the two whole plans; None if neither ran."""
        one, two = self.base.median_ns, self.new.median_ns
        row = Row("the plan", None, one, two, DiffVerdict.STATUS, simulated=self.simulated)
        if one is None and two is None:
            return None
        if not one or not two:
            return row
        ratio = two / one
        ends = ratio_interval(self.base.samples_ns, self.new.samples_ns)
        if ends is None:
            return dataclasses.replace(row, verdict=DiffVerdict.UNSURE, ratio=ratio)
        verdict = verdict_of(ratio, ends, 0.0 if self.limit is None else self.threshold)
        return dataclasses.replace(row, verdict=verdict, ratio=ratio, low=ends[0], high=ends[1])

    @cached_property
    def latencies(self) -> LatencyComparison:
        """Comparison of units and regions that both sides measured on a target of the same name.
        For two bundles each plan keeps its own conditions; :attr:`facts` has the differences."""
        one, two = self.base.measurements, self.new.measurements
        if self.base.data and self.new.data:
            usual = Conditions()
            shared = {m.signature for m in one} & {m.signature for m in two}
            one, two = (
                tuple(
                    dataclasses.replace(m, conditions=usual) for m in rows if m.signature in shared
                )
                for rows in (one, two)
            )
        return compare(one, two, self.threshold, together=self.limit is not None)

    @cached_property
    def rows(self) -> tuple[Row, ...]:
        """The plan, then units and regions: failed ones, then changed ones, by slowdown."""
        measured = sorted(
            map(_difference_row, self.latencies.differences),
            key=lambda row: (not row.failed, not row.changed, -(row.ratio or 0.0)),
        )
        return (*((self.plan,) if self.plan else ()), *measured)

    @property
    def failed(self) -> tuple[Row, ...]:
        """Rows that exceed the limit: only the plan's row if a plan ran, else any."""
        if self.limit is None:
            return ()
        judged = self.rows if self.plan is None else (self.plan,)
        return tuple(row for row in judged if row.failed)

    def raise_for_slower(self) -> None:
        """Raises SlowerError if a row exceeds the limit."""
        if not self.failed:
            return
        worst, more = self.failed[0], len(self.failed) - 1
        became = f"is {worst.ratio - 1:.1%} slower" if worst.ratio else "does not run any more"
        raise SlowerError(f"{worst.label} {became}" + (f", and {more} more fail" if more else ""))

    # ---- two plans -----------------------------------------------------------------------------

    @cached_property
    def matched(self) -> tuple[tuple[int, int], ...]:
        """Units of both models: index in the base's and in the new one's."""
        if self.base.data is None or self.new.data is None:
            return ()
        graphs = self.base.data.graph, self.new.data.graph
        return match_units(*([unit.signature for unit in graph.units] for graph in graphs))

    @cached_property
    def moves(self) -> tuple[Move, ...]:
        """Matched units on different targets; neighbours that share segments are one move."""
        if self.base.data is None or self.new.data is None:
            return ()
        plans = self.base.data.plan, self.new.data.plan
        where = [{u: s for s in plan.segments for u in s.units} for plan in plans]
        moved = [
            (place, one, two, where[0][one], where[1][two])
            for place, (one, two) in enumerate(self.matched)
            if one in where[0] and two in where[1] and where[0][one].target != where[1][two].target
        ]
        moves = []
        for _, group in itertools.groupby(
            enumerate(moved), key=lambda each: (each[1][0] - each[0], *each[1][3:])
        ):
            stretch = [each for _, each in group]
            units = tuple(each[1] for each in stretch)
            label = self.base.data.graph.label(units)
            moves.append(Move(label, units, tuple(each[2] for each in stretch), *stretch[0][3:]))
        return tuple(moves)

    @cached_property
    def refusals(self) -> tuple[RefusalChange, ...]:
        if self.base.data is None or self.new.data is None:
            return ()
        costs = self.base.data.cost_model, self.new.data.cost_model
        shared = [t for t in all_targets(costs[0]) if t in set(all_targets(costs[1]))]
        units = self.base.data.graph.units
        return tuple(
            RefusalChange(one, units[one].label, target.key, *reasons)
            for one, two in self.matched
            for target in shared
            if len(
                set(
                    reasons := (
                        costs[0].refusals.get((one, target)),
                        costs[1].refusals.get((two, target)),
                    )
                )
            )
            > 1
        )

    @cached_property
    def facts(self) -> tuple[ConditionChange, ...]:
        """Conditions, versions and facts of the devices that differ."""
        one, two = (_facts(side) for side in self.sides)
        rows = (
            ConditionChange(name, one.get(name), two.get(name))
            for name in dict.fromkeys([*one, *two])
        )
        return tuple(row for row in rows if row.base != row.new)


def match_units(base: Sequence[str], new: Sequence[str]) -> tuple[tuple[int, int], ...]:
    """Pairs the units of two models by their signatures: first runs in equal order, then the rest
    in order. The pairs have the order of the base."""
    pairs: dict[int, int] = {}
    for block in SequenceMatcher(None, base, new, autojunk=False).get_matching_blocks():
        pairs.update((block.a + i, block.b + i) for i in range(block.size))
    free: defaultdict[str, deque[int]] = defaultdict(deque)
    for two in sorted(set(range(len(new))) - set(pairs.values())):
        free[new[two]].append(two)
    for one, signature in enumerate(base):
        if one not in pairs and free[signature]:
            pairs[one] = free[signature].popleft()
    return tuple(sorted(pairs.items()))


def _difference_row(each: Difference) -> Row:
    base, new = (m.summary.median_ns if m.usable else None for m in (each.first, each.second))
    ends = each.ratio, each.low, each.high
    simulated = each.first.simulated or each.second.simulated
    first = each.first
    return Row(first.label, first.target.key, base, new, each.verdict, *ends, simulated)


def _facts(side: Side) -> dict[str, str]:
    rows = side.measurements
    timed = [m for m in rows if m.usable]
    on_nnapi = [m for m in timed if m.target != CPU]
    drivers: defaultdict[str, set[str]] = defaultdict(set)
    for m in rows:
        if m.driver_version and m.target.accelerator != AUTO:  # AUTO lists all drivers
            drivers[m.target.accelerator or m.target.key].add(m.driver_version)
    run = side.data.run if side.data else None
    facts = {
        "model": side.model,
        "device": side.device,
        "latencies": "simulated" if side.simulated else "measured on hardware",
        "measured on": _join_sorted({m.fingerprint for m in rows}),
        "precision on NNAPI": _join_sorted({m.conditions.precision.value for m in on_nnapi}),
        "NNAPI execution": _join_sorted({m.conditions.mode.value for m in on_nnapi}),
        "CPU threads": _join_sorted({str(m.threads) for m in timed if m.target == CPU}),
        "cores asked for": _join_sorted({m.conditions.cpus for m in timed}),
        "agent": _join_sorted({m.agent_version for m in rows}),
        **{
            f"driver of {name}": _join_sorted(versions)
            for name, versions in sorted(drivers.items())
        },
        "last measured": max((m.measured_at for m in rows), default="")[:19].replace("T", " "),
        "run at": run.created_at[:19].replace("T", " ") if run else "",
        "run with": side.conditions,
        **(dict(device_facts(side.data.device_info)) if side.data else {}),
    }
    return {name: value for name, value in facts.items() if value}


def _join_sorted(values: set[str]) -> str:
    return ", ".join(sorted(values))


def by_target(rows: Sequence[Row]) -> Mapping[str, list[Row]]:
    """Groups rows with a ratio by their target, the target that changed most first."""
    grouped: defaultdict[str, list[Row]] = defaultdict(list)
    for row in rows:
        if row.target is not None and row.ratio:
            grouped[row.target].append(row)

    def size(own: Sequence[Row]) -> float:
        return -abs(math.log(statistics.median(row.ratio or 1.0 for row in own)))

    return dict(sorted(grouped.items(), key=lambda item: size(item[1])))
