"""Draw the model: units coloured by where the plan runs them, in frames for its segments.

The picture is one piece of HTML with inline SVG, for any page. It fetches nothing, follows the
page's colours (the variables of ``report.html``, else its own), and works without script: each
unit's title and the table below contain all data. :data:`SCRIPT` adds a panel, arrow keys and
highlighted wires.

The layout is :mod:`nnapi_prof.reports.layout` rather than grandalf, which has no groups: segments'
frames would overlap, and other segments' wires would cross them.
"""

from __future__ import annotations

import functools
import importlib.resources
import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from jinja2 import Environment
from markupsafe import Markup

from nnapi_prof.graph import TensorType
from nnapi_prof.graph.plan import AUTO, Engine, Segment, Target
from nnapi_prof.graph.unit import Unit
from nnapi_prof.reports.data import ReportData
from nnapi_prof.reports.facts import UnitFacts, unit_facts
from nnapi_prof.reports.figures_plan import SegmentParts, segment_parts
from nnapi_prof.reports.headline import latency
from nnapi_prof.reports.picture_scene import Scene, Strip, scene
from nnapi_prof.reports.style import new_environment
from nnapi_prof.reports.words import (
    clip,
    count,
    format_ms,
    format_si,
    place_words,
    target_words,
)

MANY_UNITS = 150
"""Most units of a picture that is not folded; a folded one shows only its first strips."""
_STRIPS_IN_FOLD = 3

SCRIPT = Markup(
    importlib.resources.files("nnapi_prof.reports")
    .joinpath("templates", "picture_script.html")
    .read_text(encoding="utf-8")
)
"""A ``<script>`` element for pages with pictures; include it once, after the last of them."""

_PATTERNS = ("stripes", "dots", "crosses", "back", "checks", "zigzag")
_OP_CHARACTERS = 20
_REST_CHARACTERS = 22
_NAME_CHARACTERS = 18


@dataclass(frozen=True, slots=True)
class Place:
    """An engine with its two cues: colour and pattern."""

    name: str
    colour: str
    pattern: str
    css: str
    """CSS class of its shapes."""


@dataclass(frozen=True, slots=True)
class SegmentWords:
    number: int
    segment: Segment
    place: Place
    target: str
    short: str
    preference: str
    units: str
    ms: str
    """Latency: measured if it ran, else predicted."""
    predicted: str
    """Predicted latency with its unit."""
    measured: str
    """Measured latency with its unit; empty if there is none."""
    parts: SegmentParts | None
    """Parts of the latency ``ms``; None if unknown."""
    beside: str
    """Parts of the latency outside of units: ``call 0.75, moving 1.24``."""


@dataclass(frozen=True, slots=True)
class UnitWords:
    facts: UnitFacts
    place: Place
    segment: SegmentWords
    operation: str
    rest: str
    ms: str
    bar: float
    """Its latency as a share of the slowest unit's."""
    title: str
    attributes: str
    """Sizes and amount of its work (:func:`attributes`); empty if unknown."""
    reads: str
    """Numbers of nets, separated by spaces."""
    makes: str
    above: str
    """Numbers of the units that it reads from."""
    below: str


@dataclass(frozen=True, slots=True)
class Fold:
    """Strips with one heading. ``runs`` are consecutive units in one place, as shares of all."""

    strips: tuple[Strip, ...]
    units: str
    labels: str
    ms: str
    runs: tuple[tuple[Place, float], ...]


def model_svg(data: ReportData, palette: Mapping[str, str], prefix: str = "picture") -> Markup:
    """Draws the model's units where ``data.plan`` places them.

    ``palette`` maps a target's key to its colour. ``prefix`` starts every id, because one page may
    contain several pictures. Raises KeyError if a target of the plan has no colour.
    """
    drawn = scene(data.graph, data.plan)
    places = _target_places(data.plan.segments, palette)
    segments = _segments(data, places)
    units = _unit_words(data, segments, drawn.values)
    return Markup(
        _environment()
        .get_template("picture.html")
        .render(
            prefix=prefix,
            scene=drawn,
            folds=_folds(data, drawn, units),
            places=list(dict.fromkeys(places.values())),
            segments=segments,
            measured=any(s.measured for s in segments),
            units=units,
            types=data.graph.values,
            net_bytes=[_format_bytes(data.graph.values[value]) for value in drawn.values],
            readers=data.graph.readers,
            producer=data.graph.producer,
            unit_ms=data.planned_unit,
            simulated=data.costs_simulated,
            graph=data.graph,
            depthwise=any(unit.operation.startswith("depthwise_") for unit in data.graph.units),
            model=data.model,
        )
    )


@functools.cache
def _environment() -> Environment:
    environment = new_environment()
    environment.filters.update(
        clip=clip, dtype=_dtype, shape=_shape, ms=format_ms, count=count, n=lambda x: f"{x:g}"
    )
    return environment


def _target_places(segments: Sequence[Segment], palette: Mapping[str, str]) -> dict[str, Place]:
    """Returns target key -> place for the plan's targets. Patterns depend on the whole palette: the
    CPU is plain, NNAPI's own choice has bars, the host is empty."""
    by_name: dict[str, Place] = {}
    named = 0
    for key in sorted(palette):
        target, name = Target(key), place_words(key)
        if name not in by_name:
            pattern = _pattern(target, named)
            named += target.engine is Engine.NNAPI and target.accelerator != AUTO
            by_name[name] = Place(name, palette[key], pattern, f"p{len(by_name)}")
    keys = sorted({segment.target.key for segment in segments})
    return {key: by_name[place_words(key)] for key in keys}


def _pattern(target: Target, named: int) -> str:
    if target.engine is Engine.CPU:
        return "plain"
    if target.engine is Engine.HOST:
        return "empty"
    return "bars" if target.accelerator == AUTO else _PATTERNS[named % len(_PATTERNS)]


def _segments(data: ReportData, places: Mapping[str, Place]) -> list[SegmentWords]:
    planned, timed = data.planned_source.marks, data.run_source.marks
    ran = data.run_of_plan
    measured = {t.segment: t.median_ns for t in ran.segments} if ran is not None else {}
    segments = []
    for number, segment in enumerate(data.plan.segments):
        key, median = segment.target.key, measured.get(number)
        preference = segment.target.preference
        total_ns = segment.predicted_ns if median is None else median
        parts = segment_parts(data.cost_model, segment, total_ns)
        segments.append(
            SegmentWords(
                number=number,
                segment=segment,
                place=places[key],
                target=target_words(key),
                short=clip(place_words(key), _NAME_CHARACTERS),
                preference=preference.short.replace("_", " ") if preference else "",
                units=count(len(segment.units), "unit"),
                ms=format_ms(total_ns / 1e6),
                predicted=latency(segment.predicted_ns / 1e6, *planned),
                measured=latency(median / 1e6, *timed) if median is not None else "",
                parts=parts,
                beside="" if parts is None else _beside(parts),
            )
        )
    return segments


def _beside(parts: SegmentParts) -> str:
    named = (("call", parts.invocation_ns), ("moving", parts.moving_ns))
    return ", ".join(f"{name} {format_ms(ns / 1e6)}" for name, ns in named if ns > 0)


def _unit_words(
    data: ReportData, segments: Sequence[SegmentWords], nets: Sequence[str]
) -> list[UnitWords]:
    """Returns the words of each unit, by index; ``nets`` are the values that wires represent."""
    net = {value: number for number, value in enumerate(nets)}
    producer, readers = data.graph.producer, data.graph.readers
    of_unit = {unit: segment for segment in segments for unit in segment.segment.units}
    here_ns = {unit: ns for s in segments if s.parts for unit, ns in s.parts.unit_ns.items()}
    facts = unit_facts(data.cost_model, here_ns, data.shown_targets)
    slowest = max((each.here_ms or 0.0 for each in facts), default=0.0) or 1.0
    unit_ms = data.planned_unit
    rows = []
    for unit, each in zip(data.graph.units, facts, strict=True):
        segment = of_unit[unit.index]
        operation = unit.full_operation.replace("depthwise_", "dw_")
        rest = unit.sizes or " ".join(
            _shape(data.graph.values[value]) for value in unit.outputs[:1]
        )
        lines = [
            f"unit {unit.index}: {unit.label}",
            f"segment {segment.number}, {segment.target}: {segment.segment.cause}",
            *(f"{row.place}: {row.words} {unit_ms if row.timed else ''}".strip()
              for row in each.rows),
        ]  # fmt: skip
        rows.append(
            UnitWords(
                facts=each,
                place=segment.place,
                segment=segment,
                operation=clip(operation, _OP_CHARACTERS),
                rest=clip(_pretty(rest), _REST_CHARACTERS),
                ms=format_ms(each.here_ms),
                bar=(each.here_ms or 0.0) / slowest,
                title="\n".join(lines),
                attributes=attributes(unit),
                reads=_join_numbers(net[value] for value in unit.inputs if value in net),
                makes=_join_numbers(net[value] for value in unit.outputs if value in net),
                above=_join_numbers(producer[value] for value in unit.inputs if value in producer),
                below=_join_numbers(u for value in unit.outputs for u in readers[value]),
            )
        )
    return rows


def attributes(unit: Unit) -> str:
    """Describes a unit's work: ``10.8 MMAC, 3×3 window, stride 2, 16 → 32 channels, ...``."""
    parts = []
    if (work := unit.work) is not None:
        side = round(work.kernel**0.5)
        if work.kernel > 1:
            window = f"{side}×{side}" if side * side == work.kernel else f"{work.kernel:.0f} pixels"
            parts.append(f"{window} window, stride {work.stride:g}")
        if work.weight_bytes:
            parts.append(f"{work.in_channels:.0f} → {work.out_channels:.0f} channels")
            parts.append(f"weights {format_si(work.weight_bytes)}B")
        parts.append(f"reads {format_si(work.in_bytes)}B, writes {format_si(work.out_bytes)}B")
        parts.append(work.data)
    macs = [f"{format_si(unit.macs)}MAC"] if unit.macs else []
    nodes = [f"made of {', '.join(unit.nodes)}"] if len(unit.nodes) > 1 else []
    return "; ".join([", ".join([*macs, *parts]), *nodes]).strip("; ")


def _join_numbers(numbers: Iterable[int]) -> str:
    return " ".join(map(str, dict.fromkeys(numbers)))


def _folds(data: ReportData, drawn: Scene, units: Sequence[UnitWords]) -> list[Fold]:
    """Groups the strips that are shown or folded away together."""
    size = len(drawn.strips) if len(units) <= MANY_UNITS else _STRIPS_IN_FOLD
    folds = []
    for first in range(0, len(drawn.strips), max(size, 1)):
        strips = drawn.strips[first : first + size]
        inside = sorted(box.unit for s in strips for box in s.boxes if box.unit is not None)
        labels = [data.graph.units[unit].label for unit in (inside[:1] + inside[-1:])]
        folds.append(
            Fold(
                strips=strips,
                units=_range(inside),
                labels=" … ".join(labels),
                ms=format_ms(sum(units[unit].facts.here_ms or 0.0 for unit in inside)),
                runs=tuple(
                    (place, len(list(same)) / len(inside))
                    for place, same in itertools.groupby(units[unit].place for unit in inside)
                ),
            )
        )
    return folds


def _range(units: Sequence[int]) -> str:
    return f"units {units[0]} to {units[-1]}" if units else "inputs and outputs"


def _shape(value: TensorType) -> str:
    return "×".join(map(str, value.shape)) or "scalar"


def _dtype(value: TensorType) -> str:
    """Names a data type: ``float32``; ``int64 as int32`` if the device uses another type."""
    same = value.device_dtype == value.dtype
    return value.dtype if same else f"{value.dtype} as {value.device_dtype}"


def _format_bytes(value: TensorType) -> str:
    return f"{format_si(value.n_bytes)}B"


def _pretty(rest: str) -> str:
    """Writes ``3x3/2 16->32 56x56`` as ``3×3/2 16→32 56×56``."""
    words = rest.replace("->", "→").split(" ")
    return " ".join(word.replace("x", "×") if word[:1].isdigit() else word for word in words)
