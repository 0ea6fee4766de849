"""Guard a profile's requests: wait for the device, keep it busy, and watch whether it drifts.

A small reference model, the same for all models and devices, runs again and again; its rows also
show drift over days. A window is the time between two runs of it. A window drifts where the
reference took longer at either end, beyond noise, than at its fastest in this profile: the
measurements in the window may have taken longer, too.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from nnapi_prof.costs.diff import DiffVerdict, ratio_interval, verdict_of
from nnapi_prof.costs.measurement import Kind, Measurement, Status
from nnapi_prof.device.protocol import ActionResult, AgentInfo
from nnapi_prof.device.protocol.request import Request
from nnapi_prof.device.state import (
    LOOK_SIMULATED_S,
    DeviceProbe,
    DeviceState,
    await_ready,
    read_state,
)
from nnapi_prof.device.transport import LocalTransport
from nnapi_prof.execution import USUAL_COOLDOWN_S
from nnapi_prof.execution.actions import (
    CHANNELS,
    LEVEL,
    SIDE,
    anchor_request,
    busy_request,
    one_a_processor,
    trial_request,
)
from nnapi_prof.execution.profile import ProfileOptions
from nnapi_prof.execution.profile.jobs import device_targets
from nnapi_prof.execution.profile.state import Waits
from nnapi_prof.graph.plan import Target

USUAL_S = 120.0
"""Seconds between two anchors on a phone: governors and heat act within a minute or two."""
DRIFT = 0.05
"""Relative slow-down of the reference that counts as drift: profiles minutes apart differ by 1 to 4
% (benchmarks/bench_repeat.py)."""
LOW_SHARE = 0.25
"""Relative slow-down since earlier profiles that counts as low: more than by drift and heat."""
AGAIN = 2
"""Largest number of times that the jobs of a drifting window are measured again."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Anchor:
    """Times of the reference on each target that runs it, in ns."""

    samples_ns: Mapping[Target, tuple[int, ...]]

    def slower_than(self, other: Anchor) -> float:
        """Returns the relative slow-down of the reference against another anchor, on the target
        where it is largest; 0 where it is within noise or :data:`DRIFT`."""
        worst = 0.0
        for target, mine in self.samples_ns.items():
            theirs = other.samples_ns.get(target, ())
            interval = ratio_interval(theirs, mine) if mine and theirs else None
            if interval is None:
                continue
            ratio = statistics.median(mine) / max(statistics.median(theirs), 1.0)
            if verdict_of(ratio, interval, DRIFT) is DiffVerdict.SLOWER:
                worst = max(worst, ratio - 1)
        return worst


@dataclass
class Window(Generic[T]):
    """The measurements between two anchors."""

    before: Anchor
    after: Anchor | None = None
    items: list[T] = field(default_factory=list)
    again: int = 0
    """Number of times that its items were measured before."""


class DriftMonitor(Generic[T]):
    """The anchors of a profile, and the measurements between them."""

    def __init__(self, every_s: float) -> None:
        self.every_s = every_s
        self._last = 0.0
        self._anchors: list[Anchor] = []
        self._windows: list[Window[T]] = []
        self.low: bool | None = None
        """Whether the device is much slower than in earlier profiles; None: not compared yet."""

    @property
    def due(self) -> bool:
        """Whether the next anchor is due."""
        return time.monotonic() - self._last >= self.every_s

    @property
    def again(self) -> int | None:
        """Number of earlier measurements of the present window's items; None without a window."""
        return self._windows[-1].again if self._windows else None

    @property
    def open(self) -> bool:
        """Whether anything was measured since the last anchor."""
        return bool(self._windows and self._windows[-1].items)

    def add(self, anchor: Anchor, again: int = 0) -> None:
        """Ends a window and begins another, whose items were measured ``again`` times before."""
        self._last = time.monotonic()
        if self._windows:
            self._windows[-1].after = anchor
        self._anchors.append(anchor)
        self._windows.append(Window(anchor, again=again))

    def note_earlier(self, rows: Iterable[Measurement]) -> None:
        """Compares the first anchor of this profile with the fastest rows of earlier ones."""
        fastest: dict[Target, Measurement] = {}
        for row in rows:
            best = fastest.setdefault(row.target, row)
            if row.usable and row.latency_ns < best.latency_ns:
                fastest[row.target] = row
        earlier = Anchor({target: row.samples_ns for target, row in fastest.items()})
        self.low = self._anchors[0].slower_than(earlier) > LOW_SHARE

    def settled(self, anchor: Anchor) -> bool:
        """Returns whether the reference is as fast as in every anchor so far."""
        return not any(anchor.slower_than(fast) for fast in self._anchors)

    def measured(self, item: T) -> None:
        """Adds a measurement to the present window."""
        if self._windows:
            self._windows[-1].items.append(item)

    def drifting(self) -> Iterator[tuple[Window[T], float]]:
        """Removes and yields the finished windows that drift, each with its drift (0.1: 10 %)."""
        for window in list(self._windows[:-1]):
            ends = [each for each in (window.before, window.after) if each is not None]
            drift = max(end.slower_than(fast) for end in ends for fast in self._anchors)
            if drift and window.items:
                self._windows.remove(window)
                yield window, drift


IDLE_S = 3.0
"""Seconds of rest between two requests after which a device is kept busy again."""
REST_S = 5.0
"""Seconds between two checks whether a device has cooled down or recovered from drift."""
REFERENCE = "anchor:conv3x3-28x28x32"
"""Signature of the reference model."""

Ask = Callable[[Request], Iterator[ActionResult]]
Spending = Callable[[str], AbstractContextManager[None]]


class DeviceMonitor:
    """The guard of one profile. ``ask`` runs a request, ``spending`` records time by its purpose,
    and ``report`` is called with the progress of a wait: phase, done, total, words."""

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
        self.is_remote = self._phone or info.simulated
        """Whether it is not this host, whose clocks containers and virtual machines hide."""
        self._last_busy: float | None = None
        self._seen_khz: dict[str, int] = {}
        self.silent: frozenset[str] = frozenset()
        """Android's services that do not answer."""
        self.unwatched: set[str | None] = set()
        """Accelerators on which the reference does not run, so that their drift is unknown."""
        self._specs = device_targets(info, options.preference_codes, options.accelerators)
        self._targets: Sequence[Target] = one_a_processor(spec.target for spec in self._specs)
        every_s = options.gates.anchor_s
        self.every_s = (USUAL_S if self._phone else 0.0) if every_s is None else every_s

    @property
    def watched(self) -> bool:
        """Whether requests are to be short, so that the device is checked between them."""
        gates = self._options.gates
        return gates.asked or bool(self.every_s) or bool(self._options.conditions.sustained_s)

    def before(self, waits: Waits) -> DeviceState:
        """Waits until the device meets the conditions asked for, and keeps it busy where that is
        asked. Raises DeviceError where it does not meet them in time."""
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
        """Waits for a phone that Android calls too hot, as long as allowed. A service that did not
        answer is not asked again."""
        state = read_state(self._client, self.silent)
        self.silent = state.silent
        if not state.throttled or self._options.conditions.sustained_s:
            return state
        began = time.monotonic()
        most = waits.left_s(self._most_rest_s)
        while state.throttled and (gone := time.monotonic() - began) < most:
            self._waiting("the phone to cool down", gone, most)
            time.sleep(min(REST_S, most - gone))
            state = read_state(self._client, self.silent)
        if most:
            waits.rested(time.monotonic() - began, brought=not state.throttled)
        return state

    @property
    def _most_rest_s(self) -> float:
        asked_s = self._options.cooldown_s
        return USUAL_COOLDOWN_S if asked_s is None else asked_s

    def after(self) -> None:
        """Notes that the device has just been busy."""
        self._last_busy = time.monotonic()

    def anchor(self) -> Anchor:
        """Runs the reference on each target."""
        samples = {}
        with self._spending("anchor"):
            for result in self._ask(anchor_request(self._targets, self._options.conditions)):
                if result.ok:
                    samples[self._targets[result.action]] = result.segments[0].samples_ns
                else:
                    self.unwatched.add(self._targets[result.action].accelerator)
        self.after()
        return Anchor(samples)

    def try_small_models(self, target: Target) -> list[Status]:
        """Runs the small models on one target, and returns the status of each."""
        name = target.accelerator
        levels = [spec.level for spec in self._specs if spec.target.accelerator == name]
        level = max(levels, default=LEVEL)
        with self._spending("anchor"):
            request = trial_request(target, level, self._options.conditions)
            return [result.status for result in self._ask(request)]

    def rest(self, settled: Callable[[Anchor], bool], waits: Waits) -> None:
        """Lets the device rest until the reference is as fast as before, up to the limit for
        heat."""
        began = time.monotonic()
        most = waits.left_s(self._most_rest_s)
        while (gone := time.monotonic() - began) < most:
            self._waiting("the reference model to be as fast as it was", gone, most)
            with self._spending("wait"):
                time.sleep(min(LOOK_SIMULATED_S if self._info.simulated else REST_S, most - gone))
            if settled(self.anchor()):
                waits.rested(time.monotonic() - began, brought=True)
                return
        waits.rested(time.monotonic() - began, brought=most == 0)

    def rows(self, anchor: Anchor, fingerprint: str) -> list[Measurement]:
        """Returns the rows of an anchor."""
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
        """Keeps the device busy: at first as long as asked, later as long as it rested."""
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
    """Returns whether a device is neither simulated nor this host."""
    own = info.simulated or info.os != "android"
    return not own and not isinstance(client.transport, LocalTransport)
