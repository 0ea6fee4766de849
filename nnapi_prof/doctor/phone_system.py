"""The phone's system: Android's version, ABI and page size; storage and what may run there."""

from __future__ import annotations

import posixpath
from collections.abc import Iterator

from nnapi_prof.device.transport import storage_error
from nnapi_prof.doctor.findings import Finding
from nnapi_prof.doctor.phone_facts import Phone
from nnapi_prof.doctor.phone_reach import PHONE
from nnapi_prof.doctor.registry import phone_checks
from nnapi_prof.toolchain import ANDROID_ABIS

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


@phone_checks(PHONE.name)
def android(phone: Phone) -> Iterator[Finding]:
    if phone.host_only:
        return
    if phone.os != "android" and phone.sdk is None:
        yield PHONE.ok("Android", f"none: a Linux on {phone.abi}")
        return
    words = f"{phone.facts.get('release') or '?'}, API {phone.sdk}"
    if phone.sdk is None:
        yield PHONE.warning("Android", "its version is not told", "adb shell getprop")
    elif phone.sdk < FIRST_API:
        yield PHONE.problem(
            "Android",
            f"{words}: NNAPI came with Android 8.1 (API {FIRST_API})",
            "use a newer phone; this one has nothing but its CPU",
        )
    elif phone.sdk >= DEPRECATED_API:
        yield PHONE.warning(
            "Android",
            f"{words}: NNAPI is deprecated since Android 15: it is still there, but phones that "
            "came with it may have no driver besides the CPU's",
            "look at the accelerators below, and at what `nnapi-prof profile` measures on them",
        )
    else:
        yield PHONE.ok("Android", words)


@phone_checks(PHONE.name)
def processor(phone: Phone) -> Iterator[Finding]:
    """Agents exist for its ABI, and load on its pages."""
    if phone.host_only:
        return
    if phone.abi not in ANDROID_ABIS:
        yield PHONE.problem(
            "ABI",
            f"{phone.abi}: there is no agent for it",
            f"use a device of {', '.join(ANDROID_ABIS)}",
        )
    else:
        yield PHONE.ok("ABI", phone.abi)
    page = phone.facts.get("page", "")
    if page in _PAGES:
        yield PHONE.ok("page size", f"{int(page) // 1024} KB")
    elif page:
        yield PHONE.warning(
            "page size",
            f"{page} bytes: agents are built for pages of 4 and 16 KB",
            "use a phone with pages of 4 or 16 KB",
        )


@phone_checks(PHONE.name)
def space(phone: Phone) -> Iterator[Finding]:
    if phone.host_only:
        return
    folder = posixpath.dirname(phone.remote_dir)
    code, output = phone.ask(_SPACE_SCRIPT, folder)
    cells = output.split("\n")[-2].split() if output.count("\n") > 1 else []
    if code != 0 or len(cells) < 6 or not cells[3].isdigit():
        yield PHONE.warning(
            "space", f"not told for {folder}: {output[-200:]}", f"adb shell df {folder}"
        )
        return
    free_kb = int(cells[3])
    words = f"{free_kb / 1024:.0f} MB free in {folder}"
    fix = "nnapi-prof agent clean (or: adb shell rm -r /data/local/tmp/...)"
    if free_kb < FULL_KB:
        yield PHONE.problem("space", f"{words}: too little for the agent and weights", fix)
    elif free_kb < SCANT_KB:
        yield PHONE.warning("space", f"{words}: too little for large models", fix)
    else:
        yield PHONE.ok("space", words)


@phone_checks(PHONE.name)
def execution(phone: Phone) -> Iterator[Finding]:
    """Whether programs may run where the agent goes: by running one."""
    if phone.host_only:
        return
    code, output = phone.ask(_EXECUTE_SCRIPT, phone.remote_dir)
    selinux = phone.facts.get("selinux")
    guard = f" (SELinux {selinux.lower()})" if selinux else ""
    elsewhere = "export NNAPI_PROF_REMOTE_DIR=/another/folder (one that allows execution)"
    if code == 0 and "fits" in output:
        yield PHONE.ok("execution", f"programs run in {phone.remote_dir}{guard}")
    elif code == 8:
        stored = storage_error(output, phone.remote_dir, phone.serial)
        if stored is not None:
            found, _, fix = str(stored).rpartition(": ")
            yield PHONE.problem("execution", found, fix)
        else:
            last = output.strip().splitlines()[-1:] or ["no reason told"]
            yield PHONE.problem(
                "execution", f"{phone.remote_dir} cannot be written to: {last[0]}", elsewhere
            )
    else:
        yield PHONE.problem(
            "execution",
            f"nothing may run in {phone.remote_dir}{guard}: {output.strip()[-150:]}",
            elsewhere,
        )
