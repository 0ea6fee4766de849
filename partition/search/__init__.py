"""Search for the best plan: one module per step; :mod:`.anytime` runs them in turn.

This module holds what the steps share: the limits of a search, the plans that it has found, its
result, and loops in C. The loops are built once for each version into the build cache. Building
takes one and a half seconds with the system's compiler and three with the one of the package
``ziglang``, which is always installed; loading takes none. ``tests/partition`` has the same loops
in Python as a reference; they are about a hundred times slower.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import logging
import math
import platform
import tempfile
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

import numpy as np

from nnapi_prof.graph.plan import ProofKind
from nnapi_prof.partition.arrays import Arrays
from nnapi_prof.partition.baselines import total_ns
from nnapi_prof.partition.constraints import Budget
from nnapi_prof.partition.problem import Placement, Problem, Region
from nnapi_prof.partition.search.relaxation import Relaxation
from nnapi_prof.partition.search.tables import NEGLIGIBLE
from nnapi_prof.toolchain import cache_dir, find_compiler, locked, run_tool

LOGGER = logging.getLogger(__name__)
SOURCES = Path(__file__).resolve().parent / "kernels"
FLAGS = ("-std=c11", "-O2", "-fPIC", "-shared", "-ffp-contract=off")
"""Compiler flags; without contraction into fused operations, sums match Python's bit for bit."""


@functools.cache
def library() -> ctypes.CDLL:
    """Returns the compiled loops, and builds them unless they are cached.

    Raises BuildError where they cannot be built.
    """
    try:
        return ctypes.CDLL(str(_build(cache_dir())))
    except OSError as error:  # the cache is full or read-only
        LOGGER.warning("the partitioner is compiled for this once: %s", error)
        with tempfile.TemporaryDirectory(prefix="nnapi-prof-") as work:
            return ctypes.CDLL(str(_build(Path(work))))


def _build(cache: Path) -> Path:
    """Returns the path of the library in a cache. Raises BuildError where there is no compiler,
    OSError where the cache cannot be written."""
    folder = cache / "solver"
    files = sorted(SOURCES.glob("*.[ch]"))
    digest = hashlib.sha256(" ".join((*FLAGS, platform.machine())).encode())
    for file in files:
        digest.update(file.name.encode() + file.read_bytes())
    binary = folder / f"{digest.hexdigest()[:16]}.so"
    if binary.exists():
        return binary
    folder.mkdir(parents=True, exist_ok=True)
    with locked(folder / "lock"):
        if binary.exists():
            return binary
        compiler = find_compiler(cache)
        with tempfile.TemporaryDirectory(prefix="nnapi-prof-", dir=folder) as work:
            draft = Path(work) / "solver.so"
            sources = [str(file) for file in files if file.suffix == ".c"]
            command = [str(compiler.path), *FLAGS, *sources, "-o", str(draft), "-lm"]
            run_tool(command, "the solver's loops do not compile")
            draft.rename(binary)
    return binary


def pointers(arrays: Sequence[np.ndarray[Any, Any]] | Arrays) -> Any:
    """Returns a C structure of pointers to some arrays, in their order; the arrays must outlive it.

    Raises ValueError where one is not contiguous: C would read other numbers than Python.
    """
    if isinstance(arrays, Arrays):
        arrays = [getattr(arrays, field.name) for field in fields(arrays)]
    for position, array in enumerate(arrays):
        if not array.flags.c_contiguous:
            raise ValueError(f"array {position} of {len(arrays)} is not contiguous")
    return (ctypes.c_void_p * len(arrays))(*(array.ctypes.data for array in arrays))


def integers(*numbers: int) -> Any:
    """Returns a C structure of 64-bit integers."""
    return (ctypes.c_int64 * len(numbers))(*numbers)


SECONDS = 10.0
MEMORY_BYTES = 640 << 20
BOUND_MET = 1e-6
"""Relative gap to the bound below which a plan counts as proven; HiGHS is about as precise."""


@dataclass(frozen=True, slots=True)
class SearchLimits:
    """Limits of one whole call: time, memory, effort, and the gap that is good enough.

    ``effort`` counts steps of compiled loops (a label settled, a unit moved), so plans do not
    depend on the speed of the machine as long as ``seconds`` suffices; inf leaves only the time.
    """

    seconds: float = SECONDS
    memory_bytes: int = MEMORY_BYTES
    effort: float = 2e8
    gap: float = 0.0
    """Relative gap: a plan proven to be this close to the optimum is good enough."""


Report = Callable[["Watch"], None]


@dataclass
class Watch:
    """The spent part of the limits, shared by all steps of one call."""

    limits: SearchLimits
    report: Report | None = None
    """Function called from time to time with this watch, for a progress line."""
    began: float = field(default_factory=time.monotonic)
    steps: float = 0.0
    interrupted: bool = False
    """Whether Ctrl-C ended the search: the best plan so far is the answer."""
    stage: str = ""
    """Name of the running step."""
    best_ns: float = float("inf")
    bound_ns: float = 0.0

    @property
    def elapsed_s(self) -> float:
        return time.monotonic() - self.began

    @property
    def seconds_left(self) -> float:
        return max(0.0, self.limits.seconds - self.elapsed_s)

    @property
    def steps_left(self) -> float:
        return self.limits.effort - self.steps

    @property
    def is_over(self) -> bool:
        """Whether time or effort is spent, or the user pressed Ctrl-C."""
        return (
            self.interrupted
            or self.steps >= self.limits.effort
            or self.elapsed_s >= self.limits.seconds
        )

    def part(self, share: float, of_effort: float = 1.0) -> Watch:
        """Returns a watch for one step that may take a share of the remaining time and effort;
        :meth:`absorb` adds what it has spent to this watch."""
        seconds = self.elapsed_s + share * self.seconds_left
        effort = self.steps + of_effort * max(0.0, self.steps_left)
        return replace(self, limits=replace(self.limits, seconds=seconds, effort=effort))

    def absorb(self, part: Watch) -> None:
        """Adds the effort that a part has spent."""
        self.steps = part.steps
        self.interrupted |= part.interrupted

    def spend(self, steps: float) -> None:
        """Counts steps of work, and reports the progress."""
        self.steps += steps
        if self.report is not None:
            self.report(self)


Plan = tuple[Placement, ...]


@dataclass
class Pool:
    """All plans within the budgets that a search has found, the best of them, and the bound."""

    problem: Problem
    budgets: Sequence[Budget] = ()
    plans: dict[Plan, float] = field(default_factory=dict)
    """Plans with their latencies in ns."""
    best: Plan | None = None
    best_ns: float = math.inf
    found_by: str = ""
    bound_ns: float = 0.0
    bounded_by: str = "unit costs"
    is_exact: bool = False
    """Whether a complete exact programme has proven that nothing is better."""

    def offer(self, placements: Plan, step: str) -> None:
        """Notes a plan that keeps to the budgets."""
        if placements in self.plans or not all(b.keeps(placements) for b in self.budgets):
            return
        ns = total_ns(self.problem, placements)
        if not math.isfinite(ns):
            return
        self.plans[placements] = ns
        margin = NEGLIGIBLE * abs(self.best_ns) if self.best is not None else 0.0
        fewer = self.best is not None and len(placements) < len(self.best)
        if ns < self.best_ns - margin or (fewer and ns <= self.best_ns):
            self.best, self.best_ns, self.found_by = placements, ns, step

    def raise_bound(self, bound_ns: float, step: str) -> None:
        """Notes that no plan costs less."""
        if bound_ns > self.bound_ns:
            self.bound_ns, self.bounded_by = bound_ns, step

    def is_within(self, gap: float) -> bool:
        """Tells whether the best plan is proven to be within a relative gap of the optimum."""
        return self.is_exact or self.best_ns <= self.bound_ns * (1 + gap)

    def result(
        self,
        costlier: Collection[Region],
        steps: float,
        relaxation: Relaxation | None = None,
        rates: Sequence[float] = (),
    ) -> SearchResult | None:
        """Returns the best plan and its proof; None where no plan was found."""
        if self.best is None:
            return None
        kind = ProofKind.EXACT
        if not self.is_exact:
            kind = ProofKind.BOUND_MET if self.is_within(BOUND_MET) else ProofKind.GAP
        return SearchResult(
            self.best,
            self.best_ns,
            self.best_ns if self.is_exact else min(self.bound_ns, self.best_ns),
            kind,
            self.found_by,
            "exact" if self.is_exact else self.bounded_by,
            self.plans,
            frozenset(costlier),
            steps,
            relaxation,
            tuple(rates),
        )


@dataclass(frozen=True, slots=True)
class SearchResult:
    """The best plan found, and its proof."""

    placements: Plan
    ns: float
    bound_ns: float
    """Lower bound of the latency of any plan."""
    kind: ProofKind
    found_by: str
    bounded_by: str
    plans: dict[Plan, float] = field(default_factory=dict, repr=False)
    """All plans that the search has found, with their latencies in ns."""
    costlier: frozenset[Region] = frozenset()
    """Regions in plans found that cost more measured whole than by their parts."""
    steps: float = 0.0
    relaxation: Relaxation | None = field(default=None, repr=False)
    """Relaxation of the problem that was searched, where it was solved."""
    rates: tuple[float, ...] = ()
    """Worth in ns of a step of each budget, where plans keep to budgets."""

    @property
    def is_optimal(self) -> bool:
        return self.kind is not ProofKind.GAP

    @property
    def gap(self) -> float:
        """Largest possible excess over the optimum, relative to the bound."""
        if self.is_optimal or self.ns <= self.bound_ns:
            return 0.0
        return self.ns / self.bound_ns - 1 if self.bound_ns > 0 else math.inf
