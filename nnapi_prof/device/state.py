"""Read the present state of a device, and wait until it allows measuring.

Heat, clocks, battery and other load: Android's services report them to adb's shell where /sys does
not; a simulated phone's agent reports its own.
"""

from __future__ import annotations

import math
import re
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from nnapi_prof.device.protocol import AgentInfo, Readings
from nnapi_prof.device.transport import Transport
from nnapi_prof.errors import DeviceError
from nnapi_prof.options import option, validate

_SKIN = 3
"""``android.os.Temperature.TYPE_SKIN``."""
_OTHER_PARTS = ("batt", "usb", "cpu", "gpu", "npu", "amplifier")
"""Names of sensors that are not the skin's, whatever their type: some makers count types from 1."""
_WHOLE_DEGREES = 200
"""Old kernels report zones in whole degrees: values below this are."""
_SENSIBLE_MC = (1, 200_000)
"""Range of possible temperatures: zones that are off report nonsense."""
_SKIN_ZONES = ("skin", "quiet", "shell")
"""Parts of names of /sys zones near the skin: ``skin-therm``, Qualcomm's ``quiet-therm``, ..."""

SILENCE_S = 3
"""Seconds of silence after which a service hangs."""

# ask NAME COMMAND...: prints its output, or a line that says that it was silent.
_ASK = (
    'ask() { name=$1; shift; case " $mute " in *" $name "*) return;; esac; "$@" & asked=$!; '
    f"{{ sleep {SILENCE_S}; kill -9 $asked; }} >/dev/null 2>&1 & limit=$!; "
    'wait $asked; end=$?; kill $limit; [ $end = 137 ] && echo "silent $name"; } 2>/dev/null; '
)
SCRIPT = _ASK + (
    "ask thermalservice dumpsys thermalservice | "
    "grep -E 'Thermal Status:|emperatures|Temperature\\{|^silent '; "
    # Android 7 to 9.
    "ask hardware_properties dumpsys hardware_properties | "
    "grep -E '^(CPU|GPU|Skin) temperatures:|^silent '; "
    "ask power dumpsys power | grep -E 'mWakefulness=|mStayOn=|^silent '; "
    "ask battery dumpsys battery; echo saver=$(ask settings settings get global low_power); "
    "for z in /sys/class/thermal/thermal_zone*; do [ -r $z/temp ] && "
    'echo "zone $(cat $z/type 2>/dev/null) $(cat $z/temp 2>/dev/null)"; done; '
    "for c in /sys/devices/system/cpu/cpu[0-9]*/cpufreq; do [ -r $c/scaling_max_freq ] && "
    'n=${c%/cpufreq}; echo "clock ${n##*/} $(cat $c/scaling_max_freq)"; done; '
    "for s in /sys/class/power_supply/*; do "
    '[ "$(cat $s/type 2>/dev/null)" = Battery ] && [ -r $s/capacity ] && '
    'echo "supply $(cat $s/capacity) $(cat $s/status)"; done; '
)
"""Shell script that reports a device's state; :func:`parse_state` reads its output."""
_LOAD = "grep '^cpu ' /proc/stat; sleep 0.3; grep '^cpu ' /proc/stat; true"


class DeviceProbe(Protocol):
    """A device that can be asked for its state; :class:`~nnapi_prof.device.agent.AgentClient` is
    one."""

    @property
    def serial(self) -> str: ...
    @property
    def transport(self) -> Transport: ...
    def info(self) -> AgentInfo: ...
    def readings(self) -> Readings: ...


@dataclass(frozen=True, slots=True)
class DeviceState:
    """The state of a device; None for what it does not report."""

    skin_mc: int | None = None
    """Thousandths of a degree Celsius of the skin, else of the battery, else of the hottest zone:
    ``sensor`` says which."""
    sensor: str = ""
    thermal_status: int | None = None
    """Android's thermal status, 0 (none) to 6 (shutdown)."""
    allowed_khz: Mapping[str, int] = field(default_factory=dict)
    """The clock that each core may have now (``scaling_max_freq``), by its name."""
    throttled: bool | None = None
    """Whether Android says that heat holds it back: a status of light or above."""
    awake: bool | None = None
    """Whether its screen is on."""
    stays_awake: bool | None = None
    """Whether it is set to stay on, and does not go to sleep by itself."""
    battery_percent: int | None = None
    battery_mc: int | None = None
    charging: bool | None = None
    saver: bool | None = None
    """Whether Android's battery saver is on."""
    load_percent: int | None = None
    """Share of all CPUs that were busy while nothing was measured."""
    silent: frozenset[str] = frozenset()
    """Android's services that do not answer."""

    @property
    def columns(self) -> dict[str, Any]:
        """The columns of the state in a row of the cost table."""
        names = ("skin_mc", "battery_percent", "charging", "load_percent")
        return {name: getattr(self, name) for name in names}


def read_state(client: DeviceProbe, mute: Collection[str] = ()) -> DeviceState:
    """Reads a device's state, in about half a second, without the services in ``mute``. Raises
    DeviceError."""
    if client.info().simulated:
        now = client.readings()
        sensor = "" if now.thermal_mc is None else "simulated phone"
        return DeviceState(skin_mc=now.thermal_mc, sensor=sensor, throttled=now.throttled)
    script = f"mute='{' '.join(mute)}'; {SCRIPT}{_LOAD}"
    state = parse_state(client.transport.shell(["sh", "-c", script]).output)
    return replace(state, silent=state.silent | frozenset(mute))


def parse_state(output: str) -> DeviceState:
    """Parses the output of :data:`SCRIPT`; skips lines of other forms."""
    battery_mc = _scaled(output, r"^\s*temperature:\s*(-?\d{1,6})\b", 100)
    skin_mc, sensor = _heat(output, battery_mc)
    percent = _match_integer(output, r"^\s*level:\s*(100|\d{1,2})\b")
    percent = _match_integer(output, r"^supply (100|\d{1,2})\b") if percent is None else percent
    status = _match_integer(output, r"Thermal Status:\s*([0-6])\b")
    wakefulness = re.search(r"\bmWakefulness=([A-Za-z]+)", output)
    stay_on = re.search(r"\bmStayOn=(true|false)", output)
    saver = re.search(r"^saver=([01])\s*$", output, re.M)
    return DeviceState(
        skin_mc=skin_mc,
        sensor=sensor,
        thermal_status=status,
        allowed_khz={
            core: int(khz)
            for core, khz in re.findall(r"^clock (cpu\d+) ([1-9]\d{,8})\s*$", output, re.M)
        },
        throttled=None if status is None else status > 0,
        awake=None if wakefulness is None else wakefulness[1] == "Awake",
        stays_awake=None if stay_on is None else stay_on[1] == "true",
        battery_percent=percent,
        battery_mc=battery_mc,
        charging=None if percent is None else _charging(output),
        saver=None if saver is None else saver[1] == "1",
        load_percent=_load(output),
        silent=frozenset(re.findall(r"^(?:saver=)?silent (\w+)\s*$", output, re.M)),
    )


def _heat(output: str, battery_mc: int | None) -> tuple[int | None, str]:
    told = [(name, kind, mc) for name, kind, mc in _sensors(output) if _is_sensible(mc)]
    named = [mc for name, _, mc in told if any(word in name for word in _SKIN_ZONES)]
    typed = [
        mc
        for name, kind, mc in told
        if kind == _SKIN and not any(word in name for word in _OTHER_PARTS)
    ]
    if named or typed:
        return max(named or typed), "skin"
    if battery_mc is not None:
        return battery_mc, "battery"
    if told:
        return max(mc for *_, mc in told), "hottest zone"
    return None, ""


def _is_sensible(mc: float) -> bool:
    return _SENSIBLE_MC[0] <= mc <= _SENSIBLE_MC[1]


def _sensors(output: str) -> Iterator[tuple[str, int | None, int]]:
    """Yields each sensor's name in lower case, Android's type and thousandths of a degree: of
    Android's thermal service (10 and later; current values follow the cached ones), of its hardware
    properties (7 to 9), and of /sys."""
    current = output.rpartition("Current temperatures")[2]
    if "Temperature{" not in current:
        current = output
    for fields in re.findall(r"\bTemperature\{([^}]*)\}", current):
        value, kind, name = (
            re.search(rf"\b{key}=([^,}}]*)", fields) for key in ("mValue", "mType", "mName")
        )
        celsius = _celsius(value[1]) if value else math.nan
        if math.isfinite(celsius):
            number = re.fullmatch(r"-?\d+", kind[1].strip()) if kind else None
            code = None if number is None else int(number[0])
            yield (name[1].lower() if name else ""), code, round(celsius * 1000)
    for what, values in re.findall(r"^(CPU|GPU|Skin) temperatures: \[([^]]*)\]", output, re.M):
        for word in values.split(","):
            celsius = _celsius(word)
            if math.isfinite(celsius):
                yield what.lower(), None, round(celsius * 1000)
    for name, mc in re.findall(r"^zone (\S*) (-?\d{1,9})\s*$", output, re.M):
        yield name.lower(), None, int(mc) * (1000 if int(mc) < _WHOLE_DEGREES else 1)


def _celsius(word: str) -> float:
    """Returns degrees, NaN for none; some makers report thousandths."""
    try:
        value = float(word)
    except ValueError:
        return math.nan
    return value / 1000 if value >= 1000 else value


def _charging(output: str) -> bool:
    return bool(re.search(r"powered:\s*true|^supply \d+ (Charging|Full)", output, re.M))


def _load(output: str) -> int | None:
    """Returns the load from two lines of /proc/stat: the share that was neither idle nor waiting
    for a disk."""
    lines = re.findall(r"^cpu +((?:\d{1,18} *)+)$", output, re.M)
    if len(lines) != 2:
        return None
    first, second = ([int(word) for word in line.split()] for line in lines)
    spent = [b - a for a, b in zip(first, second, strict=False)][:8]  # guests are in the first two
    if len(spent) < 5 or sum(spent) <= 0:
        return None
    return min(100, max(0, round(100 * (1 - (spent[3] + spent[4]) / sum(spent)))))


def _match_integer(output: str, pattern: str) -> int | None:
    match = re.search(pattern, output, re.MULTILINE | re.IGNORECASE)
    return None if match is None else int(match[1])


def _scaled(output: str, pattern: str, factor: int) -> int | None:
    value = _match_integer(output, pattern)
    return None if value is None else value * factor


LOOK_S = 2.0
"""Seconds between two checks of a device during a wait; ..."""
LOOK_SIMULATED_S = 0.2
"""... of a simulated one."""

Waiting = Callable[[str, float, float], None]
"""Called during a wait for a device: with its reasons, the seconds so far, and the longest wait."""


@dataclass(frozen=True, slots=True)
class Gates:
    """The conditions that a device must meet before each request of measurements; by default
    none."""

    max_temp_c: float | None = field(
        default=None,
        metadata=option(
            "Before measurements, wait until the phone's skin has at most this temperature in"
            " degrees Celsius and no clock is throttled.",
            0,
            120,
        ),
    )
    min_battery: int | None = field(
        default=None,
        metadata=option(
            "Wait until the battery has this charge, or is being charged.",
            0,
            100,
            metavar="PERCENT",
        ),
    )
    max_load: int | None = field(
        default=None,
        metadata=option(
            "Wait until other programs use at most this share of all CPUs.",
            0,
            100,
            metavar="PERCENT",
        ),
    )
    wait_s: float = field(
        default=600.0,
        metadata=option(
            "Longest wait for these conditions, each time; then it is an error.", 0, 86_400
        ),
    )
    anchor_s: float | None = field(
        default=None,
        metadata=option(
            "Interval of drift checks with a reference model. Measurements made while it was"
            " slower are marked and repeated; 0 disables the checks. Default: 120 on a phone,"
            " 0 elsewhere.",
            0,
            86_400,
        ),
    )

    def __post_init__(self) -> None:
        validate(self)

    @property
    def asked(self) -> bool:
        """Whether there is a condition."""
        return (self.max_temp_c, self.min_battery, self.max_load) != (None, None, None)

    def reasons(self, state: DeviceState, seen_khz: Mapping[str, int] | None = None) -> list[str]:
        """Lists the unmet conditions, each as half a sentence. Unknown readings count as met.
        ``seen_khz`` are the highest clocks that its cores were allowed so far."""
        reasons = []
        if self.max_temp_c is not None:
            if state.skin_mc is not None and state.skin_mc > self.max_temp_c * 1000:
                heat = f"{state.skin_mc / 1000:.1f} °C, {self.max_temp_c:g} at most"
                reasons.append(f"{state.sensor} at {heat}")
            held = slower_cores(state.allowed_khz, seen_khz or {})
            if held:
                reasons.append(f"{held} cores held below the clock that they had")
            elif state.throttled:
                reasons.append("held back by heat")
        charge = state.battery_percent
        if self.min_battery is not None and charge is not None and not state.charging:
            if charge < self.min_battery:
                reasons.append(f"battery at {charge} %, {self.min_battery} at least or a charger")
            elif state.saver:
                reasons.append("battery saver on")
        if self.max_load is not None and (state.load_percent or 0) > self.max_load:
            reasons.append(f"others keep {state.load_percent} % busy, {self.max_load} at most")
        return reasons


NEAR = 0.97
"""Share of a clock from which on another clock counts as equal."""


def slower_cores(now_khz: Mapping[str, int], seen_khz: Mapping[str, int]) -> int:
    """Returns how many cores may not run as fast as before. A clock that was never higher does not
    count: vendors and battery savers cap clocks for good."""
    return sum(khz < NEAR * seen_khz.get(core, 0) for core, khz in now_khz.items())


def await_ready(
    client: DeviceProbe,
    gates: Gates,
    waiting: Waiting,
    seen_khz: Mapping[str, int] | None = None,
) -> DeviceState:
    """Waits until a device meets the gates, and returns its state; ``seen_khz`` as in
    :meth:`Gates.reasons`.

    Raises DeviceError where it does not meet them within ``gates.wait_s``.
    """
    began = time.monotonic()
    pause_s = LOOK_SIMULATED_S if client.info().simulated else LOOK_S
    while True:
        state = read_state(client)
        reasons = gates.reasons(state, seen_khz)
        if not reasons:
            return state
        gone = time.monotonic() - began
        words = ", ".join(reasons)
        if gone >= gates.wait_s:
            raise DeviceError(
                f"{client.serial} is not fit to be measured after {gone:.0f} s of waiting: {words};"
                " let it cool, charge it or end what else it does, or ask less of it",
                serial=client.serial,
            )
        waiting(words, gone, gates.wait_s)
        time.sleep(min(pause_s, max(gates.wait_s - gone, 0.01)))
