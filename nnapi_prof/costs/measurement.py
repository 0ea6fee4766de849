"""Measurement as data: what was run, where, under which conditions, and the result.

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
"""Ratio of two rounds' medians up to which they may have had the same clock; as in the agent."""
CLOCK = 0.97
"""Ratio of two clocks above which they count as equal; as in the agent."""
ODD = 4.0
"""Ratio of two clocks of equally fast rounds above which the readings are not clocks at all."""
APART = 1.25
"""Ratio of two rounds' medians above which they had different clocks."""


@dataclass(frozen=True, slots=True)
class Round:
    """Recorded runs of one turn, and the state of the device before and after them."""

    runs: int
    cpu_khz: tuple[int | None, int | None] = (None, None)
    """Before and after."""
    thermal_mc: tuple[int | None, int | None] = (None, None)
    """Before and after, thousandths of a degree Celsius."""
    throttled: bool | None = None
    """True where heat slowed the device down; None where the device does not report it."""
    repeats: int | None = None
    """Index of the round that this one repeats."""
    moved: bool | None = None
    """True where the clock moved or was too low, or the core changed; None if not checked."""
    cpus: str | None = None
    """Mask in hex of the cores that its runs were seen on."""

    @property
    def unsteady(self) -> bool:
        """True where the round's samples count only if there are no others."""
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
    """Returns warnings about a latency, for people."""
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
    """Returns the median of each round's samples, None for an unsteady or empty round. Returns one
    median of all samples where their number differs from that of the rounds, or there are none."""
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
    """Returns whether clocks were checked in some rounds, but could not be read or do not match the
    speed: they differ widely between rounds that did not move, or are equal in rounds of different
    speeds."""
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
    return is_constant and slow > 1  # a single round may have been slow between two readings


def log_ratios(first: Sequence[float | None], second: Sequence[float | None]) -> tuple[float, ...]:
    """Returns ln(second / first) for the rounds that both have. The two took turns, so that what
    slowed one also slowed the other."""
    pairs = zip(first, second, strict=False)
    return tuple(math.log(b / a) for a, b in pairs if a and b and a > 0 and b > 0)


def steady(samples: Sequence[int], rounds: Sequence[Round]) -> tuple[int, ...]:
    """Returns the samples of rounds that were not throttled and whose clock did not move.

    Where there are none, returns those of the fastest round that was not throttled, and of rounds
    that may have had the same clock, so that different clocks are never averaged. Where every round
    was throttled, as under a sustained load, returns all samples: the slow clock was asked for.

    Samples are in the order of the rounds. Where their number differs from that of the rounds (a
    fault in the middle of one), nothing is left out.
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
    """Returns the 95th percentile of at least one sample, by linear interpolation."""
    ordered = sorted(samples)
    place = 0.95 * (len(ordered) - 1)
    low = int(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (place - low) * (ordered[high] - ordered[low])


MAD_TO_SIGMA = 1.4826
"""1 / (normal quantile of 3/4): sigma of normal data divided by its median absolute deviation."""

MEDIAN_TO_MEAN = 1.2533
"""sqrt(pi / 2): standard error of the median of normal samples divided by that of their mean."""


@dataclass(frozen=True, slots=True)
class Summary:
    """Robust summary of latencies in ns: up to half the samples may be outliers."""

    median_ns: float
    spread_ns: float
    """:data:`MAD_TO_SIGMA` times the median absolute deviation: sigma if the samples are normal."""
    n: int
    minimum_ns: int
    n_left_out: int = 0
    """Number of samples of unsteady rounds, which are ignored."""
    p95_ns: float = math.nan
    """95th percentile of the samples."""

    @property
    def sigma_of_median_ns(self) -> float:
        """Standard error of the median, if the samples are normal and independent."""
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
    """Summarises the samples of one measurement, without those that :func:`steady` leaves out.

    Raises CostError where there are no samples.
    """
    if not samples_ns:
        raise CostError("a measurement without samples has no latency: it did not run to its end")
    return _summarise(tuple(samples_ns), tuple(rounds))


DRIFTING = "the device drifted: a reference model took longer about then"
"""Flag of a row measured while the device drifted."""

UNWATCHED = "not watched for drift: the reference model does not run on"
"""Flag, followed by the accelerator's name, of rows measured where the reference model fails."""

LOW = "this phone is much slower than in earlier profiles: something may hold its clock down"
"""Flag of rows measured while the reference model was much slower than in earlier profiles."""

UNREADABLE = "this phone's clocks cannot be read: rounds are compared by their times alone"
"""Flag of rows measured on the CPU of such a phone."""

SILENT = "Android's service does not answer, so that heat or sleep may go unseen:"
"""Flag, followed by the service's name, of rows measured while the service did not answer."""


class Kind(enum.Enum):
    """Kind of a measurement."""

    UNIT = "unit"
    CHAIN = "chain"
    """Two or three neighbouring units, measured to separate marginal costs from overheads."""
    REGION = "region"
    """A segment of some plan, measured whole."""
    PLAN = "plan"
    """All segments of a plan, one after the other."""
    CORUN = "corun"
    """A unit, measured alone and while another processor was busy with the same unit."""
    ANCHOR = "anchor"
    """The reference model, which tells whether the device is as fast as it was."""
    THREADS = "threads"
    """A unit on the CPU in the trial of the number of threads, measured for a shorter time."""


class Status(enum.Enum):
    """Result of a measurement. Before it reports a failure, the agent repeats the task alone. A
    profile half a day later tries it again; then it is final for this version of the driver."""

    OK = "ok"
    REFUSED = "refused"
    """The converter, the engine or the driver does not support it; a message says why."""
    FAILED = "failed"
    CRASHED = "crashed"
    TIMEOUT = "timeout"


FAILURES = (Status.FAILED, Status.CRASHED, Status.TIMEOUT)
"""Statuses of a run that went wrong, rather than being refused by the driver."""

ATTEMPTS = 2
"""Attempts of a task that failed twice in one request, the second time alone. More attempts are
those of two days, and final; so is a single one, if running alone could not have helped."""
AGAIN_AFTER = timedelta(hours=12)
"""Age from which a failure is tried again, once."""


def trusted_failures(now: str) -> tuple[str, str]:
    """Returns the times (UTC) between which failures were measured that are not tried again yet.

    These are half a day before and after ``now``: a failure that seems to be later than now was
    measured before the clock was set back.
    """
    moment = datetime.fromisoformat(now)
    ends = (moment - AGAIN_AFTER, moment + AGAIN_AFTER)
    since, until = (each.isoformat(timespec="microseconds") for each in ends)
    return since, until


WORK_SIZES = (
    *("macs", "weight_bytes", "pixels", "width", "in_channels", "out_channels", "kernel"),
    *("stride", "n_inputs", "rank"),
)
"""Columns of a unit's work that are numbers, named after the fields of :class:`Work`."""


def work_columns(works: Sequence[Work | None]) -> dict[str, Any]:
    """Returns the work columns of a row that ran these units: all of them for one unit, and the
    multiply-accumulates for several. Empty where the work of a unit is unknown."""
    complete = [work for work in works if work is not None]
    if not works or len(complete) < len(works):
        return {}
    if len(complete) > 1:
        return {"macs": round(sum(work.macs for work in complete))}
    (work,) = complete
    named = {"operation": work.kind, "element": work.data, "kernel_class": work.rate}
    return named | {name: round(getattr(work, name)) for name in WORK_SIZES}


class Key(NamedTuple):
    """Identity of a measurement on one device: rows with the same key repeat each other."""

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


@dataclass(frozen=True)  # without slots, so that the summary is cached
class Measurement:
    """Row of the cost table; :mod:`nnapi_prof.costs.store.rows` documents all fields and units."""

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
    """Conditions that concern the target's engine (:meth:`Conditions.on`)."""
    message: str | None = None
    samples_ns: tuple[int, ...] = ()
    hardware_ns: tuple[int, ...] = ()
    driver_ns: tuple[int, ...] = ()
    copies_ns: tuple[int, ...] = ()
    """Time to copy inputs and outputs, for each of ``samples_ns`` and not included in them; empty
    where it was not measured."""
    corunner: Target | None = None
    """The target that was busy while ``samples_ns`` were measured (:attr:`Kind.CORUN` only)."""
    alone_ns: tuple[int, ...] = ()
    """Samples while nothing else ran: as many, in the same rounds (:attr:`Kind.CORUN` only)."""
    cpu_ns: tuple[int, ...] = ()
    """CPU time of the agent in each of ``alone_ns``."""
    rounds: tuple[Round, ...] = ()
    """Rounds in the order of the samples; empty where they are unknown."""
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
    """From here to ``load_percent``: state of the device shortly before, where it was asked and
    reports it (:class:`nnapi_prof.device.state.DeviceState`)."""
    battery_percent: int | None = None
    charging: bool | None = None
    load_percent: int | None = None
    attempts: int | None = None
    """Number of attempts; None where it is unknown, so that another model may have caused a
    failure."""
    room: int | None = None
    """Number of compilations that the driver was found to hold at once; None where it held as many
    as were tried."""
    drift_percent: int | None = None
    """Extra time that the reference model took around then, compared with its fastest; None where
    the device did not drift, or this was not checked."""
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
        """Returns whether measuring again at this time (UTC, ISO 8601) would give nothing new. A
        driver that died or hung twice may have had a bad day, and gets another try later."""
        if self.status not in FAILURES:
            return True
        if self.attempts == ATTEMPTS:
            since, until = trusted_failures(now)
            return since < self.measured_at < until
        return self.attempts is not None

    def after(self, earlier: Measurement | None) -> Measurement:
        """Returns this row; a failure that follows a failure has the attempts of both."""
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
        """:func:`summarise` of ``samples_ns``. Raises CostError where nothing was timed."""
        return summarise(self.samples_ns, self.rounds)

    @property
    def latency_ns(self) -> float:
        """Median of ``samples_ns``. Raises CostError where nothing was timed."""
        return self.summary.median_ns

    @property
    def work(self) -> Work | None:
        """The unit's computation and traffic; None for a chain, a region or a plan, and where a row
        does not have it."""
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
        """The reason why this measurement has no latency."""
        return Reason.of(
            self.status.value, self.message or "", failed=self.status is not Status.REFUSED
        )
