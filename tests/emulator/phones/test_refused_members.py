"""Descriptions that no phone can have are refused, with the place and what it should have."""

import json

import pytest

from tests.emulator.nnapi import Op
from tests.emulator.phones.descriptions import (
    Jobs,
    at,
    auto,
    constant,
    cpu,
    load,
    npu,
    operations,
    phone,
    ratio,
    root,
    row,
    rules,
    thermal,
    us,
)

ONE = constant(1, "GMAC/s")
PEAKS = {"default": ONE, "quant8": ONE}
COMPILATION = load("npu-phone")["accelerators"][0]["compilation"]
FAULT = {"kind": "fail", "stage": "execute", "operation": "ADD", "nth": 1, "origin": "a test"}
ERROR = {"operation": "ADD", "how": "scale", "origin": "a test"}
TEXTS = {  # what the message must contain, the file
    "empty": ("line 1, column 1: found the end of the file, wanted a value", ""),
    "truncated": ("found the end of the file", json.dumps(load("npu-phone"))[:-2]),
    "trailing": ("wanted the end of the file", json.dumps(load("npu-phone")) + "x"),
    "deep": ("at most 32 levels of nesting", "[" * 40),
    "twice": ("member names that occur once", '{"a": 1, "a": 2}'),
    "control": ("no control character", '{"a\n": 1}'),
    "escape": ("an escape", '{"\\x": 1}'),
    "surrogate": ("low half of a surrogate pair", '{"\\ud800": 1}'),
    "array": ("the file: found an array, wanted an object", "[]"),
    "number": ("a number that fits a double", '{"a": 1e999}'),
}
MEMBERS = {  # what the message must contain, edits of the flagship
    "format": ('format: found other, wanted "nnapi-emulator-phone"', root(format="other")),
    "version": ("version: found 1, wanted a whole number", root(version=1)),
    "unknown": ('the file: found member "colour"', root(colour="red")),
    "no CPU": ("cpu: found nothing, wanted this member", root(cpu=None)),
    "no unit": ("cpu.peak.unit: found nothing", cpu(peak={"value": 1})),
    "no origin": ("cpu.peak.origin: found nothing", cpu(peak={"value": 1, "unit": "GMAC/s"})),
    "unit": (
        'cpu.peak.unit: found "GFLOP/s", wanted unit "GMAC/s"',
        cpu(peak=constant(1, "GFLOP/s")),
    ),
    "bare": ("cpu.bandwidth: found 10, wanted a constant", cpu(bandwidth=10)),
    "zero": (
        "cpu.peak.value: found 0, wanted a number above 0",
        cpu(peak=constant(0, "GMAC/s")),
    ),
    "efficiency": (
        "accelerators[0].efficiency.CONV_2D.value: found 1.5",
        at("accelerators.0.efficiency", CONV_2D=ratio(1.5)),
    ),
    "operation": (
        'accelerators[0].operations.only[0]: found "CONV3D"',
        npu(operations={"only": ["CONV3D"]}),
    ),
    "both": (
        'accelerators[0].operations: found both "only" and "except"',
        npu(operations={"only": [], "except": []}),
    ),
    "type": ("accelerators[0].type: found DSP", npu(type="DSP")),
    "feature level": ("accelerators[0].feature_level: found 32", npu(feature_level=32)),
    "preference": (
        "accelerators[0].preference.sustained: found nothing",
        at("accelerators.0.preference", sustained=None),
    ),
    "names": (
        "accelerators[1]: found a name used before",
        at("accelerators.1", name="sim-npu"),
    ),
    "property": ("properties.x: found 1, wanted text", at("properties", x=1)),
    "spread": ("noise.spread.value: found -1", at("noise", spread=ratio(-1))),
    "how of an error": ("errors[0].how: found skew", npu(errors=[{**ERROR, "how": "skew"}])),
    "when of an error": ("errors[0].when: found once", npu(errors=[{**ERROR, "when": "once"}])),
    "channel of an error": ("errors[0].channel", npu(errors=[{**ERROR, "channel": -1}])),
    "words": ('operations.default: found "float64"', operations(default="float32 float64")),
    "rank": ('found "rank<=9"', operations(default="rank<=9")),
    "level": ('found "level<=31"', operations(default="level<=31")),
    "limit of nothing": (
        "limits.RELU: found terms, wanted none",
        operations(**{"except": ["RELU"], "limits": {"RELU": "float32"}}),
    ),
    "limit": ("operations.limits: found", operations(limits=[])),
    "list": ("operations.origin: found nothing", npu(operations={"except": []})),
    "kind": ('peak: found "float64"', npu(peak={**PEAKS, "float64": ONE})),
    "peak": ("peak.default: found nothing", npu(peak={"quant8": ONE})),
    "power": ("power.value: found 0", npu(power=ratio(0))),
    "floor": ("transfer_floor.unit", npu(transfer_floor=constant(1, "ms"))),
    "no speeds": ("thread_speed: found an object", cpu(thread_speed={})),
    "one thread": ("thread_speed: found 1", cpu(thread_speed={"1": ratio(1)})),
    "falling": ("found 2", cpu(thread_speed={"4": ratio(2), "2": ratio(1)})),
    "half": ("found 2.5", cpu(thread_speed={"2.5": ratio(2)})),
    "speed": ("thread_speed.2.value: found 0", cpu(thread_speed={"2": ratio(0)})),
    "cores": ("cores.value: found 65", cpu(cores=constant(65, "none"))),
    "driver share": ("driver_share.value: found 1.5", npu(driver_share=ratio(1.5))),
    "memory": ("memory_bandwidth.unit", root(memory_bandwidth=ratio(1))),
    "pattern": ('found "RELU 6"', rules("CONV_2D + RELU 6")),
    "short": ("found one place", rules("CONV_2D")),
    "long": ("found a longer pattern", rules("ADD + ADD + ADD + ADD + ADD")),
    "empty place": ('fusion[0].pattern: found ""', rules("ADD +")),
    "fusion origin": ("fusion[0].origin", npu(fusion=[{"pattern": "ADD + ADD"}])),
    "cache": (
        "compilation.cache.per_megabyte",
        npu(compilation={**COMPILATION, "cache": {"fixed": constant(3, "ms")}}),
    ),
    "steps": ("wanted steps by rising", root(thermal=thermal((40, 2), (30, 3)))),
    "many": ("at most 8 steps", root(thermal=thermal(*[(t, 2) for t in range(9)]))),
    "hot": ("thermal.throttle[0].above.value", root(thermal=thermal((300, 2)))),
    "constant": ("time_constant.unit", root(thermal={**thermal(), "time_constant": us(1)})),
    "frequency": ("cpu.frequency.unit", cpu(frequency=constant(2, "GHz"))),
    "fault": ("faults[0].kind: found explode", npu(faults=[{**FAULT, "kind": "explode"}])),
    "stage": ("faults[0].stage: found run", npu(faults=[{**FAULT, "stage": "run"}])),
    "nth": ("faults[0].nth: found 0", npu(faults=[{**FAULT, "nth": 0}])),
    "run": (
        "wanted none, as a compilation",
        npu(faults=[{**FAULT, "stage": "compile", "from_run": 2}]),
    ),
    "faults": ("a phone has at most 32 faults", npu(faults=[FAULT] * 33)),
    "fault origin": ("faults[0].origin", npu(faults=[{**FAULT, "origin": ""}])),
}
REFUSED = TEXTS | {
    name: (expected, phone(edit, accelerators=2)) for name, (expected, edit) in MEMBERS.items()
}
jobs = Jobs()
for name, (_, description) in REFUSED.items():
    jobs(name, description, auto(row(Op.RELU)))


@pytest.mark.parametrize("name", REFUSED)
def test_bad_members_are_refused_with_their_path(answers, name):
    answer = answers[name]
    assert REFUSED[name][0] in answer["error"]
    assert "NNAPI_EMULATOR_PHONE" in answer["error"]
    assert f"{[*REFUSED].index(name)}.json" in answer["error"]
    assert answer["devices"] == [] and answer["phone"] is None
    assert answer["runs"][0]["finish"] == "UNAVAILABLE_DEVICE"


@pytest.mark.parametrize(
    ("name", "expected"),
    [("nothing-here", "cannot open: No such file or directory"), ("", "folder")],
)
def test_unreadable_descriptions(emulator_library, tmp_path, name, expected):
    unreadable = Jobs()
    unreadable("one", tmp_path / name)
    assert expected in unreadable.answers(emulator_library, tmp_path)["one"]["error"]
