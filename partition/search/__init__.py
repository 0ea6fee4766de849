"""Search for the best plan: a file for each step; :mod:`.anytime` runs them in turn.

Here is what the steps share: the limits of a search, the plans that it has met, its result, and
loops in C. These are built once for each version into the cache of builds. Building takes one and
a half seconds with the system's compiler and three with the one of the package ``ziglang``, which
is always there; loading takes none. The same loops stand in Python in ``tests/partition``, as their
judge: they take some hundred times longer.
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
"""Without contraction into fused operations sums are those of Python, bit by bit."""


@functools.cache
def library() -> ctypes.CDLL:
    """The compiled loops, built unless the cache has them.

    Raises BuildError where they cannot be built.
    """
    try:
        return ctypes.CDLL(str(_build(cache_dir())))
    except OSError as error:  # no room in the cache, or it may not be written
        LOGGER.warning("the partitioner is compiled for this once: %s", error)
        with tempfile.TemporaryDirectory(prefix="nnapi-prof-") as work:
            return ctypes.CDLL(str(_build(Path(work))))


def _build(cache: Path) -> Path:
    """Path of the library in a cache. Raises BuildError where there is no compiler, OSError where
    the cache cannot be written."""
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
    """A C structure of pointers to some arrays, in their order. They must outlive it.

    Raises ValueError where one is not contiguous: C would read other numbers than Python.
    """
    if isinstance(arrays, Arrays):
        arrays = [getattr(arrays, field.name) for field in fields(arrays)]
    for position, array in enumerate(arrays):
        if not array.flags.c_contiguous:
            raise ValueError(f"array {position} of {len(arrays)} is not contiguous")
    return (ctypes.c_void_p * len(arrays))(*(array.ctypes.data for array in arrays))


def integers(*numbers: int) -> Any:
    """A C structure of 64-bit integers."""
    return (ctypes.c_int64 * len(numbers))(*numbers)


SECONDS = 10.0
MEMORY_BYTES = 640 << 20
BOUND_MET = 1e-6
"""Relative: a plan this close to the bound counts as proven; HiGHS works to about as much."""


@dataclass(frozen=True, slots=True)
class SearchLimits:
    """Limits of one whole call: time, memory, and effort; and what is good enough.

    ``effort`` counts steps of compiled loops (a label settled, a unit moved), so that plans do not
    depend on how fast a machine is as long as ``seconds`` suffice; inf leaves it to the time.
    """

    seconds: float = SECONDS
    memory_bytes: int = MEMORY_BYTES
    effort: float = 2e8
    gap: float = 0.0
    """Relative: a plan that is proven to be this close to the optimum is good enough."""


Report = Callable[["Watch"], None]


@dataclass
class Watch:
    """The part of the limits that is spent; shared by all steps of one call."""

    limits: SearchLimits
    report: Report | None = None
    """Called every now and then with this watch: for a line of progress."""
    began: float = field(default_factory=time.monotonic)
    steps: float = 0.0
    interrupted: bool = False
    """By Ctrl-C: the best plan so far is the answer."""
    stage: str = ""
    """The step that is running."""
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
        """A watch of one step that may take a share of the time and of the effort that are left;
        what it has spent is known here once it is :meth:`absorbed <absorb>`."""
        seconds = self.elapsed_s + share * self.seconds_left
        effort = self.steps + of_effort * max(0.0, self.steps_left)
        return replace(self, limits=replace(self.limits, seconds=seconds, effort=effort))

    def absorb(self, part: Watch) -> None:
        """Counts what a part has spent."""
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
    """All plans that a search has met within its budgets, the best of them, and what is proven."""

    problem: Problem
    budgets: Sequence[Budget] = ()
    plans: dict[Plan, float] = field(default_factory=dict)
    """With their latencies in ns."""
    best: Plan | None = None
    best_ns: float = math.inf
    found_by: str = ""
    bound_ns: float = 0.0
    bounded_by: str = "unit costs"
    is_exact: bool = False
    """Nothing is better, as an exact programme that left nothing out says."""

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
        """Whether the best plan is proven to be that close to the optimum, relative."""
        return self.is_exact or self.best_ns <= self.bound_ns * (1 + gap)

    def result(
        self,
        costlier: Collection[Region],
        steps: float,
        relaxation: Relaxation | None = None,
        rates: Sequence[float] = (),
    ) -> SearchResult | None:
        """The best plan and its proof; None where no plan was met. See :class:`SearchResult`."""
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
    """The best plan found and what is known about it."""

    placements: Plan
    ns: float
    bound_ns: float
    """No plan costs less."""
    kind: ProofKind
    found_by: str
    bounded_by: str
    plans: dict[Plan, float] = field(default_factory=dict, repr=False)
    """All plans that the search has met, with their latencies in ns."""
    costlier: frozenset[Region] = frozenset()
    """Regions that cost more measured whole than by their parts, and that stood in a plan found."""
    steps: float = 0.0
    relaxation: Relaxation | None = field(default=None, repr=False)
    """Of the problem that was searched, where it was solved."""
    rates: tuple[float, ...] = ()
    """Where plans keep to budgets: ns that a step of each is worth."""

    @property
    def is_optimal(self) -> bool:
        return self.kind is not ProofKind.GAP

    @property
    def gap(self) -> float:
        """How far the plan can be above the optimum, relative to the bound."""
        if self.is_optimal or self.ns <= self.bound_ns:
            return 0.0
        return self.ns / self.bound_ns - 1 if self.bound_ns > 0 else math.inf
