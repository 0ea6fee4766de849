"""The sides of a comparison: what each plan takes, and which units of several models are the same.

Times are ns, None where unknown; every latency says whether it is simulated or estimated. Units are
matched by signature, in order where they can be.
"""

from __future__ import annotations

import math
from collections import defaultdict, deque
from collections.abc import Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher

import numpy as np

from nnapi_prof.costs.diff import ratio_interval
from nnapi_prof.device.protocol.description import description_parts
from nnapi_prof.graph.plan import Engine, Plan, Rule, baseline_of
from nnapi_prof.graph.unit import UnitGraph
from nnapi_prof.reports.data import ReportData
from nnapi_prof.reports.words import NOISE


@dataclass(frozen=True, slots=True)
class Column:
    """One unit as the sides of a comparison have it."""

    signature: str
    units: tuple[int | None, ...]
    """Its index in the graph of each side; None where that has no such unit."""

    @property
    def everywhere(self) -> bool:
        return None not in self.units


def match_units(graphs: Sequence[UnitGraph]) -> tuple[Column, ...]:
    """Every unit of every graph in one column each, in the order of the graphs.

    Phases, for one graph after another:
    1. Stretches of equal signatures in equal order are matched.
    2. What is left is matched by signature alone, first with first: the same operation at another
       place of the model.
    3. What is still left gets a column of its own, behind the unit it follows; all of it at the
       end where nothing is matched.
    """
    columns: list[tuple[str, list[int | None]]] = []
    for side, graph in enumerate(graphs):
        columns = _joined(columns, [unit.signature for unit in graph.units], side)
    return tuple(Column(signature, tuple(units)) for signature, units in columns)


def _joined(
    columns: list[tuple[str, list[int | None]]], signatures: list[str], side: int
) -> list[tuple[str, list[int | None]]]:
    """The columns with one more side, whose units have these signatures."""
    known_signatures = [signature for signature, _ in columns]
    matcher = SequenceMatcher(None, known_signatures, signatures, autojunk=False)
    place: dict[int, int] = {}  # unit -> its column
    for block in matcher.get_matching_blocks():
        place.update((block.b + i, block.a + i) for i in range(block.size))
    free: defaultdict[str, deque[int]] = defaultdict(deque)
    for at in sorted(set(range(len(known_signatures))) - set(place.values())):
        free[known_signatures[at]].append(at)
    for unit, signature in enumerate(signatures):
        if unit not in place and free[signature]:
            place[unit] = free[signature].popleft()
    unit_at = {at: unit for unit, at in place.items()}
    new: defaultdict[int, list[int]] = defaultdict(list)  # column -> new units behind it
    last = -1 if place else len(known_signatures) - 1
    for unit in range(len(signatures)):
        last = place.get(unit, last)
        if unit not in place:
            new[last].append(unit)
    nobody: list[int | None] = [None] * side
    wider: list[tuple[str, list[int | None]]] = []
    for at in range(-1, len(known_signatures)):
        if at >= 0:
            wider.append((known_signatures[at], [*columns[at][1], unit_at.get(at)]))
        wider += [(signatures[unit], [*nobody, unit]) for unit in new[at]]
    return wider


# ---- a side in numbers ---------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Latency:
    """Of a whole plan. ``p10_ns`` and ``p90_ns`` are the 10th and 90th percentile of its runs."""

    ns: float | None
    simulated: bool
    estimated: bool = False
    p10_ns: float | None = None
    p90_ns: float | None = None
    samples_ns: tuple[int, ...] = ()

    @property
    def n_samples(self) -> int:
        return len(self.samples_ns)

    @property
    def label(self) -> str:
        """``simulated``, ``estimated``, both or nothing: what a reader must be told."""
        words = ["simulated"] * self.simulated + ["estimated in part"] * self.estimated
        return ", ".join(words)


@dataclass(frozen=True, slots=True)
class Rival:
    """The plan against a baseline; above 1 the plan is faster. Both measured, or both predicted."""

    plan: str
    speedup: float
    measured: bool


@dataclass(frozen=True, slots=True)
class Ratio:
    """A side's latency by that of the first side; above 1 it is slower."""

    value: float
    measured: bool
    low: float | None = None
    """Ends of the interval of :mod:`nnapi_prof.costs.diff`; None of predictions and few runs."""
    high: float | None = None

    @property
    def verdict(self) -> str:
        """``faster``, ``slower`` or ``the same within noise``; ``not certain`` of few runs."""
        if abs(self.value - 1) < NOISE:
            return "the same within noise"
        if self.measured and (self.low is None or self.high is None):
            return "not certain"
        if self.low is not None and self.high is not None and self.low <= 1 <= self.high:
            return "the same within noise"
        return "slower" if self.value > 1 else "faster"


@dataclass(frozen=True)
class Side:
    """A plan with its costs, and its last run where there is one."""

    letter: str
    """A, B and so on: how tables and figures call it."""
    name: str
    data: ReportData

    @property
    def predicted(self) -> Latency:
        """Of what is timed: without segments on the host, if there are others."""
        plan = self.data.plan
        timed = [s for s in plan.segments if s.target.engine is not Engine.HOST] or plan.segments
        ns = sum(segment.predicted_ns for segment in timed)
        simulated = plan.simulated or self.data.cost_model.simulated
        estimated = any(segment.estimated for segment in timed)
        return Latency(ns if math.isfinite(ns) else None, simulated, estimated)

    @property
    def measured(self) -> Latency:
        """End to end, warm."""
        simulated = self.data.run is not None and self.data.run.simulated
        ran = self.data.run_of_plan
        if ran is None or ran.error is not None or not ran.total_ns:
            return Latency(None, simulated)
        low, high = np.percentile(ran.total_ns, [10, 90])
        return Latency(
            ran.median_ns, simulated, False, float(low), float(high), tuple(ran.total_ns)
        )

    @property
    def device(self) -> str:
        """Its name, without system and drivers."""
        return description_parts(self.data.device_name)[0]

    @property
    def simulated(self) -> bool:
        return self.data.simulated

    @property
    def error(self) -> float | None:
        """(predicted - measured) / measured."""
        predicted, measured = self.predicted.ns, self.measured.ns
        return (predicted - measured) / measured if measured and predicted is not None else None

    @property
    def first_ns(self) -> int | None:
        """Of the first, cold run."""
        ran = self.data.run_of_plan
        return ran.first_ns if ran else None

    @property
    def compile_ns(self) -> int | None:
        """Of all its segments together, where each is known."""
        ran = self.data.run_of_plan
        times = [timing.compile_ns for timing in ran.segments] if ran else []
        return sum(filter(None, times)) if times and None not in times else None

    def against(self, rule: Rule) -> Rival | None:
        """The plan against the first baseline of a rule; None where there is none."""
        rivals = (plan for plan in self.data.baselines if baseline_of(plan.name)[0] is rule)
        plan = next(rivals, None)
        return self._rival(plan) if plan is not None else None

    @property
    def fastest(self) -> Rival | None:
        """The plan against the baseline that is hardest to beat."""
        every = (self._rival(plan) for plan in self.data.baselines)
        return min(filter(None, every), key=lambda rival: rival.speedup, default=None)

    def _rival(self, rival: Plan) -> Rival | None:
        own = self.measured.ns
        theirs = self._measured_of(rival)
        if own and theirs:
            return Rival(rival.name, theirs / own, measured=True)
        predicted = self.data.plan.predicted_ns
        if not (predicted and math.isfinite(predicted) and math.isfinite(rival.predicted_ns)):
            return None
        return Rival(rival.name, rival.predicted_ns / predicted, measured=False)

    def _measured_of(self, plan: Plan) -> float | None:
        runs = self.data.run.runs if self.data.run else ()
        timed = next((run for run in runs if run.plan.name == plan.name), None)
        return timed.median_ns if timed is not None and timed.error is None else None

    @property
    def outputs(self) -> str:
        """``agree``, ``differ`` or ``not compared`` with eager PyTorch."""
        checks = self.data.run.checks if self.data.run else ()
        if not checks:
            return "not compared"
        return "agree" if all(check.ok for check in checks) else "differ"

    @property
    def worst_difference(self) -> float | None:
        """The largest relative difference of an output."""
        checks = self.data.run.checks if self.data.run else ()
        return max((check.relative for check in checks), default=None)


def ratio_of(first: Side, other: Side) -> Ratio | None:
    """How long ``other`` takes by ``first``: both measured, or both predicted; None where neither
    can be compared."""
    one, two = first.measured, other.measured
    if one.ns and two.ns:
        ends = ratio_interval(one.samples_ns, two.samples_ns)
        low, high = ends or (None, None)
        return Ratio(two.ns / one.ns, True, low, high)
    before, after = first.predicted.ns, other.predicted.ns
    if before and after:
        return Ratio(after / before, False)
    return None
