"""The partitioner: its exact search against itself with little effort, time and latency.

    python benchmarks/bench_partition.py

Graphs are synthetic: blocks of parallel branches, as in Inception. Costs are random with a fixed
seed, so that only times and ratios count. Where both find the same latency, the wider search cost
time and gained nothing: that is what the last column shows.
"""

from __future__ import annotations

import math
import random
import statistics
import time
from collections.abc import Iterable
from dataclasses import dataclass, field

from nnapi_prof.graph.plan import CPU, Preference, Target
from nnapi_prof.graph.types import TensorType
from nnapi_prof.graph.unit import Unit, UnitGraph
from nnapi_prof.partition import solve

ROUNDS = 5
TARGETS = (
    CPU,
    *(Target.nnapi(name, p) for name in ("npu", "gpu", "dsp", "auto") for p in Preference),
)


@dataclass
class Costs:
    """A cost model that is a table; one unit in ten cannot run on a target."""

    unit_ns: dict[tuple[int, Target], float]
    targets: tuple[Target, ...] = TARGETS
    simulated: bool = True
    refusals: dict[tuple[int, Target], str] = field(default_factory=dict)

    def unit_cost(self, unit_index: int, target: Target) -> float | None:
        return self.unit_ns.get((unit_index, target))

    def overhead(self, target: Target) -> float:
        return 0.0 if target == CPU else 4e5

    def transfer(self, target: Target, in_bytes: int, out_bytes: int) -> float:
        return 0.0 if target == CPU else 0.5 * (in_bytes + out_bytes)

    def region_cost(self, units: Iterable[int], target: Target) -> None:
        return None

    def measured_regions(self) -> dict[tuple[frozenset[int], Target], float]:
        return {}


def branched(n_blocks: int, n_branches: int, depth: int) -> UnitGraph:
    """Blocks one after the other, each ``n_branches`` chains of ``depth`` units and a join."""
    units: list[Unit] = []

    def add(*inputs: str) -> str:
        index = len(units)
        name = f"v{index}"
        units.append(Unit(index, name, f"unit {index}", (name,), inputs, (name,), f"s{index}"))
        return name

    tip = "x"
    for _ in range(n_blocks):
        ends = []
        for _ in range(n_branches):
            end = tip
            for _ in range(depth):
                end = add(end)
            ends.append(end)
        tip = add(*ends)
    values = {name: TensorType((1, 16, 28, 28)) for name in ("x", *(u.name for u in units))}
    return UnitGraph(tuple(units), values, ("x",), (tip,))


def random_costs(graph: UnitGraph, seed: int) -> Costs:
    chance = random.Random(seed)
    return Costs(
        {
            (unit.index, target): chance.uniform(1e4, 1e6)
            for unit in graph.units
            for target in TARGETS
            if target == CPU or chance.random() > 0.1
        }
    )


def main() -> None:
    print("| units | branches x depth | search s | narrow s | narrow / search latency, worst |")
    print("|---|---|---|---|---|")
    for n_blocks, n_branches, depth in ((20, 1, 3), (333, 1, 3), (10, 2, 3), (6, 3, 3), (3, 4, 3)):
        graph = branched(n_blocks, n_branches, depth)
        seconds: dict[str, list[float]] = {"search": [], "narrow": []}
        worst = 1.0
        for seed in range(ROUNDS):
            costs = random_costs(graph, seed)
            latency = {}
            for name, work in (("search", math.inf), ("narrow", 1_000.0)):
                begin = time.perf_counter()
                plan = solve(graph, costs, max_work=work, tolerance=0.0)
                seconds[name].append(time.perf_counter() - begin)
                latency[name] = plan.predicted_ns
            worst = max(worst, latency["narrow"] / latency["search"])
        whole, narrow = (statistics.median(seconds[name]) for name in ("search", "narrow"))
        print(
            f"| {len(graph.units)} | {n_branches} x {depth} | {whole:.3f} | {narrow:.3f}"
            f" | {worst:.4f} |"
        )


if __name__ == "__main__":
    main()
