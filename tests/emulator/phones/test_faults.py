"""Injected faults, and descriptions that no phone can have."""

import json
from pathlib import Path

import pytest

from tests.emulator.nnapi import Op
from tests.emulator.phones.descriptions import (
    RELU_3,
    Jobs,
    at,
    auto,
    constant,
    cpu,
    load,
    npu,
    on,
    operations,
    phone,
    ratio,
    root,
    row,
    rules,
    thermal,
    us,
)

FAULT = {"kind": "fail", "stage": "execute", "operation": "RELU", "nth": 3, "origin": "a test"}

jobs = Jobs()


def inject(name, faults, *runs):
    """A job with NNAPI_EMULATOR_FAULTS."""
    jobs(name, phone(accelerators=3), *runs, env={"NNAPI_EMULATOR_FAULTS": faults})


# ---- faults --------------------------------------------------------------------------------------

NAMED, CHOSEN = on(RELU_3, repeat=3), auto(RELU_3, repeat=3)
CPU = on(RELU_3, "nnapi-reference", repeat=3)
jobs("well", phone(accelerators=3), NAMED, CHOSEN, CPU)
for kind in ("refuse", "fail"):
    for stage in ("compile", "execute"):
        inject(f"{kind} {stage}", f"{kind}:{stage}:RELU:2", NAMED, CHOSEN)
NO_RELU = at("accelerators.2.operations", **{"except": ["RELU"]})
for stage in ("compile", "execute"):
    faults = {"NNAPI_EMULATOR_FAULTS": f"fail:{stage}:RELU:2"}
    jobs(f"no way out of {stage}", phone(NO_RELU, accelerators=3), CHOSEN, env=faults)
inject("from the third run", "fail:execute:RELU:1:3", NAMED, CHOSEN)
inject("every second run", "fail:execute:RELU:1:2/2", on(RELU_3, repeat=6))
inject("fourth of three", "fail:execute:RELU:4,refuse:compile:RELU:4", NAMED)
inject("the CPU path", "fail:execute:RELU@nnapi-reference", CPU)
inject("not the CPU path", "fail:execute:RELU", CPU)
inject("another operation", "fail:execute:TANH", NAMED)
inject("another accelerator", "fail:execute:RELU:2@sim-gpu", NAMED, on(RELU_3, "sim-gpu"))
inject("two", "fail:execute:TANH,fail:execute:RELU", NAMED)
jobs("described", phone(npu(faults=[{**FAULT, "from_run": 2}]), accelerators=3), NAMED)
EVERY = {**FAULT, "from_run": 1, "every": 3}
jobs("described, every third", phone(npu(faults=[EVERY]), accelerators=3), on(RELU_3, repeat=6))
jobs("of the other", phone(npu(faults=[FAULT]), accelerators=3), on(RELU_3, "sim-gpu"))
NO_PHONE = {"NNAPI_EMULATOR_PHONE": "", "NNAPI_EMULATOR_FAULTS": "fail:execute:RELU"}
jobs("no phone", "", env=NO_PHONE)
BAD = {
    "explode:execute:RELU": "wanted refuse, fail, die, stop, hang, abort, crash, exhaust",
    "fail:run:RELU": "and compile or execute",
    "reshape:compile:RELU": "a compilation has no outputs",
    "fail:execute:RELU6X": "no NNAPI operation has this name",
    "fail:execute": "no NNAPI operation has this name",
    "fail:execute:RELU:0": "wanted a number from 1",
    "fail:execute:RELU:x": "wanted a number from 1",
    "fail:execute:RELU:": "too many parts",
    "fail:execute:RELU:1:2:3": "too many parts",
    "fail:compile:RELU:1:2": "a compilation comes once",
    "fail:compile:RELU:1:1/2": "a compilation comes once",
    "fail:execute:RELU:1:2/": "wanted the number of a run from 1, or that, a slash",
    "fail:execute:RELU:1:/2": "wanted the number of a run from 1, or that, a slash",
    "fail:execute:RELU:1:2/0": "wanted the number of a run from 1, or that, a slash",
    "fail:execute:RELU@sim-xpu": "no accelerator of this name",
    "fail:execute:RELU,": "nothing behind the last comma",
    ",": "wanted a fault",
    ",".join(["fail:execute:RELU"] * 33): "more than 32 faults",
}
for text in BAD:
    inject(f"bad {text}", text, CHOSEN)


def test_refused_operations_are_not_supported(answers):
    named, chosen = answers["refuse compile"]["runs"]
    assert named["supported"] == [True, False, True] and named["finish"] == "BAD_DATA"
    assert chosen["codes"] == ["NO_ERROR"] * 3  # another device takes the second
    assert chosen["wall"] > answers["well"]["runs"][1]["wall"]


def test_failing_compilation(answers):
    """Where NNAPI chose, its CPU path takes the whole model, after the time that was lost."""
    well, _, cpu = answers["well"]["runs"]
    named, chosen = answers["fail compile"]["runs"]
    assert named["finish"] == "OP_FAILED" and named["compile"] == well["compile"]
    assert chosen["finish"] == "NO_ERROR" and chosen["wall"] == cpu["wall"]
    assert chosen["compile"] == pytest.approx(well["compile"] + cpu["compile"], abs=1)
    assert chosen["outputs"] == well["outputs"]


def test_failures_that_the_cpu_path_cannot_save(answers):
    (run,) = answers["no way out of compile"]["runs"]
    assert run["finish"] == "OP_FAILED"
    (run,) = answers["no way out of execute"]["runs"]
    assert run["finish"] == "NO_ERROR" and run["codes"] == ["OP_FAILED"] * 3


@pytest.mark.parametrize("kind, code", [("refuse", "BAD_DATA"), ("fail", "OP_FAILED")])
def test_failing_execution(answers, kind, code):
    well, _, cpu = answers["well"]["runs"]
    named, chosen = answers[f"{kind} execute"]["runs"]
    assert named["codes"] == [code] * 3 and named["wall"] == well["wall"]
    assert named["hardware"] == [None] * 3
    assert chosen["codes"] == ["NO_ERROR"] * 3 and chosen["outputs"] == well["outputs"]
    both = [a + b for a, b in zip(well["wall"], cpu["wall"], strict=True)]
    assert chosen["wall"] == pytest.approx(both, abs=1)


def test_from_a_run_on(answers):
    named, chosen = answers["from the third run"]["runs"]
    assert named["codes"] == ["NO_ERROR", "NO_ERROR", "OP_FAILED"]
    assert chosen["codes"] == ["NO_ERROR"] * 3 and chosen["wall"][2] > chosen["wall"][1]
    (described,) = answers["described"]["runs"]
    assert described["codes"] == ["NO_ERROR", "OP_FAILED", "OP_FAILED"]


def test_every_so_many_runs(answers):
    (run,) = answers["every second run"]["runs"]
    assert run["codes"] == ["NO_ERROR", "OP_FAILED"] * 3
    (run,) = answers["described, every third"]["runs"]
    assert run["codes"] == ["OP_FAILED", "NO_ERROR", "NO_ERROR"] * 2


def test_only_what_is_named_fails(answers):
    well = answers["well"]["runs"][0]
    for name in ("fourth of three", "another operation", "another accelerator"):
        run = answers[name]["runs"][0]
        assert (run["codes"], run["wall"]) == (well["codes"], well["wall"]), name
    assert answers["another accelerator"]["runs"][1]["codes"] == ["OP_FAILED"]
    assert answers["the CPU path"]["runs"][0]["codes"] == ["OP_FAILED"] * 3
    assert answers["not the CPU path"]["runs"][0]["codes"] == ["NO_ERROR"] * 3
    assert answers["of the other"]["runs"][0]["codes"] == ["NO_ERROR"]
    assert answers["two"]["runs"][0]["codes"] == ["OP_FAILED"] * 3


def test_faults_make_another_device_of_it(answers):
    names = ("well", "fail execute", "fail compile")
    assert len({answers[name]["identity"] for name in names}) == 3


@pytest.mark.parametrize("text", BAD, ids=lambda text: text[:40])
def test_bad_faults_leave_no_device(answers, text):
    answer = answers[f"bad {text}"]
    assert "NNAPI_EMULATOR_FAULTS: " in answer["error"] and BAD[text] in answer["error"]
    assert answer["devices"] == [] and answer["runs"][0]["finish"] == "UNAVAILABLE_DEVICE"


def test_faults_without_a_phone_are_no_secret(answers):
    assert "needs a simulated phone" in answers["no phone"]["error"]


# ---- refused descriptions ------------------------------------------------------------------------

ONE = constant(1, "GMAC/s")
PEAKS = {"default": ONE, "quant8": ONE}
COMPILATION = load("npu-phone")["accelerators"][0]["compilation"]
OF_RUNS = {**FAULT, "stage": "compile", "from_run": 2}
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
    "unit": ('cpu.peak.unit: found "ratio", wanted unit "GMAC/s"', cpu(peak=ratio(1))),
    "bare": ("cpu.bandwidth: found 10, wanted a constant", cpu(bandwidth=10)),
    "zero": ("cpu.peak.value: found 0, wanted a number above 0", cpu(peak=constant(0, "GMAC/s"))),
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
    "names": ("accelerators[1]: found a name used before", at("accelerators.1", name="sim-npu")),
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
    "run": ("wanted none, as a compilation", npu(faults=[OF_RUNS])),
    "faults": ("a phone has at most 32 faults", npu(faults=[FAULT] * 33)),
    "fault origin": ("faults[0].origin", npu(faults=[{**FAULT, "origin": ""}])),
}
REFUSED = TEXTS | {
    name: (expected, phone(edit, accelerators=2)) for name, (expected, edit) in MEMBERS.items()
}
for name, (_, description) in REFUSED.items():
    jobs(name, description, auto(row(Op.RELU)))


@pytest.mark.parametrize("name", REFUSED)
def test_bad_members_are_refused_with_their_path(answers, name):
    answer = answers[name]
    assert REFUSED[name][0] in answer["error"]
    assert "NNAPI_EMULATOR_PHONE" in answer["error"]
    assert f"{[*jobs].index(name)}.json" in answer["error"]
    assert answer["devices"] == [] and answer["phone"] is None
    assert answer["runs"][0]["finish"] == "UNAVAILABLE_DEVICE"


jobs("absent", Path("/nowhere/nothing-here"))
jobs("folder", Path("/usr"))


def test_unreadable_descriptions(answers):
    assert "cannot open: No such file or directory" in answers["absent"]["error"]
    assert "folder" in answers["folder"]["error"]
