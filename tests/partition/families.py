"""Families of large problems, for tests and for benchmarks/bench_partition.py; all simulated.

wide      graphs that get wide, with costs uniform at random: no network, but hard
heads     a backbone with detection heads on its last taps, 13 targets
cells     NASNet-A and PNASNet, CPU and GPU, with transfers that hardly depend on size
branches  inception-like, CPU and GPU, with transfers that hardly depend on size
decoder   a language model's layers, 13 targets that each refuse a third of the operations
"""

import math
import random
from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np

from nnapi_prof.graph.plan import CPU, Preference, Target
from nnapi_prof.partition.problem import GRAPH_INPUT, Problem, ValueFlow
from tests.partition.networks import (
    ROOFS,
    Network,
    Reads,
    on_cpu_and_gpu,
    on_npu_phone,
    readers_of,
)

# ---- wide graphs -------------------------------------------------------------------------------


def stem(n: int, chance: random.Random) -> Reads:
    """One unit, n - 2 that read it, one that reads them all."""
    return [[], *([0] for _ in range(n - 2)), list(range(1, n - 1))]


def chains(n: int, chance: random.Random) -> Reads:
    """One unit, 16 chains as equal as they can be, one that reads their ends."""
    reads: Reads = [[]]
    ends = []
    for chain in range(16):
        end = 0
        for _ in range((n - 2 + chain) // 16):
            reads.append([end])
            end = len(reads) - 1
        ends.append(end)
    return [*reads, ends]


def blocks(n: int, chance: random.Random) -> Reads:
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


def skips(n: int, chance: random.Random) -> Reads:
    """A chain in which every fifth unit from the eighth on also reads the unit four before it."""
    reads: Reads = [[u - 1] if u else [] for u in range(n)]
    for u in range(7, n, 5):
        reads[u] = [u - 4, u - 1]
    return reads


WIDE: Mapping[str, Callable[[int, random.Random], Reads]] = {
    "stem": stem,
    "chains": chains,
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
    readers = readers_of(reads)
    sizes = [chance.randint(5_000, 100_000) for _ in range(n)]
    accelerated = np.arange(n_targets) > 0
    return Problem(
        labels=tuple(f"{structure} {u}" for u in range(n)),
        predecessors=tuple(map(tuple, reads)),
        values=(
            ValueFlow(GRAPH_INPUT, (0,), 50_000),
            *(ValueFlow(u, tuple(readers[u]), sizes[u], not readers[u]) for u in range(n)),
        ),
        targets=(
            CPU,
            *(
                Target.nnapi(f"accelerator-{k}", Preference.FAST_SINGLE_ANSWER)
                for k in range(1, n_targets)
            ),
        ),
        unit_ns=unit_ns,
        overhead_ns=4e5 * accelerated,
        in_ns_per_byte=2.0 * accelerated,
        out_ns_per_byte=2.0 * accelerated,
    )


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
    pixels = max(1, elements // 64)
    end = network.add("depthwise", tap, elements=elements, macs=9.0 * elements)
    end = network.add("relu6", end, elements=elements)
    out = pixels * channels
    end = network.add("conv", end, elements=out, macs=float(elements) * channels)
    end = network.add("permute", end, elements=out)
    end = network.add("reshape", end, elements=out)
    network.add(last, end, elements=out)


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


def _separable(network: Network, value: int, kernel: int, elements: int) -> int:
    """Twice a depthwise and a pointwise convolution."""
    end = network.add("relu", value, elements=elements)
    for _ in range(2):
        end = network.add("depthwise", end, elements=elements, macs=elements * kernel**2)
        end = network.add("conv", end, elements=elements, macs=elements * 168.0)
    return end


def _nasnet_cell(network: Network, before: int, last: int, elements: int) -> int:
    p, h = (_squeeze(network, value, elements) for value in (before, last))

    def pool(value: int) -> int:
        return network.add("pool", value, elements=elements, macs=9.0 * elements)

    def add(left: int, right: int) -> int:
        return network.add("add", left, right, elements=elements)

    ends = [
        add(_separable(network, h, 5, elements), _separable(network, p, 3, elements)),
        add(_separable(network, p, 5, elements), _separable(network, p, 3, elements)),
        add(pool(h), p),
        add(pool(p), pool(p)),
        add(_separable(network, h, 3, elements), h),
    ]
    return network.add("concat", p, *ends, elements=elements)


def _pnasnet_cell(network: Network, before: int, last: int, elements: int) -> int:
    p, h = (_squeeze(network, value, elements) for value in (before, last))

    def pool(value: int) -> int:
        return network.add("pool", value, elements=elements, macs=9.0 * elements)

    def add(left: int, right: int) -> int:
        return network.add("add", left, right, elements=elements)

    third = add(_separable(network, h, 5, elements), _separable(network, h, 3, elements))
    ends = [
        add(_separable(network, p, 5, elements), pool(p)),
        add(_separable(network, h, 7, elements), pool(h)),
        third,
        add(_separable(network, third, 3, elements), pool(h)),
        add(_separable(network, p, 3, elements), h),
    ]
    return network.add("concat", *ends, elements=elements)


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


def decoder_problem(seed: int, n_layers: int = 4) -> Problem:
    """A decoder-only language model of 220 units, as traced: normalisations and rotations in their
    parts. Each accelerator refuses kinds of operation that make up a third of the units."""
    chance = random.Random(seed)
    network = Network()
    tokens = SEQUENCE * WIDTH
    stream = network.add("gather", elements=tokens)
    cos = network.add("cos", elements=tokens)
    sin = network.add("sin", elements=tokens)
    for _ in range(n_layers):
        stream = _attention(network, stream, cos, sin)
        stream = _feed_forward(network, stream)
    network.add("dense", stream, elements=tokens, macs=4.0 * tokens * WIDTH)
    kinds = sorted(set(network.kinds))
    refused: dict[str, set[str]] = {}
    for name in ROOFS:
        refused[name] = set()
        left = 0.36 * len(network.kinds)
        for kind in chance.sample(kinds, len(kinds)):
            if network.kinds.count(kind) <= left:
                refused[name].add(kind)
                left -= network.kinds.count(kind)
    return on_npu_phone(network, refused, chance)


def _dense(network: Network, value: int, out: int) -> int:
    elements = network.n_bytes[value] // 4
    macs = float(elements) * out
    return network.add("dense", value, elements=SEQUENCE * out, macs=macs)


def _norm(network: Network, value: int) -> int:
    """Root mean square, in its six parts."""
    elements = SEQUENCE * WIDTH
    square = network.add("mul", value, elements=elements)
    mean = network.add("mean", square, elements=SEQUENCE)
    mean = network.add("add", mean, elements=SEQUENCE)
    root = network.add("rsqrt", mean, elements=SEQUENCE)
    scaled = network.add("mul", value, root, elements=elements)
    return network.add("mul", scaled, elements=elements)


def _rotated(network: Network, value: int, cos: int, sin: int) -> int:
    """Rotary position: x cos + turned(x) sin; the sign is in the sines."""
    elements = SEQUENCE * WIDTH
    plain = network.add("mul", value, cos, elements=elements)
    left = network.add("slice", value, elements=elements // 2)
    right = network.add("slice", value, elements=elements // 2)
    turned = network.add("concat", left, right, elements=elements)
    turned = network.add("mul", turned, sin, elements=elements)
    return network.add("add", plain, turned, elements=elements)


def _attention(network: Network, stream: int, cos: int, sin: int) -> int:
    elements = SEQUENCE * WIDTH
    scores = 8 * SEQUENCE * SEQUENCE
    value = _norm(network, stream)
    parts = []
    for _ in range(3):  # queries, keys, values
        end = _dense(network, value, WIDTH)
        end = network.add("reshape", end, elements=elements)
        parts.append(network.add("permute", end, elements=elements))
    query, key = (_rotated(network, part, cos, sin) for part in parts[:2])
    repeated = []
    for part in (key, parts[2]):
        end = network.add("expand", part, elements=elements)
        repeated.append(network.add("reshape", end, elements=elements))
    key = network.add("permute", repeated[0], elements=elements)
    end = network.add("dense", query, key, elements=scores, macs=float(scores) * 64)
    end = network.add("mul", end, elements=scores)
    end = network.add("add", end, elements=scores)
    end = network.add("softmax", end, elements=scores)
    macs = float(scores) * 64
    end = network.add("dense", end, repeated[1], elements=elements, macs=macs)
    end = network.add("permute", end, elements=elements)
    end = network.add("reshape", end, elements=elements)
    end = _dense(network, end, WIDTH)
    return network.add("add", stream, end, elements=elements)


def _feed_forward(network: Network, stream: int) -> int:
    value = _norm(network, stream)
    elements = SEQUENCE * HIDDEN
    gate = _dense(network, value, HIDDEN)
    weight = network.add("sigmoid", gate, elements=elements)
    gate = network.add("mul", gate, weight, elements=elements)
    up = _dense(network, value, HIDDEN)
    both = network.add("mul", gate, up, elements=elements)
    end = _dense(network, both, WIDTH)
    return network.add("add", stream, end, elements=SEQUENCE * WIDTH)
