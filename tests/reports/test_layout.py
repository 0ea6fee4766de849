"""Layouts of any graph: all stands once, nothing overlaps, wires go down, frames hold theirs."""

import time
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nnapi_prof.reports.layering import ValueNet
from nnapi_prof.reports.layout import DrawingLayout, NodeGroup, Sizes, lay_out

SIZES = Sizes()
EPSILON = 1e-6


@st.composite
def graphs(draw: st.DrawFn) -> tuple[list[NodeGroup], list[ValueNet]]:
    """Nodes 0 to n - 1 that read earlier ones, cut into groups; some read by nobody."""
    n = draw(st.integers(1, 40))
    readers: dict[int, list[int]] = {node: [] for node in range(n)}
    for node in range(1, n):
        near = draw(st.booleans())
        lowest = max(0, node - 3) if near else 0
        for source in draw(st.sets(st.integers(lowest, node - 1), max_size=4)):
            readers[source].append(node)
    cuts = sorted(draw(st.sets(st.integers(1, n - 1), max_size=6))) if n > 1 else []
    framed = draw(st.booleans())
    groups = [NodeGroup(tuple(range(a, b)), framed) for a, b in pairwise([0, *cuts, n])]
    return groups, [ValueNet(source, tuple(result)) for source, result in readers.items()]


def boxes_by_row(layout: DrawingLayout) -> dict[int, list[float]]:
    items: dict[int, list[float]] = {}
    for spot in layout.spots:
        items.setdefault(spot.row, []).append(spot.x)
    return {row: sorted(items[row]) for row in items}


def unwired(layout: DrawingLayout) -> set[tuple[int, int]]:
    """(net, reader) of readers that are named and have no wire."""
    return {(jump.net, reader) for jump in layout.jumps for reader in jump.readers}


@given(graphs())
def test_boxes_stand_in_their_rows_and_no_wire_passes_through_one(graph):
    groups, nets = graph
    layout = lay_out(groups, nets)
    assert lay_out(groups, nets) == layout
    assert len(layout.spots) == sum(len(group.nodes) for group in groups)
    for upper, lower in pairwise(layout.rows):
        assert upper.bottom + SIZES.row_gap <= lower.top + EPSILON
    boxes = boxes_by_row(layout)
    for row, middles in boxes.items():
        assert layout.rows[row].group is not None
        assert len(middles) <= SIZES.per_row
        for left, right in pairwise(middles):
            assert right - left >= SIZES.box_width + SIZES.column_gap - EPSILON
        assert middles[0] - SIZES.box_width / 2 >= -EPSILON
        assert middles[-1] + SIZES.box_width / 2 <= layout.width + EPSILON
    for link in layout.links:
        for middle in boxes.get(link.row + 1, ()) if link.stop is None else ():
            assert abs(link.x1 - middle) >= SIZES.box_width / 2 + SIZES.lane_gap - EPSILON


@given(graphs())
def test_wires_lead_down_from_each_source_to_all_its_readers(graph):
    groups, nets = graph
    layout = lay_out(groups, nets)
    for number, net in enumerate(nets):
        own = [link for link in layout.links if link.net == number]
        reached = {link.stop for link in own if link.stop is not None}
        left_out = {reader for result, reader in unwired(layout) if result == number}
        assert reached | left_out == set(net.readers) and not reached & left_out
        ends = {(layout.spots[net.source].row, layout.spots[net.source].x)}
        for link in sorted(own, key=lambda link: link.row):
            assert (link.row, link.x0) in ends, "a piece of wire begins where none ended"
            assert link.start in (None, net.source)
            if link.stop is None:
                ends.add((link.row + 1, link.x1))
            else:
                assert layout.spots[link.stop].row == link.row + 1
                assert layout.spots[link.stop].x == link.x1


@given(graphs())
def test_frames_hold_their_group_and_nothing_else(graph):
    groups, nets = graph
    layout = lay_out(groups, nets)
    framed = [number for number, group in enumerate(groups) if group.framed]
    assert [frame.group for frame in layout.frames] == framed
    for upper, lower in pairwise(layout.frames):
        assert upper.last_row < lower.first_row
    for frame in layout.frames:
        own = set(groups[frame.group].nodes)
        rows = {layout.spots[node].row for node in own}
        assert (min(rows), max(rows)) == (frame.first_row, frame.last_row)
        for node in own:
            middle = layout.spots[node].x
            assert frame.left + SIZES.frame_pad <= middle - SIZES.box_width / 2 + EPSILON
            assert middle + SIZES.box_width / 2 <= frame.right - SIZES.frame_pad + EPSILON
        for link in layout.links:  # what passes by stays outside
            net = nets[link.net]
            readers = {r for r in net.readers if (link.net, r) not in unwired(layout)}
            if link.stop is None and frame.first_row <= link.row + 1 <= frame.last_row:
                inside = frame.left < link.x1 < frame.right
                assert inside == bool(({net.source} | readers) & own)


def test_a_chain_is_straight_and_what_skips_goes_around():
    nets = [ValueNet(i, (i + 1, i + 3) if i in (0, 3, 6) else (i + 1,)) for i in range(12)]
    layout = lay_out([NodeGroup(tuple(range(13)))], nets)
    assert len({round(spot.x, 6) for spot in layout.spots}) == 1
    middle = layout.spots[0].x
    lanes = [link.x1 for link in layout.links if link.stop is None]
    assert len(lanes) == 6 and all(x > middle + SIZES.box_width / 2 for x in lanes)


def test_skips_of_a_u_net_nest_without_a_crossing():
    nets = [ValueNet(i, (i + 1, 9 - i) if i < 4 else (i + 1,)) for i in range(9)]
    layout = lay_out([NodeGroup(tuple(range(10)))], nets)
    lane = {link.net: link.x1 for link in layout.links if link.stop is None}
    assert lane[0] > lane[1] > lane[2] > lane[3]


def test_a_row_holds_no_more_than_its_limit_and_later_boxes_follow_below():
    layout = lay_out([NodeGroup(tuple(range(11)))], [ValueNet(0, tuple(range(1, 11)))])
    counts = {row: len(boxes) for row, boxes in boxes_by_row(layout).items()}
    assert counts == {0: 1, 1: 4, 2: 4, 3: 2}


def test_borders_with_few_nets_have_labels_and_those_with_many_none():
    def crossing(n):
        groups = [NodeGroup(tuple(range(n))), NodeGroup(tuple(range(n, 2 * n)))]
        return lay_out(groups, [ValueNet(i, (n + i,)) for i in range(n)])

    few, many = crossing(3), crossing(SIZES.most_chips + 1)
    assert sorted(chip.net for chip in few.chips) == [0, 1, 2]
    middles = sorted(chip.x for chip in few.chips)
    assert all(b - a >= SIZES.chip_width for a, b in pairwise(middles))
    assert many.chips == ()


def test_far_readers_are_named_and_not_wired():
    n = SIZES.longest_lane + 10
    nets = [ValueNet(i, (i + 1, n - 1) if i == 0 else (i + 1,)) for i in range(n - 1)]
    layout = lay_out([NodeGroup(tuple(range(n)))], nets)
    assert [(jump.net, jump.readers) for jump in layout.jumps] == [(0, (n - 1,))]


def test_a_graph_of_long_wires_stays_narrow():
    n = 300
    nets = [
        ValueNet(i, tuple(sorted({r for r in (i + 1, i + 7 + i % 23, i + 17) if r < n})))
        for i in range(n)
    ]
    layout = lay_out([NodeGroup(tuple(range(n)))], nets)
    assert layout.width < 2000


@pytest.mark.parametrize(
    ("groups", "nets", "said"),
    [
        ([(0, 1)], [ValueNet(1, (0,))], "node 0 reads node 1 before it was made"),
        ([(1,), (0,)], [ValueNet(0, (1,))], "node 1 reads node 0 before it was made"),
        ([(0, 2)], [], "each once"),
        ([(0, 1), (1, 2)], [], "each once"),
    ],
)
def test_what_cannot_run_in_that_order_is_refused(groups, nets, said):
    with pytest.raises(ValueError, match=said):
        lay_out([NodeGroup(nodes) for nodes in groups], nets)


def test_an_empty_graph_is_empty():
    layout = lay_out([], [])
    assert (layout.rows, layout.spots, layout.height, layout.width) == ((), (), 0.0, 0.0)


def test_a_thousand_units_take_less_than_half_a_second():
    n = 1000
    nets = [
        ValueNet(i, tuple(r for r in (i + 1, i + 4 * (i % 6 == 1)) if i < r < n)) for i in range(n)
    ]
    groups = [NodeGroup(tuple(range(a, a + 250))) for a in range(0, n, 250)]
    taken = []
    for _ in range(3):
        begin = time.process_time()
        lay_out(groups, nets)
        taken.append(time.process_time() - begin)
    assert min(taken) < 0.5
