"""The picture of a model: complete, linked to its text, escaped."""

import re
from collections import Counter
from dataclasses import replace

import pytest

from nnapi_prof.costs.model.fit import fit
from nnapi_prof.graph import TensorType
from nnapi_prof.graph.plan import CPU, HOST, Plan, Segment, Target
from nnapi_prof.graph.unit import Unit, UnitGraph, Work
from nnapi_prof.reports import frames
from nnapi_prof.reports.data import ReportData
from nnapi_prof.reports.figures_plan import segment_parts
from nnapi_prof.reports.layout import lay_out
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

PHONE_WIDTH = 342
"""Of a 390 px phone, without the page's sides."""


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
    assert [row["id"] for row in page.tags["tr"] if "id" in row] == [
        f"picture-unit-{unit}" for unit in range(12)
    ]
    assert [text for text in page.texts["span"] if text] == [s.cause for s in data.plan.segments]
    assert "Segment 2: sim-npu (fast), 7 units, predicted 3.00 ms (simulated)" in html


def test_transfers_carry_the_bytes_that_cross(data, html):
    drawing = scene(data.graph, data.plan)
    chips = {drawing.values[chip.net] for strip in drawing.strips for chip in strip.chips}
    sides = [side for s in data.plan.segments for side in data.graph.boundary(s.units)]
    assert chips == {value for side in sides for value in side}
    assert "602 kB" in html and data.graph.values["x"].n_bytes == 602_112


def test_places_differ_by_colour_and_by_pattern(data):
    targets = (CPU, NPU[1], GPU[1], AUTOS[1], HOST)
    each = [(range(i, i + 1), target) for i, target in enumerate(targets)]
    text = drawn(replace(data, plan=plan_of(*each, (range(5, 12), CPU))))
    assert len(set(re.findall(r"\.band\.(p\d) \{ fill: #\w+", text))) == 5
    fills = re.findall(r'<path d="[^"]+" fill="url\(#picture-(\w+)\)"/>\s*<text', text)
    assert sorted(fills) == ["bars", "dots", "stripes"]
    for name in ("CPU", "sim-npu", "sim-gpu", "NNAPI", "host"):
        assert name in text


def test_two_pictures_live_in_one_page(data):
    both = drawn(data, "left") + drawn(data, "right")
    ids = Counter(re.findall(r' id="([^"]+)"', both))
    assert max(ids.values()) == 1
    targets = set(re.findall(r'(?:href="|url\()#([^")]+)', both))
    assert targets <= set(ids)
    selectors = re.findall(r"[^,{}\n]+\.p\d(?= \{|,)", both)
    assert len(selectors) >= 8 and all(re.match(r" ?#(left|right) ", each) for each in selectors)


def test_a_chain_of_sixty_fits_a_phone_in_strips_that_fit_a_page():
    drawing = scene(cnn(60), plan_of((range(60), CPU)))
    assert drawing.width <= PHONE_WIDTH
    assert len(drawing.strips) == 3
    heights = [strip.height for strip in drawing.strips]
    assert max(heights) <= STRIP_HEIGHT + 60 and max(heights) < 1.4 * min(heights)
    shown = [box.unit for strip in drawing.strips for box in strip.boxes if box.unit is not None]
    assert sorted(shown) == list(range(60))


def test_a_cut_leaves_no_segments_name_alone():
    drawing = scene(cnn(60), plan_of(*((range(a, a + 6), CPU) for a in range(0, 60, 6))))
    for strip in drawing.strips:
        for piece in strip.pieces:
            assert piece.text_y + 60 <= strip.bottom
    assert sum(piece.begins for strip in drawing.strips for piece in strip.pieces) == 10


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
    assert cut(lay_out([], []), 100.0) == []


def test_large_models_fold_and_small_ones_do_not(data, page):
    """The large one has the costs of the small one: units alike have one cost."""
    n, signatures = MANY_UNITS + 50, ("sig0", "sig1")
    graph = cnn(n)
    units = tuple(replace(u, signature=signatures[u.index % 2]) for u in graph.units)
    graph = replace(graph, units=units)
    costs = fit(graph, [row for row in data.measurements if set(row.members) <= set(signatures)])
    plan = plan_of((range(n), CPU))
    large = replace(data, graph=graph, cost_model=costs, plan=plan, baselines=(), run=None)
    folded = Parsed(drawn(large))
    first, second, *_ = folds(folded)
    assert "open" in first and "open" not in second
    assert sorted(unit_links(folded)) == list(range(n))
    assert folds(page) == []


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
