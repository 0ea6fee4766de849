"""The loops of the exact programme in Python: what ``partition/search/kernels/ideals.c`` does, step
by step. This is the one to read, and the judge of the other."""

from __future__ import annotations

import numpy as np

from nnapi_prof.partition.arrays import AS_FLOAT, AS_INT8, WORD, Ints
from nnapi_prof.partition.search.tables import (
    BEGIN,
    CLOSE,
    DONE,
    EXPAND,
    GROW_IDEALS,
    GROW_JUMPS,
    GROW_LABELS,
    GROW_READY,
    GROW_RECORDS,
    IDEAL,
    LANDINGS,
    LEFT_OUT,
    LEVEL,
    OPEN,
    PAUSED,
    RECORDS,
    STAGE,
    UPPER,
    WIDTH,
    WORK,
    SearchState,
    Tables,
)


def has(bits: Ints, number: int) -> bool:
    """Whether a set holds a number."""
    return bool((bits[number // WORD] >> (number % WORD)) & 1)


def formats_lacking(tb: Tables, st: SearchState, c: int, a: int, b: int) -> float:
    """ns after which label a has every value in all formats in which b has it."""
    cost = 0.0
    slot_value = st.slot_value[c, st.labels[c, a].ideal]
    for word in range(st.as_float.shape[2]):
        floats = int(st.as_float[c, b, word] & ~st.as_float[c, a, word])
        int8s = int(st.as_int8[c, b, word] & ~st.as_int8[c, a, word])
        first = word * WORD
        for slot in range(first, min(len(slot_value), first + WORD)):
            if (floats >> (slot - first)) & 1:
                cost += float(tb.to_float_ns[slot_value[slot]])
            if (int8s >> (slot - first)) & 1:
                cost += float(tb.to_int8_ns[slot_value[slot]])
    return cost


def dominates(tb: Tables, st: SearchState, c: int, a: int, b: int) -> bool:
    """Whether label a makes b superfluous: it costs no more, even after bringing in what only b has
    present, handing over what only a owes, and ending with a single unit where b does not. Both
    stand at one ideal, with one target open."""
    cost = st.labels[c, a].cost
    most = st.labels[c, b].cost
    if cost > most:
        return False
    for r in range(tb.budget.shape[0]):
        if st.use[c, a, r] > st.use[c, b, r]:
            return False
    if (st.labels[c, a].watch & ~st.labels[c, b].watch) != 0:
        return False
    if st.as_float.shape[2]:
        cost += formats_lacking(tb, st, c, a, b)
        if cost > most:
            return False
    k = st.labels[c, a].target
    if k == tb.overhead_ns.shape[0]:
        return True
    first = st.labels[c, a].n_units
    if first == 0 and st.labels[c, b].n_units > 0:
        cost += tb.most_alone_ns[k]
    elif first == 1:
        alike = st.labels[c, b].n_units == 1 and st.labels[c, b].unit == st.labels[c, a].unit
        if not alike:
            cost += tb.alone_ns[st.labels[c, a].unit, k]
    if cost > most:
        return False
    ideal = st.labels[c, a].ideal
    n_slots = st.slot_value.shape[2]
    for word in range(st.present.shape[2]):
        lacking = st.present[c, b, word] & ~st.present[c, a, word]
        owing = st.owed[c, a, word] & ~st.owed[c, b, word]
        if lacking == 0 and owing == 0:
            continue
        first = word * WORD
        for slot in range(first, min(n_slots, first + WORD)):
            if ((lacking >> (slot - first)) & 1) == 1:
                cost += tb.in_ns[st.slot_value[c, ideal, slot], k]
            if ((owing >> (slot - first)) & 1) == 1:
                cost += tb.out_ns[st.slot_value[c, ideal, slot], k]
        if cost > most:
            return False
    return True


def settle(tb: Tables, st: SearchState, c: int) -> bool:
    """Keeps the label that was written behind the others, or not: by its bound, budgets and the
    labels that stand alike. Labels that it makes superfluous go."""
    new = st.n_labels[c]
    ideal, k = st.labels[c, new].ideal, st.labels[c, new].target
    ahead = st.ideals[c, ideal].rest + st.labels[c, new].saved + st.labels[c, new].formats
    if k < tb.overhead_ns.shape[0]:
        ahead += st.joining[c, ideal, k]
    reach = st.labels[c, new].cost + max(0.0, ahead)
    for r in range(tb.budget.shape[0]):
        if st.use[c, new, r] > tb.budget[r]:
            return False
        reach += tb.rate[r] * st.use[c, new, r]
    if reach > st.bounds[UPPER]:
        return False
    st.labels[c, new].reach = reach
    last = -1
    label = st.head[c, ideal, k]
    while label >= 0:
        st.at[WORK] += 1
        following = st.labels[c, label].following
        if st.labels[c, label].alive == 1:
            if dominates(tb, st, c, label, new):
                return False
            if dominates(tb, st, c, new, label):
                st.labels[c, label].alive = 0
        if st.labels[c, label].alive == 0:  # out of the list
            if last < 0:
                st.head[c, ideal, k] = following
            else:
                st.labels[c, last].following = following
        else:
            last = label
        label = following
    st.labels[c, new].following = st.head[c, ideal, k]
    st.head[c, ideal, k] = new
    st.labels[c, new].alive = 1
    st.n_labels[c] = new + 1
    return True


def find_ideal(st: SearchState, c: int, bits: Ints, key: int) -> int:
    """Index of a set in its level; where it is new, it is entered, and -1 - index comes back."""
    mask = st.table.shape[1] - 1
    place = key & mask
    while st.table[c, place] >= 0:
        index = st.table[c, place]
        if st.ideals[c, index].key == key:
            same = True
            for word in range(bits.shape[0]):
                if st.bits[c, index, word] != bits[word]:
                    same = False
                    break
            if same:
                return int(index)
        place = (place + 1) & mask
    index = st.n_ideals[c]
    st.table[c, place] = index
    st.n_ideals[c] = index + 1
    st.bits[c, index] = bits
    st.ideals[c, index].key = key
    st.head[c, index, :] = -1
    return int(-1 - index)


def land(tb: Tables, st: SearchState, c: int, landing: int) -> None:
    """Enters the end of a region that was measured whole as a label with no segment open."""
    n = tb.least.shape[0]
    bits = st.landing_bits[landing]
    key = 0
    for u in range(n):
        if has(bits, u):
            key ^= tb.unit_key[u]
    ideal = find_ideal(st, c, bits, key)
    if ideal < 0:
        ideal = -1 - ideal
        rest = tb.slack[0]
        st.joining[c, ideal] = tb.switch_begin
        begin = st.n_ready[c]
        for u in range(n):
            st.at[WORK] += 1
            if has(bits, u):
                st.joining[c, ideal] += tb.switch[u]
                continue
            rest += tb.least[u]
            able = True
            for p in range(tb.predecessor_at[u], tb.predecessor_at[u + 1]):
                if not has(bits, tb.predecessors[p]):
                    able = False
                    break
            if able:
                st.ready[c, st.n_ready[c]] = u
                st.n_ready[c] += 1
        st.ideals[c, ideal].ready_begin = begin
        st.ideals[c, ideal].ready_end = st.n_ready[c]
        st.ideals[c, ideal].rest = rest
        for value in range(tb.slot.shape[0]):
            slot, maker = tb.slot[value], tb.producer[value]
            if slot < 0 or (maker >= 0 and not has(bits, maker)):
                continue
            for e in range(tb.reader_at[value], tb.reader_at[value + 1]):
                if not has(bits, tb.readers[e]):
                    st.slot_value[c, ideal, slot] = value
                    break
    new = st.n_labels[c]
    st.labels[c, new].ideal = ideal
    st.labels[c, new].target = tb.overhead_ns.shape[0]
    st.labels[c, new].n_units = 0
    st.labels[c, new].watch = 0
    st.labels[c, new].cost = st.landings[landing].cost
    st.labels[c, new].saved = 0.0
    st.labels[c, new].formats = st.landings[landing].formats
    st.use[c, new] = st.landing_use[landing]
    st.as_float[c, new] = st.landing_float[landing]
    st.as_int8[c, new] = st.landing_int8[landing]
    st.present[c, new] = 0
    st.owed[c, new] = 0
    st.labels[c, new].record = st.landings[landing].record
    settle(tb, st, c)
    st.landings[landing].reach = np.inf  # it is under way no more


def inherit(st: SearchState, c: int, label: int, d: int, new: int) -> None:
    """A label has values in the formats in which another has them."""
    st.labels[d, new].formats = st.labels[c, label].formats
    st.as_float[d, new] = st.as_float[c, label]
    st.as_int8[d, new] = st.as_int8[c, label]


def formats_ahead(
    tb: Tables, value: int, done: Ints, is_float: bool, is_int8: bool
) -> tuple[float, bool]:
    """What the formats that a value is there in add to the bound of the rest; whether there is
    any."""
    ns, is_read_later = 0.0, False
    for e in range(tb.reader_at[value], tb.reader_at[value + 1]):
        if has(done, tb.readers[e]):
            continue
        is_read_later = True
        if is_float:
            ns -= float(tb.float_price[e])
        if is_int8:
            ns -= float(tb.int8_price[e])
    return ns, is_read_later


def note(bits: Ints, slot: int, is_there: bool) -> None:
    """Whether a value is there."""
    word, bit = slot // WORD, np.int64(1 << (slot % WORD))
    bits[word] = bits[word] | bit if is_there else bits[word] & ~bit


def read_in_format(
    tb: Tables, value: int, k: int, before: Ints, after: Ints, as_float: Ints, as_int8: Ints
) -> tuple[float, float]:
    """Reads a value in the format of target k: what it costs, and what it adds to the bound of the
    rest."""
    slot = int(tb.slot[value])
    is_float, is_int8 = has(as_float, slot), has(as_int8, slot)
    cost = 0.0
    earlier, _ = formats_ahead(tb, value, before, is_float, is_int8)
    if tb.format[k] and not is_int8:
        cost, is_int8 = float(tb.to_int8_ns[value]), True
    elif not tb.format[k] and not is_float:
        cost, is_float = float(tb.to_float_ns[value]), True
    ahead, is_read_later = formats_ahead(tb, value, after, is_float, is_int8)
    note(as_float, slot, is_float and is_read_later)
    note(as_int8, slot, is_int8 and is_read_later)
    return cost, ahead - earlier


def make_in_format(
    tb: Tables, value: int, k: int, after: Ints, as_float: Ints, as_int8: Ints
) -> tuple[float, float, float]:
    """Makes a value in the format of target k, and in those that it is needed in as an output: what
    that costs, to floats and to 8-bit integers, and what it adds to the bound of the rest."""
    own = AS_INT8 if tb.format[k] else AS_FLOAT
    lacking, there = int(tb.formats_out[value]) & ~own, own | int(tb.formats_out[value])
    to_float = float(tb.to_float_ns[value]) if lacking & AS_FLOAT else 0.0
    to_int8 = float(tb.to_int8_ns[value]) if lacking & AS_INT8 else 0.0
    slot = int(tb.slot[value])
    if slot < 0:
        return to_float, to_int8, 0.0
    ahead, _ = formats_ahead(tb, value, after, bool(there & AS_FLOAT), bool(there & AS_INT8))
    note(as_float, slot, bool(there & AS_FLOAT))
    note(as_int8, slot, bool(there & AS_INT8))
    return to_float, to_int8, ahead


def close(tb: Tables, st: SearchState, c: int, label: int) -> None:
    """Ends the segment that a label has open."""
    k, ideal = st.labels[c, label].target, st.labels[c, label].ideal
    watch = st.labels[c, label].watch
    for q in range(tb.watch_size.shape[0]):
        if ((watch >> q) & 1) == 1 and tb.watch_size[q] == st.labels[c, label].n_units:
            return  # this very region was measured whole: a step of its own has its cost
    cost = st.labels[c, label].cost
    if st.labels[c, label].n_units == 1:
        cost += tb.alone_ns[st.labels[c, label].unit, k]
        if not np.isfinite(cost):
            return
    n_slots = st.slot_value.shape[2]
    for word in range(st.owed.shape[2]):
        owed = st.owed[c, label, word]
        if owed == 0:
            continue
        first = word * WORD
        for slot in range(first, min(n_slots, first + WORD)):
            if ((owed >> (slot - first)) & 1) == 1:
                cost += tb.out_ns[st.slot_value[c, ideal, slot], k]
    new = st.n_labels[c]
    st.labels[c, new].ideal = ideal
    st.labels[c, new].target = tb.overhead_ns.shape[0]
    st.labels[c, new].n_units = 0
    st.labels[c, new].watch = 0
    st.labels[c, new].cost = cost
    st.labels[c, new].saved = 0.0
    inherit(st, c, label, c, new)
    st.use[c, new] = st.use[c, label]
    st.present[c, new] = 0
    st.owed[c, new] = 0
    st.labels[c, new].record = st.labels[c, label].record
    settle(tb, st, c)


def open_segment(tb: Tables, st: SearchState, c: int, label: int, k: int) -> None:
    """Begins a segment on target k after a label with none open."""
    ideal = st.labels[c, label].ideal
    new = st.n_labels[c]
    watch = 0
    for q in range(tb.watch_size.shape[0]):
        if tb.watch_target[q] != k:
            continue
        untouched = True
        for word in range(tb.watch_bits.shape[1]):
            if (tb.watch_bits[q, word] & st.bits[c, ideal, word]) != 0:
                untouched = False
                break
        if untouched:
            watch |= 1 << q
    st.labels[c, new].ideal = ideal
    st.labels[c, new].target = k
    st.labels[c, new].n_units = 0
    st.labels[c, new].watch = watch
    st.labels[c, new].cost = st.labels[c, label].cost + tb.overhead_ns[k]
    st.labels[c, new].saved = 0.0
    inherit(st, c, label, c, new)
    for r in range(tb.budget.shape[0]):
        st.use[c, new, r] = st.use[c, label, r] + tb.open_use[k, r]
    st.present[c, new] = 0
    st.owed[c, new] = 0
    st.labels[c, new].record = st.labels[c, label].record
    settle(tb, st, c)


def child_ideal(tb: Tables, st: SearchState, c: int, ideal: int, u: int) -> int:
    """Index, in the other level, of an ideal with unit u."""
    d = 1 - c
    bits = st.bits[c, ideal].copy()
    bits[u // WORD] |= 1 << (u % WORD)
    index = find_ideal(st, d, bits, st.ideals[c, ideal].key ^ tb.unit_key[u])
    if index >= 0:
        return index
    index = -1 - index
    st.ideals[d, index].rest = st.ideals[c, ideal].rest - tb.least[u]
    for k in range(tb.overhead_ns.shape[0]):
        st.joining[d, index, k] = st.joining[c, ideal, k] + tb.switch[u, k]
    st.slot_value[d, index] = st.slot_value[c, ideal]
    for i in range(tb.make_at[u], tb.make_at[u + 1]):
        value = tb.makes[i]
        if tb.slot[value] >= 0:
            st.slot_value[d, index, tb.slot[value]] = value
    end = st.n_ready[d]
    st.ideals[d, index].ready_begin = end
    for i in range(st.ideals[c, ideal].ready_begin, st.ideals[c, ideal].ready_end):
        if st.ready[c, i] != u:
            st.ready[d, end] = st.ready[c, i]
            end += 1
    for i in range(tb.successor_at[u], tb.successor_at[u + 1]):
        follower = tb.successors[i]
        able = True
        for p in range(tb.predecessor_at[follower], tb.predecessor_at[follower + 1]):
            if not has(bits, tb.predecessors[p]):
                able = False
                break
        if able:
            st.ready[d, end] = follower
            end += 1
    st.ideals[d, index].ready_end = end
    st.n_ready[d] = end
    return index


def execute(tb: Tables, st: SearchState, c: int, label: int, u: int, child: int) -> None:
    """Runs unit u on the open target of a label: a label of the child ideal."""
    d = 1 - c
    k, ideal = st.labels[c, label].target, st.labels[c, label].ideal
    bits = st.bits[c, ideal]
    new = st.n_labels[d]
    cost = st.labels[c, label].cost + tb.unit_ns[u, k]
    saved = st.labels[c, label].saved
    st.present[d, new] = st.present[c, label]
    st.owed[d, new] = st.owed[c, label]
    for i in range(tb.read_at[u], tb.read_at[u + 1]):
        e = tb.reads[i]
        value = tb.reader_value[e]
        slot = tb.slot[value]
        word, bit = slot // WORD, 1 << (slot % WORD)
        remaining = False
        others = 0.0
        for e2 in range(tb.reader_at[value], tb.reader_at[value + 1]):
            if e2 != e and not has(bits, tb.readers[e2]):
                remaining = True
                others += tb.enters[e2, k]
        if tb.in_ns[value, k] > 0:
            if (st.present[d, new, word] & bit) != 0:
                saved += tb.enters[e, k]
                if not remaining:
                    st.present[d, new, word] ^= bit
            else:
                cost += tb.in_ns[value, k]
                if remaining:
                    st.present[d, new, word] |= bit
                    saved -= others
        if (st.owed[d, new, word] & bit) != 0:
            saved -= tb.leaves[e, k]
            if not remaining:
                st.owed[d, new, word] ^= bit
    for i in range(tb.make_at[u], tb.make_at[u + 1]):
        value = tb.makes[i]
        slot = tb.slot[value]
        if tb.is_output[value]:
            cost += tb.out_ns[value, k]
        if slot < 0:
            continue
        word, bit = slot // WORD, 1 << (slot % WORD)
        owes = not tb.is_output[value] and tb.out_ns[value, k] > 0
        enters = tb.in_ns[value, k] > 0
        if enters:
            st.present[d, new, word] |= bit
        if owes:
            st.owed[d, new, word] |= bit
        for e in range(tb.reader_at[value], tb.reader_at[value + 1]):
            if enters:
                saved -= tb.enters[e, k]
            if owes:
                saved += tb.leaves[e, k]
    inherit(st, c, label, d, new)
    formats = float(st.labels[c, label].formats)
    if st.as_float.shape[2]:
        after, floats, int8s = st.bits[d, child], st.as_float[d, new], st.as_int8[d, new]
        for i in range(tb.read_at[u], tb.read_at[u + 1]):
            value = tb.reader_value[tb.reads[i]]
            ns, more = read_in_format(tb, value, k, bits, after, floats, int8s)
            cost, formats = cost + ns, formats + more
        for i in range(tb.make_at[u], tb.make_at[u + 1]):
            to_float, to_int8, more = make_in_format(tb, tb.makes[i], k, after, floats, int8s)
            cost, formats = cost + to_float + to_int8, formats + more
    st.labels[d, new].formats = formats
    st.labels[d, new].ideal = child
    st.labels[d, new].target = k
    st.labels[d, new].n_units = st.labels[c, label].n_units + 1
    st.labels[d, new].watch = st.labels[c, label].watch & tb.watch_member[u]
    st.labels[d, new].cost = cost
    st.labels[d, new].saved = saved
    for r in range(tb.budget.shape[0]):
        st.use[d, new, r] = st.use[c, label, r] + tb.unit_use[u, k, r]
    st.labels[d, new].before = st.labels[c, label].record
    st.labels[d, new].unit = u
    settle(tb, st, d)


def jump(tb: Tables, st: SearchState, c: int, label: int, j: int) -> None:
    """Lets a region that was measured whole run after a label with no segment open."""
    ideal = st.labels[c, label].ideal
    for word in range(tb.jump_bits.shape[1]):
        done = st.bits[c, ideal, word]
        if (tb.jump_bits[j, word] & done) != 0 or (tb.jump_needs[j, word] & ~done) != 0:
            return
    landing = st.at[LANDINGS]
    before, after = st.bits[c, ideal], st.landing_bits[landing]
    for word in range(tb.jump_bits.shape[1]):
        after[word] = before[word] | tb.jump_bits[j, word]
    k = int(tb.jump_target[j])
    cost, formats = st.labels[c, label].cost + tb.jump_ns[j], float(st.labels[c, label].formats)
    floats, int8s = st.landing_float[landing], st.landing_int8[landing]
    floats[:], int8s[:] = st.as_float[c, label], st.as_int8[c, label]
    if st.as_float.shape[2]:
        for value in tb.jump_reads[tb.jump_read_at[j] : tb.jump_read_at[j + 1]]:
            ns, more = read_in_format(tb, value, k, before, after, floats, int8s)
            cost, formats = cost + ns, formats + more
        for value in tb.jump_makes[tb.jump_make_at[j] : tb.jump_make_at[j + 1]]:
            to_float, to_int8, more = make_in_format(tb, value, k, after, floats, int8s)
            cost, formats = cost + to_float + to_int8, formats + more
    ahead = st.ideals[c, ideal].rest - tb.jump_least[j] + formats
    reach = cost + max(0.0, ahead)
    for r in range(tb.budget.shape[0]):
        use = st.use[c, label, r] + tb.jump_use[j, r]
        if use > tb.budget[r]:
            return
        reach += tb.rate[r] * use
        st.landing_use[landing, r] = use
    if reach > st.bounds[UPPER]:
        return
    level = st.at[LEVEL] + tb.jump_size[j]
    st.landings[landing].cost = cost
    st.landings[landing].formats = formats
    st.landings[landing].reach = reach
    st.landings[landing].following = st.landing_head[level]
    st.landing_head[level] = landing
    record = st.at[RECORDS]
    st.records[record].before = st.labels[c, label].record
    st.records[record].unit = -1 - j
    st.records[record].target = tb.jump_target[j]
    st.records[record].first = 1
    st.landings[landing].record = record
    st.at[RECORDS] += 1
    st.at[LANDINGS] += 1


def narrow(st: SearchState, c: int) -> None:
    """Lets the labels of best bound live, as many as a level may hold; notes the best of the
    others."""
    width = st.at[WIDTH]
    n = st.n_labels[c]
    count = 0
    for label in range(n):
        if st.labels[c, label].alive == 1:
            count += 1
    if count <= width:
        return
    reach = np.empty(count)
    count = 0
    for label in range(n):
        if st.labels[c, label].alive == 1:
            reach[count] = st.labels[c, label].reach
            count += 1
    threshold = np.sort(reach)[width]
    st.bounds[LEFT_OUT] = min(st.bounds[LEFT_OUT], threshold)
    room = width - np.sum(reach < threshold)  # for those at the threshold itself
    for label in range(n):
        if st.labels[c, label].alive == 0 or st.labels[c, label].reach < threshold:
            continue
        if st.labels[c, label].reach > threshold or room == 0:
            st.labels[c, label].alive = 0
        else:
            room -= 1


def advance(tb: Tables, st: SearchState, steps: int) -> int:
    """Goes on with a search for about so many steps.

    Ends with DONE (the labels with no segment open at the last level are the answer), PAUSED, or
    with what has to grow before the next call; a call after that goes on where this one stopped.
    """
    n, t = tb.least.shape[0], tb.overhead_ns.shape[0]
    stop = st.at[WORK] + steps
    n_labels_most, n_ideals_most = st.labels.shape[1], st.ideals.shape[1]
    n_landings_most = st.landings.shape[0]
    while True:
        level = st.at[LEVEL]
        c = level & 1
        d = 1 - c
        if st.at[STAGE] == BEGIN:
            if level > 0:
                narrow(st, c)
            landing = st.landing_head[level]
            while landing >= 0:
                if st.n_labels[c] + 1 >= n_labels_most:
                    return GROW_LABELS
                if st.n_ideals[c] + 1 >= n_ideals_most:
                    return GROW_IDEALS
                if st.n_ready[c] + n >= st.ready.shape[1]:
                    return GROW_READY
                land(tb, st, c, landing)
                landing = st.landings[landing].following
                st.landing_head[level] = landing
            st.at[STAGE] = CLOSE
        if st.at[STAGE] == CLOSE:
            count = st.n_labels[c]
            if 2 * count + 1 >= n_labels_most:
                return GROW_LABELS
            if st.at[RECORDS] + count >= st.records.shape[0]:
                return GROW_RECORDS
            for label in range(count):
                if st.labels[c, label].target < t and st.labels[c, label].alive == 1:
                    record = st.at[RECORDS]
                    st.records[record].before = st.labels[c, label].before
                    st.records[record].unit = st.labels[c, label].unit
                    st.records[record].target = st.labels[c, label].target
                    st.records[record].first = st.labels[c, label].n_units == 1
                    st.labels[c, label].record = record
                    st.at[RECORDS] += 1
                    close(tb, st, c, label)
            st.at[STAGE] = OPEN
            if level == n:
                return DONE
        if st.at[STAGE] == OPEN:
            count = st.n_labels[c]
            closed = 0
            for label in range(count):
                if st.labels[c, label].target == t and st.labels[c, label].alive == 1:
                    closed += 1
            if count + closed * t + 1 >= n_labels_most:
                return GROW_LABELS
            for label in range(count):
                if st.labels[c, label].target == t and st.labels[c, label].alive == 1:
                    for k in range(t):
                        open_segment(tb, st, c, label, k)
            st.n_ideals[d] = 0
            st.n_labels[d] = 0
            st.n_ready[d] = 0
            st.table[d, :] = -1
            st.at[IDEAL] = 0
            st.at[STAGE] = EXPAND
        while st.at[IDEAL] < st.n_ideals[c]:
            if st.at[WORK] >= stop:
                return PAUSED
            ideal = st.at[IDEAL]
            begin, end = st.ideals[c, ideal].ready_begin, st.ideals[c, ideal].ready_end
            count = 0
            for k in range(t):
                label = st.head[c, ideal, k]
                while label >= 0:
                    if st.labels[c, label].alive == 1:
                        count += 1
                    label = st.labels[c, label].following
            jumps, closed = 0, 0
            label = st.head[c, ideal, t]
            while label >= 0:
                if st.labels[c, label].alive == 1:
                    closed += 1
                label = st.labels[c, label].following
            if closed > 0 and tb.jump_ns.shape[0] > 0:
                for i in range(begin, end):
                    u = st.ready[c, i]
                    jumps += tb.jump_at[u + 1] - tb.jump_at[u]
            if st.n_labels[d] + count * (end - begin) + 1 >= n_labels_most:
                return GROW_LABELS
            if (
                st.n_ideals[d] + (end - begin) >= n_ideals_most
                or 2 * (st.n_ideals[d] + (end - begin)) >= st.table.shape[1]
            ):
                return GROW_IDEALS
            room = 0
            for i in range(begin, end):
                u = st.ready[c, i]
                room += end - begin + tb.successor_at[u + 1] - tb.successor_at[u]
            if st.n_ready[d] + room >= st.ready.shape[1]:
                return GROW_READY
            if st.at[LANDINGS] + jumps * closed >= n_landings_most:
                return GROW_JUMPS
            if st.at[RECORDS] + jumps * closed >= st.records.shape[0]:
                return GROW_RECORDS
            if jumps > 0:
                label = st.head[c, ideal, t]
                while label >= 0:
                    if st.labels[c, label].alive == 1:
                        for i in range(begin, end):
                            u = st.ready[c, i]
                            for j in range(tb.jump_at[u], tb.jump_at[u + 1]):
                                st.at[WORK] += 1
                                jump(tb, st, c, label, j)
                    label = st.labels[c, label].following
            if count > 0:
                for i in range(begin, end):
                    u = st.ready[c, i]
                    child = -1
                    for k in range(t):
                        if not np.isfinite(tb.unit_ns[u, k]):
                            continue
                        label = st.head[c, ideal, k]
                        while label >= 0:
                            if st.labels[c, label].alive == 1:
                                st.at[WORK] += 1
                                if child < 0:
                                    child = child_ideal(tb, st, c, ideal, u)
                                execute(tb, st, c, label, u, child)
                            label = st.labels[c, label].following
            st.at[IDEAL] += 1
        st.at[LEVEL] += 1
        st.at[STAGE] = BEGIN


def rehash(tb: Tables, st: SearchState) -> None:
    """Enters all ideals into a table that has grown."""
    mask = st.table.shape[1] - 1
    for c in range(2):
        st.table[c, :] = -1
        for index in range(st.n_ideals[c]):
            place = st.ideals[c, index].key & mask
            while st.table[c, place] >= 0:
                place = (place + 1) & mask
            st.table[c, place] = index
