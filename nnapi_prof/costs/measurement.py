"""Define one measurement as data: what was run, where, under which conditions, and what came out.

Its samples belong to rounds; :func:`summarise` sums them up.
"""

from __future__ import annotations

import enum
import functools
import itertools
import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import cached_property
from typing import Any, NamedTuple

from nnapi_prof.costs import Conditions, Mode, Precision
from nnapi_prof.errors import CostError
from nnapi_prof.graph.causes import Reason
from nnapi_prof.graph.plan import Target
from nnapi_prof.graph.unit import ELEMENT_BYTES, Work

SAME_SPEED = 1.08
"""Rounds whose medians differ by no more may have had the same clock, as the agent has it."""
CLOCK = 0.97
"""A clock that is lower than another by less is the same, as the agent has it."""
ODD = 4.0
"""Clocks that differ by so much in rounds that took equally long are none."""
APART = 1.25
"""Rounds whose medians differ by more had another clock."""


@dataclass(frozen=True, slots=True)
class Round:
    """The recorded runs of one turn, and the device before and after them."""

    runs: int
    cpu_khz: tuple[int | None, int | None] = (None, None)
    """Before and after."""
    thermal_mc: tuple[int | None, int | None] = (None, None)
    """Before and after, thousandths of a degree Celsius."""
    throttled: bool | None = None
    """The device was held back by heat; None where it does not tell."""
    repeats: int | None = None
    """The round (its index) that this one was measured again for."""
    moved: bool | None = None
    """The clock moved, stood below its level, or the core changed; None where nobody looked."""
    cpus: str | None = None
    """Mask in hex of the cores that its runs were seen on."""

    @property
    def unsteady(self) -> bool:
        """Its samples count only where there are no others."""
        return bool(self.throttled or self.moved)

    def to_json(self) -> dict[str, Any]:
        return {
            "runs": self.runs,
            "cpu_khz": self.cpu_khz,
            "thermal_mc": self.thermal_mc,
            "throttled": self.throttled,
            "repeats": self.repeats,
            "moved": self.moved,
            "cpus": self.cpus,
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Round:
        clocks, heat = tuple(data["cpu_khz"]), tuple(data["thermal_mc"])
        return cls(
            data["runs"],
            clocks,
            heat,
            data["throttled"],
            data["repeats"],
            data.get("moved"),
            data.get("cpus"),
        )


def quality_flags(rounds: Sequence[Round], warm: bool | None) -> tuple[str, ...]:
    """Lists warnings about a latency, for people."""
    hot = sum(bool(each.throttled) for each in rounds)
    flags = []
    if hot and hot == len(rounds):
        flags.append("throttled in every round")
    elif hot:
        flags.append(f"{hot} of {len(rounds)} rounds throttled and left out")
    if rounds and hot < len(rounds) and all(each.unsteady for each in rounds):
        flags.append("the clock or the core changed in every round")
    if warm is False:
        flags.append("not warm: warming up ended before the times were stable")
    return tuple(flags)


def medians(samples: Sequence[int], rounds: Sequence[Round]) -> tuple[float | None, ...]:
    """The median of each round's samples, None of one that is unsteady or empty; one median of
    all where the samples are not as many as the rounds say, or nothing was told of rounds."""
    if sum(each.runs for each in rounds) != len(samples):
        return (statistics.median(samples),) if samples else ()
    values: list[float | None] = []
    at = 0
    for each in rounds:
        own = samples[at : at + each.runs]
        values.append(statistics.median(own) if own and not each.unsteady else None)
        at += each.runs
    return tuple(values)


def clocks_are_unreadable(samples: Sequence[int], rounds: Sequence[Round]) -> bool:
    """Whether somebody looked at the clock of some rounds, and it told nothing, or anything but
    their speed: it was another by far in rounds that did not move, or the same in rounds of
    different speeds."""
    looked = [each for each in rounds if each.moved is not None]
    clocks = [khz for each in looked for khz in each.cpu_khz if khz is not None]
    if not looked or not clocks:
        return bool(looked)
    steady = [khz for each in looked if not each.moved for khz in each.cpu_khz if khz is not None]
    if steady and max(steady) > ODD * min(steady):
        return True
    alike = [replace(each, moved=False, throttled=False) for each in rounds]
    times = [ns for ns in medians(samples, alike) if ns is not None]
    is_constant = min(clocks) >= CLOCK * max(clocks) and len({each.cpus for each in looked}) == 1
    slow = sum(ns > APART * min(times) for ns in times)
    return is_constant and slow > 1  # one alone may have been slow between two looks


def log_ratios(first: Sequence[float | None], second: Sequence[float | None]) -> tuple[float, ...]:
    """ln(second / first) of the rounds that both have: they took turns, so that what slowed one
    slowed the other."""
    pairs = zip(first, second, strict=False)
    return tuple(math.log(b / a) for a, b in pairs if a and b and a > 0 and b > 0)


def steady(samples: Sequence[int], rounds: Sequence[Round]) -> tuple[int, ...]:
    """The samples of rounds that were neither throttled nor had a clock that moved. Where there are
    none, those of the fastest of the rounds that were not throttled, and of those that may have had
    the same clock: what two clocks took is nowhere averaged. Where every round was throttled, as
    under a sustained load, all samples: the slow clock is the one that was asked for then.

    Samples stand in the order of the rounds. Where they are not as many as the rounds say (a fault
    in the middle of one), nothing is left out.
    """
    if sum(each.runs for each in rounds) != len(samples):
        return tuple(samples)
    own: list[Sequence[int]] = []
    at = 0
    for each in rounds:
        own.append(samples[at : at + each.runs])
        at += each.runs
    pairs = list(zip(rounds, own, strict=True))
    calm = [runs for each, runs in pairs if runs and not each.unsteady]
    if not calm:
        cool = [runs for each, runs in pairs if runs and not each.throttled]
        most = SAME_SPEED * min((statistics.median(runs) for runs in cool), default=0.0)
        calm = [runs for runs in cool if statistics.median(runs) <= most] or own
    return tuple(itertools.chain.from_iterable(calm))


def p95(samples: Sequence[int]) -> float:
    """Return the 95th percentile of at least one sample; between two of them by the line."""
    ordered = sorted(samples)
    place = 0.95 * (len(ordered) - 1)
    low = int(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (place - low) * (ordered[high] - ordered[low])


MAD_TO_SIGMA = 1.4826
"""1 / (normal quantile of 3/4): the median absolute deviation of normal data in sigmas."""

MEDIAN_TO_MEAN = 1.2533
"""sqrt(pi / 2): how much wider a median of normal samples spreads than their mean."""


@dataclass(frozen=True, slots=True)
class Summary:
    """Robust summary of latencies in ns: half the samples may be wild before the median moves."""

    median_ns: float
    spread_ns: float
    """:data:`MAD_TO_SIGMA` times the median absolute deviation: sigma, were the samples normal."""
    n: int
    minimum_ns: int
    n_left_out: int = 0
    """Samples of throttled rounds, which take no part."""
    p95_ns: float = math.nan
    """What 95 % of the samples keep to."""

    @property
    def sigma_of_median_ns(self) -> float:
        """Standard error of the median, were the samples normal and independent."""
        return MEDIAN_TO_MEAN * self.spread_ns / math.sqrt(self.n)

    @property
    def relative_spread(self) -> float:
        return self.spread_ns / self.median_ns if self.median_ns else 0.0


@functools.lru_cache(maxsize=1 << 14)
def _summarise(samples_ns: tuple[int, ...], rounds: tuple[Round, ...]) -> Summary:
    cool = steady(samples_ns, rounds)
    median = statistics.median(cool)
    mad = statistics.median(abs(sample - median) for sample in cool)
    left_out = len(samples_ns) - len(cool)
    return Summary(float(median), MAD_TO_SIGMA * mad, len(cool), min(cool), left_out, p95(cool))


def summarise(samples_ns: Sequence[int], rounds: Sequence[Round] = ()) -> Summary:
    """Summarises the samples of one measurement; raises CostError where there are none.

    Those of throttled ``rounds`` are left out where there are others.
    """
    if not samples_ns:
        raise CostError("a measurement without samples has no latency: it did not run to its end")
    return _summarise(tuple(samples_ns), tuple(rounds))


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
