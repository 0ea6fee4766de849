"""Ideals: downward-closed sets of a DAG, as Python ints whose bit u is unit u.

A plan that runs segments one after another is a chain of ideals, empty set to all units; the
segments are the differences, and each difference of two ideals is convex.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from nnapi_prof.partition.problem import Problem


def mask(units: Iterable[int]) -> int:
    """A set of units as bits."""
    bits = 0
    for u in units:
        bits |= 1 << u
    return bits


def members(bits: int) -> tuple[int, ...]:
    """Bits as units, ascending."""
    found = []
    while bits:
        low = bits & -bits
        found.append(low.bit_length() - 1)
        bits ^= low
    return tuple(found)


def enumerate_ideals(problem: Problem, limit: int) -> list[int] | None:
    """All ideals, by size and then value; None as soon as there are more than ``limit``.

    Grows each ideal by each unit that is ready, level by level: O(ideals x width).
    """
    needs = [mask(preds) for preds in problem.predecessors]
    level: dict[int, int] = {0: mask(u for u in range(problem.n) if not needs[u])}
    found = [0]
    for _ in range(problem.n):
        grown: dict[int, int] = {}
        for ideal, ready in level.items():
            rest = ready
            while rest:
                bit = rest & -rest
                rest ^= bit
                bigger = ideal | bit
                if bigger in grown:
                    continue
                now_ready = ready ^ bit
                for s in problem.successors[bit.bit_length() - 1]:
                    if needs[s] & bigger == needs[s]:
                        now_ready |= 1 << s
                grown[bigger] = now_ready
                if len(found) + len(grown) > limit:
                    return None
        found += sorted(grown)
        level = grown
    return found


def depth_first_order(problem: Problem) -> list[int]:
    """A topological order that ends one branch before it begins the next.

    Post-order of a depth-first walk from the last units back through what they read, longest
    chain first.
    """
    depth = [0] * problem.n
    for u, preds in enumerate(problem.predecessors):
        depth[u] = 1 + max((depth[p] for p in preds), default=0)
    order: list[int] = []
    seen: set[int] = set()
    sinks = [u for u in range(problem.n) if not problem.successors[u]]
    for sink in sinks:
        stack = [(sink, False)]
        while stack:
            u, expanded = stack.pop()
            if expanded:
                order.append(u)
            elif u not in seen:
                seen.add(u)
                stack.append((u, True))
                shallow_first = sorted(problem.predecessors[u], key=lambda p: depth[p])
                stack += [(p, False) for p in shallow_first]
    return order


def breadth_first_order(problem: Problem) -> list[int]:
    """A topological order by distance from the inputs."""
    depth = [0] * problem.n
    for u, preds in enumerate(problem.predecessors):
        depth[u] = 1 + max((depth[p] for p in preds), default=0)
    return sorted(range(problem.n), key=lambda u: (depth[u], u))


def chain_ideals(steps: Iterable[Sequence[int]]) -> list[int]:
    """The ideals passed when sets of units run one after another."""
    ideals = [0]
    for units in steps:
        ideals.append(ideals[-1] | mask(units))
    return ideals


def linear_ideals(problem: Problem) -> list[int]:
    """Ideals of three linear orders (the graph's, depth first, breadth first), by size."""
    found: set[int] = set()
    for order in (
        list(range(problem.n)),
        depth_first_order(problem),
        breadth_first_order(problem),
    ):
        found.update(chain_ideals([u] for u in order))
    return sort_ideals(found)


def sort_ideals(ideals: Iterable[int]) -> list[int]:
    """By size and then value, each once: a set stands after all its subsets."""
    return sorted(set(ideals), key=lambda i: (i.bit_count(), i))
