"""Find what prevents a faster plan, and predict the cost of work on a target that never ran it.

Hindrances are read from a model's graph, its costs and the segments of its plan. The cost of a
refused unit is predicted from the units that the same target ran:

    ns = operation + max(moved bytes * ns_per_byte, multiply-accumulates * ns_per_mac[kind])

fitted to marginal costs, without invocation and transfer. Work without weights is priced by the
bytes that it moves, which determine its cost on accelerators. Measurements of a kind correct the
predictions for that kind.
"""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy.optimize import nnls

from nnapi_prof.advice import Hindrance
from nnapi_prof.costs.estimate import WEIGHTED
from nnapi_prof.costs.model import CostModel
from nnapi_prof.graph.causes import detail
from nnapi_prof.graph.plan import AUTO, Engine, Plan, Target
from nnapi_prof.graph.unit import UnitGraph, Work

FEWEST = 2
"""Fewest samples from which prices are fitted."""
NOISE, NOISE_NS = 0.05, 500.0
"""Noise of a marginal cost: a share of it, and an absolute part in ns."""
BANDWIDTH_SHARE, BANDWIDTH_DOUBT = 0.6, 0.5
"""Assumed share of bytes in the lowest ns per byte of any sample, give or take the second number;
the rest is the operation itself. Samples of several sizes override it."""
DEARER = {
    "DEPTHWISE_CONV_2D": 3.0,
    "FULLY_CONNECTED": 3.0,
    "GROUPED_CONV_2D": 1.0,
    "TRANSPOSE_CONV_2D": 4.0,
}
"""Kind -> its ns per multiply-accumulate over a convolution's, used where none of the kind was
measured. On the GPUs of ``costs/data`` the ratios are between 2 and 4, 1 and 11, 0.9 and 1; the
last is assumed."""
MOVING = 1.3
"""Multiple of the time of its bytes up to which a sample is ignored in rates of
multiply-accumulates: a convolution to few channels, say, would make its whole kind seem slow."""
ERROR, NEW_ERROR = 0.1, 0.3
"""Lower bounds of the relative errors of prices: of measured kinds, and of others."""
MOST_FACTOR = 4.0
"""Largest factor of a kind; the smallest is its reciprocal."""


@dataclass(frozen=True, slots=True)
class WorkPrices:
    """The prices of one target."""

    operation_ns: float
    ns_per_byte: float
    ns_per_mac: Mapping[str, Mapping[str, float]]
    """Weighted kind -> :attr:`Work.rate` -> ns per multiply-accumulate."""
    factors: Mapping[str, float]
    """:attr:`Work.rate` -> measured cost over :meth:`usual_ns`."""
    errors: tuple[float, float] = (ERROR, NEW_ERROR)
    """Relative errors that nine of ten samples stay below: with their kind's factor; without."""

    def error(self, work: Work) -> float:
        """Returns the relative error of :meth:`ns` that nine of ten samples stay below."""
        return self.errors[work.rate not in self.factors]

    def ns(self, work: Work) -> float:
        """Returns the marginal cost of a unit that does this work."""
        return self.usual_ns(work) * self.factors.get(work.rate, 1.0)

    def usual_ns(self, work: Work) -> float:
        """Returns the marginal cost without the factor of its kind."""
        computing = 0.0
        if work.kind in WEIGHTED and self.ns_per_mac:
            own = self.ns_per_mac.get(work.kind, {})
            kinds = {work.kind: own} if own else self.ns_per_mac
            rates = [ns / _dearer(kind) for kind, of in kinds.items() for ns in of.values()]
            usual = statistics.median(rates) * _dearer(work.kind)
            computing = work.macs * own.get(work.rate, usual)
        return self.operation_ns + max(work.moved * self.ns_per_byte, computing)


def _dearer(kind: str) -> float:
    return DEARER.get(kind, 1.0)


def fit_prices(samples: Sequence[tuple[Work, float]]) -> WorkPrices | None:
    """Fits prices to works and their marginal costs in ns; None where there are too few."""
    samples = [(work, ns) for work, ns in samples if ns > 0 and work.moved > 0]
    if len(samples) < FEWEST:
        return None
    operation_ns, ns_per_byte = _light(samples)
    rates: dict[str, dict[str, list[tuple[float, float]]]] = defaultdict(lambda: defaultdict(list))
    weighted = [(work, ns) for work, ns in samples if work.kind in WEIGHTED and work.macs > 0]
    moving = [
        (work, ns)
        for work, ns in weighted
        if ns - operation_ns <= MOVING * work.moved * ns_per_byte
    ]
    if len(moving) == len(weighted):
        moving = []
    for work, ns in weighted:
        if (work, ns) not in moving:
            computing = max(ns - operation_ns, 0.1 * ns)
            rates[work.kind][work.rate].append((computing / work.macs, work.macs))
    ns_per_mac = {
        kind: {rate: _weighted_median(own) for rate, own in of.items()}
        for kind, of in rates.items()
    }
    prices = WorkPrices(operation_ns, ns_per_byte, ns_per_mac, {})
    ratios: dict[str, list[float]] = defaultdict(list)
    for work, ns in samples:
        if (work, ns) in moving:
            continue
        ratios[work.rate].append((ns + NOISE_NS) / (prices.usual_ns(work) + NOISE_NS))
    factors = {
        rate: min(max(statistics.median(own), 1 / MOST_FACTOR), MOST_FACTOR)
        for rate, own in ratios.items()
    }
    prices = WorkPrices(operation_ns, ns_per_byte, ns_per_mac, factors)
    off = [abs(math.log((ns + NOISE_NS) / (prices.ns(work) + NOISE_NS))) for work, ns in samples]
    kinds = [abs(math.log(factor)) for factor in factors.values()]
    errors = (max(ERROR, _most(off)), max(NEW_ERROR, _most(kinds)))
    return replace(prices, errors=errors)


def _most(logarithms: Sequence[float]) -> float:
    """Returns the relative error that nine of ten samples stay below."""
    return math.expm1(float(np.percentile(logarithms, 90))) if logarithms else 0.0


def _weighted_median(pairs: Sequence[tuple[float, float]]) -> float:
    """Returns the weighted median of (value, weight) pairs."""
    ordered = sorted(pairs)
    whole, weight = sum(own for _, own in ordered), 0.0
    for value, own in ordered:
        weight += own
        if 2 * weight >= whole:
            return value
    raise ValueError("no values: a rate has at least one sample")


def _light(samples: Sequence[tuple[Work, float]]) -> tuple[float, float]:
    """Returns the ns of an operation and of a byte, from samples without weights; where there are
    none, 0 and the lowest ns per byte of all."""
    most = min(ns / work.moved for work, ns in samples)
    light = [(work, ns) for work, ns in samples if work.kind not in WEIGHTED]
    if not light:
        return 0.0, most
    rows = [[1.0, work.moved * most] for work, _ in light]
    right = [ns for _, ns in light]
    weights = [1 / (NOISE * ns + NOISE_NS) for ns in right]
    rows.append([0.0, 1.0])
    right.append(BANDWIDTH_SHARE)
    weights.append(1 / BANDWIDTH_DOUBT)
    scale = np.array(weights)
    solution, _ = nnls(np.array(rows) * scale[:, None], np.array(right) * scale)
    operation_ns, share = solution.tolist()
    return operation_ns, min(share, 1.0) * most


MOVERS = frozenset("permute transpose to_channels_last to_contiguous view reshape clone".split())
"""Kinds of units that compute nothing."""
PERMUTES = frozenset({"permute", "transpose"})
"""Movers that the model's author wrote; the others follow from their neighbours."""
WIDE = frozenset({"float64", "complex64", "complex128"})
"""Types that NNAPI does not have."""
SLOW, SHARE = 2.0, 0.03
"""A unit is slow if it takes at least this multiple of work of its size, and units like it take at
least this share of the plan."""


@dataclass(frozen=True, slots=True)
class HindranceFinding:
    """Units that together prevent a faster plan."""

    kind: Hindrance
    units: tuple[int, ...]
    targets: tuple[Target, ...]
    """Targets that do not run the units, or run them slowly."""
    reasons: tuple[str, ...] = ()


def find_hindrances(
    graph: UnitGraph,
    costs: CostModel,
    plan: Plan,
    prices: Mapping[Target, WorkPrices],
    kept_off: Iterable[int] = (),
) -> list[HindranceFinding]:
    """Finds the hindrances of a plan; of several about the same units, only the first.

    ``prices`` holds the targets to consider, ``kept_off`` the units that constraints keep off
    accelerators.
    """
    findings = [
        *_kept_off(graph, costs, prices, frozenset(kept_off)),
        *_find_refusals(graph, costs, plan, prices),
        *_cuts(plan),
        *_slow(graph, costs, plan, prices),
        *_layouts(graph),
    ]
    first: dict[tuple[int, ...], HindranceFinding] = {}
    for finding in findings:
        first.setdefault(finding.units, finding)
    return list(first.values())


def accelerators(targets: Iterable[Target]) -> list[Target]:
    """Returns the NNAPI targets that name an accelerator."""
    return [t for t in targets if t.engine is Engine.NNAPI and t.accelerator != AUTO]


def _find_refusals(
    graph: UnitGraph, costs: CostModel, plan: Plan, prices: Mapping[Target, WorkPrices]
) -> list[HindranceFinding]:
    """Finds operations that an accelerator refuses, or that even the CPU engine does not run, with
    all their units. All operations in 64 bits are one finding."""
    hosted = {u for s in plan.segments if s.target.engine is Engine.HOST for u in s.units}
    units: dict[str, set[int]] = defaultdict(set)
    places: dict[str, dict[Target, None]] = defaultdict(dict)
    reasons: dict[str, dict[str, None]] = defaultdict(dict)
    for (unit, target), why in sorted(costs.refusals.items()):
        of_host = target.engine is Engine.CPU and unit in hosted
        if target not in prices or not (of_host or target in accelerators([target])):
            continue
        key = "64 bits" if _is_wide(graph, unit) else graph.units[unit].kind
        units[key].add(unit)
        places[key][target] = None
        reasons[key][detail(why)] = None
    return [
        HindranceFinding(
            Hindrance.REFUSED, tuple(sorted(own)), tuple(places[key]), tuple(reasons[key])
        )
        for key, own in units.items()
    ]


def _is_wide(graph: UnitGraph, unit: int) -> bool:
    own = graph.units[unit]
    return any(graph.values[name].dtype in WIDE for name in (*own.inputs, *own.outputs))


def _kept_off(
    graph: UnitGraph,
    costs: CostModel,
    prices: Mapping[Target, WorkPrices],
    kept_off: frozenset[int],
) -> list[HindranceFinding]:
    """Finds operations that constraints keep off accelerators, with all their units, and adds one
    finding for all of them together."""
    by_operation: dict[str, list[int]] = defaultdict(list)
    for unit in sorted(kept_off):
        by_operation[graph.units[unit].kind].append(unit)
    groups = [*by_operation.values(), *([sorted(kept_off)] if len(by_operation) > 1 else [])]
    return [
        HindranceFinding(
            Hindrance.KEPT_OFF,
            tuple(units),
            tuple(
                target
                for target in accelerators(prices)
                if all(costs.unit_cost(unit, target) is not None for unit in units)
            ),
        )
        for units in groups
    ]


def _cuts(plan: Plan) -> list[HindranceFinding]:
    """Finds segments between two segments of one accelerator."""
    findings = []
    ends = zip(plan.segments, plan.segments[1:], plan.segments[2:], strict=False)
    for before, inner, after in ends:
        name = before.target.accelerator
        if name is not None and name == after.target.accelerator != inner.target.accelerator:
            findings.append(
                HindranceFinding(Hindrance.CUT, tuple(sorted(inner.units)), (before.target,))
            )
    return findings


def _slow(
    graph: UnitGraph, costs: CostModel, plan: Plan, prices: Mapping[Target, WorkPrices]
) -> list[HindranceFinding]:
    """Finds units that take far longer than others of their size; equal ones are one finding."""
    alike: dict[tuple[str, Target], list[int]] = defaultdict(list)
    spent: dict[tuple[str, Target], float] = defaultdict(float)
    for segment in plan.segments:
        own = prices.get(segment.target)
        for unit in segment.units if own is not None else ():
            work = graph.units[unit].work
            ns = costs.unit_cost(unit, segment.target)
            if own is None or work is None or ns is None or ns < SLOW * own.usual_ns(work):
                continue
            key = graph.units[unit].signature, segment.target
            alike[key].append(unit)
            spent[key] += ns
    least = SHARE * plan.predicted_ns
    return [
        HindranceFinding(Hindrance.SLOW, tuple(sorted(units)), (target,))
        for (signature, target), units in alike.items()
        if spent[signature, target] >= least
    ]


def _layouts(graph: UnitGraph) -> list[HindranceFinding]:
    """Finds groups of neighbours that only move values, with at most one unit between two of them
    and at least one permute."""
    movers = [unit.index for unit in graph.units if unit.kind in MOVERS]
    root = {unit: unit for unit in movers}

    def top(unit: int) -> int:
        while root[unit] != unit:
            unit = root[unit]
        return unit

    for unit in movers:
        near = set(graph.predecessors(unit))
        near |= {far for each in near for far in graph.predecessors(each)}
        for other in near & set(movers):
            root[top(unit)] = top(other)
    groups: dict[int, list[int]] = defaultdict(list)
    for unit in movers:
        groups[top(unit)].append(unit)
    return [
        HindranceFinding(Hindrance.LAYOUT, tuple(units), ())
        for units in groups.values()
        if any(graph.units[unit].kind in PERMUTES for unit in units)
    ]
