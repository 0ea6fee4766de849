"""Problems on graphs that are given by what each unit reads, and on random wide ones."""

import math
import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from nnapi_prof.graph.plan import CPU, Preference, Target
from nnapi_prof.partition.problem import GRAPH_INPUT, Problem, ValueFlow

Reads = list[list[int]]
"""For each unit, the units whose results it reads, ascending."""

TARGETS = (CPU, *(Target.nnapi(f"npu-{i}", Preference.FAST_SINGLE_ANSWER) for i in range(3)))


def problem_on(
    reads: Sequence[Sequence[int]],
    unit_ns: ArrayLike,
    *,
    targets: Sequence[Target] = (),
    sizes: Sequence[float] = (),
    inputs: Iterable[ValueFlow] = (),
    overhead_ns: ArrayLike = 0.0,
    ns_per_byte: ArrayLike = 0.0,
    in_ns_per_byte: ArrayLike | None = None,
    out_ns_per_byte: ArrayLike | None = None,
    **rest: Any,
) -> Problem:
    """Units that each make one value, of 10 bytes, which is an output where no unit reads it.

    Without targets they are the CPU and accelerators; costs that are not given are zero, and a byte
    costs ``ns_per_byte`` in and out.
    """
    into, out = (ns_per_byte if ns is None else ns for ns in (in_ns_per_byte, out_ns_per_byte))
    costs = np.array(unit_ns, dtype=np.float64)
    n, t = costs.shape
    readers = [[r for r, units in enumerate(reads) if u in units] for u in range(n)]
    made = zip(readers, sizes or [10] * n, strict=True)
    values = (ValueFlow(u, tuple(by), size, not by) for u, (by, size) in enumerate(made))  # type: ignore[arg-type]
    standard: dict[str, Any] = dict(
        labels=tuple(f"u{u}" for u in range(n)),
        predecessors=tuple(map(tuple, reads)),
        values=(*inputs, *values),
        targets=tuple(targets) or TARGETS[:t],
        unit_ns=costs,
        overhead_ns=np.zeros(t) + overhead_ns,
        in_ns_per_byte=np.zeros(t) + into,
        out_ns_per_byte=np.zeros(t) + out,
    )
    return Problem(**standard | rest)


# ---- wide graphs -------------------------------------------------------------------------------


def parallel(lengths: Sequence[int]) -> Reads:
    """One unit, chains of so many units that begin at it, one that reads their ends."""
    reads: Reads = [[]]
    ends = []
    for length in lengths:
        reads += [[0], *([len(reads) + step] for step in range(length - 1))]
        ends.append(len(reads) - 1)
    return [*reads, ends]


def blocks(n: int, _: random.Random | None = None) -> Reads:
    """Eight chains of three from one unit, one that reads their ends, and again; cut off at n."""
    reads: Reads = [[]]
    while len(reads) < n:
        top = len(reads) - 1
        for _ in range(8):
            reads += [[top], [len(reads)], [len(reads) + 1]]
        reads.append(list(range(top + 3, top + 25, 3)))
    return reads[:n]


def scattered(n: int, chance: random.Random) -> Reads:
    """Unit i reads one unit (twice as often) or two of the 20 before it."""
    reads: Reads = []
    for u in range(n):
        many = chance.choice((1, 1, 2))
        reads.append(sorted(chance.sample(range(max(0, u - 20), u), min(u, many))))
    return reads


def skips(n: int, _: random.Random | None = None) -> Reads:
    """A chain in which every fifth unit from the eighth on also reads the unit four before it."""
    reads: Reads = [[u - 1] if u else [] for u in range(n)]
    for u in range(7, n, 5):
        reads[u] = [u - 4, u - 1]
    return reads


WIDE: Mapping[str, Callable[[int, random.Random], Reads]] = {
    "stem": lambda n, _: parallel([1] * (n - 2)),
    "chains": lambda n, _: parallel([(n - 2 + chain) // 16 for chain in range(16)]),
    "blocks": blocks,
    "random": scattered,
    "skips": skips,
}


def wide_problem(structure: str, n: int, n_targets: int, seed: int) -> Problem:
    """A graph of :data:`WIDE` on the CPU and ``n_targets - 1`` accelerators.

    The CPU takes 0.1 to 1 ms a unit and nothing else; accelerators 0.01 to 0.8 ms, 0.4 ms a segment
    and 2 ns a byte in and out, and refuse one unit in ten. Values have 5,000 to 100,000 bytes.
    """
    chance = random.Random(seed)
    reads = WIDE[structure](n, chance)
    unit_ns = np.full((n, n_targets), np.inf)
    for u in range(n):
        unit_ns[u, 0] = chance.uniform(1e5, 1e6)
        for k in range(1, n_targets):
            ns = chance.uniform(1e4, 8e5)
            unit_ns[u, k] = math.inf if chance.random() < 0.1 else ns
    sizes = [chance.randint(5_000, 100_000) for _ in range(n)]
    accelerated = np.arange(n_targets) > 0
    names = [f"accelerator-{k}" for k in range(1, n_targets)]
    return problem_on(
        reads,
        unit_ns,
        labels=tuple(f"{structure} {u}" for u in range(n)),
        sizes=sizes,
        inputs=[ValueFlow(GRAPH_INPUT, (0,), 50_000)],
        targets=(CPU, *(Target.nnapi(name, Preference.FAST_SINGLE_ANSWER) for name in names)),
        overhead_ns=4e5 * accelerated,
        ns_per_byte=2.0 * accelerated,
    )
