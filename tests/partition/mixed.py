"""Networks whose units run in several precisions, as targets of a float and of an 8-bit format."""

import math
import random

import numpy as np
from numpy.typing import NDArray

from nnapi_prof.graph.plan import CPU, Precision, Preference, Target
from nnapi_prof.partition.problem import GRAPH_INPUT, Problem, ValueFlow
from tests.partition.networks import problem_on

FASTER = {
    Precision.FLOAT32: 1.0,
    Precision.RELAXED: 1.5,
    Precision.FLOAT16: 1.6,
    Precision.INT8: 2.6,
}


def mixed_network(
    n: int, accelerators: int, seed: int, *, preferences: int = 2, blocks: bool = True
) -> tuple[Problem, NDArray[np.float64]]:
    """A chain of ``n`` units, with a skip around every three where ``blocks`` says so, on a CPU in
    float32 and 8 bits and on accelerators in four precisions, and the noise [n, t] of each unit
    on each target. Accelerators run most units; the last of them takes nothing but 8 bits."""
    chance = random.Random(seed)
    targets = [CPU, CPU.at(Precision.INT8)]
    speeds = [1.0, 2.2]
    for a in range(accelerators):
        speed = chance.uniform(1.5, 6.0)
        for preference in list(Preference)[:preferences]:
            base = Target.nnapi(f"npu-{a}", preference)
            for precision, faster in FASTER.items():
                if precision is Precision.INT8 or a < accelerators - 1 or accelerators == 1:
                    targets.append(base.at(precision))
                    speeds.append(speed * faster * chance.uniform(0.9, 1.1))
    t = len(targets)
    reads: list[list[int]] = [[u - 1] if u else [] for u in range(n)]
    for u in range(4, n, 4) if blocks else ():
        reads[u] = [u - 4, u - 1]
    work = [1e6 * math.exp(chance.gauss(0.0, 0.8)) for _ in range(n)]
    unit_ns = np.array([[w / s * math.exp(chance.gauss(0.0, 0.25)) for s in speeds] for w in work])
    noise = np.zeros((n, t))
    for u in range(n):
        own = 1e-5 * math.exp(chance.gauss(0.0, 1.5))
        for k, target in enumerate(targets):
            share = {Precision.INT8: 1.0, Precision.RELAXED: 1e-4, Precision.FLOAT16: 2e-4}
            noise[u, k] = own * share.get(target.precision, 0.0)
            if target != CPU and chance.random() < 0.04:
                unit_ns[u, k] = np.inf
    values = []
    for u in range(-1, n):
        readers = tuple(r for r in range(n) if (u in reads[r] if u >= 0 else r == 0))
        n_bytes = int(chance.choice((50_000, 100_000, 400_000, 800_000)) * chance.uniform(0.5, 1))
        producer = GRAPH_INPUT if u < 0 else u
        convert = n_bytes * chance.uniform(0.15, 0.3)
        values.append(ValueFlow(producer, readers, n_bytes, u == n - 1, convert, 0.8 * convert))
    on_cpu = np.array([target.base == CPU for target in targets])
    int8 = np.array([target.precision is Precision.INT8 for target in targets])
    per_byte = np.where(on_cpu, 0.0, np.where(int8, 0.1, 0.4))
    problem = problem_on(
        reads,
        unit_ns,
        values=tuple(values),
        targets=targets,
        overhead_ns=np.where(on_cpu, 20_000.0, 250_000.0),
        ns_per_byte=per_byte,
        formats=int8.astype(np.int64),
    )
    return problem, noise
