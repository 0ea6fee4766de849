"""Predicted gains of two processors at once: frames per second, and one frame's branches.

    python benchmarks/bench_throughput.py
    python benchmarks/bench_throughput.py --data FOLDER --contention 1.3

Predictions from costs of one processor at a time, with an assumed contention; nothing is measured
here. Three families:

like     networks on simulated phones with CPU and GPU of similar speed (partition_networks.py)
unlike   the same code on simulated phones with several accelerators, and on wide graphs
phones   with ``--data``: chains of the operations of 46 networks on four phones. Times on the GPU
         are measured by operation (qed-usc/mobile-ml-benchmark @40ba833, MIT); on the CPU by whole
         network, divided by FLOPs; a transfer is assumed to take 0.5 ms and 0.5 ns per byte

"Gain" is over the best single device, in the median; "ceiling" is 1 + fast/slow over contention,
the limit of frames in turn that never wait. "Gap" is the mixture above the proven bound. "Branches"
are schedules of one frame over the serial optimum, and the bound over them; where the bound
promises less than 15 % there is no search. Fails where a bar is missed.
"""

from __future__ import annotations

import argparse
import csv
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import numpy as np

REPO = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(REPO))

from partition_networks import (  # noqa: E402
    branches_problem,
    cells_problem,
    decoder_problem,
    heads_problem,
)

from nnapi_prof.graph.plan import CPU, Preference, Target  # noqa: E402
from nnapi_prof.partition import SearchLimits  # noqa: E402
from nnapi_prof.partition.parallel import plan_parallel  # noqa: E402
from nnapi_prof.partition.problem import GRAPH_INPUT, Problem, ValueFlow  # noqa: E402
from nnapi_prof.partition.queues import FrameStrategy  # noqa: E402
from nnapi_prof.partition.throughput import plan_throughput  # noqa: E402
from tests.partition.networks import wide_problem  # noqa: E402

PHONES = ("pixel4", "s10", "mi8se", "a03s")
TRANSFER_NS, TRANSFER_NS_PER_BYTE = 5e5, 0.5
FRAMES = 8
"""Frames in flight."""


@dataclass(frozen=True)
class Bar:
    """Bars of a family's medians, at a contention of 1.1."""

    gain: float = 1.0
    gain_in_flight: float = 1.0
    gap: float = 0.1
    branches: float = 0.0
    """Bound divided by the schedule's latency."""


@dataclass(frozen=True)
class Family:
    group: str
    name: str
    cases: tuple[Callable[[], Problem], ...]
    bar: Bar


def families(options: argparse.Namespace) -> Iterator[Family]:
    def drawn(group: str, name: str, draw: Callable[[int], Problem], bar: Bar) -> Family:
        return Family(group, name, tuple(partial(draw, s) for s in range(options.seeds)), bar)

    yield drawn("like", "inception", branches_problem, Bar(1.55, 1.45, 0.01, 0.9))
    for style in ("nasnet", "pnasnet"):
        bar = Bar(1.55, 1.45, 0.05, 0.85)
        yield drawn("like", style, partial(cells_problem, style), bar)
    yield drawn("unlike", "heads on 4 taps", partial(heads_problem, 4), Bar(gap=0.01))
    yield drawn("unlike", "decoder", decoder_problem, Bar(gap=0.1))
    yield drawn("unlike", "blocks 400 x 3", partial(wide_problem, "blocks", 400, 3), Bar(gap=0.05))
    if options.data is not None:
        for phone in PHONES:
            cases = tuple(real_cases(options.data, phone))
            yield Family("phones", phone, cases, Bar(1.1, 1.1, 1e-5))


def real_cases(folder: Path, phone: str) -> Iterator[Callable[[], Problem]]:
    """Yields networks on one phone of qed-usc's tables."""
    networks: dict[str, list[dict[str, str]]] = {}
    with (folder / "usc_tflite_cnn_ops_gpu.csv").open() as file:
        for row in csv.DictReader(file):
            if row[f"{phone}_us"]:
                networks.setdefault(row["model"], []).append(row)
    with (folder / "usc_tflite_cnn_e2e.csv").open() as file:
        for row in csv.DictReader(file):
            whole = [
                float(us) * 1e3
                for column, us in row.items()
                if column.startswith(f"{phone}|") and column.endswith("float") and us
                if "gpu" not in column
            ]
            if row["model"] in networks and whole:
                yield partial(real_problem, networks[row["model"]], phone, min(whole))


def real_problem(rows: list[dict[str, str]], phone: str, cpu_ns: float) -> Problem:
    """Returns a chain of operations: each reads the output of the one before."""
    gpu = np.array([float(row[f"{phone}_us"]) * 1e3 for row in rows])
    sizes = [elements(row) for row in rows]
    work = np.array(
        [max(number(row["FLOPS"]), 8.0 * size) for row, size in zip(rows, sizes, strict=True)]
    )
    n = len(rows)
    moved = [TRANSFER_NS + TRANSFER_NS_PER_BYTE * 4 * size for size in sizes]
    values = [ValueFlow(GRAPH_INPUT, (0,), moved[0])]  # type: ignore[arg-type]
    for u in range(n):
        readers = (u + 1,) if u + 1 < n else ()
        values.append(ValueFlow(u, readers, moved[u], not readers))  # type: ignore[arg-type]
    return Problem(
        labels=tuple(f"{row['op']} {u}" for u, row in enumerate(rows)),
        predecessors=tuple((u - 1,) if u else () for u in range(n)),
        values=tuple(values),
        targets=(CPU, Target.nnapi("gpu", Preference.FAST_SINGLE_ANSWER)),
        unit_ns=np.stack([cpu_ns * work / work.sum(), gpu], axis=1),
        overhead_ns=np.zeros(2),
        in_ns_per_byte=np.array([0.0, 1.0]),
        out_ns_per_byte=np.array([0.0, 1.0]),
    )


def number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return 0.0


def elements(row: dict[str, str]) -> float:
    """Returns the number of elements of an operation's result."""
    side = max(1.0, number(row["Output_shape"]))
    return side * side * max(number(row["Filter"]), number(row["Input_channel"]), 1.0)


@dataclass
class Row:
    """Figures of a family, one for each case."""

    family: Family
    units: list[int] = field(default_factory=list)
    ceiling: list[float] = field(default_factory=list)
    in_turn: list[float] = field(default_factory=list)
    pipeline: list[float] = field(default_factory=list)
    gain: list[float] = field(default_factory=list)
    gap: list[float] = field(default_factory=list)
    in_flight: list[float] = field(default_factory=list)
    latency: list[float] = field(default_factory=list)
    """Latency of 95 % of frames with eight in flight, over one alone on the best single device."""
    seconds: list[float] = field(default_factory=list)
    branches: list[float] = field(default_factory=list)
    reached: list[float] = field(default_factory=list)
    tried: int = 0

    def add(self, problem: Problem, options: argparse.Namespace) -> None:
        limits = SearchLimits(options.seconds)
        began = time.monotonic()
        plan = plan_throughput(problem, contention=options.contention, limits=limits)
        self.seconds.append(time.monotonic() - began)
        single = plan.baseline(FrameStrategy.BEST_SINGLE)
        assert single is not None
        self.units.append(problem.n)
        whole = tuple(range(problem.n))
        alone = sorted(
            problem.segment_ns(whole, k)
            for k in range(len(problem.targets))
            if np.isfinite(problem.segment_ns(whole, k))
        )
        if len(alone) == 2:
            self.ceiling.append((1 + alone[0] / alone[1]) / options.contention)
        for rule, figures in (
            (FrameStrategy.IN_TURN, self.in_turn),
            (FrameStrategy.PIPELINE, self.pipeline),
        ):
            rate = plan.baseline(rule)
            figures.append(single.period_ns / rate.period_ns if rate else 1.0)
        self.gain.append(single.period_ns / plan.period_ns)
        self.gap.append(plan.proof.gap)
        eight = next(point for point in plan.curve if point.frames_in_flight == FRAMES)
        self.in_flight.append(single.period_ns / eight.period_ns)
        self.latency.append(eight.latency_ns[1] / single.period_ns)
        if options.branches:
            schedule = plan_parallel(problem, contention=options.contention, limits=limits)
            self.branches.append(schedule.gain)
            self.reached.append(schedule.proof.bound_ns / schedule.latency_ns)
            self.tried += schedule.tried

    def misses(self) -> Iterator[str]:
        bar = self.family.bar
        for name, figures, least in (
            ("gain", self.gain, bar.gain),
            (f"gain with {FRAMES} in flight", self.in_flight, bar.gain_in_flight),
            ("branches over the bound", self.reached, bar.branches),
        ):
            if figures and statistics.median(figures) < least:
                yield f"{name} {least:g} wanted"
        if statistics.median(self.gap) > bar.gap:
            yield f"gap {bar.gap:.2%} wanted"

    def cells(self) -> Iterator[str]:
        yield self.family.name
        yield f"{min(self.units)} to {max(self.units)}"
        yield str(len(self.gain))
        for figures in (self.ceiling, self.in_turn, self.pipeline):
            yield f"{statistics.median(figures):.2f}" if figures else ""
        yield f"{statistics.median(self.gain):.2f} [{min(self.gain):.2f}-{max(self.gain):.2f}]"
        yield f"{statistics.median(self.gap):.2%}, {max(self.gap):.2%}"
        yield f"{statistics.median(self.in_flight):.2f}"
        yield f"{statistics.median(self.latency):.1f}"
        yield f"{statistics.median(self.seconds):.1f}"
        if self.branches:
            yield f"{statistics.median(self.branches):.2f}"
            yield f"{statistics.median(self.reached):.2f}, {self.tried} tried"
        else:
            yield from ("", "")
        yield "; ".join(self.misses()) or "met"


HEADER = (
    *("graphs", "units", "cases", "ceiling", "in turn", "pipeline", "mixture", "gap, worst"),
    *(f"{FRAMES} in flight", "latency", "s", "branches", "of the bound", "bar"),
)


def main() -> None:
    parser = argparse.ArgumentParser(description="What two processors at once promise.")
    parser.add_argument("--data", type=Path, help="folder with qed-usc's tables")
    parser.add_argument("--contention", type=float, default=1.1)
    parser.add_argument("--seconds", type=float, default=10.0, help="of each call")
    parser.add_argument("--seeds", type=int, default=4, help="of each family")
    parser.add_argument("--family", help="only a group, or graphs whose name begins so")
    parser.add_argument("--branches", action=argparse.BooleanOptionalAction, default=True)
    options = parser.parse_args()
    missed = False
    print(f"| {' | '.join(HEADER)} |\n|{'---|' * len(HEADER)}", flush=True)
    for family in families(options):
        if options.family not in (None, family.group) and not family.name.startswith(
            options.family
        ):
            continue
        row = Row(family)
        for case in family.cases:
            row.add(case(), options)
        print(f"| {' | '.join(row.cells())} |", flush=True)
        missed |= any(row.misses())
    print(f"\nPredictions at a contention of {options.contention:g}; nothing was measured at once.")
    sys.exit(missed and options.contention == 1.1)


if __name__ == "__main__":
    main()
