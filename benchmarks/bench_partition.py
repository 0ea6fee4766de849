"""The partitioner: time, memory and what is proven, against size; drawn into a figure.

    python benchmarks/bench_partition.py [--figure out/bench_partition.svg]

Chains with skips and blocks of parallel branches are synthetic, with random costs of a fixed seed;
the others are the graphs of a device-placement paper (tests/partition/placement_graphs.py). Beside
each stands the same search with little effort, in the same run: where both find the same latency,
the wider search cost time and gained nothing ("narrow / search" is of latencies). Memory is what
Python and numpy allocate at most while solving (tracemalloc, in a run of its own, not timed).
"""

from __future__ import annotations

import argparse
import random
import statistics
import time
import tracemalloc
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from nnapi_prof.graph.plan import CPU, Preference, Target
from nnapi_prof.graph.types import TensorType
from nnapi_prof.graph.unit import Unit, UnitGraph
from nnapi_prof.partition import make_problem
from nnapi_prof.partition.problem import Problem
from nnapi_prof.partition.solver import Solution, solve_placements
from tests.partition.placement_graphs import names, placement_problem

ROUNDS = 3
NARROW = 1_000.0
"""Steps of the search with little effort."""
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


def skipping(n_units: int) -> UnitGraph:
    """A chain with a residual sum every five units, as MobileNetV2 has."""
    units = []
    for i in range(n_units):
        reads = ["x"] if i == 0 else [f"v{i - 1}"]
        if i >= 7 and (i - 7) % 5 == 0:
            reads.insert(0, f"v{i - 4}")
        units.append(Unit(i, f"v{i}", f"unit {i}", (f"v{i}",), tuple(reads), (f"v{i}",), f"s{i}"))
    values = {name: TensorType((1, 16, 28, 28)) for name in ("x", *(u.name for u in units))}
    return UnitGraph(tuple(units), values, ("x",), (f"v{n_units - 1}",))


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


def problems() -> Iterator[tuple[str, str, list[Problem]]]:
    """(family, name, the same graph with several costs)."""
    for n_units in (50, 100, 200, 500, 1000, 2000):
        graph = skipping(n_units)
        made = [make_problem(graph, random_costs(graph, seed)) for seed in range(ROUNDS)]
        yield "chain with skips", f"chain with skips {n_units}", made
    for n_blocks, n_branches, depth in ((10, 2, 3), (6, 3, 3), (3, 4, 3), (2, 5, 3)):
        graph = branched(n_blocks, n_branches, depth)
        made = [make_problem(graph, random_costs(graph, seed)) for seed in range(ROUNDS)]
        yield "branches", f"{n_blocks} blocks of {n_branches} x {depth}", made
    for name in names():
        yield "placement paper", name.removesuffix(".json"), [placement_problem(name)]
        if "Layer" in name:
            made = [placement_problem(name, 0.1, seed) for seed in range(ROUNDS)]
            yield "placement paper, a tenth refused", f"{name.removesuffix('.json')} -10%", made


def timed(problem: Problem, work: float) -> tuple[float, Solution]:
    begin = time.perf_counter()
    found = solve_placements(problem, tolerance=0.0, max_work=work)
    assert found is not None
    return time.perf_counter() - begin, found


def peak_mb(problem: Problem) -> float:
    tracemalloc.start()
    solve_placements(problem, tolerance=0.0)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak / 1e6


def main() -> None:
    parser = argparse.ArgumentParser(description="Times the partitioner.")
    parser.add_argument("--figure", type=Path, default=Path("out/bench_partition.svg"))
    figure = parser.parse_args().figure
    print(
        "| graph | units | ideals | s | peak MB | proven gap | narrow s | narrow / search latency |"
    )
    print("|---|---|---|---|---|---|---|---|")
    points: dict[str, list[tuple[int, float, float]]] = {}
    for family, name, made in problems():
        seconds, narrow, gaps, worst = [], [], [], 1.0
        for problem in made:
            took, found = timed(problem, 3e6)
            took_narrow, little = timed(problem, NARROW)
            seconds.append(took)
            narrow.append(took_narrow)
            gaps.append(0.0 if found.exact else found.gap)
            worst = max(worst, little.ns / found.ns)
        megabytes = peak_mb(made[0])
        median = statistics.median(seconds)
        points.setdefault(family, []).append((made[0].n, median, megabytes))
        gap = "optimal" if not max(gaps) else f"{max(gaps):.2%}"
        print(
            f"| {name} | {made[0].n} | {found.n_ideals} | {median:.3f} | {megabytes:.1f} | {gap} "
            f"| {statistics.median(narrow):.3f} | {worst:.4f} |",
            flush=True,
        )
    draw(points, figure)
    print(f"figure in {figure}")


def draw(points: dict[str, list[tuple[int, float, float]]], path: Path) -> None:
    """Seconds and megabytes against units, on logarithmic axes."""
    import matplotlib

    matplotlib.use("svg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(1, 2, figsize=(10, 4), layout="constrained")
    for family, rows in points.items():
        units, seconds, megabytes = zip(*sorted(rows), strict=True)
        for axis, values in zip(axes, (seconds, megabytes), strict=True):
            axis.loglog(units, values, "o-" if "chain" in family else "o", label=family)
    for axis, label in zip(axes, ("time to solve, s", "peak memory, MB"), strict=True):
        axis.set_xlabel("units")
        axis.set_ylabel(label)
        axis.grid(True, which="both", alpha=0.3)
    axes[0].legend()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path)


if __name__ == "__main__":
    main()
