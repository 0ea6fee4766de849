"""Waits until a device's state allows measuring."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from nnapi_prof.device.state import DeviceProbe, DeviceState, read_state
from nnapi_prof.errors import DeviceError

LOOK_S = 2.0
"""Between two looks at a device that is waited for; ..."""
LOOK_SIMULATED_S = 0.2
"""... at a simulated one."""

Waiting = Callable[[str, float, float], None]
"""Called while a device is waited for: with what for, the seconds gone, and the most there are."""


@dataclass(frozen=True, slots=True)
class Gates:
    """The conditions that a device must meet before each request of measurements; by default
    none."""

    max_temp_c: float | None = None
    """Degrees Celsius of its skin (:attr:`DeviceState.skin_mc`); and no clock held down."""
    min_battery: int | None = None
    """Percent, unless it is on a charger."""
    max_load: int | None = None
    """Percent of all CPUs that others keep busy."""
    wait_s: float = 600.0
    """How long a device is waited for, each time, before that is an error."""
    anchor_s: float | None = None
    """Between two runs of the reference model, which show whether the device drifts; 0 runs none.
    None: :data:`~nnapi_prof.execution.profile.anchors.USUAL_S` on a phone, 0 elsewhere."""

    @property
    def asked(self) -> bool:
        """Whether anything is asked."""
        return (self.max_temp_c, self.min_battery, self.max_load) != (None, None, None)

    def reasons(self, state: DeviceState, seen_khz: Mapping[str, int] | None = None) -> list[str]:
        """Lists the unmet conditions, each as half a sentence. Unknown readings count as met.

        ``seen_khz`` are the highest clocks that its cores were seen to be allowed."""
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
"""Of a clock: what is not below that is the same."""


def slower_cores(now_khz: Mapping[str, int], seen_khz: Mapping[str, int]) -> int:
    """How many cores may not run as fast as they were seen to. A clock that was never higher says
    nothing: vendors and battery savers cap clocks for good."""
    return sum(khz < NEAR * seen_khz.get(core, 0) for core, khz in now_khz.items())


def await_ready(
    client: DeviceProbe,
    gates: Gates,
    waiting: Waiting,
    seen_khz: Mapping[str, int] | None = None,
) -> DeviceState:
    """Waits until a device is as the gates ask, and says what it is like then; ``seen_khz`` as in
    :meth:`Gates.reasons`.

    Raises DeviceError where it is not after ``gates.wait_s``.
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
