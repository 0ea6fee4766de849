"""Families of networks as problems of the partitioner: for bench_partition.py, bench_throughput.py.

heads     a backbone with detection heads on its last taps, 13 targets
cells     NASNet-A and PNASNet, CPU and GPU, with transfers that hardly depend on size
branches  inception-like, CPU and GPU, with transfers that hardly depend on size
decoder   a language model's layers, 13 targets that each refuse a third of the operations

Networks are lists of operations on simulated phones, where latencies follow roofs (rate of the kind
of operation, bytes moved, a fixed part) with noise.
"""

from __future__ import annotations

import math
import random
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np

from nnapi_prof.graph.plan import CPU, Preference, Target
from nnapi_prof.partition.problem import GRAPH_INPUT, Problem, ValueFlow
from tests.partition.networks import Reads, problem_on


@dataclass
class Network:
    """Operations in order, each with one result."""

    kinds: list[str] = field(default_factory=list)
    reads: Reads = field(default_factory=list)
    macs: list[float] = field(default_factory=list)
    """Multiply-accumulates of each; of element-wise operations, elements."""
    n_bytes: list[int] = field(default_factory=list)
    """Bytes of each result, float32."""

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
    """Least times of operations on a target."""

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
"""Rates of npu-phone.json."""


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


# ---- detection heads ---------------------------------------------------------------------------


def heads_problem(n_taps: int, seed: int) -> Problem:
    """A backbone of 13 units, and two heads of six units on each of its last ``n_taps``.

    As after measuring, every unit was measured alone, and 20 stretches on each target: within 3 %
    of what their parts say, as two measurements of one unit differ (bench_repeat.py).
    """
    chance = random.Random(seed)
    network = Network()
    taps = []
    for depth in range(13):
        size, channels = 150 >> depth // 3, 16 << depth // 3  # 150x150x16 to 9x9x256
        macs = 9.0 * channels * channels * size * size / (1 + depth % 2)
        taps.append(network.add("conv", *taps[-1:], elements=size * size * channels, macs=macs))
    for tap in taps[len(taps) - n_taps :]:
        for per_anchor, last in ((4, "mul"), (21, "logistic")):
            _head(network, tap, 6 * per_anchor, last)
    refused = {
        "npu": {"logistic", *chance.sample(("permute", "mul"), 1)},
        "gpu": set(chance.sample(("permute", "reshape", "logistic"), 2)),
        "dsp": set(chance.sample(("conv", "permute", "mul", "logistic"), 2)),
        "auto": set(chance.sample(("permute", "reshape", "mul", "logistic"), 2)),
    }
    problem = on_npu_phone(network, refused, chance)
    regions: dict[tuple[frozenset[int], int], float] = {}
    for k in range(len(problem.targets)):
        stretches = [range(u, u + 1) for u in range(problem.n)]
        for _ in range(20):
            begin = chance.randrange(problem.n)
            stretches.append(range(begin, chance.randint(begin + 1, problem.n)))
        for stretch in stretches:
            ns = problem.additive_ns(stretch, k)
            if math.isfinite(ns):
                regions[frozenset(stretch), k] = ns * chance.uniform(0.97, 1.03)
    return replace(problem, region_ns=regions)


def _head(network: Network, tap: int, channels: int, last: str) -> None:
    """SSDLite's: depthwise and pointwise convolution, permute, reshape, and what gives an output
    its meaning."""
    elements = network.n_bytes[tap] // 4
    out = max(1, elements // 64) * channels
    end = network.add("depthwise", tap, elements=elements, macs=9.0 * elements)
    end = network.add("relu6", end, elements=elements)
    end = network.add("conv", end, elements=out, macs=float(elements) * channels)
    _each(network, end, f"permute reshape {last}", out)


# ---- searched cells ----------------------------------------------------------------------------


def cells_problem(style: str, seed: int) -> Problem:
    """NASNet-A ("nasnet") or PNASNet-5 ("pnasnet") of 800 to 1,050 units on the CPU and GPU of a
    phone drawn by the seed: no overheads, and transfers of 0.1 to 1 ms that differ by little.

    Zoph et al., "Learning Transferable Architectures for Scalable Image Recognition", CVPR 2018,
    figure 4; Liu et al., "Progressive Neural Architecture Search", ECCV 2018, figure 1.
    """
    chance = random.Random(f"{style}/{seed}")
    cell, most = {"nasnet": (_nasnet_cell, 27), "pnasnet": (_pnasnet_cell, 24)}[style]
    n_cells = chance.randint(most - 5, most)
    network = Network()
    before = last = network.add("conv", elements=83 * 83 * 96, macs=83 * 83 * 96 * 27.0)
    for number in range(n_cells):
        shrinks = number in (n_cells // 3, 2 * n_cells // 3)
        elements = network.n_bytes[last] // 4 // (2 if shrinks else 1)
        before, last = last, cell(network, before, last, elements)
    pooled = network.add("pool", last, elements=4096)
    network.add("dense", pooled, elements=1000, macs=4.1e6)
    return on_cpu_and_gpu(network, chance)


def _squeeze(network: Network, value: int, elements: int) -> int:
    channels = 256.0
    end = network.add("relu", value, elements=network.n_bytes[value] // 4)
    return network.add("conv", end, elements=elements, macs=elements * channels)


def _separable(network: Network, elements: int, value: int, kernel: int) -> int:
    """Twice a depthwise and a pointwise convolution."""
    end = network.add("relu", value, elements=elements)
    for _ in range(2):
        end = network.add("depthwise", end, elements=elements, macs=elements * kernel**2)
        end = network.add("conv", end, elements=elements, macs=elements * 168.0)
    return end


def _nasnet_cell(network: Network, before: int, last: int, elements: int) -> int:
    p, h, pool, add, separable = _cell_parts(network, before, last, elements)
    ends = [
        add(separable(h, 5), separable(p, 3)),
        add(separable(p, 5), separable(p, 3)),
        add(pool(h), p),
        add(pool(p), pool(p)),
        add(separable(h, 3), h),
    ]
    return network.add("concat", p, *ends, elements=elements)


def _pnasnet_cell(network: Network, before: int, last: int, elements: int) -> int:
    p, h, pool, add, separable = _cell_parts(network, before, last, elements)
    third = add(separable(h, 5), separable(h, 3))
    ends = [
        add(separable(p, 5), pool(p)),
        add(separable(h, 7), pool(h)),
        third,
        add(separable(third, 3), pool(h)),
        add(separable(p, 3), h),
    ]
    return network.add("concat", *ends, elements=elements)


def _cell_parts(network: Network, before: int, last: int, elements: int) -> tuple[Any, ...]:
    """A cell's two inputs, squeezed, and its operations, which keep their size."""
    p, h = (_squeeze(network, value, elements) for value in (before, last))
    pool = partial(network.add, "pool", elements=elements, macs=9.0 * elements)
    add = partial(network.add, "add", elements=elements)
    return p, h, pool, add, partial(_separable, network, elements)


# ---- branches ----------------------------------------------------------------------------------


def branches_problem(seed: int, n_blocks: int = 9) -> Problem:
    """An inception-like network of ``n_blocks`` blocks of four branches, on the CPU and GPU of a
    phone drawn by the seed (Szegedy et al., "Rethinking the Inception Architecture for Computer
    Vision", CVPR 2016, figures 5 to 7)."""
    chance = random.Random(f"branches/{seed}")
    network = Network()

    def conv(value: int | None, elements: float, channels: float, kernel: float) -> int:
        macs = elements * channels * kernel
        reads = () if value is None else (value,)
        return network.add("conv", *reads, elements=int(elements), macs=macs)

    last = conv(None, 149 * 149 * 32, 3, 9)
    last = conv(last, 147 * 147 * 64, 32, 9)
    last = network.add("pool", last, elements=73 * 73 * 64)
    last = conv(last, 35 * 35 * 192, 80, 9)
    for block in range(n_blocks):
        stage = min(2, block * 3 // n_blocks)
        channels, kernel = (256, 768, 1280)[stage], (9, 7, 7)[stage]
        size = (35, 17, 8)[stage] ** 2 * channels
        ends = [conv(last, 0.25 * size, channels, 1)]
        end = conv(last, 0.2 * size, channels, 1)
        ends.append(conv(end, 0.25 * size, 0.2 * channels, 25 if stage == 0 else kernel))
        end = conv(last, 0.25 * size, channels, 1)
        end = conv(end, 0.35 * size, 0.25 * channels, kernel)
        ends.append(conv(end, 0.35 * size, 0.35 * channels, kernel))
        end = network.add("pool", last, elements=size, macs=9.0 * size)
        ends.append(conv(end, 0.12 * size, channels, 1))
        last = network.add("concat", *ends, elements=size)
    pooled = network.add("pool", last, elements=2048)
    network.add("dense", pooled, elements=1000, macs=2e6)
    return on_cpu_and_gpu(network, chance)


# ---- decoder -----------------------------------------------------------------------------------

SEQUENCE, WIDTH, HIDDEN = 128, 512, 1376
"""Tokens, and elements of one in the residual stream and within the feed-forward part."""

TOKENS = SEQUENCE * WIDTH


def decoder_problem(seed: int, n_layers: int = 4) -> Problem:
    """A decoder-only language model of 220 units, as traced: normalisations and rotations in their
    parts. Each accelerator refuses kinds of operation that make up a third of the units."""
    chance = random.Random(seed)
    network = Network()
    stream, cos, sin = (network.add(kind, elements=TOKENS) for kind in ("gather", "cos", "sin"))
    for _ in range(n_layers):
        stream = _attention(network, stream, cos, sin)
        stream = _feed_forward(network, stream)
    network.add("dense", stream, elements=TOKENS, macs=4.0 * TOKENS * WIDTH)
    kinds = sorted(set(network.kinds))
    refused: dict[str, set[str]] = {}
    for name in ROOFS:
        refused[name], left = set(), 0.36 * len(network.kinds)
        for kind in chance.sample(kinds, len(kinds)):
            if network.kinds.count(kind) <= left:
                refused[name].add(kind)
                left -= network.kinds.count(kind)
    return on_npu_phone(network, refused, chance)


def _dense(network: Network, value: int, out: int) -> int:
    macs = network.n_bytes[value] / 4 * out
    return network.add("dense", value, elements=SEQUENCE * out, macs=macs)


def _norm(network: Network, value: int) -> int:
    """Root mean square, in its six parts."""
    square = network.add("mul", value, elements=TOKENS)
    root = _each(network, square, "mean add rsqrt", SEQUENCE)
    scaled = network.add("mul", value, root, elements=TOKENS)
    return network.add("mul", scaled, elements=TOKENS)


def _rotated(network: Network, value: int, cos: int, sin: int) -> int:
    """Rotary position: x cos + turned(x) sin; the sign is in the sines."""
    plain = network.add("mul", value, cos, elements=TOKENS)
    left, right = (network.add("slice", value, elements=TOKENS // 2) for _ in range(2))
    turned = network.add("concat", left, right, elements=TOKENS)
    turned = network.add("mul", turned, sin, elements=TOKENS)
    return network.add("add", plain, turned, elements=TOKENS)


def _each(network: Network, value: int, kinds: str, elements: int = 0) -> int:
    """One operation after the other, of one size."""
    for kind in kinds.split():
        value = network.add(kind, value, elements=elements or TOKENS)
    return value


def _attention(network: Network, stream: int, cos: int, sin: int) -> int:
    scores = 8 * SEQUENCE * SEQUENCE
    value = _norm(network, stream)
    # Queries, keys, values.
    parts = [_each(network, _dense(network, value, WIDTH), "reshape permute") for _ in range(3)]
    query, key = (_rotated(network, part, cos, sin) for part in parts[:2])
    key, values = (_each(network, part, "expand reshape") for part in (key, parts[2]))
    key = network.add("permute", key, elements=TOKENS)
    end = network.add("dense", query, key, elements=scores, macs=scores * 64.0)
    end = _each(network, end, "mul add softmax", scores)
    end = network.add("dense", end, values, elements=TOKENS, macs=scores * 64.0)
    end = _dense(network, _each(network, end, "permute reshape"), WIDTH)
    return network.add("add", stream, end, elements=TOKENS)


def _feed_forward(network: Network, stream: int) -> int:
    value = _norm(network, stream)
    elements = SEQUENCE * HIDDEN
    gate = _dense(network, value, HIDDEN)
    weight = network.add("sigmoid", gate, elements=elements)
    gate = network.add("mul", gate, weight, elements=elements)
    up = _dense(network, value, HIDDEN)
    both = network.add("mul", gate, up, elements=elements)
    return network.add("add", stream, _dense(network, both, WIDTH), elements=TOKENS)
