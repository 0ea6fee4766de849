"""Random problems as real networks are, small enough for the judge.

Values with several readers, several outputs, outputs that are read, several inputs of the graph;
refusals, ties, costs and values of nothing; regions measured cheaper and costlier than their parts,
failed ones, and units that run only inside one; limits, pins and targets that are forbidden.
"""

import math
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from nnapi_prof.costs.table import CompileTimes
from nnapi_prof.graph.plan import CPU, HOST, Engine, Preference, Target
from nnapi_prof.partition.constraints import Constraints
from nnapi_prof.partition.problem import GRAPH_INPUT, Problem, ValueFlow
from tests.partition.cases import GPU, NPU, NPU_LOW
from tests.partition.judge import Case, mask_of, region_costs
from tests.partition.networks import Reads, problem_on

MOST_UNITS = 14

ACCELERATORS = (NPU, NPU_LOW, GPU, Target.nnapi("sim-dsp", Preference.SUSTAINED_SPEED))


def draw_case(seed: str) -> Case:
    """A random case; the same for the same seed, on every machine."""
    chance = random.Random(seed)
    limited = chance.random() < 0.15
    n = chance.randint(1, 10) if limited else min(chance.randint(2, 20), MOST_UNITS)
    structure = chance.choice(tuple(STRUCTURES))
    reads = STRUCTURES[structure](chance, n)
    problem = _draw_costs(chance, reads, _draw_targets(chance), structure)
    problem = _draw_regions(chance, problem, reads)
    compiling = _draw_compiling(chance, problem, reads) if limited else None
    return Case(
        problem,
        _draw_constraints(chance, problem, compiling),
        compiling,
        tolerance=chance.choice((0.0, 0.01, 0.01, 0.2)),
        seconds=0.0 if chance.random() < 0.04 else 10.0,
    )


def _draw_dag(chance: random.Random, n: int) -> Reads:
    window, most = chance.choice((2, 4, n)), chance.choice((1, 2, 3))
    return [
        sorted(chance.sample(range(max(0, u - window), u), chance.randint(0, min(u, window, most))))
        for u in range(n)
    ]


def _draw_chain_with_skips(chance: random.Random, n: int) -> Reads:
    share = chance.random() * 0.6
    reads: Reads = [[u - 1] if u else [] for u in range(n)]
    for u in range(2, n):
        if chance.random() < share:
            reads[u] = [chance.randrange(u - 1), u - 1]
    return reads


def _draw_heads(chance: random.Random, n: int) -> Reads:
    """A backbone, and chains that start at its units: at any, or all at one."""
    backbone, longest = chance.randint(1, max(1, n // 2)), chance.choice((1, 1, 2, 4))
    taps = list(range(backbone)) if chance.random() < 0.5 else [chance.randrange(backbone)]
    reads: Reads = [[u - 1] if u else [] for u in range(backbone)]
    while len(reads) < n:
        end = chance.choice(taps)
        for _ in range(min(chance.randint(1, longest), n - len(reads))):
            reads.append([end])
            end = len(reads) - 1
    return reads


def _draw_blocks(chance: random.Random, n: int) -> Reads:
    """Parallel chains from one unit into one unit, and again."""
    reads: Reads = [[]]
    while len(reads) < n:
        stem, ends = len(reads) - 1, []
        for _ in range(chance.randint(1, 4)):
            end = stem
            for _ in range(min(chance.randint(0, 3), n - len(reads))):
                reads.append([end])
                end = len(reads) - 1
            ends.append(end)
        if len(reads) < n:
            reads.append(sorted(set(ends)))
    return reads


def _draw_stem(chance: random.Random, n: int) -> Reads:
    """One unit that all read, and now and then one that reads them all."""
    reads: Reads = [[]] + [[0] for _ in range(n - 1)]
    if n > 2 and chance.random() < 0.7:
        reads[-1] = list(range(1, n - 1))
    return reads


def _draw_parts(chance: random.Random, n: int) -> Reads:
    """Several chains, with a link here and there."""
    width = chance.randint(2, 5)
    reads: Reads = [[u - width] if u >= width else [] for u in range(n)]
    for u in range(1, n):
        if chance.random() < 0.15:
            reads[u] = sorted({*reads[u], chance.randrange(u)})
    return reads


def _draw_operators(chance: random.Random, n: int) -> Reads:
    """As traced: a chain with skips in which constants and dead ends stand between."""
    reads: Reads = []
    tips, constants = [], []
    for u in range(n):
        kind = chance.random()
        if kind < 0.2:
            constants.append(u)
            reads.append([])
            continue
        reads.append(sorted({*tips[-1:], *constants[:1], *chance.sample(tips, min(1, len(tips)))}))
        del constants[:1]
        if kind < 0.8:
            tips.append(u)
    return reads


STRUCTURES: Mapping[str, Callable[[random.Random, int], Reads]] = {
    "random": _draw_dag,
    "skips": _draw_chain_with_skips,
    "heads": _draw_heads,
    "blocks": _draw_blocks,
    "stem": _draw_stem,
    "parts": _draw_parts,
    "operators": _draw_operators,
}

NUMBERS: Mapping[str, Callable[[random.Random], float]] = {
    "ints": lambda chance: float(chance.randint(0, 60)),
    "ties": lambda chance: float(chance.randint(0, 3)),
    "equal": lambda chance: 7.0,
    "floats": lambda chance: chance.uniform(0.1, 100.0),
    "decades": lambda chance: 10 ** chance.uniform(-2.0, 4.0),
}
"""Ways of drawing a cost, in an unnamed unit."""

SCALES = (1e-9, 1.0, 1.0, 1.0, 1e3, 1e6, 1e9)
"""ns in the unit of costs; the first takes costs for seconds and gives them as such."""


def _draw_targets(chance: random.Random) -> tuple[Target, ...]:
    """One to four; mostly with the CPU, which mostly comes first."""
    accelerators = chance.sample(ACCELERATORS, chance.choices(range(4), (1, 8, 8, 6))[0])
    kind = chance.random()
    own = [CPU] if kind < 0.8 else [CPU, HOST] if kind < 0.92 or not accelerators else []
    targets = [*own, *accelerators][:4]
    if chance.random() < 0.1:
        chance.shuffle(targets)
    return tuple(targets)


def _draw_costs(
    chance: random.Random, reads: Reads, targets: Sequence[Target], structure: str
) -> Problem:
    """Transfers and overheads are about as large as what a unit takes, so that plans are split."""
    n, t = len(reads), len(targets)
    number = NUMBERS[chance.choice(tuple(NUMBERS))]
    scale = chance.choice(SCALES)
    accelerators = [k for k, target in enumerate(targets) if target.engine is Engine.NNAPI]
    unit_ns = np.array([[number(chance) for _ in range(t)] for _ in range(n)])
    typical = float(np.median(unit_ns)) or 1.0
    unit_ns[:, accelerators] /= chance.choice((1.0, 2.0, 4.0))
    share_free = 0.5 if structure == "operators" else chance.choice((0.0, 0.1))
    for u in range(n):
        if chance.random() < share_free and (structure != "operators" or not reads[u]):
            unit_ns[u] = 0.0
    for k in range(t):
        share = chance.choice((0.0, 0.1, 0.3, 0.7))
        if k not in accelerators:
            share = chance.choice((0.0, 0.0, 0.0, 0.0, 0.0, 0.2))
        unit_ns[[u for u in range(n) if chance.random() < share], k] = np.inf
    if chance.random() < 0.3:  # operators that no accelerator knows, one after the other
        begin = chance.choice((0, chance.randrange(n)))
        unit_ns[begin : chance.randint(begin, n), accelerators] = np.inf
    plain = [target == CPU and chance.random() < 0.8 for target in targets]
    values, largest = _draw_values(chance, reads)
    # A power of 2: sums of whole numbers stay exact, and ties stay ties.
    slope = chance.choice((0.0, 0.125, 0.5, 1.0, 1.0, 2.0))
    slope *= 2.0 ** round(math.log2(typical / largest))
    overhead = chance.choice((0.0, 0.125, 0.125, 0.5, 2.0))
    return problem_on(
        reads,
        unit_ns * scale,
        values=values,
        targets=targets,
        overhead_ns=np.array([0.0 if p else overhead * number(chance) * scale for p in plain]),
        in_ns_per_byte=_draw_slopes(chance, plain, slope * scale),
        out_ns_per_byte=_draw_slopes(chance, plain, slope * scale),
    )


def _draw_slopes(chance: random.Random, plain: Sequence[bool], slope: float) -> NDArray[np.float64]:
    return np.array([0.0 if p else slope * chance.choice((0.0, 0.5, 1.0, 1.0)) for p in plain])


def _draw_values(chance: random.Random, reads: Reads) -> tuple[tuple[ValueFlow, ...], int]:
    """Values and the largest size, in bytes: one value a unit makes, sometimes two or one that
    nobody needs; none to three inputs of the graph."""
    n = len(reads)
    largest = chance.choice((16, 16, 32, 1024))
    sizes: Sequence[Callable[[], int]] = (
        lambda: chance.randint(0, largest),
        lambda: chance.choice((0, 1, 1, largest)),
        lambda: largest // 2,
    )
    size = chance.choice(sizes)
    values = []
    for u in range(n):
        readers = [r for r in range(n) if u in reads[r] and chance.random() > 0.03]
        second = [r for r in readers if chance.random() < 0.5] if chance.random() < 0.2 else None
        is_output = chance.random() < (0.1 if readers else 0.85)
        values.append(ValueFlow(u, tuple(readers), size(), is_output))
        if second is not None:
            values.append(ValueFlow(u, tuple(second), size(), chance.random() < 0.3))
    roots = [u for u in range(n) if not reads[u]]
    for _ in range(chance.choice((0, 1, 1, 1, 2, 3))):
        near = chance.sample(roots, chance.randint(1, len(roots)))
        far = [u for u in range(n) if chance.random() < chance.choice((0.0, 0.0, 0.2))]
        readers = sorted({*near, *far})
        values.append(ValueFlow(GRAPH_INPUT, tuple(readers), size(), chance.random() < 0.03))
    return tuple(values), largest


def _draw_stretch(chance: random.Random, reads: Reads) -> frozenset[int]:
    """Units that stand together in some order of execution: a convex set."""
    n = len(reads)
    rank = [chance.random() for _ in range(n)]
    if chance.random() < 0.5:  # depth first, so that the set hangs together
        for u in range(n):
            rank[u] += max((rank[p] + 1 for p in reads[u]), default=0.0)
    order: list[int] = []
    while len(order) < n:
        ready = [u for u in range(n) if u not in order and set(reads[u]) <= set(order)]
        order.append(max(ready, key=lambda u: rank[u]))
    begin = chance.randrange(n)
    return frozenset(order[begin : chance.randint(begin + 1, n)])


def _draw_region(chance: random.Random, reads: Reads) -> frozenset[int]:
    n = len(reads)
    kind = chance.random()
    if kind < 0.1:
        return frozenset({chance.randrange(n)})
    if kind < 0.15:
        return frozenset(range(n))
    if kind < 0.25:  # mostly no segment at all
        return frozenset(chance.sample(range(n), chance.randint(1, n)))
    return _draw_stretch(chance, reads)


def _draw_regions(chance: random.Random, problem: Problem, reads: Reads) -> Problem:
    """Regions measured whole: cheaper and costlier than their parts, failed, or the only way."""
    if chance.random() < 0.5:
        return problem
    costs = region_costs(problem)
    unit_ns = problem.unit_ns.copy()
    finite = unit_ns[np.isfinite(unit_ns)]
    typical = float(finite.mean()) if len(finite) else 1.0
    in_whole_ns = bool(np.all(finite % 1 == 0))
    regions: dict[tuple[frozenset[int], int], float] = {}
    for _ in range(chance.choice((1, 2, 3, 5, 8))):
        units, k = _draw_region(chance, reads), chance.randrange(len(problem.targets))
        if problem.targets[k] == CPU and chance.random() < 0.7:
            continue
        ns = float(costs[mask_of(units), k])
        if not math.isfinite(ns):
            ns = typical * len(units) * chance.uniform(0.2, 2.0)
        factors = (chance.uniform(0.2, 1.0), 1.0, 1.0 - 1e-6, 1.0 + 1e-6, chance.uniform(1.0, 2.0))
        ns *= chance.choices(factors, (4, 1, 1, 1, 4))[0]
        ns = float(round(ns)) if in_whole_ns else ns
        regions[units, k] = math.inf if chance.random() < 0.12 else ns
        if chance.random() < 0.12:
            unit_ns[chance.choice(sorted(units))] = np.inf
    return replace(problem, unit_ns=unit_ns, region_ns=regions)


def _draw_compiling(chance: random.Random, problem: Problem, reads: Reads) -> CompileTimes:
    n, t = problem.unit_ns.shape
    scale = chance.choice((1.0, 1e6))  # whole numbers: sums are exact, no plan is nearly over
    accelerated = [target.engine is Engine.NNAPI for target in problem.targets]
    fixed = [chance.randint(0, 30) * scale * a for a in accelerated]
    unit = [[chance.randint(0, 30) * scale * a for a in accelerated] for _ in range(n)]
    regions = [region for region in problem.region_ns if accelerated[region[1]]]
    for _ in range(chance.choice((0, 0, 1, 3))):
        regions.append((_draw_region(chance, reads), chance.randrange(t)))
    times = {}
    for region in regions:
        if accelerated[region[1]] and chance.random() < 0.6:
            times[region] = chance.randint(0, 60) * scale
    return CompileTimes(np.array(fixed), np.array(unit), times)


def _draw_constraints(
    chance: random.Random, problem: Problem, compiling: CompileTimes | None
) -> Constraints:
    pinned: dict[int, Target] = {}
    forbidden: dict[int, frozenset[Target]] = {}
    if chance.random() < 0.2:
        for _ in range(chance.choice((1, 1, 2))):
            u, target = chance.randrange(problem.n), chance.choice(problem.targets)
            runs = [k for k, ns in enumerate(problem.unit_ns[u]) if math.isfinite(ns)]
            if chance.random() < 0.5:
                pinned[u] = problem.targets[chance.choice(runs)] if runs else target
            else:
                forbidden[u] = forbidden.get(u, frozenset()) | {target}
    accelerated = [t.preference for t in problem.targets if t.preference is not None]
    limit = None
    if compiling is not None:
        most = float(compiling.fixed_ns.max() + compiling.unit_ns.max(axis=1).sum())
        limit = float(round(most * chance.choice((0.0, 1.0, 1.0, 1.5)) * chance.random()))
    return Constraints(
        forbidden=forbidden,
        pinned=pinned,
        preference=chance.choice(accelerated) if accelerated and chance.random() < 0.05 else None,
        max_regions=chance.choice((0, 1, 1, 2, 3)) if chance.random() < 0.2 else None,
        max_compile_ns=limit,
    )
