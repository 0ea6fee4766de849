"""Prices of the lanes' time, from the linear relaxation in the place of the exact search.

Where the search for one plan takes seconds, asking it for every column costs too much. The
relaxation of the same problem (:mod:`.search.relaxation`) takes a tenth of a second; under prices
that are best for it, few searches are left to do. Its bounds hold for mixtures, too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from nnapi_prof.partition.arrays import Floats
from nnapi_prof.partition.baselines import merge_by_target
from nnapi_prof.partition.lanes import Lanes, priced
from nnapi_prof.partition.problem import Placement, Problem
from nnapi_prof.partition.search.relaxation import relax
from nnapi_prof.partition.search.result import Watch

MOST_ROUNDS = 25
CLOSE = 1e-4
"""Relative gap of the relaxed mixture that is not worth another round."""
SHARE_OF_TIME = 0.3
"""Of what is left, at most."""

Mix = Callable[[Sequence[Floats]], tuple[float, Floats]]
"""Loads of plans -> the least time of a mixture of these, and the prices that prove it."""


def lp_lane_duals(
    problem: Problem,
    lanes: Lanes,
    loads: Sequence[Floats],
    mix: Mix,
    offer: Callable[[Sequence[Placement]], object],
    watch: Watch,
) -> tuple[Floats, float] | None:
    """The prices under which the relaxation's bound is highest, and that bound, in ns; None where
    no relaxation was solved.

    ``loads`` are those of known plans; ``offer`` is told plans that the relaxation rounds to.
    """
    ends = watch.elapsed_s + watch.seconds_left * SHARE_OF_TIME
    points = list(loads)
    best: tuple[Floats, float] | None = None
    runs = np.isfinite(problem.unit_ns)
    for _ in range(MOST_ROUNDS):
        ns, prices = mix(points)
        if best is not None and best[1] >= ns * (1 - CLOSE):
            break
        relaxation = relax(priced(problem, lanes, prices), ends - watch.elapsed_s)
        if relaxation is None:
            break
        if best is None or relaxation.bound_ns > best[1]:
            best = prices, relaxation.bound_ns
        if runs.any(axis=1).all():
            share = np.where(runs, relaxation.share, -1.0)
            offer(merge_by_target(problem, share.argmax(axis=1).tolist()))
        point = _loads_of_shares(problem, lanes, relaxation.share)
        told = float(prices @ point)
        if told <= 0.0 or watch.interrupted or watch.elapsed_s >= ends:
            break
        points.append(point * (relaxation.bound_ns / told))
    return best


def _loads_of_shares(problem: Problem, lanes: Lanes, share: Floats) -> Floats:
    """[lanes], ns: what units that run in shares ([n, t]) on several targets load the lanes with,
    about: overheads and regions measured whole are left out."""
    a = problem.arrays
    own = np.where(np.isfinite(a.unit_ns), a.unit_ns, 0.0) * share
    by_target = own.sum(axis=0)
    maker = a.producer[a.reader_value]
    made = np.where(maker[:, None] >= 0, share[np.maximum(maker, 0)], 0.0)
    enters, leaves = np.zeros_like(a.in_ns), np.zeros_like(a.out_ns)
    np.maximum.at(enters, a.reader_value, share[a.readers] - made)
    np.maximum.at(leaves, a.reader_value, made - share[a.readers])
    outputs = a.is_output & (a.producer >= 0)
    leaves[outputs] = share[a.producer[outputs]]
    moved = (enters * a.in_ns + leaves * a.out_ns).sum(axis=0)
    loads = np.zeros(lanes.count)
    np.add.at(loads, lanes.of_target, by_target + moved)
    if lanes.mover >= 0:
        loads[lanes.mover] += moved[lanes.of_target != lanes.mover].sum()
    return loads
