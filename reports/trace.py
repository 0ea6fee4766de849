"""Write a report as a trace for chrome://tracing and ui.perfetto.dev, with plans as timelines.

The format is Chrome's Trace Event Format (a JSON object of ``traceEvents``; times in microseconds).
Each plan is one process or two: predicted, and measured. Each target is a thread, each segment a
slice; predicted slices contain smaller ones: invocation, transfers and units, by their share in the
cost model's sum. Values that pass from segment to segment are flows. Clock and temperature of the
device during the measurements are counters, in the order of the rounds, over the length of the
longest timeline. Latencies from a phone's description are marked ``simulated``.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import nnapi_prof
from nnapi_prof.costs.measurement import Round
from nnapi_prof.costs.model import CostModel
from nnapi_prof.execution.report import FrameScheduleRun, PlanRun, SegmentTiming
from nnapi_prof.graph.plan import Engine, Plan, Segment
from nnapi_prof.graph.unit import UnitGraph
from nnapi_prof.reports.data import ReportData
from nnapi_prof.reports.frames import boundary_bytes
from nnapi_prof.reports.words import plan_words, target_words

Event = dict[str, Any]
NS_PER_US = 1e3


@dataclass(frozen=True, slots=True)
class Slice:
    """One segment on a timeline, in ns from its beginning."""

    number: int
    segment: Segment
    start_ns: float
    length_ns: float
    facts: dict[str, Any]


def render(data: ReportData) -> str:
    """Returns the trace as JSON text without NaN and infinities, which JSON lacks."""
    trace = {
        "displayTimeUnit": "ms",
        "otherData": {
            "tool": f"nnapi-prof {nnapi_prof.__version__}",
            "model": data.model,
            "device": data.device_name,
            "simulated": "true" if data.simulated else "false",
            "what": "timelines of plans, one after the other from 0; nothing ran at these times",
        },
        "traceEvents": list(_events(data)),
    }
    return json.dumps(trace, ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def _events(data: ReportData) -> Iterator[Event]:
    flows = itertools.count(1)
    ran = {run.plan.name: run for run in data.run.runs} if data.run else {}
    longest_ns = 0.0
    pid = 0
    for place, plan in enumerate(data.plans):
        name = plan_words(plan.name, is_own=place == 0)
        lines = [("predicted", _predicted(plan), plan.simulated)]
        run = ran.get(plan.name)
        if run is not None and (measured := _measured(run)):
            lines.append(("measured", measured, data.run_simulated))
        for kind, slices, simulated in lines:
            pid += 1
            mark = ", simulated" if simulated else ""
            if kind == "predicted" and any(each.segment.estimated for each in slices):
                mark += ", estimated in part"
            yield from _process(pid, f"{name}: {kind}{mark}", slices)
            yield from _slices(pid, slices, data, kind, simulated)
            yield from _flows(pid, slices, data.graph, flows)
            longest_ns = max(longest_ns, *(s.start_ns + s.length_ns for s in slices))
    for way in data.run.frames if data.run else ():
        if way.spans:
            pid += 1
            yield from _frames(pid, way, data)
            begin_ns = min(span.begin_ns for span in way.spans)
            longest_ns = max(longest_ns, max(s.end_ns for s in way.spans) - begin_ns)
    yield from _counters(pid + 1, data, longest_ns)


def _frames(pid: int, run: FrameScheduleRun, data: ReportData) -> Iterator[Event]:
    """Yields a thread for each lane with the segments of many frames as they ran."""
    mark = ", simulated" if data.run_simulated else ""
    yield _metadata("process_name", pid, 0, name=f"{run.way.name}: frames, measured{mark}")
    yield _metadata("process_sort_index", pid, 0, sort_index=pid)
    threads = {lane: number for number, lane in enumerate(run.lanes, start=1)}
    for lane, tid in threads.items():
        yield _metadata("thread_name", pid, tid, name=lane)
        yield _metadata("thread_sort_index", pid, tid, sort_index=tid)
    zero = min(span.begin_ns for span in run.spans)
    for span in run.spans:
        segment = data.plans[span.plan].segments[span.segment]
        args = {
            "frame": span.frame,
            "segment": span.segment,
            "target": segment.target.key,
            "plan": data.plans[span.plan].name,
            "simulated": data.run_simulated,
        }
        start, length = span.begin_ns - zero, span.end_ns - span.begin_ns
        name = f"frame {span.frame}, segment {span.segment}"
        yield _complete(name, "frame", pid, threads[span.lane], start, length, args)


def _predicted(plan: Plan) -> list[Slice]:
    slices = []
    start = 0.0
    for number, segment in enumerate(plan.segments):
        facts: dict[str, Any] = {"basis": _basis(segment)}
        if segment.interval_ns is not None:
            facts["interval_ms"] = [ns / 1e6 for ns in segment.interval_ns]
        slices.append(Slice(number, segment, start, segment.predicted_ns, facts))
        start += segment.predicted_ns
    return slices


def _measured(run: PlanRun) -> list[Slice]:
    """Returns measured slices, one after the other, without the host's, which are not timed."""
    slices = []
    start = 0.0
    for timing in run.segments:
        latency = timing.median_ns
        if latency is None:
            continue
        segment = run.plan.segments[timing.segment]
        slices.append(Slice(timing.segment, segment, start, latency, _timing_facts(timing)))
        start += latency
    return slices


def _timing_facts(timing: SegmentTiming) -> dict[str, Any]:
    facts: dict[str, Any] = {
        "basis": f"median of {len(timing.samples_ns)} runs",
        "fastest_ms": min(timing.samples_ns) / 1e6,
        "slowest_ms": max(timing.samples_ns) / 1e6,
    }
    for name, ns in (("first_run_ms", timing.first_ns), ("compile_ms", timing.compile_ns)):
        if ns is not None:
            facts[name] = ns / 1e6
    return facts


def _basis(segment: Segment) -> str:
    if segment.measured:
        return "measured whole"
    return "estimated by the static model" if segment.estimated else "sum of measured parts"


def _threads(slices: Sequence[Slice]) -> dict[str, int]:
    """Returns target key -> thread, in the order of first use, from 1."""
    keys = dict.fromkeys(each.segment.target.key for each in slices)
    return {key: number for number, key in enumerate(keys, start=1)}


def _process(pid: int, name: str, slices: Sequence[Slice]) -> Iterator[Event]:
    yield _metadata("process_name", pid, 0, name=name)
    yield _metadata("process_sort_index", pid, 0, sort_index=pid)
    for key, tid in _threads(slices).items():
        yield _metadata("thread_name", pid, tid, name=target_words(key))
        yield _metadata("thread_sort_index", pid, tid, sort_index=tid)


def _metadata(what: str, pid: int, tid: int, **args: Any) -> Event:
    return {"name": what, "ph": "M", "pid": pid, "tid": tid, "ts": 0, "args": args}


def _slices(
    pid: int, slices: Sequence[Slice], data: ReportData, kind: str, simulated: bool
) -> Iterator[Event]:
    threads = _threads(slices)
    graph = data.graph
    for each in slices:
        segment = each.segment
        in_bytes, out_bytes = boundary_bytes(graph, segment.units)
        tid = threads[segment.target.key]
        args = {
            "segment": each.number,
            "target": segment.target.key,
            "cause": segment.cause,
            **each.facts,
            f"{kind}_ms": each.length_ns / 1e6,
            "simulated": simulated,
            "in_bytes": in_bytes,
            "out_bytes": out_bytes,
            "units": [f"{u}: {graph.units[u].label}" for u in segment.units],
        }
        name = f"{each.number}: {graph.label(segment.units)}"
        yield _complete(name, "segment", pid, tid, each.start_ns, each.length_ns, args)
        if kind == "predicted":
            yield from _latency_parts(pid, tid, each, data.cost_model)


def _latency_parts(pid: int, tid: int, each: Slice, costs: CostModel) -> Iterator[Event]:
    """Yields the parts of the segment's latency. The cost model's parts are scaled to the
    prediction, which is the region's own if it was measured whole."""
    segment, graph = each.segment, costs.graph
    if segment.target.engine is Engine.HOST or segment.target not in costs.fits:
        return
    in_bytes, out_bytes = boundary_bytes(graph, segment.units)
    parts: list[tuple[str, float]] = [
        ("invocation", costs.overhead(segment.target)),
        (f"in, {in_bytes} bytes", costs.transfer(segment.target, in_bytes, 0)),
        *(
            (f"{u}: {graph.units[u].label}", costs.unit_cost(u, segment.target) or 0.0)
            for u in sorted(segment.units)
        ),
        (f"out, {out_bytes} bytes", costs.transfer(segment.target, 0, out_bytes)),
    ]
    total = sum(ns for _, ns in parts)
    if total <= 0:
        return
    before = 0.0
    for name, ns in parts:
        if ns > 0:
            start = each.start_ns + each.length_ns * (before / total)
            args = {"part_of_sum": ns / total, "cost_model_ms": ns / 1e6}
            yield _complete(name, "part", pid, tid, start, each.length_ns * (ns / total), args)
        before += ns


def _complete(
    name: str, category: str, pid: int, tid: int, start_ns: float, length_ns: float, args: Event
) -> Event:
    """Returns a slice. Ends are rounded, not lengths, so that neighbours meet and parts fit."""
    start, end = _us(start_ns), _us(start_ns + length_ns)
    return {
        "name": name,
        "cat": category,
        "ph": "X",
        "pid": pid,
        "tid": tid,
        "ts": start,
        "dur": round(end - start, 3),
        "args": args,
    }


def _us(ns: float) -> float:
    return round(ns / NS_PER_US, 3)


def _flows(
    pid: int, slices: Sequence[Slice], graph: UnitGraph, numbers: Iterator[int]
) -> Iterator[Event]:
    """Yields an arrow for each value from the segment that makes it to each one that reads it."""
    threads = _threads(slices)
    makers = {value: each for each in slices for value in graph.boundary(each.segment.units)[1]}
    for reader in slices:
        for value in graph.boundary(reader.segment.units)[0]:
            maker = makers.get(value)
            if maker is None:  # an input of the model, or made on the host
                continue
            end = _us(maker.start_ns + maker.length_ns)
            common: Event = {
                "name": value,
                "cat": "transfer",
                "id": next(numbers),
                "pid": pid,
                "args": {"bytes": graph.values[value].n_bytes, "type": str(graph.values[value])},
            }
            inside = max(_us(maker.start_ns), round(end - 0.001, 3))
            sender, receiver = threads[maker.segment.target.key], threads[reader.segment.target.key]
            yield {**common, "ph": "s", "tid": sender, "ts": inside}
            yield {**common, "ph": "f", "bp": "e", "tid": receiver, "ts": _us(reader.start_ns)}


def _counters(pid: int, data: ReportData, length_ns: float) -> Iterator[Event]:
    """Yields clock and temperature after each round that reported them."""
    rounds = [
        each
        for m in sorted(data.own_measurements, key=lambda m: m.measured_at)
        for each in m.rounds
        or (
            Round(
                len(m.samples_ns),
                (m.cpu_khz_before, m.cpu_khz_after),
                (m.thermal_mc_before, m.thermal_mc_after),
            ),
        )
    ]
    kinds: tuple[tuple[str, str, Callable[[Round], int | None]], ...] = (
        ("CPU clock", "MHz", lambda each: each.cpu_khz[1]),
        ("temperature", "°C", lambda each: each.thermal_mc[1]),
    )
    told = False
    for name, unit, reading in kinds:
        for place, each in enumerate(rounds):
            values = reading(each)
            if values is None:
                continue
            told = True
            ts = _us(length_ns * place / len(rounds))
            args = {unit: values / 1000}
            yield {
                "name": name,
                "cat": "device",
                "ph": "C",
                "pid": pid,
                "tid": 0,
                "ts": ts,
                "args": args,
            }
    if told:
        mark = ", simulated" if any(m.simulated for m in data.own_measurements) else ""
        title = f"device while it was measured, {len(rounds)} rounds in their order{mark}"
        yield _metadata("process_name", pid, 0, name=title)
        yield _metadata("process_sort_index", pid, 0, sort_index=pid)
