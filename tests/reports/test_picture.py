"""The picture of a model: complete, linked to its text, escaped; and layouts of any graph."""

import re
import time
from collections import Counter, defaultdict
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nnapi_prof.costs.model.fit import fit
from nnapi_prof.graph import TensorType
from nnapi_prof.graph.plan import CPU, HOST, Plan, Segment, Target
from nnapi_prof.graph.unit import Unit, UnitGraph, Work
from nnapi_prof.reports import frames
from nnapi_prof.reports.data import ReportData
from nnapi_prof.reports.figures_plan import segment_parts
from nnapi_prof.reports.layering import ValueNet
from nnapi_prof.reports.layout import DrawingLayout, NodeGroup, Sizes, lay_out
from nnapi_prof.reports.picture import MANY_UNITS, attributes, model_svg
from nnapi_prof.reports.picture_scene import STRIP_HEIGHT, cut, scene
from nnapi_prof.reports.style import colours
from tests.reports.browser import Parsed
from tests.reports.sample import (
    AUTOS,
    GPU,
    NPU,
    REFUSAL,
    cnn,
    run_of,
    sample,
    split,
    three_segments,
)


def drawn(data: ReportData, prefix: str = "picture") -> str:
    used = [segment.target for plan in data.plans for segment in plan.segments]
    palette = colours([*frames.all_targets(data.cost_model), *used])
    return str(model_svg(data, palette, prefix))


def plan_of(*segments: tuple[range, Target]) -> Plan:
    return Plan("dp", tuple(Segment(tuple(u), t, 1e6, "said so") for u, t in segments), True)


@pytest.fixture(scope="module")
def data():
    return replace(sample(12, (4,)), plan=three_segments(12), every_preference=True)


@pytest.fixture(scope="module")
def html(data):
    return drawn(data)


@pytest.fixture(scope="module")
def page(html):
    return Parsed(html)


def unit_links(page: Parsed) -> dict[int, dict[str, str]]:
    return {int(a["data-unit"]): a for a in page.tags["a"] if "data-unit" in a}


def folds(page: Parsed) -> list[dict[str, str]]:
    return [a for a in page.tags["details"] if a.get("class") == "fold"]


def test_every_unit_is_drawn_once_and_leads_to_its_row_of_the_text(data, page):
    links = unit_links(page)
    assert sorted(links) == list(range(12))
    assert sum("data-unit" in a for a in page.tags["a"]) == 12
    assert max(page.ids.values()) == 1
    for unit, link in links.items():
        assert link["href"] == f"#picture-unit-{unit}" and page.ids[f"picture-unit-{unit}"] == 1
        assert data.graph.units[unit].label in link["aria-label"]


def test_attributes_of_a_unit():
    work = Work("CONV_2D", "float32", 108e6, 602e3, 3.2e6, 1728.0, 1.0, 1.0, 3.0, 16.0, 9.0, 2.0)
    unit = Unit(0, "conv", "conv2d+relu6", ("conv", "relu6"), ("x",), ("y",), "s", 108_000_000)
    assert attributes(replace(unit, work=work)) == (
        "108 MMAC, 3×3 window, stride 2, 3 → 16 channels, weights 1.73 kB, reads 602 kB, writes"
        " 3.2 MB, float32; made of conv, relu6"
    )
    assert attributes(replace(unit, nodes=("conv",), macs=0)) == ""


def test_titles_say_cause_latencies_and_refusals_without_script(data, html, page):
    titles = {int(re.findall(r"unit (\d+):", t)[0]): t for t in page.texts["title"] if "unit" in t}
    assert "<script" not in html
    for segment in data.plan.segments:
        for unit in segment.units:
            assert segment.cause in titles[unit]
    assert REFUSAL in titles[4] and REFUSAL not in titles[3]
    assert re.search(r"CPU: [\d.]+ ms, simulated", titles[3])
    assert re.search(r"sim-gpu: [\d.]+ fast, .*low_power.* ms, simulated", titles[3])


def test_the_text_says_what_the_picture_says(data, html, page):
    assert "12 units in 3 segments" in page.texts["summary"][-1]
    assert len(page.tags["tbody"]) == 3
    rows = [row["id"] for row in page.tags["tr"] if "id" in row]
    assert rows == [f"picture-unit-{unit}" for unit in range(12)]
    assert [text for text in page.texts["span"] if text] == [s.cause for s in data.plan.segments]
    assert "Segment 2: sim-npu (fast), 7 units, predicted 3.00 ms (simulated)" in html


def test_transfers_carry_the_bytes_that_cross(data, html):
    drawing = scene(data.graph, data.plan)
    chips = {drawing.values[chip.net] for strip in drawing.strips for chip in strip.chips}
    sides = [side for s in data.plan.segments for side in data.graph.boundary(s.units)]
    assert chips == {value for side in sides for value in side}
    assert "602 kB" in html and data.graph.values["x"].n_bytes == 602_112


def test_places_differ_by_colour_and_by_pattern(data):
    each = [(range(i, i + 1), t) for i, t in enumerate((CPU, NPU[1], GPU[1], AUTOS[1], HOST))]
    text = drawn(replace(data, plan=plan_of(*each, (range(5, 12), CPU))))
    assert len(set(re.findall(r"\.band\.(p\d) \{ fill: #\w+", text))) == 5
    fills = re.findall(r'<path d="[^"]+" fill="url\(#picture-(\w+)\)"/>\s*<text', text)
    assert sorted(fills) == ["bars", "dots", "stripes"]
    assert all(name in text for name in ("CPU", "sim-npu", "sim-gpu", "NNAPI", "host"))


def test_two_pictures_live_in_one_page(data):
    both = drawn(data, "left") + drawn(data, "right")
    ids = Counter(re.findall(r' id="([^"]+)"', both))
    assert max(ids.values()) == 1
    assert set(re.findall(r'(?:href="|url\()#([^")]+)', both)) <= set(ids)
    selectors = re.findall(r"[^,{}\n]+\.p\d(?= \{|,)", both)
    assert len(selectors) >= 8 and all(re.match(r" ?#(left|right) ", each) for each in selectors)


def test_long_chains_fit_a_phone_in_strips_that_fit_a_page_and_leave_no_name_alone():
    drawing = scene(cnn(60), plan_of((range(60), CPU)))
    assert drawing.width <= 342  # of a 390 px phone, without the page's sides
    heights = [strip.height for strip in drawing.strips]
    assert len(heights) == 3
    assert max(heights) <= STRIP_HEIGHT + 60 and max(heights) < 1.4 * min(heights)
    shown = [box.unit for strip in drawing.strips for box in strip.boxes if box.unit is not None]
    assert sorted(shown) == list(range(60))
    drawing = scene(cnn(60), plan_of(*((range(a, a + 6), CPU) for a in range(0, 60, 6))))
    pieces = [(piece, strip) for strip in drawing.strips for piece in strip.pieces]
    assert all(piece.text_y + 60 <= strip.bottom for piece, strip in pieces)
    assert sum(piece.begins for piece, _ in pieces) == 10


def test_values_that_are_read_far_below_say_where():
    graph = cnn(80)
    first, last = graph.units[0], graph.units[-1]
    units = (*graph.units[:-1], replace(last, inputs=(*last.inputs, *first.outputs)))
    drawing = scene(replace(graph, units=units), plan_of((range(80), CPU)))
    goes = [label.others for strip in drawing.strips for label in strip.goes_to]
    comes = [label.others for strip in drawing.strips for label in strip.comes_from]
    assert (goes, comes) == ([("79",)], [("0",)])
    assert drawing.values[drawing.strips[0].goes_to[0].net] == first.outputs[0]


def test_models_without_units_or_inputs_are_drawn():
    value = TensorType((1, 2))
    passed = scene(UnitGraph((), {"x": value}, ("x",), ("x",)), plan_of())
    assert [box.name for box in passed.strips[0].boxes] == ["x", "x"]
    unit = Unit(0, "n", "fill", ("n",), (), ("v",), "s", sizes="1x2")
    alone = scene(UnitGraph((unit,), {"v": value}, (), ("v",)), plan_of((range(1), CPU)))
    assert [box.unit for box in alone.strips[0].boxes] == [0, None]
    layout = lay_out([], [])
    assert (layout.rows, layout.spots, layout.height, layout.width) == ((), (), 0.0, 0.0)
    assert cut(layout, 100.0) == []


def test_large_models_fold_and_small_ones_do_not(data, page):
    """The large one has the costs of the small one: units alike have one cost."""
    n, signatures = MANY_UNITS + 50, ("sig0", "sig1")
    graph = cnn(n)
    units = tuple(replace(u, signature=signatures[u.index % 2]) for u in graph.units)
    graph = replace(graph, units=units)
    costs = fit(graph, [row for row in data.measurements if set(row.members) <= set(signatures)])
    large = replace(data, graph=graph, cost_model=costs, plan=plan_of((range(n), CPU)))
    folded = Parsed(drawn(replace(large, baselines=(), run=None)))
    first, second, *_ = folds(folded)
    assert "open" in first and "open" not in second and folds(page) == []
    assert sorted(unit_links(folded)) == list(range(n))


@pytest.mark.parametrize("ran", [True, False])
def test_numbers_add_up_to_their_segment(ran):
    """Boxes, invocation and moving: whatever the fit thinks of their sum."""
    data = split(sample(24, ()))
    data = replace(data, run=run_of(data.graph, data.plans, "net") if ran else None)
    for number, segment in enumerate(data.plan.segments):
        timing = data.run_of_plan.segments[number] if data.run_of_plan else None
        total = timing.median_ns if timing else 1.7 * segment.predicted_ns
        parts = segment_parts(data.cost_model, segment, total)
        assert parts.invocation_ns > 0
        assert set(parts.unit_ns) == set(segment.units)
        assert parts.work_ns + parts.invocation_ns + parts.moving_ns == pytest.approx(total)
    page = drawn(data)
    assert ("measured where it ran" in page) == ran
    shown = [float(text) for text in re.findall(r'class="ms" x="0"[^>]*>([0-9.]+) ms', page)]
    beside = re.findall(r'class="soft" x="0" y="[0-9.]+">(call [^<]+)<', page)
    boxes = [
        float(ms.lstrip("<")) for ms in re.findall(r'class="ms end"[^>]*>([0-9.&lt;]+)<', page)
    ]
    outside = sum(float(n) for text in beside for n in re.findall(r"[0-9.]+", text))
    assert len(shown) == len(data.plan.segments) and len(boxes) == 24
    assert sum(boxes) + outside == pytest.approx(sum(shown), rel=0.01)


def test_of_a_segment_with_an_unknown_unit_nothing_is_shared_out(data):
    segment = Segment((4, 5), NPU[1], 1e6, "refused in part")
    assert segment_parts(data.cost_model, segment, 1e6) is None


SIZES = Sizes()
EPSILON = 1e-6


@st.composite
def graphs(draw: st.DrawFn) -> tuple[list[NodeGroup], list[ValueNet], DrawingLayout]:
    """Nodes 0 to n - 1 that read earlier ones, cut into groups; some read by nobody. Laid out."""
    n = draw(st.integers(1, 40))
    readers: dict[int, list[int]] = {node: [] for node in range(n)}
    for node in range(1, n):
        lowest = max(0, node - 3) if draw(st.booleans()) else 0
        for source in draw(st.sets(st.integers(lowest, node - 1), max_size=4)):
            readers[source].append(node)
    cuts = sorted(draw(st.sets(st.integers(1, n - 1), max_size=6))) if n > 1 else []
    framed = draw(st.booleans())
    groups = [NodeGroup(tuple(range(a, b)), framed) for a, b in pairwise([0, *cuts, n])]
    nets = [ValueNet(source, tuple(result)) for source, result in readers.items()]
    return groups, nets, lay_out(groups, nets)


def boxes_by_row(layout: DrawingLayout) -> dict[int, list[float]]:
    items: dict[int, list[float]] = defaultdict(list)
    for spot in sorted(layout.spots, key=lambda spot: spot.x):
        items[spot.row].append(spot.x)
    return items


def unwired(layout: DrawingLayout) -> set[tuple[int, int]]:
    """(net, reader) of readers that are named and have no wire."""
    return {(jump.net, reader) for jump in layout.jumps for reader in jump.readers}


@given(graphs())
def test_boxes_stand_in_their_rows_and_no_wire_passes_through_one(graph):
    groups, nets, layout = graph
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
    _, nets, layout = graph
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
    groups, nets, layout = graph
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


def whole(n: int, nets: list[ValueNet]) -> DrawingLayout:
    """A graph of n nodes in one group."""
    return lay_out([NodeGroup(tuple(range(n)))], nets)


def test_a_chain_is_straight_and_what_skips_goes_around():
    nets = [ValueNet(i, (i + 1, i + 3) if i in (0, 3, 6) else (i + 1,)) for i in range(12)]
    layout = whole(13, nets)
    assert len({round(spot.x, 6) for spot in layout.spots}) == 1
    lanes = [link.x1 for link in layout.links if link.stop is None]
    assert len(lanes) == 6 and min(lanes) > layout.spots[0].x + SIZES.box_width / 2


def test_skips_of_a_u_net_nest_without_a_crossing():
    layout = whole(10, [ValueNet(i, (i + 1, 9 - i) if i < 4 else (i + 1,)) for i in range(9)])
    lane = {link.net: link.x1 for link in layout.links if link.stop is None}
    assert lane[0] > lane[1] > lane[2] > lane[3]


def test_a_row_holds_no_more_than_its_limit_and_later_boxes_follow_below():
    layout = whole(11, [ValueNet(0, tuple(range(1, 11)))])
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


def test_far_readers_are_named_and_not_wired_and_long_wires_stay_narrow():
    n = SIZES.longest_lane + 10
    layout = whole(n, [ValueNet(i, (i + 1, *[n - 1] * (i == 0))) for i in range(n - 1)])
    assert [(jump.net, jump.readers) for jump in layout.jumps] == [(0, (n - 1,))]
    far = [{r for r in (i + 1, i + 7 + i % 23, i + 17) if r < 300} for i in range(300)]
    assert whole(300, [ValueNet(i, tuple(sorted(r))) for i, r in enumerate(far)]).width < 2000


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


def test_a_thousand_units_take_less_than_half_a_second():
    readers = [tuple(r for r in (i + 1, i + 4 * (i % 6 == 1)) if i < r < 1000) for i in range(1000)]
    nets = [ValueNet(i, own) for i, own in enumerate(readers)]
    groups = [NodeGroup(tuple(range(a, a + 250))) for a in range(0, 1000, 250)]
    taken = []
    for _ in range(3):
        begin = time.process_time()
        lay_out(groups, nets)
        taken.append(time.process_time() - begin)
    assert min(taken) < 0.5
