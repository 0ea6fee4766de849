"""A figure as SVG: in the page's colours, small, escaped, the same each time."""

import re
import xml.etree.ElementTree as ET
from dataclasses import replace

from matplotlib.figure import Figure

from nnapi_prof.reports import figures, frames
from nnapi_prof.reports.data import ReportData
from nnapi_prof.reports.style import FAINT, HEAT, INK, VARIABLES, colours, to_svg
from nnapi_prof.reports.words import LatencySource

SVG = "{http://www.w3.org/2000/svg}"


def heat_map(data: ReportData) -> Figure:
    return figures.unit_latency(frames.unit_frame(data.cost_model), {}, LatencySource.SIMULATED)


def timeline(data: ReportData) -> Figure:
    palette = colours(frames.all_targets(data.cost_model))
    own = frames.plan_frame(data.plan, data.graph)
    return figures.timeline(own, palette, LatencySource.SIMULATED, heading="Segments")


def test_it_has_words_and_ids_of_its_own_and_finds_them(data):
    first, second = (
        str(to_svg(timeline(data), "one", "A <title>", 'said "so" & more')) for _ in range(2)
    )
    assert first == second
    root = ET.fromstring(first)
    title, description = root.find(f"{SVG}title"), root.find(f"{SVG}desc")
    assert (title.text, description.text) == ("A <title>", 'said "so" & more')
    assert root.get("role") == "img"
    assert root.get("aria-labelledby") == f"{title.get('id')} {description.get('id')}"
    ids = [element.get("id") for element in root.iter() if element.get("id")]
    assert all(name.startswith("one-") for name in ids) and len(ids) == len(set(ids))
    named = {a or b for a, b in re.findall(r'href="#([^"]+)"|url\(#([^)]+)\)', first)}
    assert named and named <= set(ids)


def test_it_follows_the_page_is_small_and_loses_no_shape(data):
    text = str(to_svg(heat_map(data), "one", "t", "d"))
    assert "currentColor" in text and "var(--heat-0," in text and INK not in text
    own = set(re.findall(r"(?<!,)#[0-9a-f]{6}", text))  # with a variable before it, it is a default
    assert own == set(), own
    assert "font-family" not in text and "<metadata" not in text and "<style" not in text
    assert len(text) < 60_000
    corners = sum(len(re.findall("M", d)) for d in re.findall(r'<path d="([^"]+)" clip', text))
    assert corners >= frames.unit_frame(data.cost_model)["marginal_ms"].notna().sum()


def test_variables_cover_what_follows_the_theme():
    assert {INK, FAINT, *(light for light, _ in HEAT)} <= set(VARIABLES)


def test_dots_of_one_look_say_so_once(data):
    errors = frames.residual_frame(data.cost_model)
    palette = colours(frames.all_targets(data.cost_model))
    text = str(to_svg(figures.residuals(errors, palette, LatencySource.SIMULATED), "one", "t", "d"))
    assert text.count("<use") >= len(errors)
    for colour in {palette[key] for key in errors["target"]}:
        assert 0 < text.count(f"fill:{colour}") <= 2 * errors["target"].nunique()


def test_labels_are_text_not_markup(data):
    odd = 'a$b$<script>& id="x" url(#y)'
    units = tuple(replace(u, operation=odd, sizes="") for u in data.graph.units)
    model = replace(data.cost_model, graph=replace(data.graph, units=units))
    text = to_svg(heat_map(replace(data, cost_model=model)), "f", "t", "d")
    assert "<script>" not in text
    assert odd in "".join(ET.fromstring(text).itertext())


def test_a_notebook_shows_it(data):
    shown = timeline(data)._repr_svg_()
    assert ET.fromstring(shown).tag == f"{SVG}svg"
