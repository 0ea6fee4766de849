"""Plans one problem in its own process and prints the figures as one line of JSON.

    python benchmarks/plan_one.py present FILE --seconds 10
    python benchmarks/plan_one.py former FILE --tree build/former

FILE is the output of :func:`write_problem`: plain JSON, so that a solver of another commit can read
it. Time and memory are those of the call alone: imports come before.
"""

from __future__ import annotations

import argparse
import importlib
import json
import re
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numba  # noqa: F401  (what a solver may need is imported before the clock starts)
import numpy as np
import scipy.optimize
import scipy.sparse.csgraph  # noqa: F401

STATUS = Path("/proc/self/status")
ARRAYS = ("unit_ns", "overhead_ns", "in_ns_per_byte", "out_ns_per_byte")


def write_problem(problem: Any, path: Path) -> None:
    """Writes everything that costs; JSON has Infinity where a target cannot run a unit."""
    fields = {
        "labels": problem.labels,
        "predecessors": problem.predecessors,
        "values": [[v.producer, v.readers, v.n_bytes, v.is_output] for v in problem.values],
        "targets": [target.key for target in problem.targets],
        "region_ns": [[sorted(units), k, ns] for (units, k), ns in problem.region_ns.items()],
        **{name: getattr(problem, name).tolist() for name in ARRAYS},
    }
    path.write_text(json.dumps(fields))


def read_problem(path: Path) -> Any:
    """Returns a Problem of the ``nnapi_prof`` that is first on the path."""
    from nnapi_prof.graph.plan import Target
    from nnapi_prof.partition.problem import Problem, ValueFlow

    fields = json.loads(path.read_text())
    return Problem(
        labels=tuple(fields["labels"]),
        predecessors=tuple(map(tuple, fields["predecessors"])),
        values=tuple(
            ValueFlow(producer, tuple(readers), n_bytes, is_output)
            for producer, readers, n_bytes, is_output in fields["values"]
        ),
        targets=tuple(map(Target, fields["targets"])),
        region_ns={(frozenset(units), k): ns for units, k, ns in fields["region_ns"]},
        **{name: np.array(fields[name], dtype=np.float64) for name in ARRAYS},
    )


def present(problem: Any, seconds: float, most: int | None = None) -> dict[str, Any]:
    """Solves by :func:`plan_problem`, with at most so many regions."""
    from nnapi_prof.partition import Constraints, SearchLimits, plan_problem

    answer = plan_problem(
        problem,
        limits=SearchLimits(seconds=seconds),
        constraints=Constraints(max_regions=most),
    )
    proof = answer.best.proof
    return {
        "ns": proof.least_ns,
        "bound_ns": proof.bound_ns,
        "kind": proof.kind.value,
        "found_by": proof.found_by,
        "bounded_by": proof.bounded_by,
        "segments": len(answer.best.segments),
        "default_segments": len(answer.default.segments),
        "default_ns": answer.default.predicted_ns,
    }


def former(problem: Any, seconds: float) -> dict[str, Any]:
    """Solves by the search of commit 8967612, which has no time limit."""
    from nnapi_prof.partition.solver import solve_placements

    solution = solve_placements(problem, tolerance=0.0)
    return {
        "ns": solution.ns,
        "bound_ns": solution.bound_ns,
        "kind": "exact" if solution.exact else "gap",
        "segments": len(solution.placements),
    }


SOLVERS: dict[str, Callable[..., dict[str, Any]]] = {"present": present, "former": former}


def resident_bytes(line: str) -> int:
    """Returns ``VmRSS``, or ``VmHWM`` for the peak, of this process."""
    (kilobytes,) = re.findall(rf"^{line}:\s+(\d+) kB", STATUS.read_text(), re.MULTILINE)
    return 1024 * int(kilobytes)


def main() -> None:
    parser = argparse.ArgumentParser(description="Plans one problem.")
    parser.add_argument("solver", choices=SOLVERS)
    parser.add_argument("file", type=Path)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--max-regions", type=int)
    parser.add_argument("--cpu-clock", action="store_true", help="limits are CPU seconds")
    parser.add_argument("--tree", type=Path, help="a checkout whose nnapi_prof is to be used")
    options = parser.parse_args()
    if options.tree is not None:
        sys.path.insert(0, str(options.tree.resolve()))
    if options.cpu_clock:  # before the partitioner's import; HiGHS still uses the wall clock
        time.monotonic = time.process_time
    package = importlib.import_module("nnapi_prof.partition")
    if options.tree is not None:
        assert package.__file__ and package.__file__.startswith(str(options.tree.resolve()))
    problem = read_problem(options.file)
    Path("/proc/self/clear_refs").write_text("5")  # resets the peak
    before = resident_bytes("VmRSS")
    wall, cpu = time.perf_counter(), time.process_time()
    limited = {} if options.max_regions is None else {"most": options.max_regions}
    result = SOLVERS[options.solver](problem, options.seconds, **limited)
    result |= {
        "wall_s": time.perf_counter() - wall,
        "cpu_s": time.process_time() - cpu,
        "peak_mb": (resident_bytes("VmHWM") - before) / 1e6,
    }
    print(json.dumps(result))


if __name__ == "__main__":
    main()
