"""Each phone with a trouble, or several, against its twin without: the plan, the unit costs, what
failed and the time that measuring takes. A twin of a driver that never runs an operation refuses
it."""

import copy
import dataclasses
from typing import Any

import pytest

from tests.emulator.phones.descriptions import ratio
from tests.parts import again_but
from tests.phones.conftest import CLEAN, GOVERNOR, Description, die, fault, refuse, service

pytestmark = pytest.mark.slow


GOVERNED = {**CLEAN, "cpu": {**CLEAN["cpu"], "governor": GOVERNOR}}
STEADY = {**GOVERNED, "cpu": {**GOVERNED["cpu"], "governor": GOVERNOR | {"lowest": ratio(1)}}}
"""Its clock never falls, which nobody knows: rounds begin as on a real phone."""
ANDROID_10: Description = {
    **CLEAN,
    "properties": {**CLEAN["properties"], "ro.build.version.sdk": "29"},
    "accelerators": [{**each, "feature_level": 29} for each in CLEAN["accelerators"]],
}


WRONG = copy.deepcopy(CLEAN)
WRONG["accelerators"][0]["errors"] = [
    {"operation": "MAX_POOL_2D", "how": "nan", "origin": "assumed: a test"}
]
EVERYTHING = service(
    service(GOVERNED, "sim-gpu", memory=["memfd"], compilations=2),
    memory=["file"],
    **dict(compilations=1, loaded=1, load=5000, returns=0.5),
)


@dataclasses.dataclass(frozen=True)
class Phone:
    """A phone that is the twin's but for its trouble."""

    troubled: Description
    twin: Description = dataclasses.field(default_factory=lambda: CLEAN)
    how: str = ""
    """A word of the failures' messages, if its NPU never runs a pooling."""


def never(kind: str, stage: str, how: str, on: Description = CLEAN, **members: Any) -> Phone:
    """An NPU with a fault at every pooling."""
    troubled = fault(service(on, **members), kind=kind, stage=stage, operation="MAX_POOL_2D")
    return Phone(troubled, refuse(on, "MAX_POOL_2D"), how)


DEAD = "DEAD_OBJECT"
PHONES = {
    "governor": Phone(GOVERNED, STEADY),
    "dies once in a run": Phone(die(service(CLEAN, returns=1), "CONV_2D", times=1, from_run=3)),
    "dies once while compiling": Phone(die(service(CLEAN, returns=1), "ADD", "compile", times=1)),
    "dies in every run": never("die", "execute", DEAD, returns=0.3),
    "dies at every compilation": never("die", "compile", DEAD, returns=0.3),
    "dies on Android 10": never("die", "execute", "logcat", ANDROID_10, returns=0.3),
    "dies in every run under a governor": never("die", "execute", DEAD, GOVERNED, returns=0.3),
    "dies at every compilation, holds one, maps files alone": never(
        "die", "compile", DEAD, returns=0.3, compilations=1, memory=["file"]
    ),
    "crashes its client in memory that it maps": never(
        "crash", "execute", "SIGSEGV", memory=["memfd"], loaded=1, load=5000
    ),
    "lingers under a governor": never(
        "hang", "execute", "not done", GOVERNED, lingers=0.5, lingers_factor=4
    ),
    "writes no output": never("skip", "execute", "unwritten"),
    "writes a part of its output": never("partly", "execute", "unwritten"),
    # The logarithm of a negative number is NaN everywhere, and no fault.
    "writes NaN where the CPU does not": Phone(WRONG, refuse(CLEAN, "MAX_POOL_2D"), "NaN"),
    "everything": Phone(die(EVERYTHING, "DEPTHWISE_CONV_2D", times=1), GOVERNED),
}


@pytest.mark.parametrize(
    "name",
    again_but(
        PHONES,
        *("governor", "dies once in a run", "dies on Android 10", "lingers under a governor"),
        *(name for name in PHONES if name.startswith("writes")),
        "everything",
        why="the trouble is part of another phone's",
    ),
)
def test_profile_and_plan_are_the_twins(profiled, name):
    phone = PHONES[name]
    clean = profiled(phone.twin, "twin", timeout_s=2)
    troubled = profiled(phone.troubled, timeout_s=2)
    assert troubled.segments == clean.segments
    # NNAPI's own choice meets the fault, too; the CPU may be where it ends.
    unlike = [w for w in troubled.unlike(clean) if not (phone.how and w.startswith("max_pool2d"))]
    assert unlike == []
    failed = {(label.split()[0], target) for label, target in troubled.failures}
    true = {("max_pool2d", "sim-npu")} if phone.how else set()
    # NNAPI's choice, too; of what it is not told it gives the whole network, of what hung nothing.
    auto = {("max_pool2d", "auto")} if not name.startswith("lingers") else set()
    if name.startswith("writes"):
        auto.add(("to_channels_last", "auto"))
    assert failed - auto == true
    assert all(phone.how in message for message in troubled.failures.values())
    assert troubled.seconds <= 1.5 * clean.seconds
    if name == "dies once in a run":
        assert max(row.attempts for row in troubled.rows) == 2
