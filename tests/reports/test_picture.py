"""The picture of a model: complete, linked to its text, escaped; and in a real browser."""

import re
from collections import Counter
from dataclasses import replace
from html.parser import HTMLParser

import pytest

from nnapi_prof.costs.model.fit import fit
from nnapi_prof.graph import TensorType
from nnapi_prof.graph.plan import AUTO, CPU, HOST, Plan, Preference, Segment, Target
from nnapi_prof.graph.unit import Unit, UnitGraph, Work
from nnapi_prof.reports import frames
from nnapi_prof.reports.data import ReportData
from nnapi_prof.reports.figures_plan import segment_parts
from nnapi_prof.reports.layout import lay_out
from nnapi_prof.reports.picture import MANY_UNITS, attributes, model_svg
from nnapi_prof.reports.picture_scene import STRIP_HEIGHT, cut, scene
from nnapi_prof.reports.style import colours
from tests.reports.sample import REFUSAL, cnn, run_of, sample, split

VOID = {"meta", "link", "br", "img", "hr", "input"}
PHONE_WIDTH = 342
"""Of a 390 px phone, without the page's sides."""


class Parsed(HTMLParser):
    """Attributes and texts by tag; asserts that elements nest."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: dict[str, list[dict[str, str | None]]] = {}
        self.texts: dict[str, list[str]] = {}
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.setdefault(tag, []).append(dict(attrs))
        self.texts.setdefault(tag, []).append("")
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.setdefault(tag, []).append(dict(attrs))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open:
            self.texts[self.open[-1]][-1] += data


def palette(data: ReportData) -> dict[str, str]:
    used = [segment.target for plan in data.plans for segment in plan.segments]
    return colours([*frames.all_targets(data.cost_model), *used])


def drawn(data: ReportData, prefix: str = "picture") -> str:
    return str(model_svg(data, palette(data), prefix))


@pytest.fixture(scope="module")
def data():
    """Three segments: what the NPU lacks stays on the CPU."""
    sample_ = sample(12, (4,))
    npu = Target.nnapi("sim-npu", Preference.FAST_SINGLE_ANSWER)
    segments = (
        Segment((0, 1, 2, 3), npu, 2e6, "fastest: the first four"),
        Segment((4,), CPU, 1e6, "stays on the CPU: resize & co"),
        Segment((5, 6, 7, 8, 9, 10, 11), npu, 3e6, "fastest: the rest"),
    )
    plan = Plan("dp", segments, simulated=True)
    return replace(sample_, plan=plan, every_preference=True)


@pytest.fixture(scope="module")
def html(data):
    return drawn(data)


def unit_links(page: Parsed) -> dict[int, dict[str, str | None]]:
    return {int(a["data-unit"] or ""): a for a in page.tags["a"] if "data-unit" in a}


def test_every_unit_is_drawn_once_and_leads_to_its_row_of_the_text(data, html):
    page = Parsed(html)
    links = unit_links(page)
    assert sorted(links) == [unit.index for unit in data.graph.units]
    assert sum("data-unit" in a for a in page.tags["a"]) == len(data.graph.units)
    ids = Counter(a["id"] for tags in page.tags.values() for a in tags if a.get("id"))
    assert max(ids.values()) == 1
    for unit, link in links.items():
        assert link["href"] == f"#picture-unit-{unit}" and ids[f"picture-unit-{unit}"] == 1
        assert data.graph.units[unit].label in str(link["aria-label"])


def test_attributes_of_a_unit():
    work = Work("CONV_2D", "float32", 108e6, 602e3, 3.2e6, 1728.0, 1.0, 1.0, 3.0, 16.0, 9.0, 2.0)
    unit = Unit(0, "conv", "conv2d+relu6", ("conv", "relu6"), ("x",), ("y",), "s", 108_000_000)
    assert attributes(replace(unit, work=work)) == (
        "108 MMAC, 3×3 window, stride 2, 3 → 16 channels, weights 1.73 kB, reads 602 kB, writes"
        " 3.2 MB, float32; made of conv, relu6"
    )
    assert attributes(replace(unit, nodes=("conv",), macs=0)) == ""


def test_titles_say_cause_latencies_and_refusals_without_script(data, html):
    page = Parsed(html)
    titles = {int(re.findall(r"unit (\d+):", t)[0]): t for t in page.texts["title"] if "unit" in t}
    assert "<script" not in html
    for segment in data.plan.segments:
        for unit in segment.units:
            assert segment.cause in titles[unit]
    assert REFUSAL in titles[4] and REFUSAL not in titles[3]
    assert re.search(r"CPU: [\d.]+ ms, simulated", titles[3])
    assert re.search(r"sim-gpu: [\d.]+ fast, .*low_power.* ms, simulated", titles[3])


def test_the_text_says_what_the_picture_says(data, html):
    page = Parsed(html)
    caption = page.texts["summary"][-1]
    assert f"{len(data.graph.units)} units in {len(data.plan.segments)} segments" in caption
    assert len(page.tags["tbody"]) == len(data.plan.segments)
    assert [row["id"] for row in page.tags["tr"] if "id" in row] == [
        f"picture-unit-{unit}" for segment in data.plan.segments for unit in segment.units
    ]
    causes = [text for text in page.texts["span"] if text]
    assert causes == [segment.cause for segment in data.plan.segments]
    assert "Segment 2: sim-npu (fast), 7 units, predicted 3.00 ms (simulated)" in html


def test_transfers_carry_the_bytes_that_cross(data):
    drawing = scene(data.graph, data.plan)
    chips = Counter(drawing.values[chip.net] for strip in drawing.strips for chip in strip.chips)
    crossing = {
        value
        for segment in data.plan.segments
        for side in data.graph.boundary(segment.units)
        for value in side
    }
    assert set(chips) == crossing
    text = drawn(data)
    assert "602 kB" in text and data.graph.values["x"].n_bytes == 602_112


def test_places_differ_by_colour_and_by_pattern(data):
    gpu = Target.nnapi("sim-gpu", Preference.FAST_SINGLE_ANSWER)
    npu = Target.nnapi("sim-npu", Preference.FAST_SINGLE_ANSWER)
    auto = Target.nnapi(AUTO, Preference.FAST_SINGLE_ANSWER)
    targets = (CPU, npu, gpu, auto, HOST)
    segments = tuple(Segment((i,), t, 1e6, "said so") for i, t in enumerate(targets))
    rest = Segment(tuple(range(len(targets), 12)), CPU, 1e6, "said so")
    several = replace(data, plan=Plan("dp", (*segments, rest), True))
    text = drawn(several)
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


def test_everything_is_escaped(data):
    evil = "</title><script>alert(1)</script>\"'&"
    units = tuple(replace(u, operation=evil, sizes="", name=evil) for u in data.graph.units)
    segments = tuple(replace(s, why=evil) for s in data.plan.segments)
    poisoned = replace(
        data,
        model=evil,
        graph=replace(data.graph, units=units),
        plan=replace(data.plan, segments=segments),
    )
    text = drawn(poisoned)
    assert "<script" not in text


def test_a_chain_of_sixty_fits_a_phone_in_strips_that_fit_a_page():
    graph = cnn(60)
    plan = Plan("dp", (Segment(tuple(range(60)), CPU, 1e6, "said so"),), True)
    drawing = scene(graph, plan)
    assert drawing.width <= PHONE_WIDTH
    assert len(drawing.strips) == 3
    assert all(strip.height <= STRIP_HEIGHT + 60 for strip in drawing.strips)
    heights = [strip.height for strip in drawing.strips]
    assert max(heights) < 1.4 * min(heights)
    shown = [box.unit for strip in drawing.strips for box in strip.boxes if box.unit is not None]
    assert sorted(shown) == list(range(60))


def test_a_cut_leaves_no_segments_name_alone():
    graph = cnn(60)
    segments = [Segment(tuple(range(a, a + 6)), CPU, 1e6, "said so") for a in range(0, 60, 6)]
    drawing = scene(graph, Plan("dp", tuple(segments), True))
    for strip in drawing.strips:
        for piece in strip.pieces:
            assert piece.text_y + 60 <= strip.bottom
    assert sum(piece.begins for strip in drawing.strips for piece in strip.pieces) == 10


def test_values_that_are_read_far_below_say_where():
    graph = cnn(80)
    first, last = graph.units[0], graph.units[-1]
    units = (*graph.units[:-1], replace(last, inputs=(*last.inputs, *first.outputs)))
    long = replace(graph, units=units)
    drawing = scene(long, Plan("dp", (Segment(tuple(range(80)), CPU, 1e6, "said so"),), True))
    goes = [label.others for strip in drawing.strips for label in strip.goes_to]
    comes = [label.others for strip in drawing.strips for label in strip.comes_from]
    assert (goes, comes) == ([("79",)], [("0",)])
    assert drawing.values[drawing.strips[0].goes_to[0].net] == first.outputs[0]


def test_models_without_units_or_inputs_are_drawn():
    value = TensorType((1, 2))
    empty = UnitGraph((), {"x": value}, ("x",), ("x",))
    passed = scene(empty, Plan("dp", (), True))
    assert [box.name for box in passed.strips[0].boxes] == ["x", "x"]
    unit = Unit(0, "n", "fill", ("n",), (), ("v",), "s", sizes="1x2")
    graph_ = UnitGraph((unit,), {"v": value}, (), ("v",))
    alone = scene(graph_, Plan("dp", (Segment((0,), CPU, 1.0, "said so"),), True))
    assert [box.unit for box in alone.strips[0].boxes] == [0, None]


def test_an_empty_layout_needs_no_strip():
    assert cut(lay_out([], []), 100.0) == []


def test_large_models_fold_and_small_ones_do_not(data, html):
    n = MANY_UNITS + 50
    large = sample_of_one_segment(data, n)
    page = Parsed(drawn(large))
    folds = [a for a in page.tags["details"] if a.get("class") == "fold"]
    assert len(folds) > 1 and "open" in folds[0] and "open" not in folds[1]
    assert sorted(unit_links(page)) == list(range(n))
    assert not [a for a in Parsed(html).tags["details"] if a.get("class") == "fold"]


def sample_of_one_segment(data: ReportData, n: int) -> ReportData:
    """A large graph with the costs of a small one: units alike have one cost."""
    graph = cnn(n)
    signatures = [data.graph.units[0].signature, data.graph.units[1].signature]
    units = tuple(replace(u, signature=signatures[u.index % 2]) for u in graph.units)
    graph = replace(graph, units=units)
    plan = Plan("dp", (Segment(tuple(range(n)), CPU, 1e6, "said so"),), True)
    costs = fit(graph, [row for row in data.measurements if set(row.members) <= set(signatures)])
    return replace(data, graph=graph, cost_model=costs, plan=plan, baselines=(), run=None)


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


def test_of_a_segment_with_an_unknown_unit_nothing_is_shared_out():
    data = sample(24, (9,))
    npu = Target.nnapi("sim-npu", Preference.FAST_SINGLE_ANSWER)
    assert segment_parts(data.cost_model, Segment((8, 9), npu, 1e6, "refused in part"), 1e6) is None
