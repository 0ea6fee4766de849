"""Run all checks for problems that prevent measuring, the host's first, then the phone's.

The checks of a phone include its agent if that is already built.
"""

from __future__ import annotations

import os
import posixpath
import re
from dataclasses import replace

from nnapi_prof.device import xnnpack
from nnapi_prof.device.agent import AgentClient
from nnapi_prof.device.build import find_agent
from nnapi_prof.device.find import LOCAL, SIMULATED, connected, open_device, phone_file
from nnapi_prof.device.install import device_platform, remote_dir
from nnapi_prof.device.state import SCRIPT, DeviceState, parse_state
from nnapi_prof.device.transport import storage_error
from nnapi_prof.doctor import (
    CheckedDevice,
    CheckResult,
    Family,
    Host,
    error_finding,
    failed,
    ok,
    problem,
    run,
    warning,
)
from nnapi_prof.doctor.adb import ADB, USB
from nnapi_prof.doctor.host import AGENTS, CACHE, COMPILERS, COSTS, PYTHON
from nnapi_prof.progress import Notify
from nnapi_prof.toolchain import ANDROID_ABIS, host_abi

PHONE = Family("Phone")
NNAPI = Family("NNAPI")
STATE = Family("State")
_CONNECT = (
    "connect one by USB with USB debugging on (Settings, Developer options), then: "
    "nnapi-prof doctor"
)


_FACTS_SCRIPT = (
    'p() { echo "$1=$(getprop $2 2>/dev/null)"; }; '
    "p sdk ro.build.version.sdk; p release ro.build.version.release; "
    "p maker ro.product.manufacturer; p model ro.product.model; "
    'echo "page=$(getconf PAGE_SIZE 2>/dev/null || getconf PAGESIZE 2>/dev/null)"; '
    'echo "selinux=$(getenforce 2>/dev/null)"'
)


def reach(
    spec: str | None, progress: Notify | None = None
) -> tuple[CheckedDevice | None, CheckResult]:
    """Open the device to check; the caller closes its transport. Without ``spec`` this is the only
    usable phone, or None if there is none or several. Raises NnapiProfError."""
    spec = spec or os.environ.get("ANDROID_SERIAL") or None
    if spec is None:
        ready = [phone.serial for phone in connected() if phone.state == "device"]
        if not ready:
            return None, warning("no phone is available: simulated ones replace it", _CONNECT)
        if len(ready) > 1:
            words = f"several are within reach: {', '.join(ready)}; none was looked at"
            return None, warning(words, "nnapi-prof doctor --device SERIAL")
        spec = ready[0]
    if spec == LOCAL or spec.startswith(SIMULATED):
        return _here(spec)
    opened = open_device(spec, progress)
    transport = opened.transport
    try:
        abi, system = device_platform(transport)
        output = transport.shell(["sh", "-c", _FACTS_SCRIPT]).output
        pairs = (line.strip().split("=", 1) for line in output.splitlines() if "=" in line)
        facts = {name: value.strip() for name, value in pairs}
    except BaseException:
        opened.close()
        raise
    name = " ".join(filter(None, (facts.get("maker"), facts.get("model"))))
    words = f"{opened.serial} ({name or 'no name reported'}), {transport.description}"
    return CheckedDevice(transport, abi, system, facts, remote_dir()), ok(words)


def _here(spec: str) -> tuple[CheckedDevice | None, CheckResult]:
    """Open this host or a simulated phone, if nothing has to be built for it."""
    if spec.startswith(SIMULATED):
        phone_file(spec.removeprefix(SIMULATED))
    unbuilt = find_agent(host_abi(), "linux") is None
    if unbuilt or (spec == LOCAL and xnnpack.state() == xnnpack.State()):
        words = f"{spec} is there; its agent is built at first use, or `nnapi-prof agent build`"
        return None, ok(words)
    opened = open_device(spec)
    phone = CheckedDevice(
        opened.transport, host_abi(), "linux", {}, "", opened.client.info(), host_only=True
    )
    return phone, ok(f"{opened.serial}: {opened.transport.description}")


def agent_of(
    phone: CheckedDevice, progress: Notify | None = None
) -> tuple[CheckedDevice, CheckResult | None]:
    """Return the phone with its agent's report, if the agent is built, and the finding."""
    if phone.info is not None:
        return phone, None
    if find_agent(phone.abi, phone.os) is None:
        abi = phone.abi if phone.os == "android" else "host"
        return phone, warning(
            f"none is built for {phone.os} on {phone.abi}: what NNAPI has there is not known",
            f"nnapi-prof agent build --abi {abi}, then nnapi-prof doctor again",
        )
    # Not closed: that would close the caller's transport.
    client = AgentClient(phone.transport, progress=progress)
    info = client.info()
    return replace(phone, info=info), ok(f"runs there: {info.agent}, {client.installed.path}")


# ---- the phone's system: Android's version, ABI, page size; storage, what may run ----------------


FIRST_API = 27
"""First API level with NNAPI: Android 8.1."""
DEPRECATED_API = 35
"""First API level that deprecates NNAPI: Android 15."""
FULL_KB = 16 * 1024
"""Free space below which measuring fails: the agent has some 3 MB, plus a model's weights."""
SCANT_KB = 256 * 1024
_PAGES = ("4096", "16384")
LOW_PERCENT = 20
HOT_C = 40.0
_FIX = "not possible here: the phone's maker ships drivers; `nnapi-prof devices` lists others"
_THERMAL = ("none", "light", "moderate", "severe", "critical", "emergency", "shutdown")
_COOL = "let it cool down, out of its case; profile waits as long as --cooldown-s says"
_STATE_SCRIPT = SCRIPT + "true"

# $0: the parent of the agent's folder; its nearest existing parent is used.
_SPACE_SCRIPT = (
    'd="$0"; while [ ! -d "$d" ] && [ "$d" != / ]; do d=$(dirname "$d"); done; df -Pk "$d"'
)
# $0: the agent's folder. Systems that refuse to run programs there refuse a script, too.
_EXECUTE_SCRIPT = (
    'umask 077; mkdir -p "$0" || exit 8; f="$0/doctor.$$"; '
    'printf "#!%s\\necho fits\\n" "$(command -v sh)" >"$f" && chmod 700 "$f" || '
    '{ rm -f "$f"; exit 8; }; "$f"; c=$?; rm -f "$f"; exit $c'
)


@PHONE("Android", of_phones=True)
def android(phone: CheckedDevice) -> CheckResult:
    text = phone.facts.get("sdk", "")
    sdk = int(text) if text.isdigit() else None
    words = f"{phone.facts.get('release') or '?'}, API {sdk}"
    if sdk is None and phone.os != "android":
        return ok(f"none: a Linux on {phone.abi}")
    if sdk is None:
        return warning("its version is not reported", "adb shell getprop")
    if sdk < FIRST_API:
        return problem(
            f"{words}: NNAPI came with Android 8.1 (API {FIRST_API})",
            "use a newer phone; this one has nothing but its CPU",
        )
    if sdk >= DEPRECATED_API:
        return warning(
            f"{words}: NNAPI is deprecated since Android 15: it is still there, but phones that "
            "came with it may have no driver besides the CPU's",
            "look at the accelerators below, and at what `nnapi-prof profile` measures on them",
        )
    return ok(words)


@PHONE("ABI", of_phones=True)
def processor(phone: CheckedDevice) -> CheckResult:
    """Check that an agent exists for the phone's ABI and supports its page size."""
    if phone.abi not in ANDROID_ABIS:
        return problem(
            f"{phone.abi}: there is no agent for it", f"use a device of {', '.join(ANDROID_ABIS)}"
        )
    page = phone.facts.get("page", "")
    if page and page not in _PAGES:
        return warning(
            f"{phone.abi}, pages of {page} bytes: agents are built for pages of 4 and 16 KB",
            "use a phone with pages of 4 or 16 KB",
        )
    return ok(f"{phone.abi}, pages of {int(page) // 1024} KB" if page else phone.abi)


@PHONE("space", of_phones=True)
def space(phone: CheckedDevice) -> CheckResult:
    folder = posixpath.dirname(phone.remote_dir)
    code, output = phone.ask(_SPACE_SCRIPT, folder)
    cells = output.split("\n")[-2].split() if output.count("\n") > 1 else []
    if code != 0 or len(cells) < 6 or not cells[3].isdigit():
        return warning(f"not reported for {folder}: {output[-200:]}", f"adb shell df {folder}")
    free_kb = int(cells[3])
    words = f"{free_kb / 1024:.0f} MB free in {folder}"
    fix = "nnapi-prof agent clean (or: adb shell rm -r /data/local/tmp/...)"
    if free_kb < FULL_KB:
        return problem(f"{words}: too little for the agent and weights", fix)
    if free_kb < SCANT_KB:
        return warning(f"{words}: too little for large models", fix)
    return ok(words)


@PHONE("execution", of_phones=True)
def execution(phone: CheckedDevice) -> CheckResult:
    """Check that programs may run in the agent's folder, by running one."""
    code, output = phone.ask(_EXECUTE_SCRIPT, phone.remote_dir)
    selinux = phone.facts.get("selinux")
    guard = f" (SELinux {selinux.lower()})" if selinux else ""
    elsewhere = "export NNAPI_PROF_REMOTE_DIR=/another/folder (one that allows execution)"
    if code == 0 and "fits" in output:
        return ok(f"programs run in {phone.remote_dir}{guard}")
    if code != 8:
        why = output.strip()[-150:]
        return problem(f"nothing may run in {phone.remote_dir}{guard}: {why}", elsewhere)
    stored = storage_error(output, phone.remote_dir, phone.transport.serial)
    if stored is not None:
        return error_finding(stored)
    last = output.strip().splitlines()[-1:] or ["no reason given"]
    return problem(f"{phone.remote_dir} cannot be written to: {last[0]}", elsewhere)


# ---- NNAPI, as the agent reports it; heat, battery and screen, which change latencies ------------


@NNAPI("NNAPI")
def nnapi(phone: CheckedDevice) -> CheckResult | None:
    info = phone.info
    if info is None:
        return None  # the agent has its own finding
    label = " (simulated)" if info.simulated else ""
    if info.nnapi.library is None:
        why = info.nnapi.error or "it cannot be loaded"
        return problem(f"the device has no NNAPI: {why}", _FIX)
    level = f", API level {info.api_level}" if info.api_level is not None else ""
    words = f"{info.nnapi.library}{level}{label}"
    accelerators = info.nnapi.accelerators
    listed = ", ".join(
        f"{each.name} ({each.type.lower()}, API {each.feature_level}, {each.version})"
        for each in accelerators
    )
    if not accelerators:
        return ok(f"{words}; before Android 10 only its own choice (auto) is measured")
    if all(each.type == "CPU" for each in accelerators):
        return warning(f"{words}; nothing but the CPU: {listed}", _FIX)
    return ok(f"{words}; {listed}")


def _state(phone: CheckedDevice) -> tuple[DeviceState, str]:
    """Return the state from Android's services, without values that the device does not report,
    and their raw output."""
    _, output = phone.ask(_STATE_SCRIPT)
    return parse_state(output), output


@STATE("thermal", of_phones=True)
def thermal(phone: CheckedDevice) -> CheckResult | None:
    status = _state(phone)[0].thermal_status
    if not status:
        return None if status is None else ok("not throttled")
    word = _THERMAL[min(status, len(_THERMAL) - 1)]
    return warning(f"throttled: {word} ({status} of 6)", _COOL)


@STATE("battery", of_phones=True)
def battery(phone: CheckedDevice) -> CheckResult | None:
    told, _ = _state(phone)
    level, mc = told.battery_percent, told.battery_mc
    if level is None:
        return None
    words = f"{level} %, {'charging' if told.charging else 'not charging'}"
    if mc is not None:
        words += f", {mc / 1000:.1f} degrees Celsius"
    if told.saver:
        return warning(
            f"{words}; battery saver is on and lowers clock rates",
            "adb shell settings put global low_power 0",
        )
    if level < LOW_PERCENT:
        return warning(f"{words}: phones save power when it is low", "charge it, then measure")
    if mc is not None and mc / 1000 >= HOT_C:
        return warning(f"{words}: hot", _COOL)
    return ok(words)


@STATE("screen", of_phones=True)
def screen(phone: CheckedDevice) -> CheckResult | None:
    wake = re.search(r"mWakefulness=(\w+)", _state(phone)[1])
    if wake is None:
        return None
    if wake[1] == "Awake":
        return ok("on")
    return warning(
        f"off ({wake[1].lower()}): some phones clock down then",
        "adb shell svc power stayon usb && adb shell input keyevent WAKEUP",
    )


HOST = (PYTHON, COMPILERS, CACHE, AGENTS, COSTS, ADB, USB)


def examine(
    spec: str | None = None, host: Host | None = None, progress: Notify | None = None
) -> list[CheckResult]:
    """Run every check on this host and on the device that ``spec`` names.

    Without ``spec`` the only available phone is checked. Errors of checks become findings.
    """
    return run(HOST, host or Host()) + _phone(spec, progress)


def _phone(spec: str | None, progress: Notify | None) -> list[CheckResult]:
    try:
        phone, finding = reach(spec, progress)
    # As in `run`: the other findings are shown after any error.
    except Exception as error:
        phone, finding = None, failed(error)
    findings = [replace(finding, family=PHONE.name, check="device")]
    if phone is None:
        return findings
    try:
        # The system first: it explains why an agent cannot be installed.
        findings += run([PHONE], phone)
        try:
            phone, agent = agent_of(phone, progress)
        except Exception as error:
            agent = failed(error)
        if agent is not None:
            findings.append(replace(agent, family=PHONE.name, check="agent"))
        return findings + run([NNAPI, STATE], phone)
    finally:
        phone.transport.close()
