"""What is said of plans, against the truth; and many random graphs on trial.

    python -m tests.partition.trial          (make judge)

judges NNAPI_PROF_EXAMPLES random graphs in two processes, and prints what is wrong with which.
NNAPI_PROF_JUDGE_SEED draws other graphs.
"""

import itertools
import math
import os
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import numpy as np

from nnapi_prof.errors import PartitionError
from nnapi_prof.graph.plan import Engine, Plan, Proof, ProofKind
from nnapi_prof.partition import Constraints, Partitioning, SearchLimits, baselines, plan_problem
from nnapi_prof.partition.problem import Placement
from tests.partition.drawing import draw_case
from tests.partition.judge import LIMIT_SLACK, Case, Truth, mask_of, truth_of
from tests.partition.problems import check_plan

EXACT = 1e-9
"""Relative: how far apart two sums of the same costs can be."""
TIE = 1e-12
"""Relative: the same, where the plans are equal."""
MET = 1e-6
"""Relative: how far above its bound a plan may be that is said to meet it."""

Planner = Callable[[Case], Partitioning]


def ask(case: Case) -> Partitioning:
    asked = dict(tolerance=case.tolerance, constraints=case.constraints, compiling=case.compiling)
    return plan_problem(case.problem, limits=SearchLimits(seconds=case.seconds), **asked)


def judge(case: Case, planner: Planner = ask) -> list[str]:
    """Asks for a plan and checks every word of the answer.

    Returns complaints, each of which begins with one word for its kind.
    """
    truth = truth_of(case)
    exists = math.isfinite(truth.optimum_ns)
    try:
        answer = planner(case)
    except PartitionError as error:
        # Without time, plans that keep to limits need not be found.
        excused = not exists or (case.seconds == 0 and case.constraints != Constraints())
        return [] if excused else [f"refused: there is a plan of {truth.optimum_ns}, but: {error}"]
    except Exception:
        return [f"crashed: {traceback.format_exc()}"]
    if not exists:
        return [f"impossible: no plan exists, but {answer.best}"]
    if answer.best.proof is None:
        return ["unproven: the best plan carries no proof"]
    return [
        *_about_plan(case, truth, answer.best, "best"),
        *_about_plan(case, truth, answer.default, "default"),
        *_about_proof(answer, answer.best.proof, truth.optimum_ns),
        *_about_default(case, truth, answer),
        *_about_curve(case, truth, answer),
    ]


def _about_plan(case: Case, truth: Truth, plan: Plan, name: str) -> Iterator[str]:
    """Whether it is a plan at all, costs what it says and keeps to the constraints."""
    index = case.problem.targets.index
    placements = [(segment.units, index(segment.target)) for segment in plan.segments]
    yield from _about_placements(case, truth, placements, plan.predicted_ns, name)
    for segment, (units, k) in zip(plan.segments, placements, strict=True):
        ns = float(truth.region_ns[mask_of(units), k])
        if not math.isclose(segment.predicted_ns, ns, rel_tol=EXACT):
            yield f"invalid: {name}: {units} on {k} takes {ns}, it says {segment.predicted_ns}"


def _about_placements(
    case: Case, truth: Truth, placements: Sequence[Placement], said_ns: float, name: str
) -> Iterator[str]:
    problem, constraints = case.problem, case.constraints
    try:
        check_plan(problem, placements)
    except AssertionError:
        yield f"invalid: {name}: {placements} is not a plan"
    regions = [(mask_of(set(units)), k) for units, k in placements]
    total_ns = sum(float(truth.region_ns[region]) for region in regions)
    if not (math.isfinite(total_ns) and math.isclose(said_ns, total_ns, rel_tol=EXACT)):
        yield f"invalid: {name}: takes {total_ns}, it says {said_ns}"
    accelerated = sum(problem.targets[k].engine is Engine.NNAPI for _, k in placements)
    if constraints.max_regions is not None and accelerated > constraints.max_regions:
        yield f"limit: {name}: {accelerated} regions, {constraints.max_regions} allowed"
    compile_ns = sum(float(truth.compile_ns[region]) for region in regions)
    limit_ns = constraints.max_compile_ns
    if limit_ns is not None and compile_ns > limit_ns * (1 + LIMIT_SLACK):
        yield f"limit: {name}: compiles in {compile_ns}, {limit_ns} allowed"


def _about_proof(answer: Partitioning, proof: Proof, optimum_ns: float) -> Iterator[str]:
    if not math.isclose(proof.least_ns, answer.best.predicted_ns, rel_tol=EXACT):
        yield f"proof: least {proof.least_ns}, the best plan takes {answer.best.predicted_ns}"
    if answer.default.proof != proof:
        yield f"proof: the default's is {answer.default.proof}, the best's {proof}"
    if proof.bound_ns > optimum_ns * (1 + EXACT):
        yield f"bound: {proof.bound_ns} by {proof.bounded_by} is above the optimum {optimum_ns}"
    if proof.kind is ProofKind.EXACT and proof.least_ns > optimum_ns * (1 + EXACT):
        yield f"exact: {proof.least_ns} by {proof.found_by} is not the optimum {optimum_ns}"
    if proof.kind is ProofKind.BOUND_MET and proof.least_ns > proof.bound_ns * (1 + MET):
        yield f"met: {proof.least_ns} does not meet its bound {proof.bound_ns}"
    if proof.kind is ProofKind.GAP and proof.least_ns <= proof.bound_ns * (1 + MET):
        yield f"gap: {proof.least_ns} meets its bound {proof.bound_ns}"


def _about_default(case: Case, truth: Truth, answer: Partitioning) -> Iterator[str]:
    """The fewest segments within the tolerance, and never slower than a baseline."""
    best_ns, ns = answer.best.predicted_ns, answer.default.predicted_ns
    limit_ns = best_ns * (1 + case.tolerance)
    if ns > limit_ns * (1 + EXACT):
        yield f"tolerance: {ns} is more than {case.tolerance:.0%} above the best, {best_ns}"
    if case.constraints != Constraints():
        return  # baselines need not keep to them
    # Every baseline has each unit run somewhere by itself.
    rivals = baselines(case.problem) if np.isfinite(case.problem.unit_ns).any(axis=1).all() else ()
    rival_ns = min((rival.predicted_ns for rival in rivals), default=math.inf)
    if ns > rival_ns * (1 + EXACT):
        yield f"rival: {ns} is slower than the fastest baseline, {rival_ns}"
    n_segments = len(answer.default.segments)
    fewer = [point for point in answer.curve if point.n_segments < n_segments]
    for least_ns in truth.least_ns[: n_segments - 1]:
        # A baseline itself is no slower than itself, in whatever order its costs are summed.
        suffices = least_ns <= min(limit_ns * (1 - EXACT), max(rival_ns, best_ns) * (1 + TIE))
        if suffices and len(fewer) == n_segments - 1 and all(point.exact for point in fewer):
            yield f"simplest: {n_segments} segments of the default, {least_ns} takes fewer"
            return


def _about_curve(case: Case, truth: Truth, answer: Partitioning) -> Iterator[str]:
    curve = answer.curve
    if not curve:
        yield "curve: it has no points"
        return
    if [p.n_segments for p in curve] != sorted({p.n_segments for p in curve}):
        yield f"curve: numbers of segments {[p.n_segments for p in curve]}"
    for point in curve:
        least_ns = float(truth.least_ns[min(point.n_segments, len(truth.least_ns)) - 1])
        name = f"of at most {point.n_segments} segments"
        yield from _about_placements(case, truth, point.placements, point.ns, name)
        if len(point.placements) > point.n_segments:
            yield f"curve: {len(point.placements)} {name}"
        if point.bound_ns > least_ns * (1 + EXACT):
            yield f"curve: bound {point.bound_ns} {name} is above the least {least_ns}"
        if point.exact and point.ns > least_ns * (1 + EXACT):
            yield f"curve: {point.ns} {name} is not the least {least_ns}"
    if not math.isclose(curve[-1].ns, answer.best.predicted_ns, rel_tol=EXACT):
        yield f"curve: it ends at {curve[-1].ns}, the best takes {answer.best.predicted_ns}"


# ---- on trial ----------------------------------------------------------------------------------

EXAMPLES = int(os.environ.get("NNAPI_PROF_EXAMPLES", "300"))
"""`make judge` sets 20,000."""
BATCH = 500

Judge = Callable[[int], list[str] | None]
"""Seed -> what is wrong; None where the draw has nothing to judge."""


def judge_plans(seed: int) -> list[str]:
    """Complaints about the answer to the random case ``seed``."""
    return judge(draw_case(f"1/{seed}"))


def on_trial(judges: Mapping[str, Judge], examples: int) -> None:
    """Judges so many random graphs of each kind, and exits with 1 where there are complaints."""
    failures: list[str] = []
    begin = int(os.environ.get("NNAPI_PROF_JUDGE_SEED", "1")) * 1_000_000
    with ProcessPoolExecutor(2, get_context("spawn")) as pool:
        for name, judged in judges.items():
            began, count = time.monotonic(), 0
            for first in itertools.count(begin, BATCH):
                seeds = range(first, first + BATCH)
                for seed, wrong in zip(seeds, pool.map(judged, seeds, chunksize=25), strict=True):
                    count += wrong is not None
                    failures += [f"{name} {seed}: {words}" for words in wrong or ()]
                seconds = time.monotonic() - began
                print(f"{name}: {count:,} graphs in {seconds:.0f} s, {len(failures)} complaints")
                if count >= examples:
                    break
    print("\n".join(failures[:40]))
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    on_trial({"plans": judge_plans}, EXAMPLES)
