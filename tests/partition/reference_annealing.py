"""The loops of annealing in Python: what ``partition/search/kernels/anneal.c`` does, step by step
and number by number. This is the one to read, and the judge of the other."""

from __future__ import annotations

import math

import numpy as np

from nnapi_prof.partition.arrays import AS_FLOAT, AS_INT8
from nnapi_prof.partition.search.annealing import STRETCH, Labelling, MoveTables

NOW, BEST = 0, 1
"""Places in ``Labelling.cost``."""


def draw(lb: Labelling) -> int:
    """A random number of 32 bits (Marsaglia, "Xorshift RNGs", J. Stat. Softw. 8, 2003)."""
    x = int(lb.random[0])
    x ^= (x << 13) & 0xFFFFFFFF
    x ^= x >> 17
    x ^= (x << 5) & 0xFFFFFFFF
    lb.random[0] = x
    return x


def below(lb: Labelling, most: int) -> int:
    """A random number from 0 to ``most`` - 1."""
    return (draw(lb) * int(most)) >> 32


def readers_in(tb: MoveTables, lb: Labelling, value: int, phase: int) -> int:
    """Units of a phase that read a value."""
    row = tb.counted[value]
    if row >= 0:
        return int(lb.n_readers[row, phase])
    readers = tb.readers[tb.reader_at[value] : tb.reader_at[value + 1]]
    return int(np.count_nonzero(lb.phase[readers] == phase))


def region_extra(tb: MoveTables, key: int, k: int) -> float:
    """ns that a set of units costs more as one segment than by its parts, where it was measured."""
    own = key ^ (k + 1)
    place = own & (len(tb.region_key) - 1)
    while tb.region_key[place] != 0:
        if tb.region_key[place] == own:
            return float(tb.region_ns[place])
        place = (place + 1) & (len(tb.region_key) - 1)
    return 0.0


def converting_ns(tb: MoveTables, value: int, there: int, n_int8: int) -> float:
    """What converting a value costs that is made in some format and that so many readers read as
    8-bit integers, in ns."""
    needed = int(tb.formats_out[value])
    if n_int8 > 0:
        needed |= AS_INT8
    if n_int8 < tb.reader_at[value + 1] - tb.reader_at[value]:
        needed |= AS_FLOAT
    lacking = needed & ~there
    ns = float(tb.to_int8_ns[value]) if lacking & AS_INT8 else 0.0
    return ns + float(tb.to_float_ns[value]) if lacking & AS_FLOAT else ns


def formats_made(tb: MoveTables, lb: Labelling, value: int) -> int:
    """Formats that a value is made in, as bits."""
    maker = tb.producer[value]
    if maker < 0:
        return int(tb.formats_in[value])
    return 1 << int(tb.format[tb.phase_target[lb.phase[maker]]])


def reformat(tb: MoveTables, lb: Labelling, u: int, fmt: int) -> float:
    """What conversions change by where unit u runs in a format instead of the other, in ns."""
    ns, more = 0.0, 1 if fmt else -1
    for e in tb.reads[tb.read_at[u] : tb.read_at[u + 1]]:
        value = tb.reader_value[e]
        there, n_int8 = formats_made(tb, lb, value), int(lb.n_int8[value])
        ns -= converting_ns(tb, value, there, n_int8)
        ns += converting_ns(tb, value, there, n_int8 + more)
    for value in tb.makes[tb.make_at[u] : tb.make_at[u + 1]]:
        n_int8 = int(lb.n_int8[value])
        ns -= converting_ns(tb, value, 1 << (1 - fmt), n_int8)
        ns += converting_ns(tb, value, 1 << fmt, n_int8)
    return ns


def change(tb: MoveTables, lb: Labelling, u: int, a: int, b: int) -> float:
    """What moving unit u from phase a to phase b changes, in ns."""
    ka, kb = int(tb.phase_target[a]), int(tb.phase_target[b])
    ns = float(tb.unit_ns[u, kb]) - float(tb.unit_ns[u, ka])
    if lb.n_units[a] == 1:
        ns -= float(tb.overhead_ns[ka])
    if lb.n_units[b] == 0:
        ns += float(tb.overhead_ns[kb])
    for e in tb.reads[tb.read_at[u] : tb.read_at[u + 1]]:
        value = tb.reader_value[e]
        maker = tb.producer[value]
        home = -1 if maker < 0 else lb.phase[maker]
        in_a, in_b = readers_in(tb, lb, value, a), readers_in(tb, lb, value, b)
        if home != a and in_a == 1:
            ns -= float(tb.in_ns[value, ka])
        if home != b and in_b == 0:
            ns += float(tb.in_ns[value, kb])
        if tb.is_output[value]:
            continue
        total = tb.reader_at[value + 1] - tb.reader_at[value]
        if home == a and in_a == total:
            ns += float(tb.out_ns[value, ka])
        if home == b and in_b + 1 == total:
            ns -= float(tb.out_ns[value, kb])
    for value in tb.makes[tb.make_at[u] : tb.make_at[u + 1]]:
        in_a, in_b = readers_in(tb, lb, value, a), readers_in(tb, lb, value, b)
        total = tb.reader_at[value + 1] - tb.reader_at[value]
        if in_a > 0:
            ns += float(tb.in_ns[value, ka])
        if in_b > 0:
            ns -= float(tb.in_ns[value, kb])
        if tb.is_output[value] or in_a < total:
            ns -= float(tb.out_ns[value, ka])
        if tb.is_output[value] or in_b < total:
            ns += float(tb.out_ns[value, kb])
    if len(lb.n_int8) and tb.format[ka] != tb.format[kb]:
        ns += reformat(tb, lb, u, int(tb.format[kb]))
    if len(tb.region_key) > 1:
        own = int(tb.unit_key[u])
        ns -= region_extra(tb, int(lb.key[a]), ka)
        ns -= region_extra(tb, int(lb.key[b]), kb)
        ns += region_extra(tb, int(lb.key[a]) ^ own, ka)
        ns += region_extra(tb, int(lb.key[b]) ^ own, kb)
    return ns


def move(tb: MoveTables, lb: Labelling, u: int, a: int, b: int) -> None:
    """Moves unit u from phase a to phase b."""
    lb.phase[u] = b
    lb.n_units[a] -= 1
    lb.n_units[b] += 1
    lb.key[a] ^= tb.unit_key[u]
    lb.key[b] ^= tb.unit_key[u]
    if len(lb.n_int8):
        more = tb.format[tb.phase_target[b]] - tb.format[tb.phase_target[a]]
        lb.n_int8[tb.reader_value[tb.reads[tb.read_at[u] : tb.read_at[u + 1]]]] += more
    for e in tb.reads[tb.read_at[u] : tb.read_at[u + 1]]:
        row = tb.counted[tb.reader_value[e]]
        if row >= 0:
            lb.n_readers[row, a] -= 1
            lb.n_readers[row, b] += 1


def earliest(tb: MoveTables, lb: Labelling, u: int) -> int:
    """The earliest phase that a unit may be in."""
    before = tb.predecessors[tb.predecessor_at[u] : tb.predecessor_at[u + 1]]
    return int(lb.phase[before].max(initial=0))


def latest(tb: MoveTables, lb: Labelling, u: int) -> int:
    """The latest phase that a unit may be in."""
    after = tb.successors[tb.successor_at[u] : tb.successor_at[u + 1]]
    return int(lb.phase[after].min(initial=len(tb.phase_target) - 1))


def proposed(tb: MoveTables, lb: Labelling, u: int, low: int, high: int) -> int:
    """A phase to move unit u to: that of a unit it shares a value with, a used one near its own, or
    any one near."""
    own, how = int(lb.phase[u]), below(lb, 16)
    if how < 9:
        n_read = int(tb.read_at[u + 1] - tb.read_at[u])
        n_made = int(tb.make_at[u + 1] - tb.make_at[u])
        if n_read + n_made == 0:
            return own
        which = below(lb, n_read + n_made)
        if which < n_read:
            value = tb.reader_value[tb.reads[tb.read_at[u] + which]]
        else:
            value = tb.makes[tb.make_at[u] + which - n_read]
        total = int(tb.reader_at[value + 1] - tb.reader_at[value])
        maker = tb.producer[value]
        other = below(lb, total + 1)
        if other == total:
            return own if maker < 0 else int(lb.phase[maker])
        return int(lb.phase[tb.readers[tb.reader_at[value] + other]])
    if how < 13:
        step = 1 if how % 2 else -1
        phase = own + step
        while low <= phase <= high:
            if lb.n_units[phase] > 0:
                return phase
            phase += step
        return own
    reach = 2 * (len(tb.overhead_ns) + 1)
    first, last = max(own - reach, low), min(own + reach, high)
    return first + below(lb, last - first + 1)


def accepts(lb: Labelling, ns: float, temperature: float) -> bool:
    """Metropolis' rule."""
    if ns <= 0:
        return True
    chance = draw(lb) * 2.0**-32
    return chance < math.exp(-ns / temperature)


def move_segment(tb: MoveTables, lb: Labelling, temperature: float) -> None:
    """Moves all units of one phase to another, or none."""
    n, n_phases = len(lb.phase), len(tb.phase_target)
    u = below(lb, n)
    a = int(lb.phase[u])
    reach = 2 * (len(tb.overhead_ns) + 1)
    first, last = max(0, a - reach), min(a + reach, n_phases - 1)
    b = first + below(lb, last - first + 1)
    if a == b:
        return
    kb = tb.phase_target[b]
    ns = 0.0
    moved: list[int] = []
    is_possible = True
    units = np.flatnonzero(lb.phase == a).tolist()
    for unit in units[::-1] if b > a else units:  # those that others wait for, last
        is_possible = bool(
            np.isfinite(tb.unit_ns[unit, kb])
            and earliest(tb, lb, unit) <= b
            and latest(tb, lb, unit) >= b
        )
        if not is_possible:
            break
        ns += change(tb, lb, unit, a, b)
        move(tb, lb, unit, a, b)
        moved.append(unit)
    if is_possible and accepts(lb, ns, temperature):
        lb.cost[NOW] += ns
        return
    for unit in moved[::-1]:
        move(tb, lb, unit, b, a)


def keep_best(lb: Labelling) -> None:
    """Notes the labelling where it is the best so far."""
    if lb.cost[NOW] < lb.cost[BEST]:
        lb.cost[BEST] = lb.cost[NOW]
        lb.best[:] = lb.phase


def anneal(tb: MoveTables, lb: Labelling, moves: int, hot: float, factor: float) -> None:
    """Tries so many moves of a unit, and now and then of a segment, at a temperature (in ns) that
    begins with ``hot`` and falls by ``factor`` every :data:`STRETCH` moves."""
    temperature = hot
    for i in range(moves):
        if i % STRETCH == STRETCH - 1:
            temperature *= factor
            keep_best(lb)
        if below(lb, 64) == 0:
            move_segment(tb, lb, temperature)
            continue
        u = below(lb, len(lb.phase))
        a = int(lb.phase[u])
        low, high = earliest(tb, lb, u), latest(tb, lb, u)
        b = proposed(tb, lb, u, low, high)
        if b == a or b < low or b > high:
            continue
        if not np.isfinite(tb.unit_ns[u, tb.phase_target[b]]):
            continue
        ns = change(tb, lb, u, a, b)
        if not accepts(lb, ns, temperature):
            continue
        move(tb, lb, u, a, b)
        lb.cost[NOW] += ns
    keep_best(lb)
