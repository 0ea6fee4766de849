"""The exact programme for sequential latency: labels over ideals, one unit at a time.

A plan that runs segments one after another executes units in some topological order. What such an
execution will still cost depends on little of its past:

* the ideal (downward-closed set) of the units that have run,
* the target of the segment that is open,
* for each value that is alive (made or a graph input, and still to be read): whether it is present
  in the open segment, so that reading it again is free; and whether it was made there and not
  handed over yet, so that ending the segment before its last reader costs its way out.

That is a label. Executing a ready unit on the open target, or ending the segment and opening
another, leads from label to label, and the cheapest way to the full set is the optimum over all
plans with convex segments. The idea of searching over ideals is that of Tarnawski et al.,
"Efficient Algorithms for Device Placement of DNN Graph Operators" (NeurIPS 2020), whose programme
tries all pairs of ideals as segments; growing segments unit by unit needs each ideal once for each
way its alive values can stand, of which a network has few. Where a graph narrows to one value (an
articulation point) there is one ideal, and what lies before it is settled: chains and series of
blocks fall apart by themselves.

Labels are pruned where their cost and a lower bound of the rest exceed a known plan's latency, and
where ending the segment and opening it again would be no dearer. Where a level (ideals of one
size) still holds more labels than allowed, those of the best bound are kept, and the least bound
among the others is reported: no plan is faster than that.

Regions that were measured whole cost what was measured. A faster one is a step of its own, from
one ideal to another; a slower one must not be had for the price of its parts, so labels remember
whether they may become it. Only those slower regions are watched that a search without them ran
into: it is repeated until it runs into no more.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Collection, Iterable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from nnapi_prof.partition.ground import SLACK, Ground, Region
from nnapi_prof.partition.ideals import mask, members
from nnapi_prof.partition.labels import (
    OPENED,
    Floats,
    Ints,
    Labels,
    Watch,
    cheapest_of_each,
    closing_costs,
    executed,
    joined,
    opened,
)
from nnapi_prof.partition.levels import JUMP, Jump, Level, trace
from nnapi_prof.partition.limits import Found, Limits
from nnapi_prof.partition.problem import Placement, Problem


class Searcher:
    """Searches of one problem, under one limit after the other.

    ``known`` are regions that cost more whole than by their parts and that searches of a problem
    like this one ran into: they are watched from the start. What is found does not depend on them,
    but for the choice among plans of equal latency.
    """

    def __init__(self, problem: Problem, known: Iterable[Region] = ()) -> None:
        self._ground = Ground(problem)
        self._watched = {
            region: ns for region in known if (ns := self._ground.slower.get(region)) is not None
        }

    @property
    def watched(self) -> Collection[Region]:
        """The regions that the searches so far ran into, and the known ones."""
        return self._watched.keys()

    def search(self, limits: Limits | None = None) -> Found:
        """The cheapest plan within ``limits``."""
        while True:
            found = _Search(self._ground, limits or Limits(), self._watched).run()
            met = {
                region: self._ground.slower[region]
                for region in ((frozenset(units), k) for units, k in found.placements)
                if region not in self._watched and region in self._ground.slower
            }
            if not met:
                return found
            self._watched |= met


def search(problem: Problem, limits: Limits | None = None) -> Found:
    """The cheapest plan within ``limits``."""
    return Searcher(problem).search(limits)


class _Search:
    def __init__(self, ground: Ground, limits: Limits, watched: Mapping[Region, float]) -> None:
        problem = ground.problem
        self._problem = problem
        self._limits = limits
        self._tables = ground.tables
        self._watch = Watch.of(problem, watched)
        # Finite, so that no infinite cost is within it.
        self._bound = min(limits.upper_bound * (1 + SLACK), sys.float_info.max)
        self._needs = ground.needs
        self._follow = ground.follow
        self._share = ground.share
        self._total_share = float(sum(self._share))
        self._opening = problem.overhead_ns + limits.segment_penalty
        t = len(problem.targets)
        counted = range(t) if limits.counted is None else limits.counted
        self._counts = np.array([k in counted for k in range(t)], dtype=np.int64)
        self._layers = 1 if limits.max_segments is None else limits.max_segments + 1
        self._whole = ground.whole
        self._jumps: list[Jump] = []
        self._arriving: dict[int, dict[tuple[int, int], int]] = {}
        self._levels: list[Level] = []
        self._left_out = math.inf
        self._work = 0
        self._n_labels = 0

    def run(self) -> Found:
        n = self._problem.n
        level = self._level([0], [mask(u for u in range(n) if not self._needs[u])], [0.0])
        labels: Labels | None = None
        for size in range(n + 1):
            self._levels.append(level)
            self._close(level, labels, size)
            if size == n:
                break
            if self._work > self._limits.max_work:
                return self._give_up(level, labels)
            self._jump(level, size)
            labels, ideals, ready, shares = self._grow(level, labels)
            for ideal, _ in self._arriving.get(size + 1, ()):
                if ideal not in ideals:
                    ideals[ideal] = len(ideals)
                    ready.append(self._ready_after(ideal))
                    shares.append(sum(self._share[u] for u in members(ideal)))
            level = self._level(list(ideals), ready, shares)
        if labels is not None:
            level.labels = labels.record()
        best = float(level.closed_ns.min(initial=math.inf))
        if not math.isfinite(best) or best > self._bound:
            return self._found((), self._limits.upper_bound)
        return self._found(trace(self._levels, self._jumps), best)

    def _found(self, placements: tuple[Placement, ...], least: float) -> Found:
        return Found(
            placements=placements,
            bound_ns=min(least, self._left_out),
            n_ideals=sum(len(level.ideals) for level in self._levels),
            n_labels=self._n_labels,
            work=self._work,
            exact=self._left_out >= least * (1 - SLACK),
        )

    def _give_up(self, level: Level, labels: Labels | None) -> Found:
        """Every plan that was not left out yet goes on from here, or jumps over this level."""
        rest = self._rest(level.done_share)
        bounds = [np.repeat(rest, self._layers) + level.closed_ns]
        if labels is not None:
            bounds.append(labels.cost + rest[labels.ideal])
        least = min(float(b.min(initial=math.inf)) for b in bounds)
        for landed in self._arriving.values():
            for (ideal, _), number in landed.items():
                share = sum(self._share[u] for u in members(ideal))
                least = min(least, self._jumps[number].ns + self._beyond(share))
        self._left_out = min(self._left_out, least)
        return self._found((), self._limits.upper_bound)

    def _level(self, ideals: list[int], ready: list[int], shares: list[float]) -> Level:
        count = len(ideals) * self._layers
        return Level(
            ideals,
            ready,
            shares,
            np.full(count, np.inf),
            np.zeros(count, dtype=np.int64),
            np.full(count, OPENED, dtype=np.int64),
        )

    def _rest(self, shares: list[float]) -> Floats:
        """Lower bounds of what remains after ideals whose shares are done."""
        return np.array([self._beyond(share) for share in shares], dtype=np.float64)

    def _beyond(self, share: float) -> float:
        """A lower bound of what remains after an ideal whose share is done."""
        return max(self._total_share - share, 0.0) * (1 - SLACK)

    def _ready_after(self, ideal: int) -> int:
        return mask(
            u
            for u, needs in enumerate(self._needs)
            if not ideal >> u & 1 and needs & ideal == needs
        )

    # ---- regions measured whole --------------------------------------------------------------

    def _jump(self, level: Level, size: int) -> None:
        """Lets regions measured whole run after closed ideals."""
        if not self._whole:
            return
        for slot in np.flatnonzero(np.isfinite(level.closed_ns)).tolist():
            j = slot // self._layers
            ideal = level.ideals[j]
            for first in members(level.ready[j]):
                for region, needs, k, ns in self._whole.get(first, ()):
                    if not region & ideal and not needs & ~ideal:
                        self._land(level, size, slot, region, k, ns)

    def _land(self, level: Level, size: int, slot: int, region: int, k: int, ns: float) -> None:
        j = slot // self._layers
        total = float(level.closed_ns[slot]) + ns + self._limits.segment_penalty
        segments = int(level.closed_segments[slot] + self._counts[k])
        share = level.done_share[j] + sum(self._share[u] for u in members(region))
        if total + self._beyond(share) > self._bound:
            return
        if self._limits.max_segments is not None and segments > self._limits.max_segments:
            return
        landed = self._arriving.setdefault(size + region.bit_count(), {})
        where = (level.ideals[j] | region, segments if self._layers > 1 else 0)
        there = self._jumps[landed[where]] if where in landed else None
        if there is None or (total, segments) < (there.ns, there.segments):
            landed[where] = len(self._jumps)
            self._jumps.append(Jump(size, slot, region, k, total, segments))

    # ---- a level -----------------------------------------------------------------------------

    def _close(self, level: Level, labels: Labels | None, size: int) -> None:
        """How each ideal is left best with no segment open."""
        if size == 0:
            level.closed_ns[0] = 0.0
        if labels is not None:
            closing = closing_costs(self._tables, self._watch, labels)
            slot = labels.ideal * self._layers
            if self._layers > 1:
                slot = slot + labels.segments
            order = np.lexsort((labels.segments, closing, slot))
            ordered = slot[order]
            first = order[np.concatenate([[True], ordered[1:] != ordered[:-1]])]
            level.closed_ns[slot[first]] = closing[first]
            level.closed_segments[slot[first]] = labels.segments[first]
            level.closed_by[slot[first]] = first
        landed = self._arriving.pop(size, None)
        if not landed:
            return
        index = {ideal: j for j, ideal in enumerate(level.ideals)}
        for (ideal, layer), number in landed.items():
            jump, at = self._jumps[number], index[ideal] * self._layers + layer
            if jump.ns < level.closed_ns[at]:
                level.closed_ns[at] = jump.ns
                level.closed_segments[at] = jump.segments
                level.closed_by[at] = JUMP - number

    def _grow(
        self, level: Level, labels: Labels | None
    ) -> tuple[Labels | None, dict[int, int], list[int], list[float]]:
        """The labels of the next level, with its ideals, their ready units and shares."""
        rest = self._rest(level.done_share)
        fresh = self._open(level, labels, rest)
        alive = fresh if labels is None else joined([labels, fresh])
        keep = np.ones(len(alive), dtype=np.bool_)
        if labels is not None:
            keep[: len(labels)] = self._worth_keeping(level, labels, fresh)
        level.labels = alive.record()
        rows = self._within_room(alive, np.flatnonzero(keep), rest)
        self._n_labels += len(rows)
        return self._execute(level, alive, rows)

    def _open(self, level: Level, labels: Labels | None, rest: Floats) -> Labels:
        """Segments that begin after closed ideals, but where going on is no dearer."""
        t = len(self._problem.targets)
        ns = level.closed_ns[:, None] + self._opening
        useful = ns + np.repeat(rest, self._layers)[:, None] <= self._bound
        if self._limits.max_segments is not None:
            segments = level.closed_segments[:, None] + self._counts
            useful &= segments <= self._limits.max_segments
        elif labels is not None:
            # Handing over all that is pending leaves a label nothing that a new segment lacks.
            out = self._problem.out_ns_per_byte[labels.target]
            going_on = labels.cost + labels.pending_bytes * out
            if self._watch.regions:
                going_on[labels.may_become.any(axis=1)] = np.inf
            cheapest = np.full(ns.size, np.inf)
            np.minimum.at(cheapest, labels.ideal * t + labels.target, going_on)
            useful &= cheapest.reshape(ns.shape) > ns
        slot, target = np.nonzero(useful)
        return opened(
            self._tables,
            self._watch,
            slot // self._layers,
            target,
            ns[useful],
            level.closed_segments[slot] + self._counts[target],
            slot,
            level.ideals,
        )

    def _worth_keeping(self, level: Level, labels: Labels, fresh: Labels) -> NDArray[np.bool_]:
        """Labels that are cheaper than ending the segment and opening it again, with every value
        that is present brought in anew."""
        if self._limits.max_segments is not None:
            return np.ones(len(labels), dtype=np.bool_)
        k = labels.target
        again = level.closed_ns[labels.ideal] + self._opening[k]
        again += labels.held_bytes * self._problem.in_ns_per_byte[k]
        is_open = np.zeros((len(level.ideals), len(self._problem.targets)), dtype=np.bool_)
        is_open[fresh.ideal, fresh.target] = True
        tied = is_open[labels.ideal, k] & (labels.cost == again)
        keep: NDArray[np.bool_] = (labels.cost <= again) & ~tied
        if self._watch.regions:  # a new segment may become a region that costs more whole
            keep |= self._watch.on[k].any(axis=1)
        return keep

    def _within_room(self, labels: Labels, rows: Ints, rest: Floats) -> Ints:
        """The labels of best bound, as many as allowed; notes the best of the others."""
        if len(rows) <= self._limits.max_labels:
            return rows
        bound = labels.cost[rows] + rest[labels.ideal[rows]]
        order = np.argsort(bound, kind="stable")
        self._left_out = min(self._left_out, float(bound[order[self._limits.max_labels]]))
        return np.sort(rows[order[: self._limits.max_labels]])

    def _execute(
        self, level: Level, labels: Labels, rows: Ints
    ) -> tuple[Labels | None, dict[int, int], list[int], list[float]]:
        ideals: dict[int, int] = {}
        ready: list[int] = []
        shares: list[float] = []
        groups = np.flatnonzero(np.bincount(labels.ideal[rows], minlength=len(level.ideals)))
        by_unit: dict[int, list[int]] = {}
        for j in groups.tolist():
            for u in members(level.ready[j]):
                by_unit.setdefault(u, []).append(j)
        parts: list[Labels] = []
        position = np.zeros(len(level.ideals), dtype=np.int64)
        for u, among in by_unit.items():
            self._work += len(among)
            children = [self._child(level, j, u, ideals, ready, shares) for j in among]
            chosen = rows
            if len(among) < len(groups):
                inside = np.zeros(len(level.ideals), dtype=np.bool_)
                inside[among] = True
                chosen = rows[inside[labels.ideal[rows]]]
            cost = labels.cost[chosen] + self._problem.unit_ns[u, labels.target[chosen]]
            rest = [self._beyond(shares[c]) for c, _ in children]
            last = [
                [not value.readers & ~bigger for _, bigger in children]
                for value in self._tables.reads[u]
            ]
            child: Ints | int
            done: Sequence[NDArray[np.bool_] | np.bool_]
            if len(among) == 1:  # the rule, where a graph is narrow: nothing to look up
                chosen = chosen[cost + rest[0] <= self._bound]
                child, done = children[0][0], [np.bool_(one) for (one,) in last]
            else:
                position[among] = np.arange(len(among))
                place = position[labels.ideal[chosen]]
                good = cost + np.array(rest)[place] <= self._bound
                chosen, place = chosen[good], place[good]
                child = np.array([c for c, _ in children], dtype=np.int64)[place]
                done = [np.array(each)[place] for each in last]
            if not len(chosen):
                continue
            self._work += len(chosen)
            made = executed(self._tables, self._watch, labels, chosen, u, child, done)
            parts.append(made)
        if not parts:
            return None, ideals, ready, shares
        made = joined(parts)
        best = cheapest_of_each(made, self._limits.max_segments is not None)
        return made.take(best), ideals, ready, shares

    def _child(
        self,
        level: Level,
        j: int,
        u: int,
        ideals: dict[int, int],
        ready: list[int],
        shares: list[float],
    ) -> tuple[int, int]:
        """Index in the next level, and the set itself, of an ideal with one more unit."""
        bit = 1 << u
        bigger = level.ideals[j] | bit
        index = ideals.get(bigger)
        if index is None:
            index = ideals[bigger] = len(ideals)
            now = level.ready[j] ^ bit
            for s in self._follow[u]:
                if self._needs[s] & bigger == self._needs[s]:
                    now |= 1 << s
            ready.append(now)
            shares.append(level.done_share[j] + self._share[u])
        return index, bigger
