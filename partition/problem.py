"""The partitioner's input: a graph and a table of costs, as arrays."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from nnapi_prof.costs.table import Conversions, CostTable
from nnapi_prof.errors import PartitionError
from nnapi_prof.graph.plan import CPU, HOST, Engine, Segment, Target
from nnapi_prof.graph.unit import UnitGraph
from nnapi_prof.partition.arrays import GRAPH_INPUT as GRAPH_INPUT
from nnapi_prof.partition.arrays import Arrays, Regions, flat_arrays, flat_regions
from nnapi_prof.partition.arrays import ValueFlow as ValueFlow

# All times are ns, all sizes bytes. Arrays are indexed ``[unit, target]`` or ``[target]``.


Placement = tuple[tuple[int, ...], int]
"""Units of a segment, ascending, and the index of its target."""

Region = tuple[frozenset[int], int]
"""Units and the index of a target."""


@dataclass(frozen=True)
class Problem:
    """n units in topological order, t targets, and every cost.

    A segment (convex set of units) on a target costs its entry in ``region_ns`` where that region
    was measured whole. Otherwise it costs overhead + transfer of the values that cross its boundary
    (each once; graph inputs and outputs cross) + the sum of its units' marginal costs. A plan costs
    its segments plus converting values between formats (each once each way).
    """

    labels: tuple[str, ...]
    """[n] names of the units, for messages."""
    predecessors: tuple[tuple[int, ...], ...]
    values: tuple[ValueFlow, ...]
    targets: tuple[Target, ...]
    unit_ns: NDArray[np.float64]
    """[n, t]; inf where the target cannot run the unit, or its cost there is unknown."""
    overhead_ns: NDArray[np.float64]
    in_ns_per_byte: NDArray[np.float64]
    out_ns_per_byte: NDArray[np.float64]
    region_ns: Mapping[tuple[frozenset[int], int], float] = field(default_factory=dict)
    """(units, target index) -> latency of that region measured whole; inf where it failed."""
    estimated: NDArray[np.bool_] | None = None
    """[n, t], true where the unit's cost comes from the static model."""
    refusals: Mapping[tuple[int, int], str] = field(default_factory=dict)
    """(unit, target index) -> reason why the target cannot run it."""
    ruled_out: Mapping[tuple[int, int], str] = field(default_factory=dict)
    """(unit, target index) -> constraint that keeps it off the target."""
    formats: NDArray[np.int64] | None = None
    """[t] format of the values: 0 for floats, 1 for 8-bit integers; None where all are the same."""
    constant_bytes: tuple[int, ...] = ()
    """[n] bytes of weights; empty where they do not matter."""
    simulated: bool = False
    """Whether the costs come from a simulated phone."""
    copies: bool = False
    """Whether formats are places in memory (0 an app's buffers, 1 memory that accelerators share)
    and conversions are copies between them."""

    def __post_init__(self) -> None:
        n, t = len(self.labels), len(self.targets)
        if self.unit_ns.shape != (n, t):
            raise PartitionError(f"unit_ns has shape {self.unit_ns.shape}, wanted {(n, t)}")
        for name in ("overhead_ns", "in_ns_per_byte", "out_ns_per_byte"):
            array = getattr(self, name)
            if array.shape != (t,) or not np.all(np.isfinite(array)) or np.any(array < 0):
                raise PartitionError(f"{name} is {array}, wanted {t} finite costs of at least 0")
        bad = np.argwhere(np.isnan(self.unit_ns) | (self.unit_ns < 0))
        if len(bad):
            u, k = bad[0]
            raise PartitionError(
                f"{self.labels[u]} on {self.targets[k]} costs {self.unit_ns[u, k]} ns; wanted at "
                "least 0, or inf where it cannot run",
                "measure it again",
            )
        if self.formats is not None and (
            self.formats.shape != (t,) or not np.isin(self.formats, (0, 1)).all()
        ):
            raise PartitionError(f"formats are {self.formats}, wanted {t} of 0 or 1")
        for value in self.values:
            if not (0 <= value.to_int8_ns < math.inf and 0 <= value.to_float_ns < math.inf):
                raise PartitionError(
                    f"converting a value that {self._maker(value)} costs {value.to_int8_ns} ns to "
                    f"8 bits and {value.to_float_ns} ns back; wanted finite costs of at least 0"
                )
        for (region, k), ns in self.region_ns.items():
            if math.isnan(ns) or ns < 0 or not region:
                raise PartitionError(f"region {sorted(region)} on {self.targets[k]} costs {ns} ns")
        for u, preds in enumerate(self.predecessors):
            if any(p >= u for p in preds):
                raise PartitionError(f"{self.labels[u]} stands before a unit that it reads from")

    def _maker(self, value: ValueFlow) -> str:
        if value.producer == GRAPH_INPUT:
            return "enters the graph"
        return f"{self.labels[value.producer]} makes"

    @property
    def n(self) -> int:
        return len(self.labels)

    @cached_property
    def arrays(self) -> Arrays:
        """Everything but the measured regions as flat arrays."""
        return flat_arrays(
            self.predecessors,
            self.successors,
            self.values,
            self.unit_ns,
            self.overhead_ns,
            (self.in_ns_per_byte, self.out_ns_per_byte),
            self.formats,
        )

    @cached_property
    def regions(self) -> Regions:
        """The measured regions as flat arrays."""
        rates = (self.in_ns_per_byte, self.out_ns_per_byte)
        return flat_regions(self.arrays, self.values, self.region_ns, rates)

    @cached_property
    def runs(self) -> NDArray[np.bool_]:
        """[n, t]: where units run, alone or in a region that was measured whole."""
        runs = np.isfinite(self.unit_ns)
        for (units, k), ns in self.region_ns.items():
            if math.isfinite(ns):
                runs[list(units), k] = True
        return runs

    @cached_property
    def successors(self) -> tuple[tuple[int, ...], ...]:
        after: list[list[int]] = [[] for _ in range(self.n)]
        for u, preds in enumerate(self.predecessors):
            for p in preds:
                after[p].append(u)
        return tuple(tuple(s) for s in after)

    @cached_property
    def values_of(self) -> tuple[tuple[int, ...], ...]:
        """[n]: indices of the values that a unit reads or makes."""
        touched: list[set[int]] = [set() for _ in range(self.n)]
        for index, value in enumerate(self.values):
            for u in value.readers:
                touched[u].add(index)
            if value.producer != GRAPH_INPUT:
                touched[value.producer].add(index)
        return tuple(tuple(sorted(v)) for v in touched)

    def without(self, ruled_out: NDArray[np.bool_]) -> Problem:
        """Returns the problem without some units on some targets ([n, t]), and regions that hold
        them."""
        if not ruled_out.any():
            return self
        regions = {
            (units, k): ns
            for (units, k), ns in self.region_ns.items()
            if not any(ruled_out[u, k] for u in units)
        }
        return replace(self, unit_ns=np.where(ruled_out, np.inf, self.unit_ns), region_ns=regions)

    def target_index(self, target: Target) -> int:
        """Returns the index of a target. Raises PartitionError where there is no such target."""
        try:
            return self.targets.index(target)
        except ValueError:
            keys = ", ".join(t.key for t in self.targets)
            raise PartitionError(f"no costs for target {target}, only for {keys}") from None

    def boundary_bytes(self, units: Iterable[int]) -> tuple[int, int]:
        """Returns the bytes that enter and that leave a set of units."""
        inside = frozenset(units)
        entering = leaving = 0
        for index in {v for u in inside for v in self.values_of[u]}:
            value = self.values[index]
            if value.producer not in inside:
                entering += value.n_bytes
            elif value.is_output or any(r not in inside for r in value.readers):
                leaving += value.n_bytes
        return entering, leaving

    def additive_ns(self, units: Iterable[int], k: int) -> float:
        """Returns the cost of a region on target ``k`` by its parts; inf where one cannot run."""
        ordered = sorted(units)
        entering, leaving = self.boundary_bytes(ordered)
        return float(
            self.overhead_ns[k]
            + entering * self.in_ns_per_byte[k]
            + leaving * self.out_ns_per_byte[k]
            + self.unit_ns[ordered, k].sum()
        )

    @cached_property
    def region_parts_ns(self) -> dict[Region, float]:
        """Cost by their parts of regions measured whole; inf where a part cannot run there."""
        return dict(zip(self.region_ns, self.regions.parts_ns.tolist(), strict=True))

    def segment_ns(self, units: Iterable[int], k: int) -> float:
        """Returns the cost of a region on target ``k``: as measured whole, else by its parts."""
        key = (frozenset(units), k)
        measured = self.region_ns.get(key)
        return self.additive_ns(key[0], k) if measured is None else measured

    def conversions_ns(self, placements: Sequence[Placement]) -> float:
        """Returns the cost of a plan's conversions between formats, on top of its segments."""
        if not self.arrays.converts:
            return 0.0
        target = np.zeros(self.n, dtype=np.int64)
        for units, k in placements:
            target[list(units)] = k
        return self.arrays.conversions_ns(target)

    def between_segments(self, placements: Sequence[Placement]) -> tuple[float, float]:
        """Returns the cost between segments as a plan stores it: of conversions, and of copies."""
        ns = self.conversions_ns(placements)
        return (0.0, ns) if self.copies else (ns, 0.0)

    def is_estimated(self, units: Iterable[int], k: int) -> bool:
        """Tells whether the cost of a region comes from the static model."""
        region = frozenset(units)
        if self.estimated is None or (region, k) in self.region_ns:
            return False
        return bool(self.estimated[sorted(region), k].any())


def make_problem(graph: UnitGraph, costs: CostTable, *, copies: bool = False) -> Problem:
    """Returns the problem of placing a graph's units under some costs. With ``copies`` a plan's
    cost includes copying the graph's inputs and outputs from and to an app's buffers, where an
    accelerator reads or writes them and the costs contain it.

    Raises PartitionError where the costs are invalid (negative, not a number).
    """
    if len(costs.unit_ns) != len(graph.units):
        raise PartitionError(
            f"the costs are of {len(costs.unit_ns)} units, the model has {len(graph.units)}"
        )
    index = costs.column
    outputs = set(graph.outputs)
    conversions = costs.conversions
    copies = copies and conversions is None and bool(costs.copies_ns)
    if copies:
        shares = [target.engine is Engine.NNAPI for target in costs.targets]
        both = dict(costs.copies_ns)
        conversions = Conversions(np.array(shares, dtype=np.int64), both, both)
    to_int8_ns = {} if conversions is None else conversions.to_int8_ns
    to_float_ns = {} if conversions is None else conversions.to_float_ns
    return Problem(
        labels=tuple(f"{unit.label} (unit {unit.index})" for unit in graph.units),
        predecessors=tuple(graph.predecessors(u) for u in range(len(graph.units))),
        values=tuple(
            ValueFlow(
                producer=graph.producer.get(name, GRAPH_INPUT),
                readers=tuple(sorted(set(graph.readers[name]))),
                n_bytes=costs.border_bytes.get(name, tensor.n_bytes),
                is_output=name in outputs,
                to_int8_ns=to_int8_ns.get(name, 0.0),
                to_float_ns=to_float_ns.get(name, 0.0),
            )
            for name, tensor in graph.values.items()
            if graph.readers[name] or name in graph.producer
        ),
        targets=costs.targets,
        unit_ns=costs.unit_ns,
        overhead_ns=costs.overhead_ns,
        in_ns_per_byte=costs.in_ns_per_byte,
        out_ns_per_byte=costs.out_ns_per_byte,
        region_ns={
            (units, index[target]): ns
            for (units, target), ns in costs.region_ns.items()
            if target in index
        },
        estimated=costs.estimated,
        refusals={(u, index[t]): why for (u, t), why in costs.refusals.items() if t in index},
        formats=None if conversions is None else conversions.format,
        constant_bytes=tuple(unit.constant_bytes for unit in graph.units),
        simulated=costs.simulated,
        copies=copies,
    )


def check_runnable(problem: Problem) -> None:
    """Raises PartitionError, with the refusals, where some unit can run nowhere."""
    for u in np.flatnonzero(~problem.runs.any(axis=1)):
        reasons = "; ".join(
            f"{target}: {problem.refusals.get((int(u), k), 'no cost is known')}"
            for k, target in enumerate(problem.targets)
        )
        raise PartitionError(
            f"no plan: {problem.labels[u]} can run on no target ({reasons}); "
            "measure it on the CPU, or allow the host as a target"
        )


def evaluate(problem: Problem, segments: Sequence[Segment]) -> float:
    """Returns the latency in ns of ``segments`` one after another; inf where one cannot run.

    Raises PartitionError where a unit is missing, repeated, or runs before its inputs.
    """
    done: set[int] = set()
    placements: list[Placement] = []
    total = 0.0
    for segment in segments:
        inside = set(segment.units)
        if not inside or len(inside) != len(segment.units) or inside & done:
            raise PartitionError(f"segment {segment.units} is empty or repeats a unit")
        for u in segment.units:
            if not 0 <= u < problem.n:
                raise PartitionError(f"segment {segment.units}: there are {problem.n} units")
            early = [p for p in problem.predecessors[u] if p not in done and p not in inside]
            if early:
                raise PartitionError(
                    f"{problem.labels[u]} runs before {problem.labels[early[0]]}, which it reads"
                )
        done |= inside
        placements.append((segment.units, problem.target_index(segment.target)))
        total += problem.segment_ns(*placements[-1])
    if len(done) != problem.n:
        missing = sorted(set(range(problem.n)) - done)
        raise PartitionError(f"units {missing} are in no segment")
    return total + problem.conversions_ns(placements)


def fallback_target(problem: Problem, unit: int) -> int:
    """Returns the target of a unit when nothing is offloaded: the CPU, else the host, else the
    cheapest.

    Raises PartitionError where no target can run the unit alone.
    """
    for target in (CPU, HOST):
        if target in problem.targets:
            k = problem.targets.index(target)
            if np.isfinite(problem.unit_ns[unit, k]):
                return k
    cheapest = int(np.argmin(problem.unit_ns[unit]))
    if not np.isfinite(problem.unit_ns[unit, cheapest]):
        raise PartitionError(f"{problem.labels[unit]} can run alone on no target")
    return cheapest
