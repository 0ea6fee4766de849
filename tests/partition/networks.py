"""Networks as lists of operations, and what these take on phones that are simulated.

Latencies follow roofs (rate of the kind of operation, bytes moved, a fixed part) with noise.
"""

import math
import random
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
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


@dataclass
class Network:
    """Operations in order, each with one result."""

    kinds: list[str] = field(default_factory=list)
    reads: Reads = field(default_factory=list)
    macs: list[float] = field(default_factory=list)
    """Multiply-accumulates of each; of element-wise operations, elements."""
    n_bytes: list[int] = field(default_factory=list)
    """Of each result, float32."""

    def add(self, kind: str, *reads: int, elements: int, macs: float | None = None) -> int:
        """Appends an operation; none read means the graph's input. Its index."""
        self.kinds.append(kind)
        self.reads.append(sorted(set(reads)))
        self.macs.append(float(elements) if macs is None else macs)
        self.n_bytes.append(4 * elements)
        return len(self.kinds) - 1

    def moved_bytes(self, u: int) -> int:
        """Bytes that an operation reads and writes."""
        return self.n_bytes[u] + sum(self.n_bytes[p] for p in self.reads[u])


@dataclass(frozen=True)
class Roof:
    """Of a target: what operations take there at least."""

    gmacs: float
    """GMAC/s of convolutions."""
    depthwise: float
    """Share of it in depthwise convolutions."""
    dense: float
    """Share of it in products of matrices."""
    elementwise: float
    """Share of it elsewhere."""
    gigabytes: float
    """GB/s of memory."""
    operation_ns: float
    """Fixed part of an operation."""
    invocation_ns: float = 0.0
    """Fixed part of a segment."""
    transfer_gigabytes: float = math.inf
    """GB/s of values that enter or leave a segment."""

    def ns(self, network: Network, u: int) -> float:
        shares = {"conv": 1.0, "depthwise": self.depthwise, "dense": self.dense}
        rate = self.gmacs * shares.get(network.kinds[u], self.elementwise)
        work = max(network.macs[u] / rate, network.moved_bytes(u) / self.gigabytes)
        return self.operation_ns + work


# CPU and NPU: device_agent/emulator/phones/npu-phone.json, which has their origins. The others are
# assumed, so that each is best at something.
CPU_ROOF = Roof(13.8, 0.21, 0.5, 0.16, 10.0, 4e3)
ROOFS = {
    "npu": Roof(150.0, 0.13, 0.33, 0.08, 30.0, 8e3, 4.5e5, 2.0),
    "gpu": Roof(60.0, 0.4, 0.5, 0.3, 20.0, 1.5e4, 3e5, 3.0),
    "dsp": Roof(40.0, 0.6, 0.3, 0.25, 12.0, 6e3, 2e5, 1.5),
    "auto": Roof(75.0, 0.25, 0.4, 0.16, 20.0, 1.2e4, 5e5, 2.0),
}
SLOWDOWN = {
    Preference.LOW_POWER: 1.8,
    Preference.FAST_SINGLE_ANSWER: 1.0,
    Preference.SUSTAINED_SPEED: 1.12,
}
"""Of npu-phone.json."""


def on_npu_phone(
    network: Network, refused: Mapping[str, Collection[str]], chance: random.Random
) -> Problem:
    """The network on the CPU and four accelerators under three preferences each.

    ``refused`` names the kinds that an accelerator does not run. Each unit's noise of 10 % is the
    same under all preferences of an accelerator, which differ by 1 % beside their factors.
    """
    n = len(network.kinds)
    targets, roofs, columns = [CPU], [CPU_ROOF], [[CPU_ROOF.ns(network, u) for u in range(n)]]
    for name, roof in ROOFS.items():
        plain = [roof.ns(network, u) * chance.lognormvariate(0.0, 0.1) for u in range(n)]
        for preference, factor in SLOWDOWN.items():
            targets.append(Target.nnapi(name, preference))
            roofs.append(roof)
            column = np.full(n, np.inf)
            for u, kind in enumerate(network.kinds):
                if kind not in refused[name]:
                    column[u] = plain[u] * factor * chance.lognormvariate(0.0, 0.01)
            columns.append(column)
    return _problem(
        network,
        network.n_bytes,
        np.array(columns).T,
        targets=targets,
        overhead_ns=[roof.invocation_ns for roof in roofs],
        ns_per_byte=[1.0 / roof.transfer_gigabytes for roof in roofs],
    )


def _problem(
    network: Network, sizes: Sequence[float], unit_ns: np.ndarray, **costs: Any
) -> Problem:
    """The first operations read an input as large as their result."""
    roots = tuple(u for u, units in enumerate(network.reads) if not units)
    return problem_on(
        network.reads,
        unit_ns,
        sizes=sizes,
        inputs=[ValueFlow(GRAPH_INPUT, roots, sizes[0])],  # type: ignore[arg-type]
        labels=tuple(f"{kind} {u}" for u, kind in enumerate(network.kinds)),
        **costs,
    )


def on_cpu_and_gpu(network: Network, chance: random.Random) -> Problem:
    """A phone whose GPU takes half of what its four cores take, up to 1.4 times as long.

    Kinds of operation favour one or the other by 40 %, and each operation by another 30 %: as much
    as one rate for all convolutions errs by on published GPU tables (bench_static.py). Sizes are
    given as the ns of one transfer, a "byte" takes 1 ns.
    """
    n = len(network.kinds)
    cpu = Roof(45.0, 0.25, 0.3, 0.1, 14.0, 8e3)
    favour = {kind: chance.lognormvariate(0.0, 0.4) for kind in sorted(set(network.kinds))}
    speed = 2.0 ** chance.uniform(-0.5, 1.0)
    launch_ns = chance.uniform(2e4, 8e4)
    base_ns = 10.0 ** chance.uniform(5.0, 6.0)
    cpu_ns = [cpu.ns(network, u) * chance.lognormvariate(0.0, 0.1) for u in range(n)]
    gpu_ns = [
        launch_ns + ns / speed * favour[kind] * chance.lognormvariate(0.0, 0.3)
        for ns, kind in zip(cpu_ns, network.kinds, strict=True)
    ]
    moves = [base_ns * chance.lognormvariate(0.0, 0.05) + size / 60.0 for size in network.n_bytes]
    targets = CPU, Target.nnapi("gpu", Preference.FAST_SINGLE_ANSWER)
    rates = dict(in_ns_per_byte=[0.0, 1.0], out_ns_per_byte=[0.0, 1.2])
    return _problem(network, moves, np.array([cpu_ns, gpu_ns]).T, targets=targets, **rates)
