"""One measurement as data: what was run, where, under which conditions, and what came out."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import cached_property
from typing import Any, NamedTuple

from nnapi_prof.costs.conditions import Conditions, Mode, Precision
from nnapi_prof.costs.samples import Round, Summary, quality_flags, summarise
from nnapi_prof.graph.causes import Reason
from nnapi_prof.graph.plan import Target
from nnapi_prof.graph.unit import ELEMENT_BYTES, Work

DRIFTING = "the device drifted: a reference model took longer about then"
"""The flag of a row of a drifting window."""

UNWATCHED = "not watched for drift: the reference model does not run on"
"""The flag, before the accelerator's name, of what was measured where the reference fails."""

LOW = "this phone is much slower than in earlier profiles: something may hold its clock down"
"""The flag of what was measured where the reference says so."""

UNREADABLE = "this phone's clocks cannot be read: rounds are compared by their times alone"
"""The flag of what was measured on the CPU meanwhile."""

SILENT = "Android's service does not answer, so that heat or sleep may go unseen:"
"""The flag, before the service's name, of what was measured meanwhile."""


class Kind(enum.Enum):
    """The kind of thing that was measured."""

    UNIT = "unit"
    CHAIN = "chain"
    """Two or three neighbouring units, measured to tell marginal costs from overheads."""
    REGION = "region"
    """A segment of some plan, measured whole."""
    PLAN = "plan"
    """All segments of a plan, one after the other."""
    CORUN = "corun"
    """A unit while another processor was busy with the same one, and alone."""
    ANCHOR = "anchor"
    """The reference model, which tells whether the device is as fast as it was."""
    THREADS = "threads"
    """A unit on the CPU in the trial of how many threads it gets, shorter than others."""


class Status(enum.Enum):
    """How it ended. The agent tries what failed once more, alone, before it says so, and a profile
    half a day later does so again; then it is conclusive for this version of the driver."""

    OK = "ok"
    REFUSED = "refused"
    """The converter, the engine or the driver does not support it; a message says why."""
    FAILED = "failed"
    CRASHED = "crashed"
    TIMEOUT = "timeout"


FAILURES = (Status.FAILED, Status.CRASHED, Status.TIMEOUT)
"""What a driver did not mean."""

ATTEMPTS = 2
"""Of what failed alone, too, in one request. More are of two days, and final; what failed at its
only one could not have fared better alone."""
AGAIN_AFTER = timedelta(hours=12)
"""A failure this old is tried again, once."""


def trusted_failures(now: str) -> tuple[str, str]:
    """Times between which failures were measured that are not tried again: of the last half of a
    day; what seems to be measured later than now was, before the clock stepped back."""
    moment = datetime.fromisoformat(now)
    ends = (moment - AGAIN_AFTER, moment + AGAIN_AFTER)
    since, until = (each.isoformat(timespec="microseconds") for each in ends)
    return since, until


WORK_SIZES = (
    *("macs", "weight_bytes", "pixels", "width", "in_channels", "out_channels", "kernel"),
    *("stride", "n_inputs", "rank"),
)
"""Columns of a unit's work that are numbers, named as :class:`Work`'s fields."""


def work_columns(works: Sequence[Work | None]) -> dict[str, Any]:
    """The columns of a row that ran these units: of one, all of its work, of more the
    multiply-accumulates. Empty where that of one is not known."""
    complete = [work for work in works if work is not None]
    if not works or len(complete) < len(works):
        return {}
    if len(complete) > 1:
        return {"macs": round(sum(work.macs for work in complete))}
    (work,) = complete
    named = {"operation": work.kind, "element": work.data, "kernel_class": work.rate}
    return named | {name: round(getattr(work, name)) for name in WORK_SIZES}


class Key(NamedTuple):
    """The identity of a measurement on one device: two with the same key repeat each other."""

    signature: str
    target: str
    """:attr:`Target.key`."""
    precision: str
    mode: str
    threads: int
    cpus: str
    sustained_s: int
    driver_version: str
    agent_version: str


@dataclass(frozen=True)  # without slots: the summary is kept, and asked for again and again
class Measurement:
    """One row of the cost table; the units and meanings of all fields stand in :mod:`.schema`."""

    signature: str
    kind: Kind
    label: str
    members: tuple[str, ...]
    offsets: tuple[int, ...]
    target: Target
    fingerprint: str
    agent_version: str
    status: Status
    driver_version: str = ""
    conditions: Conditions = Conditions()
    """What of them concerns the target's engine (:meth:`Conditions.on`)."""
    message: str | None = None
    samples_ns: tuple[int, ...] = ()
    hardware_ns: tuple[int, ...] = ()
    driver_ns: tuple[int, ...] = ()
    copies_ns: tuple[int, ...] = ()
    """As many as ``samples_ns``, which do not contain them; empty where nobody measured them."""
    corunner: Target | None = None
    """Of :attr:`Kind.CORUN`: who was busy meanwhile; ``samples_ns`` are those beside it."""
    alone_ns: tuple[int, ...] = ()
    """As many, in the same rounds: while nothing else ran."""
    cpu_ns: tuple[int, ...] = ()
    """CPU time of the agent in each of ``alone_ns``."""
    rounds: tuple[Round, ...] = ()
    """In the order of the samples; empty where nothing was told of them."""
    warmup_runs: int | None = None
    warm: bool | None = None
    cpu_mask: str | None = None
    kernels_xnnpack: int | None = None
    kernels_portable: int | None = None
    memory: str | None = None
    compile_ns: int | None = None
    first_ns: int | None = None
    n_operations: int = 0
    input_bytes: int = 0
    output_bytes: int = 0
    operation: str | None = None
    """From here to ``rank``: the work of a unit, see :func:`work_columns`."""
    element: str | None = None
    kernel_class: str | None = None
    macs: int | None = None
    weight_bytes: int | None = None
    pixels: int | None = None
    width: int | None = None
    in_channels: int | None = None
    out_channels: int | None = None
    kernel: int | None = None
    stride: int | None = None
    n_inputs: int | None = None
    rank: int | None = None
    simulated: bool = False
    clock: str = "monotonic"
    cpu_khz_before: int | None = None
    cpu_khz_after: int | None = None
    thermal_mc_before: int | None = None
    thermal_mc_after: int | None = None
    rss_peak_kb: int | None = None
    skin_mc: int | None = None
    """From here to ``load_percent``: of the device shortly before, where it was asked and tells
    (:class:`nnapi_prof.device.state.DeviceState`)."""
    battery_percent: int | None = None
    charging: bool | None = None
    load_percent: int | None = None
    attempts: int | None = None
    """How often it was tried; None where that is not known, so that a failure may have been due to
    another model's."""
    room: int | None = None
    """Compilations at once that the driver was found to hold by then; None where nothing showed
    that it holds fewer than are tried."""
    drift_percent: int | None = None
    """How much longer the reference model took about then than when it was fastest; None where the
    device held still, or nobody looked."""
    measured_at: str = ""
    """UTC, ISO 8601; the store fills it in where it is empty."""

    @property
    def n_units(self) -> int:
        return len(self.members)

    @property
    def key(self) -> Key:
        return Key(
            self.signature,
            self.target.key,
            self.conditions.precision.value,
            self.conditions.mode.value,
            self.conditions.threads,
            self.conditions.cpus,
            self.conditions.sustained_s,
            self.driver_version,
            self.agent_version,
        )

    def conclusive(self, now: str) -> bool:
        """True where nothing else is to be expected of another measurement at this time (UTC, ISO
        8601): a driver that died or hung twice may have been ill that day."""
        if self.status not in FAILURES:
            return True
        if self.attempts == ATTEMPTS:
            since, until = trusted_failures(now)
            return since < self.measured_at < until
        return self.attempts is not None

    def after(self, earlier: Measurement | None) -> Measurement:
        """This row; a failure that was one before has the attempts of both."""
        if self.status not in FAILURES or earlier is None or earlier.status not in FAILURES:
            return self
        if self.attempts is None or earlier.attempts is None or earlier.key != self.key:
            return self
        return replace(self, attempts=self.attempts + earlier.attempts)

    @property
    def usable(self) -> bool:
        """True where ``samples_ns`` is a latency: the run ended well and was timed."""
        return self.status is Status.OK and bool(self.samples_ns)

    @cached_property
    def summary(self) -> Summary:
        """Summary of ``samples_ns``, without those of throttled rounds where there are others.

        Raises CostError where nothing was timed.
        """
        return summarise(self.samples_ns, self.rounds)

    @property
    def latency_ns(self) -> float:
        """Median of ``samples_ns``. Raises CostError where nothing was timed."""
        return self.summary.median_ns

    @property
    def work(self) -> Work | None:
        """The unit's computation and traffic; None for a chain, a region or a plan, and for a row
        without it."""
        sizes = {name: getattr(self, name) for name in WORK_SIZES}
        if self.operation is None or self.element not in ELEMENT_BYTES or None in sizes.values():
            return None
        return Work(
            kind=self.operation,
            data=self.element,
            in_bytes=float(self.input_bytes),
            out_bytes=float(self.output_bytes),
            n_inputs=sizes.pop("n_inputs") or 1,
            rank=sizes.pop("rank") or 0,
            **{name: float(value or 0) for name, value in sizes.items()},
        )

    @property
    def relaxed(self) -> bool:
        return self.conditions.precision is Precision.RELAXED

    @property
    def burst(self) -> bool:
        return self.conditions.mode is Mode.BURST

    @property
    def threads(self) -> int:
        return self.conditions.threads

    @property
    def flags(self) -> tuple[str, ...]:
        """Warnings about the latency, for people."""
        drifting = () if self.drift_percent is None else (DRIFTING,)
        return (*quality_flags(self.rounds, self.warm), *drifting)

    @property
    def why_not(self) -> Reason:
        """The sentence for a measurement without a latency."""
        return Reason.of(
            self.status.value, self.message or "", failed=self.status is not Status.REFUSED
        )
