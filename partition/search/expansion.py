"""Plans as monotone labellings: one number for each unit.

Number the segments of a plan in order, with empty phases between them in which new segments can
begin, and give each phase a target. A plan is then one number per unit, its phase, which never
falls along a dependency; this inequality covers ideals and convexity. So moving a unit anywhere
between its latest predecessor and its earliest successor gives a legal plan, and changes only the
costs of its own values, and of a segment that begins or ends.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from nnapi_prof.partition.arrays import AS_FLOAT, AS_INT8, Arrays, Bools, Floats, Ints
from nnapi_prof.partition.baselines import total_ns
from nnapi_prof.partition.problem import Placement, Problem
from nnapi_prof.partition.search import Watch
from nnapi_prof.partition.search.minimum_cut import Network

REACH = 12
"""Largest distance of segments that are tried as one: each try checks all segments between."""


MOST_TO_JOIN = 200
"""Largest number of segments of a plan to join; with more, checking all pairs takes seconds."""


def labelling_of_plan(
    placements: Sequence[Placement], n_units: int, targets: Sequence[int]
) -> tuple[Ints, Ints]:
    """Returns the phase of each unit and the target of each phase, with an empty phase of each of
    the ``targets`` before, between and behind the segments."""
    phase = np.zeros(n_units, dtype=np.int64)
    phase_target: list[int] = list(targets)
    for units, k in placements:
        phase[list(units)] = len(phase_target)
        phase_target += [k, *targets]
    return phase, np.array(phase_target, dtype=np.int64)


def plan_of_labelling(phase: Ints, phase_target: Ints) -> tuple[Placement, ...]:
    """Returns the plan of a labelling."""
    order = np.argsort(phase, kind="stable")
    used, begin = np.unique(phase[order], return_index=True)
    return tuple(
        (tuple(sorted(units.tolist())), int(phase_target[number]))
        for number, units in zip(used, np.split(order, begin[1:]), strict=True)
    )


def join_segments(problem: Problem, placements: Sequence[Placement]) -> tuple[Placement, ...]:
    """Returns the plan with segments of one target joined where the order allows it and it costs no
    more."""
    phases = list(placements)
    if len(phases) > MOST_TO_JOIN:
        return tuple(phases)
    i = 0
    while i < len(phases):
        units, k = phases[i]
        for j in range(i + 1, min(len(phases), i + 1 + REACH)):
            others, other_k = phases[j]
            if other_k == k and _can_join(problem, phases[i : j + 1]):
                whole = tuple(sorted((*units, *others)))
                apart = problem.segment_ns(units, k) + problem.segment_ns(others, k)
                if problem.segment_ns(whole, k) <= apart:
                    # Segments between that depend on the first go behind the joined segment.
                    phases[i : j + 1] = _with_joined(problem, phases[i : j + 1], whole, k)
                    break
        else:
            i += 1
    return tuple(phases)


def _can_join(problem: Problem, stretch: Sequence[Placement]) -> bool:
    """Tells whether the first and the last segment can run as one: no segment between both reads
    from the first and is read by the last."""
    return _split_stretch(problem, stretch) is not None


def _split_stretch(
    problem: Problem, stretch: Sequence[Placement]
) -> tuple[list[Placement], list[Placement]] | None:
    """Returns the segments between that stay before, and those that go behind; None where one must
    do both."""
    behind_units = set(stretch[0][0])
    before: list[Placement] = []
    behind: list[Placement] = []
    for units, k in stretch[1:-1]:
        if any(p in behind_units for u in units for p in problem.predecessors[u]):
            behind_units.update(units)
            behind.append((units, k))
        else:
            before.append((units, k))
    behind_units -= set(stretch[0][0])
    if any(p in behind_units for u in stretch[-1][0] for p in problem.predecessors[u]):
        return None
    return before, behind


def _with_joined(
    problem: Problem, stretch: Sequence[Placement], whole: tuple[int, ...], k: int
) -> list[Placement]:
    split = _split_stretch(problem, stretch)
    assert split is not None
    before, behind = split
    return [*before, (whole, k), *behind]


def is_plan(problem: Problem, placements: Sequence[Placement]) -> bool:
    """Tells whether the segments run every unit once, each after its inputs."""
    done: set[int] = set()
    for units, _ in placements:
        inside = set(units)
        if not inside or inside & done or not inside <= set(range(problem.n)):
            return False
        done |= inside
        if any(p not in done for u in units for p in problem.predecessors[u]):
            return False
    return len(done) == problem.n


# Moves that are minimum cuts: for one phase, every unit either stays or moves there, all at once.
#
# All additive costs of a plan are submodular under such a move, so the best of the 2^n moves is a
# minimum s-t cut: an expansion move (Boykov, Veksler, Zabih, "Fast Approximate Energy Minimization
# via Graph Cuts", PAMI 23, 2001) with label costs for the overheads (Delong, Osokin, Isack, Boykov,
# "Fast Approximate Energy Minimization with Label Costs", IJCV 96, 2012). Regions measured whole
# are not submodular: a move is found by additive costs, and taken only if the true cost falls.


MOST_SWEEPS = 2
EMPTY_PHASES = 24
"""Number of empty phases tried in a sweep, besides all that hold units."""
STEPS_A_UNIT = 40
"""Effort of one move for each unit, about as measured against a move of one unit."""
_LEAST_GAIN = 1e-9


def expand(
    problem: Problem, placements: Sequence[Placement], watch: Watch
) -> tuple[Placement, ...]:
    """Returns the plan after sweeps of moves over all phases, until one gains nothing."""
    a = problem.arrays
    able = np.isfinite(a.unit_ns)
    targets = np.flatnonzero(able.any(axis=0)).tolist()
    plan = tuple(placements)
    now = total_ns(problem, plan)
    for sweep in range(MOST_SWEEPS):
        before = now
        phase, phase_target = labelling_of_plan(plan, a.n, targets)
        for g in _phases_of_sweep(phase, len(phase_target), sweep):
            if watch.is_over:
                return plan
            watch.spend(STEPS_A_UNIT * a.n)
            moved = _best_move(problem, phase, phase_target, g)
            if moved is None:
                continue
            candidate = plan_of_labelling(moved, phase_target)
            ns = total_ns(problem, candidate)
            if ns < now * (1 - _LEAST_GAIN):
                plan, now, phase = candidate, ns, moved
        if now >= before * (1 - 1e-6):
            break
    return plan


def _phases_of_sweep(phase: Ints, n_phases: int, seed: int) -> list[int]:
    """Returns the phases of a sweep: all that hold units, and some of the empty ones."""
    used = np.unique(phase)
    empty = np.setdiff1d(np.arange(n_phases), used)
    chance = np.random.default_rng((seed, n_phases))
    some = chance.permutation(empty)[:EMPTY_PHASES]
    return sorted([*used.tolist(), *some.tolist()])


def _best_move(problem: Problem, phase: Ints, phase_target: Ints, g: int) -> Ints | None:
    """Returns the labelling after the best move to phase g; None where no unit moves."""
    a = problem.arrays
    k = int(phase_target[g])
    own = phase_target[phase]
    staying, moving = a.unit_ns[np.arange(a.n), own], a.unit_ns[:, k]
    there = phase == g
    head = np.repeat(np.arange(a.n), np.diff(a.predecessor_at))
    tail = a.predecessors
    fixed = ~np.isfinite(moving) & ~there
    net = Network(a.n)
    unit = np.arange(a.n)
    # Source side: the unit stays. Sink side: it moves.
    leaving = a.out_ns[:, k]
    has_maker = a.producer >= 0
    output = has_maker & a.is_output
    stay_ns = np.where(np.isfinite(staying), staying, 0.0)
    move_ns = np.where(np.isfinite(moving), moving, 0.0)
    np.add.at(stay_ns, a.producer[output], a.out_ns[output, own[a.producer[output]]])
    np.add.at(move_ns, a.producer[output], leaving[output])
    # Values read elsewhere anyway are handed over if their maker stays.
    value = a.reader_value
    maker = a.producer[value]
    of_made = maker >= 0
    home = np.where(of_made, phase[np.maximum(maker, 0)], -1)
    far = (phase[a.readers] != home) & of_made
    is_far = np.zeros(len(a.producer), dtype=np.bool_)
    is_far[value[far]] = True
    hands_over = has_maker & ~a.is_output & (np.diff(a.reader_at) > 0)
    always = hands_over & is_far
    np.add.at(stay_ns, a.producer[always], a.out_ns[always, own[a.producer[always]]])
    net.terminal(unit[~there & ~fixed], move_ns[~there & ~fixed], stay_ns[~there & ~fixed])
    net.forbid_sink(unit[fixed])
    net.forbid_source(unit[there])
    # Order: f(p) <= f(u).
    net.forbid(head[phase[head] < g], tail[phase[head] < g])  # p moves, u stays
    net.forbid(tail[phase[tail] > g], head[phase[tail] > g])  # u moves, p stays
    used, place = np.unique(phase, return_inverse=True)
    overhead = a.overhead_ns[phase_target[used]]
    hub = net.nodes(len(used))
    # Another phase goes on costing its overhead while any of its units stays.
    others = used != g
    net.sink_arc(hub[others], overhead[others])
    net.forbid(unit[~there], hub[place[~there]])
    if not there.any() and a.overhead_ns[k] > 0:
        begun = net.nodes(1)
        net.source_arc(begun, a.overhead_ns[k : k + 1])
        net.forbid(np.repeat(begun, a.n), unit)
    _bring_in(net, problem, phase, phase_target, g, home)
    _hand_over(net, problem, own, k, hands_over & ~is_far, hands_over, there)
    if a.converts:
        _convert(net, a, a.format[own], int(a.format[k]))
    moves = net.sink_side()
    if moves is None:
        return None
    moves = moves[: a.n] & ~there
    if not moves.any():
        return None
    return np.where(moves, g, phase)


def _bring_in(
    net: Network, problem: Problem, phase: Ints, phase_target: Ints, g: int, home: Ints
) -> None:
    """Adds values brought into phases: into another while a reader stays and the maker is
    elsewhere, into g where a reader moves and the maker stays."""
    a = problem.arrays
    k = int(phase_target[g])
    value, reader = a.reader_value, a.readers
    at = phase[reader]
    target = phase_target[at]
    paid = (a.in_ns[value, target] > 0) & (at != g)
    pairs, which = np.unique(value[paid] * len(phase_target) + at[paid], return_inverse=True)
    hub = net.nodes(len(pairs))
    net.forbid(reader[paid], hub[which])
    v, q = pairs // len(phase_target), pairs % len(phase_target)
    ns = a.in_ns[v, phase_target[q]]
    maker = a.producer[v]
    at_home = (maker >= 0) & (phase[np.maximum(maker, 0)] == q)
    net.sink_arc(hub[~at_home], ns[~at_home])
    net.arc(hub[at_home], maker[at_home], ns[at_home])
    paid = (a.in_ns[value, k] > 0) & (home != g)
    values, which = np.unique(value[paid], return_inverse=True)
    hub = net.nodes(len(values))
    net.forbid(hub[which], reader[paid])
    maker = a.producer[values]
    inputs = maker < 0
    net.source_arc(hub[inputs], a.in_ns[values[inputs], k])
    net.arc(maker[~inputs], hub[~inputs], a.in_ns[values[~inputs], k])


def _hand_over(
    net: Network,
    problem: Problem,
    own: Ints,
    k: int,
    all_near: np.ndarray,
    handed: np.ndarray,
    there: np.ndarray,
) -> None:
    """Adds values handed over: by a maker that stays where a reader of its phase moves away, by one
    that moves where a reader stays."""
    a = problem.arrays
    value, reader = a.reader_value, a.readers
    # ``all_near``: every reader is in the maker's phase now.
    chosen = all_near[value] & (a.out_ns[value, own[np.maximum(a.producer[value], 0)]] > 0)
    chosen &= ~there[np.maximum(a.producer[value], 0)]
    values, which = np.unique(value[chosen], return_inverse=True)
    hub = net.nodes(len(values))
    net.forbid(hub[which], reader[chosen])
    net.arc(a.producer[values], hub, a.out_ns[values, own[a.producer[values]]])
    chosen = handed[value] & (a.out_ns[value, k] > 0)
    values, which = np.unique(value[chosen], return_inverse=True)
    hub = net.nodes(len(values))
    net.forbid(reader[chosen], hub[which])
    net.arc(hub, a.producer[values], a.out_ns[values, k])


def _convert(net: Network, a: Arrays, own: Ints, moving: int) -> None:
    """Adds conversions of values. ``own`` is [n], the format of each unit where it stays,
    ``moving`` that of the moving units. Units of that format keep it in either case."""
    keeps = own == moving
    sides = ((a.to_int8_ns, AS_INT8, 1), (a.to_float_ns, AS_FLOAT, 0))
    for ns, bit, fmt in sides:
        there = np.where(a.producer >= 0, own[np.maximum(a.producer, 0)] == fmt, False)
        there |= a.formats_in & bit != 0
        is_read = a.formats_out & bit != 0
        if fmt == moving:
            # Read in that format already, or outside: paid where the maker stays.
            is_read[a.reader_value[keeps[a.readers]]] = True
            _convert_for_movers(net, a, np.where(there, 0.0, ns), is_read, ~keeps[a.readers])
        else:
            is_maker_fixed = (a.producer < 0) | keeps[np.maximum(a.producer, 0)]
            is_free = is_maker_fixed & (is_read | (a.formats_in & bit != 0))
            paid = np.where(is_free, 0.0, ns)
            _convert_for_stayers(net, a, paid, is_read, is_maker_fixed, ~keeps[a.readers])


def _convert_for_movers(
    net: Network, a: Arrays, ns: Floats, is_read: Bools, may_read: Bools
) -> None:
    """Adds conversions to the format of moving units: paid where the maker stays, and the value is
    read in that format anyway, or one of its readers (``may_read``, [readings]) moves."""
    has_maker = a.producer >= 0
    always = np.flatnonzero(is_read & has_maker & (ns > 0))
    net.sink_arc(a.producer[always], ns[always])
    chosen = may_read & ((ns > 0) & ~is_read)[a.reader_value]
    values, which = np.unique(a.reader_value[chosen], return_inverse=True)
    hub = net.nodes(len(values))
    net.forbid(hub[which], a.readers[chosen])
    of_unit = has_maker[values]
    net.arc(a.producer[values[of_unit]], hub[of_unit], ns[values[of_unit]])
    net.source_arc(hub[~of_unit], ns[values[~of_unit]])


def _convert_for_stayers(
    net: Network, a: Arrays, ns: Floats, is_read: Bools, is_maker_fixed: Bools, may_read: Bools
) -> None:
    """Adds conversions to the other format: paid where the maker has the format of moving units,
    and the value is read outside, or one of its readers (``may_read``, [readings]) stays."""
    always = np.flatnonzero(is_read & ~is_maker_fixed & (ns > 0))
    net.source_arc(a.producer[always], ns[always])
    chosen = may_read & ((ns > 0) & ~is_read)[a.reader_value]
    values, which = np.unique(a.reader_value[chosen], return_inverse=True)
    hub = net.nodes(len(values))
    net.forbid(a.readers[chosen], hub[which])
    fixed = is_maker_fixed[values]
    net.sink_arc(hub[fixed], ns[values[fixed]])
    net.arc(hub[~fixed], a.producer[values[~fixed]], ns[values[~fixed]])
