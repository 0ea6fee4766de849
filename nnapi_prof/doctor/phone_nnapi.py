"""NNAPI on the phone: the library, its functions, accelerators besides the CPU."""

from __future__ import annotations

import re
from collections.abc import Iterator

from nnapi_prof.device.results import AgentInfo
from nnapi_prof.doctor.findings import Family, Finding
from nnapi_prof.doctor.phone_facts import Phone
from nnapi_prof.doctor.registry import phone_checks

NNAPI = Family("NNAPI")

_FIX = "none of ours: the phone's maker ships drivers; `nnapi-prof devices` lists others"
_FILES_SCRIPT = (
    "for d in /apex/com.android.neuralnetworks/lib64 /apex/com.android.neuralnetworks/lib "
    "/system/lib64 /system/lib /usr/lib; do f=$d/libneuralnetworks.so; "
    '[ -e $f ] && echo "lib=$f"; done; '
    "service list 2>/dev/null | "
    "sed -n 's/.*hardware.neuralnetworks.IDevice.\\([^:]*\\):.*/hal=\\1/p'; "
    "lshal --neat 2>/dev/null | "
    "sed -n 's/.*hardware.neuralnetworks@[0-9.]*::IDevice.\\([^ ]*\\).*/hal=\\1/p'; true"
)


@phone_checks(NNAPI.name)
def nnapi(phone: Phone) -> Iterator[Finding]:
    if phone.info is not None:
        yield from _by_agent(phone.info)
        return
    _, output = phone.ask(_FILES_SCRIPT)
    libraries = re.findall(r"^lib=(.*)$", output, re.MULTILINE)
    drivers = sorted(set(re.findall(r"^hal=(.*)$", output, re.MULTILINE)))
    if not libraries:
        yield NNAPI.problem("library", "the device has no libneuralnetworks.so", _FIX)
        return
    yield NNAPI.ok("library", libraries[0].strip())
    if drivers:
        yield NNAPI.ok("drivers", ", ".join(driver.strip() for driver in drivers))
    else:
        yield NNAPI.warning(
            "drivers",
            "none is told to adb's shell",
            "nnapi-prof agent build, then nnapi-prof doctor again: the agent asks NNAPI itself",
        )


def _by_agent(info: AgentInfo) -> Iterator[Finding]:
    """What NNAPI itself told."""
    label = " (simulated)" if info.simulated else ""
    if info.nnapi.library is None:
        why = info.nnapi.error or "it cannot be loaded"
        yield NNAPI.problem("library", f"the device has no NNAPI: {why}", _FIX)
        return
    level = f", API level {info.api_level}" if info.api_level is not None else ""
    yield NNAPI.ok("library", f"{info.nnapi.library}{level}{label}")
    found = info.nnapi.accelerators
    real = [each for each in found if each.type != "CPU"]
    listed = ", ".join(
        f"{each.name} ({each.type.lower()}, API {each.feature_level}, {each.version})"
        for each in found
    )
    if real:
        yield NNAPI.ok("accelerators", f"{listed}{label}")
    elif found:
        yield NNAPI.warning("accelerators", f"nothing but the CPU: {listed}{label}", _FIX)
    else:
        yield NNAPI.warning(
            "accelerators",
            "none can be named: before Android 10 only NNAPI's own choice (auto) is measured",
            "no need: profiles measure `auto` there",
        )
