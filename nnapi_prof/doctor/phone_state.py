"""What makes latencies differ from day to day: heat, battery, a dark screen."""

from __future__ import annotations

import re
from collections.abc import Iterator

from nnapi_prof.doctor.findings import Family, Finding
from nnapi_prof.doctor.phone_facts import Phone
from nnapi_prof.doctor.registry import phone_checks

STATE = Family("State")

LOW_PERCENT = 20
HOT_C = 40.0
_THERMAL = ("none", "light", "moderate", "severe", "critical", "emergency", "shutdown")
_COOL = "let it cool down, out of its case; profile waits as long as --cooldown-s says"

_STATE_SCRIPT = (
    "dumpsys thermalservice 2>/dev/null | grep -i 'Thermal Status:'; "
    "dumpsys battery 2>/dev/null; dumpsys power 2>/dev/null | grep -E 'mWakefulness=|mIsPowered='; "
    "echo saver=$(settings get global low_power 2>/dev/null); true"
)


@phone_checks(STATE.name)
def state(phone: Phone) -> Iterator[Finding]:
    """From Android's own services; what a device does not tell is left out."""
    if phone.host_only:
        return
    _, said = phone.ask(_STATE_SCRIPT)
    found = [*_thermal(said), *_battery(said), *_screen(said)]
    yield from found or [STATE.ok("state", "the device tells neither heat nor battery")]


def _thermal(said: str) -> Iterator[Finding]:
    status = _number(said, r"Thermal Status:\s*(\d+)")
    if status is None:
        return
    word = _THERMAL[min(int(status), len(_THERMAL) - 1)]
    if status == 0:
        yield STATE.ok("thermal", "not throttled")
    else:
        yield STATE.warning("thermal", f"throttled: {word} ({status:.0f} of 6)", _COOL)


def _battery(said: str) -> Iterator[Finding]:
    level = _number(said, r"^\s*level:\s*(\d+)")
    if level is None:
        return
    tenths = _number(said, r"^\s*temperature:\s*(-?\d+)")
    charging = bool(re.search(r"powered:\s*true", said))
    words = f"{level:.0f} %, {'charging' if charging else 'not charging'}"
    if tenths is not None:
        words += f", {tenths / 10:.1f} degrees Celsius"
    if "saver=1" in said:
        yield STATE.warning(
            "battery",
            f"{words}; battery saver is on and lowers clock rates",
            "adb shell settings put global low_power 0",
        )
    elif level < LOW_PERCENT:
        yield STATE.warning(
            "battery", f"{words}: phones save power when it is low", "charge it, then measure"
        )
    elif tenths is not None and tenths / 10 >= HOT_C:
        yield STATE.warning("battery", f"{words}: hot", _COOL)
    else:
        yield STATE.ok("battery", words)


def _screen(said: str) -> Iterator[Finding]:
    wake = re.search(r"mWakefulness=(\w+)", said)
    if wake is None:
        return
    if wake[1] == "Awake":
        yield STATE.ok("screen", "on")
    else:
        yield STATE.warning(
            "screen",
            f"off ({wake[1].lower()}): some phones clock down then",
            "adb shell svc power stayon usb && adb shell input keyevent WAKEUP",
        )


def _number(said: str, pattern: str) -> float | None:
    found = re.search(pattern, said, re.MULTILINE | re.IGNORECASE)
    return None if found is None else float(found[1])
