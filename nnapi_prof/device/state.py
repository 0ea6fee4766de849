"""What a device is like just now: heat, clocks, battery, and what else it does.

Android's services tell it to adb's shell where /sys does not; a simulated phone tells by its agent.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Protocol

from nnapi_prof.device.protocol.results import AgentInfo, Readings
from nnapi_prof.device.transport import Transport

_SKIN = 3
"""``android.os.Temperature.TYPE_SKIN``."""
_SENSIBLE_MC = (1, 200_000)
"""Zones that are off report nonsense."""
_SKIN_ZONES = ("skin", "quiet", "shell")
"""What zones of /sys near the skin are called: ``skin-therm``, Qualcomm's ``quiet-therm``, ..."""

SCRIPT = (
    "dumpsys thermalservice 2>/dev/null | grep -E 'Thermal Status:|emperatures|Temperature\\{'; "
    "dumpsys battery 2>/dev/null; echo saver=$(settings get global low_power 2>/dev/null); "
    "for z in /sys/class/thermal/thermal_zone*; do [ -r $z/temp ] && "
    'echo "zone $(cat $z/type 2>/dev/null) $(cat $z/temp 2>/dev/null)"; done; '
    "for c in /sys/devices/system/cpu/cpu[0-9]*/cpufreq; do [ -r $c/scaling_max_freq ] && "
    'echo "clock $(cat $c/scaling_max_freq) $(cat $c/cpuinfo_max_freq)"; done; '
    "for s in /sys/class/power_supply/*; do "
    '[ "$(cat $s/type 2>/dev/null)" = Battery ] && [ -r $s/capacity ] && '
    'echo "supply $(cat $s/capacity) $(cat $s/status)"; done; '
)
"""What one call of a shell tells; :func:`parse_state` reads it."""
_LOAD = "grep '^cpu ' /proc/stat; sleep 0.3; grep '^cpu ' /proc/stat; true"


class Telling(Protocol):
    """What is asked of a device; :class:`~nnapi_prof.device.agent.AgentClient` is one."""

    @property
    def serial(self) -> str: ...
    @property
    def transport(self) -> Transport: ...
    def info(self) -> AgentInfo: ...
    def readings(self) -> Readings: ...


@dataclass(frozen=True, slots=True)
class DeviceState:
    """What a device tells of itself; None where it does not."""

    skin_mc: int | None = None
    """Thousandths of a degree Celsius; of the skin, else of the battery, else of the hottest zone:
    ``sensor`` says which."""
    sensor: str = ""
    thermal_status: int | None = None
    """Android's, 0 (none) to 6 (shutdown)."""
    held_cores: int | None = None
    """Cores that may not run as fast as they can."""
    throttled: bool | None = None
    """It is held back by heat: by what Android says, else by its clocks."""
    battery_percent: int | None = None
    battery_mc: int | None = None
    charging: bool | None = None
    saver: bool | None = None
    """Android saves power."""
    load_percent: int | None = None
    """Share of all CPUs that were busy while nothing was measured."""

    @property
    def columns(self) -> dict[str, Any]:
        """What a row of the cost table has of it."""
        names = ("skin_mc", "battery_percent", "charging", "load_percent")
        return {name: getattr(self, name) for name in names}


def read_state(client: Telling) -> DeviceState:
    """Asks a device, for about half a second. Raises DeviceError."""
    if client.info().simulated:
        now = client.readings()
        sensor = "" if now.thermal_mc is None else "simulated phone"
        return DeviceState(skin_mc=now.thermal_mc, sensor=sensor, throttled=now.throttled)
    return parse_state(client.transport.shell(["sh", "-c", SCRIPT + _LOAD]).output)


def parse_state(output: str) -> DeviceState:
    """Of what :data:`SCRIPT` said; lines that are something else are passed over."""
    battery_mc = _scaled(output, r"^\s*temperature:\s*(-?\d+)", 100)
    skin_mc, sensor = _heat(output, battery_mc)
    percent = _number(output, r"^\s*level:\s*(\d+)")
    percent = _number(output, r"^supply (\d+)") if percent is None else percent
    status = _number(output, r"Thermal Status:\s*(\d+)")
    clocks = [(int(a), int(b)) for a, b in re.findall(r"^clock (\d+) (\d+)\s*$", output, re.M)]
    held = sum(allowed < most for allowed, most in clocks) if clocks else None
    saver = re.search(r"^saver=([01])\s*$", output, re.M)
    return DeviceState(
        skin_mc=skin_mc,
        sensor=sensor,
        thermal_status=status,
        held_cores=held,
        throttled=_either(
            None if status is None else status > 0, None if held is None else held > 0
        ),
        battery_percent=percent,
        battery_mc=battery_mc,
        charging=None if percent is None else _charging(output),
        saver=None if saver is None else saver[1] == "1",
        load_percent=_load(output),
    )


def _heat(output: str, battery_mc: int | None) -> tuple[int | None, str]:
    # What the sensors say now stands last, behind what was cached.
    current = output.rpartition("Current temperatures")[2] or output
    told = re.findall(r"Temperature\{mValue=(-?[\d.]+), mType=(-?\d+)", current)
    skin = [round(float(value) * 1000) for value, kind in told if int(kind) == _SKIN]
    zones = [(name, int(mc)) for name, mc in re.findall(r"^zone (\S*) (-?\d+)\s*$", output, re.M)]
    zones = [(name, mc) for name, mc in zones if _SENSIBLE_MC[0] <= mc <= _SENSIBLE_MC[1]]
    skin += [mc for name, mc in zones if any(word in name.lower() for word in _SKIN_ZONES)]
    if skin:
        return max(skin), "skin"
    if battery_mc is not None:
        return battery_mc, "battery"
    if zones:
        return max(mc for _, mc in zones), "hottest zone"
    return None, ""


def _charging(output: str) -> bool:
    return bool(re.search(r"powered:\s*true|^supply \d+ (Charging|Full)", output, re.M))


def _load(output: str) -> int | None:
    """Of two lines of /proc/stat: what was neither idle nor waiting for a disk."""
    lines = re.findall(r"^cpu +((?:\d+ *)+)$", output, re.M)
    if len(lines) != 2:
        return None
    first, second = ([int(word) for word in line.split()] for line in lines)
    spent = [b - a for a, b in zip(first, second, strict=False)][:8]  # guests are in the first two
    if len(spent) < 5 or sum(spent) <= 0:
        return None
    return min(100, max(0, round(100 * (1 - (spent[3] + spent[4]) / sum(spent)))))


def _either(*answers: bool | None) -> bool | None:
    known = [answer for answer in answers if answer is not None]
    return any(known) if known else None


def _number(output: str, pattern: str) -> int | None:
    match = re.search(pattern, output, re.MULTILINE | re.IGNORECASE)
    return None if match is None else int(match[1])


def _scaled(output: str, pattern: str, factor: int) -> int | None:
    value = _number(output, pattern)
    return None if value is None else value * factor
