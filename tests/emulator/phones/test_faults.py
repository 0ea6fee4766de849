"""Injected faults: what they do to a caller."""

import os
import subprocess
import sys

import pytest

from tests.emulator.phones.descriptions import RELU_3, Jobs, at, auto, npu, on, phone

FAULT = {"kind": "fail", "stage": "execute", "operation": "RELU", "nth": 3, "origin": "a test"}

jobs = Jobs()


def inject(name, faults, *runs):
    """A job with NNAPI_EMULATOR_FAULTS."""
    jobs(name, phone(accelerators=3), *runs, env={"NNAPI_EMULATOR_FAULTS": faults})


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


def walls(answers, name):
    return [run["wall"] for run in answers[name]["runs"]]


def test_refused_operations_are_not_supported(answers):
    named, chosen = answers["refuse compile"]["runs"]
    assert named["supported"] == [True, False, True] and named["finish"] == "BAD_DATA"
    assert chosen["codes"] == ["NO_ERROR"] * 3  # another device takes the second
    assert chosen["wall"] > walls(answers, "well")[1]


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


WITHOUT_A_PHONE = """
import ctypes, sys
library = ctypes.CDLL(sys.argv[1])
library.np_emulator_error.restype = ctypes.c_char_p
print(library.np_emulator_error().decode())
"""


def test_faults_without_a_phone_are_no_secret(emulator_library):
    environment = {**os.environ, "NNAPI_EMULATOR_FAULTS": "fail:execute:RELU"}
    command = [sys.executable, "-c", WITHOUT_A_PHONE, str(emulator_library)]
    told = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert "needs a simulated phone" in told.stdout
