"""Guards a profile's requests: waits for the device, keeps it busy, and watches it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager

from nnapi_prof.costs.measurement import Kind, Measurement, Status
from nnapi_prof.device.protocol.request import Request
from nnapi_prof.device.protocol.results import ActionResult, AgentInfo
from nnapi_prof.device.state import (
    LOOK_SIMULATED_S,
    DeviceProbe,
    DeviceState,
    await_ready,
    read_state,
)
from nnapi_prof.device.transport import LocalTransport
from nnapi_prof.execution.actions import (
    CHANNELS,
    SIDE,
    anchor_request,
    busy_request,
    one_a_processor,
)
from nnapi_prof.execution.options import USUAL_COOLDOWN_S
from nnapi_prof.execution.profile.anchors import USUAL_S, Anchor
from nnapi_prof.execution.profile.jobs import device_targets
from nnapi_prof.execution.profile.options import ProfileOptions
from nnapi_prof.execution.profile.waits import Waits
from nnapi_prof.graph.plan import Target

IDLE_S = 3.0
"""A device that rested for longer than this between two requests is kept busy again."""
REST_S = 5.0
"""Between two looks whether a device that drifted is as fast as it was."""
REFERENCE = "anchor:conv3x3-28x28x32"
"""Signature of the reference model."""

Ask = Callable[[Request], Iterator[ActionResult]]
Spending = Callable[[str], AbstractContextManager[None]]


class DeviceMonitor:
    """The guard of one profile. ``ask`` runs a request, ``spending`` notes what takes the time,
    ``report`` is told how a wait goes on: phase, done, total, words."""

    def __init__(
        self,
        client: DeviceProbe,
        options: ProfileOptions,
        ask: Ask,
        spending: Spending,
        report: Callable[[str, int, int, str], None],
    ) -> None:
        self._client, self._options = client, options
        self._ask, self._spending, self._report = ask, spending, report
        info = client.info()
        self._info = info
        self._phone = is_phone(client, info)
        self._last_busy: float | None = None
        self._seen_khz: dict[str, int] = {}
        self.unwatched: set[str | None] = set()
        """Accelerators on which the reference does not run: nobody knows whether they drift."""
        self._specs = device_targets(info, options.preferences, options.accelerators)
        self._targets: Sequence[Target] = one_a_processor(spec.target for spec in self._specs)
        every_s = options.gates.anchor_s
        self.every_s = (USUAL_S if self._phone else 0.0) if every_s is None else every_s

    @property
    def watched(self) -> bool:
        """Requests are to be short, so that the device is looked at between them."""
        gates = self._options.gates
        return gates.asked or bool(self.every_s) or bool(self._options.conditions.sustained_s)

    def before(self, waits: Waits) -> DeviceState:
        """Waits until the device is as it is asked to be, and keeps it busy where that is asked.
        Raises DeviceError where it stays otherwise."""
        gates = self._options.gates
        state = DeviceState()
        with self._spending("wait"):
            if gates.asked:
                state = await_ready(self._client, gates, self._waiting, self._seen_khz)
            elif self._phone:
                state = self._cool(waits)
        for core, khz in state.allowed_khz.items():
            self._seen_khz[core] = max(khz, self._seen_khz.get(core, 0))
        self._keep_busy()
        return state

    def _cool(self, waits: Waits) -> DeviceState:
        """Waits for a phone that Android calls too hot, as long as that is allowed."""
        state = read_state(self._client)
        if not state.throttled or self._options.conditions.sustained_s:
            return state
        began = time.monotonic()
        most = waits.left_s(self._most_rest_s)
        while state.throttled and (gone := time.monotonic() - began) < most:
            self._waiting("the phone to cool down", gone, most)
            time.sleep(min(REST_S, most - gone))
            state = read_state(self._client)
        if most:
            waits.rested(time.monotonic() - began, brought=not state.throttled)
        return state

    @property
    def _most_rest_s(self) -> float:
        asked_s = self._options.cooldown_s
        return USUAL_COOLDOWN_S if asked_s is None else asked_s

    def after(self) -> None:
        """The device has just been busy."""
        self._last_busy = time.monotonic()

    def anchor(self) -> Anchor:
        """Runs the reference."""
        samples = {}
        with self._spending("anchor"):
            for result in self._ask(anchor_request(self._targets, self._options.conditions)):
                if result.ok:
                    samples[self._targets[result.action]] = result.segments[0].samples_ns
                else:
                    self.unwatched.add(self._targets[result.action].accelerator)
        self.after()
        return Anchor(samples)

    def rest(self, settled: Callable[[Anchor], bool], waits: Waits) -> None:
        """Lets the device rest until the reference is as fast as it was, for a hot one's time."""
        began = time.monotonic()
        most = waits.left_s(self._most_rest_s)
        with self._spending("wait"):
            while (gone := time.monotonic() - began) < most:
                self._waiting("the reference model to be as fast as it was", gone, most)
                time.sleep(min(LOOK_SIMULATED_S if self._info.simulated else REST_S, most - gone))
                if settled(self.anchor()):
                    waits.rested(time.monotonic() - began, brought=True)
                    return
        waits.rested(time.monotonic() - began, brought=most == 0)

    def rows(self, anchor: Anchor, fingerprint: str) -> list[Measurement]:
        """The rows of an anchor."""
        versions = {spec.target: spec.driver_version for spec in self._specs}
        n_bytes = 4 * SIDE * SIDE * CHANNELS
        return [
            Measurement(
                signature=REFERENCE,
                kind=Kind.ANCHOR,
                label=f"reference: conv2d+relu 3x3 {CHANNELS}->{CHANNELS} {SIDE}x{SIDE}",
                members=(REFERENCE,),
                offsets=(0,),
                target=target,
                fingerprint=fingerprint,
                agent_version=self._info.cost_version,
                driver_version=versions[target],
                status=Status.OK,
                conditions=self._options.conditions.on(target),
                samples_ns=samples,
                n_operations=1,
                input_bytes=n_bytes,
                output_bytes=n_bytes,
                simulated=self._info.simulated,
                clock="simulated" if self._info.simulated else "monotonic",
            )
            for target, samples in anchor.samples_ns.items()
        ]

    def _keep_busy(self) -> None:
        """For as long as asked at first, later for as long as it rested."""
        seconds = float(self._options.conditions.sustained_s)
        if not seconds:
            return
        if self._last_busy is not None:
            rested = time.monotonic() - self._last_busy
            seconds = min(seconds, rested) if rested > IDLE_S else 0.0
        if seconds:
            phase = f"keeping the device busy for {seconds:.0f} s"
            self._report(phase, 0, 1, "")
            with self._spending("busy"):
                request = busy_request(self._targets, self._options.conditions, seconds)
                for _ in self._ask(request):
                    pass
            self._report(phase, 1, 1, "")
        self.after()

    def _waiting(self, words: str, gone: float, most: float) -> None:
        self._report("waiting for the device", round(gone), max(1, round(most)), words)


def is_phone(client: DeviceProbe, info: AgentInfo) -> bool:
    """Whether a device is neither simulated nor this host."""
    own = info.simulated or info.os != "android"
    return not own and not isinstance(client.transport, LocalTransport)
