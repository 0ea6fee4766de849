"""Random problems as arrays, for tests of the partitioner's parts, and what a plan must be."""

import itertools
import math
import random
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from nnapi_prof.partition.baselines import merge_by_target
from nnapi_prof.partition.blocks import members
from nnapi_prof.partition.problem import GRAPH_INPUT, Placement, Problem, Region, ValueFlow
from tests.partition.judge import ideals_of
from tests.partition.networks import parallel, problem_on
from tests.partition.precisions import with_formats

Plan = tuple[Placement, ...]


def draw_problem(seed: int, most_units: int = 8, *, regions: bool = True) -> Problem:
    """Refusals, shared values, ties and fractions; the CPU runs every unit, but for one in some
    problems that runs only inside a region measured whole."""
    chance = random.Random(seed)
    n, t = chance.randint(1, most_units), chance.randint(1, 4)
    reads = [
        sorted(chance.sample(range(u), min(u, chance.choice((0, 1, 1, 1, 2))))) for u in range(n)
    ]
    scale = chance.choice((1.0, 1e3, 1e6))

    def cost(most: int) -> float:
        whole = chance.random() < 0.5
        return scale * (chance.randint(0, most) if whole else chance.random() * most)

    unit_ns = np.array([[cost(50) for _ in range(t)] for _ in range(n)])
    for u, k in itertools.product(range(n), range(1, t)):
        if chance.random() < 0.25:
            unit_ns[u, k] = np.inf
    values = []
    for _ in range(chance.randint(0, 2)):
        readers = tuple(sorted(chance.sample(range(n), min(n, chance.randint(1, 3)))))
        values.append(ValueFlow(GRAPH_INPUT, readers, chance.randint(0, 20)))
    for u in range(n):
        readers = tuple(r for r in range(n) if u in reads[r])
        is_output = not readers or chance.random() < 0.15
        values.append(ValueFlow(u, readers, chance.randint(0, 20), is_output))

    def rates() -> np.ndarray:
        free = [0.0] if chance.random() < 0.8 else [0.25 * scale]
        return np.array([*free, *(chance.choice((0, 0.25, 1, 2)) * scale for _ in range(t - 1))])

    free = chance.random() < 0.6
    overhead_ns = [0.0 if free else cost(20), *(cost(40) for _ in range(t - 1))]
    slopes = dict(in_ns_per_byte=rates(), out_ns_per_byte=rates())
    problem = problem_on(reads, unit_ns, values=tuple(values), overhead_ns=overhead_ns, **slopes)
    return with_regions(problem, chance) if regions else problem


def with_regions(problem: Problem, chance: random.Random) -> Problem:
    """Regions measured cheaper and costlier than their parts, and failed ones."""
    ideals = sorted(ideals_of(problem).tolist(), key=int.bit_count)
    region_ns: dict[Region, float] = {}
    for _ in range(chance.randint(0, 5)):
        small, large = sorted(chance.sample(ideals, 2), key=int.bit_count)
        if small & ~large:
            continue
        units = frozenset(members(large & ~small))
        k = chance.randrange(len(problem.targets))
        parts = problem.additive_ns(units, k)
        if not math.isfinite(parts):
            parts = problem.additive_ns(units, 0)
        failed = chance.random() < 0.1
        region_ns[units, k] = math.inf if failed else parts * chance.uniform(0.5, 1.4)
    unit_ns = problem.unit_ns.copy()
    whole = [units for (units, _), ns in region_ns.items() if math.isfinite(ns)]
    if whole and chance.random() < 0.2:
        unit_ns[chance.choice(sorted(chance.choice(whole)))] = np.inf
    return replace(problem, unit_ns=unit_ns, region_ns=region_ns)


def draw_plan(problem: Problem, chance: random.Random) -> Plan:
    """A legal plan of units that each run somewhere: each on any target that runs it."""
    able = [np.flatnonzero(row).tolist() for row in np.isfinite(problem.unit_ns)]
    return merge_by_target(problem, [chance.choice(targets) for targets in able])


def draws(
    count: int, most_units: int = 8, *, formats: bool = False, regions: bool = True
) -> Iterator[tuple[int, Problem]]:
    for seed in range(count):
        problem = draw_problem(seed, most_units, regions=regions)
        yield seed, with_formats(problem, seed) if formats else problem


def drawn(count: int, most_units: int = 8, **options: bool) -> Iterator[tuple[int, Problem, Plan]]:
    """Problems of units that each run somewhere, with their seeds and a plan of each."""
    for seed, problem in draws(count, most_units, **options):
        if np.isfinite(problem.unit_ns).any(axis=1).all():
            yield seed, problem, draw_plan(problem, random.Random(seed))


def on_targets(problem: Problem, count: int) -> Problem:
    return replace(
        problem,
        targets=problem.targets[:count],
        unit_ns=problem.unit_ns[:, :count],
        overhead_ns=problem.overhead_ns[:count],
        in_ns_per_byte=problem.in_ns_per_byte[:count],
        out_ns_per_byte=problem.out_ns_per_byte[:count],
        region_ns={(units, k): ns for (units, k), ns in problem.region_ns.items() if k < count},
    )


def stem_problem(n_branches: int, seed: int = 0, length: int = 1) -> Problem:
    """One unit that many chains of units read, and one that reads the chains: wide, so that an
    exact answer takes long. All costs differ."""
    chance = np.random.default_rng(seed)
    reads = parallel([length] * n_branches)
    sizes = [int(chance.integers(1, 100)) for _ in reads]
    unit_ns, per_byte = chance.uniform(1.0, 100.0, (len(reads), 3)), [0.0, 0.3, 0.2]
    overheads = [0.0, 30.0, 40.0]
    return problem_on(reads, unit_ns, sizes=sizes, overhead_ns=overheads, ns_per_byte=per_byte)


def check_plan(problem: Problem, plan: Sequence[Placement]) -> None:
    """Every unit once, each after what it reads."""
    done: set[int] = set()
    for units, _ in plan:
        assert units and list(units) == sorted(set(units)) and not done & set(units)
        done |= set(units)
        for u in units:
            assert set(problem.predecessors[u]) <= done
    assert len(done) == problem.n


def every_plan(problem: Problem) -> list[Plan]:
    """All chains of ideals with all targets for each step; for up to 5 units."""
    ideals = ideals_of(problem).tolist()
    plans: dict[int, list[Plan]] = {0: [()]}
    for small, large in itertools.combinations(ideals, 2):
        if small & ~large:
            continue
        units = members(large & ~small)
        for k in range(len(problem.targets)):
            if math.isfinite(problem.segment_ns(units, k)):
                more = [(*plan, (units, k)) for plan in plans.get(small, [])]
                plans.setdefault(large, []).extend(more)
    return plans.get(ideals[-1], [])
