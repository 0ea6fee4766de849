"""Members that a phone's description may not have so are refused with their path."""

import pytest

from tests.emulator.phones.descriptions import (
    Jobs,
    cpu,
    npu,
    operations,
    phone,
    ratio,
    root,
    rules,
    thermal,
    us,
)
from tests.emulator.phones.test_clock import constant, load

CACHE = {"fixed": constant(3, "ms")}
PEAKS = {kind: constant(1, "GMAC/s") for kind in ("default", "quant8")}
jobs = Jobs()


@pytest.fixture(scope="module")
def answers(emulator_library, tmp_path_factory):
    """All jobs of this module."""
    return jobs.answers(emulator_library, tmp_path_factory.mktemp("phones"))


# ---- refusals -----------------------------------------------------------------------------------


def refused(wanted, *edits):
    return wanted, phone(*edits)


FAULT = {"kind": "fail", "stage": "execute", "operation": "ADD", "nth": 1, "origin": "a test"}
ERROR = {"operation": "ADD", "how": "scale", "origin": "a test"}
REFUSED = {
    "how of an error": refused("errors[0].how: found skew", npu(errors=[{**ERROR, "how": "skew"}])),
    "when of an error": refused(
        "errors[0].when: found once", npu(errors=[{**ERROR, "when": "once"}])
    ),
    "channel of an error": refused("errors[0].channel", npu(errors=[{**ERROR, "channel": -1}])),
    "words": refused('operations.default: found "float64"', operations(default="float32 float64")),
    "rank": refused('found "rank<=9"', operations(default="rank<=9")),
    "level": refused('found "level<=31"', operations(default="level<=31")),
    "limit of nothing": refused(
        "limits.RELU: found terms, wanted none",
        operations(**{"except": ["RELU"], "limits": {"RELU": "float32"}}),
    ),
    "limit": refused("operations.limits: found", operations(limits=[])),
    "list": refused("operations.origin: found nothing", npu(operations={"except": []})),
    "kind": refused('peak: found "float64"', npu(peak={**PEAKS, "float64": PEAKS["quant8"]})),
    "peak": refused("peak.default: found nothing", npu(peak={"quant8": constant(1, "GMAC/s")})),
    "power": refused("power.value: found 0", npu(power=ratio(0))),
    "floor": refused("transfer_floor.unit", npu(transfer_floor=constant(1, "ms"))),
    "no speeds": refused("thread_speed: found an object", cpu(thread_speed={})),
    "one thread": refused("thread_speed: found 1", cpu(thread_speed={"1": ratio(1)})),
    "falling": refused("found 2", cpu(thread_speed={"4": ratio(2), "2": ratio(1)})),
    "half": refused("found 2.5", cpu(thread_speed={"2.5": ratio(2)})),
    "speed": refused("thread_speed.2.value: found 0", cpu(thread_speed={"2": ratio(0)})),
    "cores": refused("cores.value: found 65", cpu(cores=constant(65, "none"))),
    "driver share": refused("driver_share.value: found 1.5", npu(driver_share=ratio(1.5))),
    "memory": refused("memory_bandwidth.unit", root(memory_bandwidth=ratio(1))),
    "pattern": refused('found "RELU 6"', rules("CONV_2D + RELU 6")),
    "short": refused("found one place", rules("CONV_2D")),
    "long": refused("found a longer pattern", rules("ADD + ADD + ADD + ADD + ADD")),
    "empty place": refused('fusion[0].pattern: found ""', rules("ADD +")),
    "fusion origin": refused("fusion[0].origin", npu(fusion=[{"pattern": "ADD + ADD"}])),
    "cache": refused(
        "compilation.cache.per_megabyte",
        npu(
            compilation={
                **load("npu-phone")["accelerators"][0]["compilation"],
                "cache": CACHE,
            }
        ),
    ),
    "steps": refused("wanted steps by rising", root(thermal=thermal((40, 2), (30, 3)))),
    "many": refused("at most 8 steps", root(thermal=thermal(*[(t, 2) for t in range(9)]))),
    "hot": refused("thermal.throttle[0].above.value", root(thermal=thermal((300, 2)))),
    "constant": refused("time_constant.unit", root(thermal={**thermal(), "time_constant": us(1)})),
    "frequency": refused("cpu.frequency.unit", cpu(frequency=constant(2, "GHz"))),
    "fault": refused("faults[0].kind: found explode", npu(faults=[{**FAULT, "kind": "explode"}])),
    "stage": refused("faults[0].stage: found run", npu(faults=[{**FAULT, "stage": "run"}])),
    "nth": refused("faults[0].nth: found 0", npu(faults=[{**FAULT, "nth": 0}])),
    "run": refused(
        "wanted none, as a compilation", npu(faults=[{**FAULT, "stage": "compile", "from_run": 2}])
    ),
    "faults": refused("a phone has at most 32 faults", npu(faults=[FAULT] * 33)),
    "fault origin": refused("faults[0].origin", npu(faults=[{**FAULT, "origin": ""}])),
}
for name, (_, description) in REFUSED.items():
    jobs(f"refused {name}", description)


@pytest.mark.parametrize("name", REFUSED)
def test_bad_members_are_refused_with_their_path(answers, name):
    error = answers[f"refused {name}"]["error"]
    assert error is not None and REFUSED[name][0] in error, error
    assert answers[f"refused {name}"]["devices"] == []
