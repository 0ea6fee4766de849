"""A phone: from ``--device`` to its agent where that needs no building, and what is looked at."""

from __future__ import annotations

import os
import posixpath
import re
from collections.abc import Iterator
from dataclasses import replace

from nnapi_prof.device import xnnpack
from nnapi_prof.device.agent import AgentClient
from nnapi_prof.device.build import find_agent
from nnapi_prof.device.find import LOCAL, SIMULATED, connected, open_device, phone_file
from nnapi_prof.device.install import device_platform, remote_dir
from nnapi_prof.device.protocol.results import AgentInfo
from nnapi_prof.device.state import SCRIPT, DeviceState, parse_state
from nnapi_prof.device.transport import storage_error
from nnapi_prof.doctor.checks import Family, Finding, Phone, error_finding, read_facts
from nnapi_prof.errors import NnapiProfError
from nnapi_prof.toolchain import ANDROID_ABIS, Progress, host_abi

PHONE = Family("Phone")
_CHECK = "device"
_CONNECT = (
    "connect one by USB with USB debugging on (Settings, Developer options), then: "
    "nnapi-prof doctor"
)


def reach(spec: str | None, progress: Progress | None = None) -> tuple[Phone | None, list[Finding]]:
    """The device to look at, opened, and what was found on the way; close its transport.

    Without ``spec`` the only phone that can be used, if there is one.
    """
    spec = spec or os.environ.get("ANDROID_SERIAL") or None
    if spec is None:
        ready = [phone.serial for phone in connected() if phone.state == "device"]
        if not ready:
            words = "no phone is within reach: simulated ones stand in for it"
            return None, [PHONE(_CHECK).warning(words, _CONNECT)]
        if len(ready) > 1:
            words = f"several are within reach: {', '.join(ready)}; none was looked at"
            return None, [PHONE(_CHECK).warning(words, "nnapi-prof doctor --device SERIAL")]
        spec = ready[0]
    try:
        if spec == LOCAL or spec.startswith(SIMULATED):
            return _here(spec)
        return _there(spec, progress)
    except NnapiProfError as error:
        return None, [error_finding(PHONE(_CHECK), error)]


def _there(spec: str, progress: Progress | None) -> tuple[Phone, list[Finding]]:
    opened = open_device(spec, progress)
    transport = opened.transport
    try:
        abi, system = device_platform(transport)
        facts = read_facts(transport)
        name = " ".join(filter(None, (facts.get("maker"), facts.get("model"))))
        words = f"{opened.serial} ({name or 'no name reported'}), {transport.description}"
        phone = Phone(transport, abi, system, facts, remote_dir())
        return phone, [PHONE(_CHECK).ok(words)]
    except BaseException:
        opened.close()
        raise


def _here(spec: str) -> tuple[Phone | None, list[Finding]]:
    """This host or a phone simulated on it: nothing is built for it now."""
    if spec.startswith(SIMULATED):
        phone_file(spec.removeprefix(SIMULATED))
    unbuilt = find_agent(host_abi(), "linux") is None
    if unbuilt or (spec == LOCAL and xnnpack.state() == xnnpack.State()):
        words = f"{spec} is there; its agent is built at first use, or `nnapi-prof agent build`"
        return None, [PHONE(_CHECK).ok(words)]
    opened = open_device(spec)
    phone = Phone(
        opened.transport, host_abi(), "linux", {}, "", opened.client.info(), host_only=True
    )
    return phone, [PHONE(_CHECK).ok(f"{opened.serial}: {opened.transport.description}")]


def with_agent(phone: Phone, progress: Progress | None = None) -> tuple[Phone, Finding | None]:
    """The phone with what its agent says, if the agent can be had without building it."""
    if phone.info is not None:
        return phone, None
    if find_agent(phone.abi, phone.os) is None:
        abi = phone.abi if phone.os == "android" else "host"
        return phone, PHONE("agent").warning(
            f"none is built for {phone.os} on {phone.abi}: NNAPI is judged by files alone",
            f"nnapi-prof agent build --abi {abi}, then nnapi-prof doctor again",
        )
    # Not closed: that would close the transport, which is the caller's.
    client = AgentClient(phone.transport, progress=progress)
    info = client.info()
    words = f"runs there: {info.agent}, {client.installed.path}"
    return replace(phone, info=info), PHONE("agent").ok(words)


# ---- the phone's system: Android's version, ABI, page size; storage, what may run ----------------


FIRST_API = 27
"""Android 8.1: NNAPI's first."""
DEPRECATED_API = 35
"""Android 15."""
FULL_KB = 16 * 1024
"""The agent has some 3 MB; a model's weights come on top."""
SCANT_KB = 256 * 1024
_PAGES = ("4096", "16384")

# $0 the folder above the agent's: the nearest one that is there.
_SPACE_SCRIPT = (
    'd="$0"; while [ ! -d "$d" ] && [ "$d" != / ]; do d=$(dirname "$d"); done; df -Pk "$d"'
)
# $0 the agent's folder. A script is refused where a program would be.
_EXECUTE_SCRIPT = (
    'mkdir -p "$0" || exit 8; f="$0/doctor.$$"; '
    'printf "#!%s\\necho fits\\n" "$(command -v sh)" >"$f" && chmod 755 "$f" || '
    '{ rm -f "$f"; exit 8; }; "$f"; c=$?; rm -f "$f"; exit $c'
)


@PHONE.on_system
def android(phone: Phone) -> Iterator[Finding]:
    if phone.os != "android" and phone.sdk is None:
        yield PHONE("Android").ok(f"none: a Linux on {phone.abi}")
        return
    words = f"{phone.facts.get('release') or '?'}, API {phone.sdk}"
    if phone.sdk is None:
        yield PHONE("Android").warning("its version is not reported", "adb shell getprop")
    elif phone.sdk < FIRST_API:
        yield PHONE("Android").problem(
            f"{words}: NNAPI came with Android 8.1 (API {FIRST_API})",
            "use a newer phone; this one has nothing but its CPU",
        )
    elif phone.sdk >= DEPRECATED_API:
        yield PHONE("Android").warning(
            f"{words}: NNAPI is deprecated since Android 15: it is still there, but phones that "
            "came with it may have no driver besides the CPU's",
            "look at the accelerators below, and at what `nnapi-prof profile` measures on them",
        )
    else:
        yield PHONE("Android").ok(words)


@PHONE.on_system
def processor(phone: Phone) -> Iterator[Finding]:
    """Agents exist for its ABI, and load on its pages."""
    if phone.abi not in ANDROID_ABIS:
        yield PHONE("ABI").problem(
            f"{phone.abi}: there is no agent for it", f"use a device of {', '.join(ANDROID_ABIS)}"
        )
    else:
        yield PHONE("ABI").ok(phone.abi)
    page = phone.facts.get("page", "")
    if page in _PAGES:
        yield PHONE("page size").ok(f"{int(page) // 1024} KB")
    elif page:
        yield PHONE("page size").warning(
            f"{page} bytes: agents are built for pages of 4 and 16 KB",
            "use a phone with pages of 4 or 16 KB",
        )


@PHONE.on_system
def space(phone: Phone) -> Iterator[Finding]:
    folder = posixpath.dirname(phone.remote_dir)
    code, output = phone.ask(_SPACE_SCRIPT, folder)
    cells = output.split("\n")[-2].split() if output.count("\n") > 1 else []
    if code != 0 or len(cells) < 6 or not cells[3].isdigit():
        yield PHONE("space").warning(
            f"not reported for {folder}: {output[-200:]}", f"adb shell df {folder}"
        )
        return
    free_kb = int(cells[3])
    words = f"{free_kb / 1024:.0f} MB free in {folder}"
    fix = "nnapi-prof agent clean (or: adb shell rm -r /data/local/tmp/...)"
    if free_kb < FULL_KB:
        yield PHONE("space").problem(f"{words}: too little for the agent and weights", fix)
    elif free_kb < SCANT_KB:
        yield PHONE("space").warning(f"{words}: too little for large models", fix)
    else:
        yield PHONE("space").ok(words)


@PHONE.on_system
def execution(phone: Phone) -> Iterator[Finding]:
    """Whether programs may run where the agent goes: by running one."""
    code, output = phone.ask(_EXECUTE_SCRIPT, phone.remote_dir)
    selinux = phone.facts.get("selinux")
    guard = f" (SELinux {selinux.lower()})" if selinux else ""
    elsewhere = "export NNAPI_PROF_REMOTE_DIR=/another/folder (one that allows execution)"
    if code == 0 and "fits" in output:
        yield PHONE("execution").ok(f"programs run in {phone.remote_dir}{guard}")
    elif code == 8:
        stored = storage_error(output, phone.remote_dir, phone.serial)
        if stored is not None:
            where, _, fix = str(stored).rpartition(": ")
            yield PHONE("execution").problem(where, fix)
        else:
            last = output.strip().splitlines()[-1:] or ["no reason given"]
            yield PHONE("execution").problem(
                f"{phone.remote_dir} cannot be written to: {last[0]}", elsewhere
            )
    else:
        yield PHONE("execution").problem(
            f"nothing may run in {phone.remote_dir}{guard}: {output.strip()[-150:]}", elsewhere
        )


# ---- NNAPI: the library, its functions, accelerators besides the CPU -----------------------------


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


@NNAPI.on_phone
def nnapi(phone: Phone) -> Iterator[Finding]:
    if phone.info is not None:
        yield from _by_agent(phone.info)
        return
    _, output = phone.ask(_FILES_SCRIPT)
    libraries = re.findall(r"^lib=(.*)$", output, re.MULTILINE)
    drivers = sorted(set(re.findall(r"^hal=(.*)$", output, re.MULTILINE)))
    if not libraries:
        yield NNAPI("library").problem("the device has no libneuralnetworks.so", _FIX)
        return
    yield NNAPI("library").ok(libraries[0].strip())
    if drivers:
        yield NNAPI("drivers").ok(", ".join(driver.strip() for driver in drivers))
    else:
        yield NNAPI("drivers").warning(
            "adb's shell is told none",
            "nnapi-prof agent build, then nnapi-prof doctor again: the agent asks NNAPI itself",
        )


def _by_agent(info: AgentInfo) -> Iterator[Finding]:
    """What NNAPI itself told."""
    label = " (simulated)" if info.simulated else ""
    if info.nnapi.library is None:
        why = info.nnapi.error or "it cannot be loaded"
        yield NNAPI("library").problem(f"the device has no NNAPI: {why}", _FIX)
        return
    level = f", API level {info.api_level}" if info.api_level is not None else ""
    yield NNAPI("library").ok(f"{info.nnapi.library}{level}{label}")
    accelerators = info.nnapi.accelerators
    real = [each for each in accelerators if each.type != "CPU"]
    listed = ", ".join(
        f"{each.name} ({each.type.lower()}, API {each.feature_level}, {each.version})"
        for each in accelerators
    )
    if real:
        yield NNAPI("accelerators").ok(f"{listed}{label}")
    elif accelerators:
        yield NNAPI("accelerators").warning(f"nothing but the CPU: {listed}{label}", _FIX)
    else:
        yield NNAPI("accelerators").warning(
            "none can be named: before Android 10 only NNAPI's own choice (auto) is measured",
            "no need: profiles measure `auto` there",
        )


# ---- what makes latencies differ from day to day: heat, battery, a dark screen -------------------


STATE = Family("State")

LOW_PERCENT = 20
HOT_C = 40.0
_THERMAL = ("none", "light", "moderate", "severe", "critical", "emergency", "shutdown")
_COOL = "let it cool down, out of its case; profile waits as long as --cooldown-s says"

_STATE_SCRIPT = SCRIPT + "dumpsys power 2>/dev/null | grep -E 'mWakefulness=|mIsPowered='; true"


@STATE.on_system
def state(phone: Phone) -> Iterator[Finding]:
    """From Android's own services; what a device does not tell is left out."""
    _, output = phone.ask(_STATE_SCRIPT)
    told = parse_state(output)
    findings = [*_thermal(told), *_battery(told), *_screen(output)]
    yield from findings or [STATE("state").ok("the device tells neither heat nor battery")]


def _thermal(told: DeviceState) -> Iterator[Finding]:
    status = told.thermal_status
    if status is None:
        return
    word = _THERMAL[min(status, len(_THERMAL) - 1)]
    if status == 0:
        yield STATE("thermal").ok("not throttled")
    else:
        yield STATE("thermal").warning(f"throttled: {word} ({status} of 6)", _COOL)


def _battery(told: DeviceState) -> Iterator[Finding]:
    level, mc = told.battery_percent, told.battery_mc
    if level is None:
        return
    words = f"{level} %, {'charging' if told.charging else 'not charging'}"
    if mc is not None:
        words += f", {mc / 1000:.1f} degrees Celsius"
    if told.saver:
        yield STATE("battery").warning(
            f"{words}; battery saver is on and lowers clock rates",
            "adb shell settings put global low_power 0",
        )
    elif level < LOW_PERCENT:
        yield STATE("battery").warning(
            f"{words}: phones save power when it is low", "charge it, then measure"
        )
    elif mc is not None and mc / 1000 >= HOT_C:
        yield STATE("battery").warning(f"{words}: hot", _COOL)
    else:
        yield STATE("battery").ok(words)


def _screen(output: str) -> Iterator[Finding]:
    wake = re.search(r"mWakefulness=(\w+)", output)
    if wake is None:
        return
    if wake[1] == "Awake":
        yield STATE("screen").ok("on")
    else:
        yield STATE("screen").warning(
            f"off ({wake[1].lower()}): some phones clock down then",
            "adb shell svc power stayon usb && adb shell input keyevent WAKEUP",
        )
