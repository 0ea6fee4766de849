"""Fronts of latency against error: seconds, proofs, and what rules of others lose.

    python benchmarks/bench_front.py [--seeds 3]

Networks are those of tests/partition/mixed.py (all costs and noises simulated): a chain with skips
on a CPU in float32 and 8 bits and on accelerators in four precisions. For each: a plan within an
error of 1, 2 and 3 %, the whole front of some 16 points, and beside the plans those of one
precision for all and of greedy orders, placed as well as can be.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from greedy_orders import greedy_orders

from nnapi_prof.graph.plan import Precision, ProofKind
from nnapi_prof.partition import (
    Constraints,
    ErrorLimit,
    NoisePoint,
    best_within,
    front,
    plan_problem,
    uniform,
)
from tests.partition.mixed import mixed_network

SIZES = ((60, 3, 2), (120, 3, 2), (220, 3, 3))
"""Units, accelerators, preferences of each"""
ERRORS = (0.01, 0.02, 0.03)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=3)
    seeds = range(1, parser.parse_args().seeds + 1)
    budgets = [error**2 for error in ERRORS]
    for units, accelerators, preferences in SIZES:
        plan_s: list[float] = []
        front_s: list[float] = []
        points = proven = 0
        losses: dict[str, list[float]] = {}
        for seed in seeds:
            problem, noise = mixed_network(units, accelerators, seed, preferences=preferences)
            for error in ERRORS:
                limit = Constraints(errors=(ErrorLimit(noise, error),))
                begin = time.process_time()
                answer = plan_problem(problem, constraints=limit)
                plan_s.append(time.process_time() - begin)
                assert answer.best.proof is not None
                proven += answer.best.proof.is_optimal
            begin = time.process_time()
            line = front(problem, noise, budgets=budgets)
            front_s.append(time.process_time() - begin)
            points += sum(point.proof.kind is not ProofKind.GAP for point in line)
            rules: dict[str, list[NoisePoint]] = {
                f"greedy by {order.value}": list(plans)
                for order, plans in greedy_orders(problem, noise, budgets=budgets).items()
            }
            alike = [uniform(problem, precision, noise) for precision in Precision]
            rules["one precision for all"] = [plan for plan in alike if plan is not None]
            for budget in budgets:
                best = best_within(line, budget)
                for name, plans in rules.items():
                    rule = best_within(plans, budget)
                    if best is not None and rule is not None:
                        losses.setdefault(name, []).append(rule.ns / best.ns - 1)
            assert all(loss > -1e-9 for own in losses.values() for loss in own)
        print(
            f"{units} units, {len(problem.targets)} targets: a plan within an error in "
            f"{statistics.median(plan_s):.2f} s (at most {max(plan_s):.2f}), {proven} of "
            f"{len(plan_s)} proven; a front in {statistics.median(front_s):.1f} s (at most "
            f"{max(front_s):.1f}), {points} points proven"
        )
        for name, own in losses.items():
            worst = max(own)
            print(f"  {name}: {statistics.median(own):.1%} slower, at most {worst:.1%}")


if __name__ == "__main__":
    main()
