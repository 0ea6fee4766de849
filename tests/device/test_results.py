"""Lines of the agent: written here from PROTOCOL.md, read by the module."""

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from nnapi_prof.costs.measurement import Round, Status
from nnapi_prof.device import describe, device_fingerprint, protocol
from nnapi_prof.device.agent import _Reader
from nnapi_prof.device.protocol import ActionResult, AgentInfo, ErrorLine, SegmentSamples, Start
from nnapi_prof.device.protocol.lines import parse_line
from nnapi_prof.errors import SerializationError


def line(kind: str, **fields: Any) -> str:
    return json.dumps({"type": kind, **fields}, separators=(",", ":"), ensure_ascii=False)


RESULT = {
    "action": 7,
    "status": "ok",
    **dict.fromkeys(("stage", "message", "code", "signal")),
    "clock": "simulated",
    "segments": [
        {"compile_ns": 5, "samples_ns": [1, 2], "hardware_ns": [1, 1], "driver_ns": []}
        | {"kernels": {"xnnpack": 3, "portable": 1}, "memory": "file"}
    ],
    "total_ns": [3, 4],
    "first_ns": 9,
    "rss_peak_kb": 1000,
    "cpu_khz": [1800000, None],
    "thermal_mc": [None, None],
    "outputs": [{"tensor": 1, "file": "7-1.bin", "n_bytes": 4, "sha256": "ab"}],
    "rounds": [
        {"runs": 1, "cpu_khz": [1800000, None], "thermal_mc": [41000, 42000]}
        | {"throttled": True, "repeats": None},
        {"runs": 1, "cpu_khz": [None, None], "thermal_mc": [], "throttled": None, "repeats": 0},
    ],
    "warmup_runs": 12,
    "warm": True,
    "cpu_mask": "f0",
}

INFO = {
    "protocol": 1,
    "agent": "0.1.0",
    "abi": "x86_64",
    "os": "linux",
    "properties": {"ro.product.model": "Phone", "ro.product.manufacturer": "Maker"},
    "api_level": 30,
    "cpus": 2,
    "cpu_max_khz": [1800000, None],
    "memory_kb": 4000000,
    "simulated": True,
    "phone": "npu-phone",
    "identity": "abcd",
    "engines": {"cpu": ["xnnpack", "portable"]},
    "big_cores": "c0",
    "threads_max": 8,
    "nnapi": {
        "library": "/x/libneuralnetworks.so",
        "error": None,
        "missing": ["ANeuralNetworks_getRuntimeFeatureLevel"],
        "accelerators": [
            {"name": "npu", "type": "ACCELERATOR", "version": "1.0", "feature_level": 30}
        ],
    },
}


def info(**changes: Any) -> AgentInfo:
    result = parse_line(line("info", **{**INFO, **changes}))
    assert isinstance(result, AgentInfo)
    return result


def test_every_type_of_line():
    hello = line("hello", protocol=1, agent="0.1", actions=2, simulated=False, phone=None)
    assert parse_line(hello) == protocol.Hello(1, "0.1", 2, False, None)
    assert parse_line(line("missing", blobs=["aa", "bb"])) == protocol.Missing(("aa", "bb"))
    assert parse_line(line("start", action=3)) == Start(3)
    assert parse_line(line("end", actions=3, ok=2, failed=1)) == protocol.End(3, 2, 1)
    cleaned = parse_line(line("cleaned", files=2, bytes=30, kept_bytes=5))
    assert cleaned == protocol.Cleaned(2, 30, 5)
    assert parse_line(line("error", message="no")) == ErrorLine("no")
    nothing = (None, None)
    rounds = (Round(1, (1800000, None), (41000, 42000), True), Round(1, nothing, nothing, None, 0))
    assert parse_line(line("result", **RESULT)) == ActionResult(
        *(7, Status.OK, None, None, None, None, "simulated"),
        (SegmentSamples(5, (1, 2), (1, 1), (), protocol.Kernels(3, 1), "file"),),
        *((3, 4), 9, 1000, (1800000, None), (None, None)),
        *((protocol.KeptOutput(1, "7-1.bin", 4, "ab"),), rounds, 12, True, "f0"),
    )
    read = info()
    assert read.properties["ro.product.model"] == "Phone"
    assert read.engines == {"cpu": ("xnnpack", "portable")}
    assert (read.big_cores, read.threads_max) == ("c0", 8)
    assert read.nnapi.accelerators == (protocol.Accelerator("npu", "ACCELERATOR", "1.0", 30),)


def result(**changes: Any) -> ActionResult:
    read = parse_line(line("result", **{**RESULT, **changes}))
    assert isinstance(read, ActionResult)
    return read


def test_every_status_and_what_is_unknown_or_not_there():
    assert [result(status=each.value).status for each in Status] == list(Status)
    assert [each for each in Status if result(status=each.value).ok] == [Status.OK]
    segment = {**RESULT["segments"][0], "compile_ns": None, "kernels": None, "x-s": 3}
    read = result(segments=[segment], first_ns=None, message="no", **{"x-new": ["thing"]})
    segments = (SegmentSamples(None, (1, 2), (1, 1), (), None, "file"),)
    assert read == replace(result(), segments=segments, first_ns=None, message="no")


def test_slowdowns_are_of_medians_of_rounds():
    rounds = (Round(3), Round(2, throttled=True), Round(1))
    segment = SegmentSamples(samples_ns=(20, 21, 90, 1, 1, 45), alone_ns=(14, 9, 14, 7, 7, 30))
    assert segment.slowdowns(rounds) == pytest.approx((21 / 14, 45 / 30))
    assert SegmentSamples(samples_ns=(20, 21)).slowdowns(rounds) == ()


@given(st.text().filter(lambda t: not t.strip().startswith('{"type":')))
@example('{"type":"weather","sky":"blue"}')
def test_noise_and_types_of_a_later_protocol_are_passed_over(text):
    assert parse_line(text) is None


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('{"type":"start","action":', "not JSON"),
        ('{"type":"start"}', "start lacks 'action'"),
        ('{"type":"start","action":"7"}', "action is '7', int wanted"),
        ('{"type":"start","action":true}', "action is True, int wanted"),
        (line("missing", blobs=[1]), r"blobs\[0\] is 1, str wanted"),
        (line("result", **{**RESULT, "status": "great"}), "status is 'great', one of ok, refused"),
        (line("result", **{**RESULT, "cpu_khz": [1]}), "cpu_khz has 1 values, 2 wanted"),
        (line("result", **{**RESULT, "outputs": [3]}), r"outputs\[0\]: an object wanted"),
        (line("result", **{**RESULT, "rounds": [{}]}), r"rounds\[0\] lacks 'runs'"),
        (line("result", **{**RESULT, "warm": 1}), "warm is 1, bool wanted"),
        (line("info", **{**INFO, "nnapi": None}), "nnapi is None, dict wanted"),
        (line("info", **{**INFO, "engines": {"cpu": [1]}}), r"cpu\[0\] is 1, str wanted"),
    ],
)
def test_a_broken_line_of_ours_is_refused(text, words):
    with pytest.raises(SerializationError, match=words):
        parse_line(text)


def test_the_fingerprint_follows_what_a_measurement_depends_on():
    base = device_fingerprint(info())
    assert base == device_fingerprint(info())
    assert len(base) == 16
    # Neither the agent's version nor where the library lies matters.
    assert base == device_fingerprint(info(agent="9.9", memory_kb=1))
    nnapi = {**INFO["nnapi"], "accelerators": []}
    changed = [
        *(info(nnapi=nnapi), info(identity="other"), info(api_level=31), info(abi="arm64-v8a")),
        info(properties={"ro.product.model": "Other"}),
    ]
    assert len({base, *map(device_fingerprint, changed)}) == 6


def test_description_for_people():
    assert describe(info()) == "Maker Phone (simulated phone, API 30, x86_64; NNAPI: npu)"
    none = {**INFO["nnapi"], "accelerators": [], "error": "libneuralnetworks.so: not found"}
    text = describe(info(properties={}, phone=None, simulated=False, api_level=None, nnapi=none))
    assert text == "linux machine (linux, x86_64; no NNAPI (libneuralnetworks.so: not found))"
    unnamed = {**INFO["nnapi"], "accelerators": [], "error": None}  # Android 9
    assert describe(info(nnapi=unnamed)).endswith("; NNAPI without names of accelerators)")


@pytest.mark.parametrize("name", ["samples_ns", "hardware_ns", "driver_ns"])
@pytest.mark.parametrize("value", [-1, 10**30, 1.5, True, None, float("nan"), float("inf")])
def test_times_that_cannot_be(name, value):
    with pytest.raises(SerializationError, match=rf"{name}\[1\] is"):
        result(segments=[{**RESULT["segments"][0], name: [1, value]}])


@pytest.mark.parametrize(
    ("name", "value"),
    [("total_ns", [-3]), ("first_ns", -1), ("first_ns", 1 << 70), ("rss_peak_kb", 1 << 40),
     ("action", -1), ("warmup_runs", -2), ("total_ns", [1] * 1_000_001)],
)  # fmt: skip
def test_numbers_that_cannot_be(name, value):
    with pytest.raises(SerializationError, match=f"the agent's result: {name}"):
        result(**{name: value})


def test_a_broken_sensor_tells_nothing():
    read = result(thermal_mc=[41000, 2**31], cpu_khz=[-5, 7])
    assert (read.thermal_mc, read.cpu_khz) == ((41000, None), (None, 7))


def test_control_characters_become_visible():
    text = "\x1b[31mred\x1b[0m\r\n\u202egnp.exe\u2028\udc80"
    visible = "\\x1b[31mred\\x1b[0m\\r\\n\\u202egnp.exe\\u2028\\udc80"
    assert result(status="failed", message=text).message == visible
    assert info(phone="a\x07b").phone == "a\\x07b"
    assert info(properties={"ro.\x1bx": "\x9b1m"}).properties == {"ro.\\x1bx": "\\x9b1m"}
    long = parse_line(line("error", message="x" * 100_000))
    assert isinstance(long, ErrorLine) and len(long.message) < 2100


def test_a_last_line_that_was_cut_is_kept_for_who_knows_how_the_agent_ended():
    """An agent that is killed may have written half a line."""
    cut = line("result", **RESULT)[:40]
    reader = _Reader()
    assert list(reader.events(iter([line("start", action=7), cut]))) == [Start(7)]
    assert reader.unread is not None and reader.where() == "during action 7"
    with pytest.raises(SerializationError):
        list(_Reader().events(iter([cut, line("end")])))
