"""The agent's protocol (device_agent/PROTOCOL.md): requests out, results in, both as data.

This module has the agent's answers as frozen dataclasses (PROTOCOL.md, section 5).
"""

from __future__ import annotations

import enum
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from nnapi_prof.costs.measurement import Round, Status, log_ratios, medians
from nnapi_prof.graph.plan import Precision


@dataclass(frozen=True, slots=True)
class Accelerator:
    """An NNAPI device."""

    name: str
    type: str
    version: str
    feature_level: int


@dataclass(frozen=True, slots=True)
class Hello:
    """The agent begins a request."""

    protocol: int
    agent: str
    actions: int
    simulated: bool
    phone: str | None
    accelerators: tuple[Accelerator, ...] | None = None
    """None where the agent lists none."""


@dataclass(frozen=True, slots=True)
class Missing:
    """Blobs (hex names) that must be pushed first."""

    blobs: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Start:
    """An action begins."""

    action: int


@dataclass(frozen=True, slots=True)
class Wait:
    """An action has shown no progress for a while; the agent asks whether NNAPI still answers."""

    action: int
    ms: int
    """Milliseconds since the awaited turn began."""


@dataclass(frozen=True, slots=True)
class Kernels:
    """Numbers of a segment's operations that the CPU engine ran on kernels of each kind."""

    xnnpack: int
    portable: int


@dataclass(frozen=True, slots=True)
class SegmentSamples:
    """Raw times of one segment in ns, one for each recorded run."""

    compile_ns: int | None = None
    samples_ns: tuple[int, ...] = ()
    hardware_ns: tuple[int, ...] = ()
    """Times on the accelerator itself, of runs after the recorded ones; empty where the driver does
    not report them. So is ``driver_ns``."""
    driver_ns: tuple[int, ...] = ()
    kernels: Kernels | None = None
    """None on NNAPI."""
    memory: str | None = None
    """How its tensors reach the engine: ``ashmem``, ``file``, ``memfd`` or ``pointers``."""
    alone_ns: tuple[int, ...] = ()
    """Runs of one of the segments side by side alone, while ``samples_ns`` are those beside the
    others; empty for other actions, as is ``cpu_ns``."""
    cpu_ns: tuple[int, ...] = ()
    """CPU time that the action's process took for each run alone, without a driver's work in other
    processes."""

    def slowdowns(self, rounds: Sequence[Round]) -> tuple[float, ...]:
        """Returns the slow-downs of runs beside the others against runs alone, by the medians of
        each round that was not throttled; none for a segment that did not run side by side."""
        alone, corun = medians(self.alone_ns, rounds), medians(self.samples_ns, rounds)
        return tuple(math.exp(each) for each in log_ratios(alone, corun))


@dataclass(frozen=True, slots=True)
class KeptOutput:
    """A tensor's bytes after the last run, in a file of the work folder."""

    tensor: int
    file: str
    n_bytes: int
    sha256: str


class Outcome(enum.Enum):
    """The outcome of a frame."""

    SAME = "same"
    """Its outputs are those of its plan run alone, bit by bit."""
    DIFFERS = "differs"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class FrameSample:
    """One frame of many at once; times are ns of the action's clock."""

    plan: int
    """Index of the plan in the action."""
    outcome: Outcome
    begin_ns: int
    """Time of its submission."""
    end_ns: int
    """Time when its last segment was done, or failed."""


@dataclass(frozen=True, slots=True)
class SpanSample:
    """The time of an action's segment for a frame."""

    segment: int
    frame: int
    begin_ns: int
    end_ns: int


@dataclass(frozen=True, slots=True)
class FrameSamples:
    """All frames of an action, in the order of their submission."""

    frames: tuple[FrameSample, ...]
    spans: tuple[SpanSample, ...] = field(repr=False)
    """Sorted by segment, and then by frame."""
    failure: str | None
    """Message of the first frame that failed."""


@dataclass(frozen=True, slots=True)
class ActionResult:
    """The result of one action; a failed one keeps the samples from before the fault."""

    action: int
    status: Status
    stage: str | None
    """``setup``, ``compile`` or ``execute`` where not ok."""
    message: str | None
    code: int | None
    """NNAPI result code."""
    signal: str | None
    clock: str
    """``monotonic`` or ``simulated``."""
    segments: tuple[SegmentSamples, ...]
    total_ns: tuple[int, ...]
    """Time from the first segment's start to the last one's end, for each recorded run."""
    first_ns: int | None
    rss_peak_kb: int | None
    cpu_khz: tuple[int | None, int | None]
    """Before and after."""
    thermal_mc: tuple[int | None, int | None]
    """Before and after, thousandths of a degree Celsius."""
    outputs: tuple[KeptOutput, ...] = ()
    rounds: tuple[Round, ...] = ()
    """In the order of the samples."""
    warmup_runs: int | None = None
    warm: bool | None = None
    """Whether the runs' times had become stable before the recorded ones."""
    cpu_mask: str | None = None
    """The CPU affinity, as hex text."""
    frames: FrameSamples | None = None
    """Frames of an action that runs many at once: its samples are these, and ``rounds`` have the
    number of frames of each."""
    copies_ns: tuple[int, ...] = ()
    """Part of ``total_ns`` that copies from and to the caller's buffers; empty without copies."""
    attempts: int | None = None
    """Number of attempts: 2 where it failed beside others and was tried once more, alone."""
    words: str | None = None
    """Last words that its process printed, above all the driver's library, where not ok."""
    driver: str | None = None
    """:data:`SICK` where its driver, or an accelerator that it needs, also failed what it ran
    before: the result says nothing about the action. ``back`` where the driver did so before the
    attempt that counts."""

    @property
    def ok(self) -> bool:
        return self.status is Status.OK

    @property
    def why(self) -> str:
        """The message, and the driver's own words."""
        words = " ".join((self.words or "").split())
        return (self.message or "") + (f'; it printed "{words}"' if words else "")


SICK = "sick"
SLOW = "slow"
"""State of a driver that cost so much time that nothing more is tried on it."""
MEMORY_KINDS = ("ashmem", "file", "memfd", "pointers")
MOST_ROOM = 32


@dataclass(frozen=True, slots=True)
class DriverFacts:
    """Facts about a driver that a request learnt, for the next request."""

    accelerator: str | None
    """None: NNAPI's choice."""
    room: int
    """Number of compilations that it holds at once."""
    memory: str | None
    """The kind that reaches it, one of :data:`MEMORY_KINDS`; None: not known yet."""
    state: str | None = None
    """:data:`SICK` where it fails what it ran before; :data:`SLOW`; None: nothing is known against
    it."""
    lost_ms: int = 0
    """Milliseconds of waiting for it in this request, because it died or hung."""


@dataclass(frozen=True, slots=True)
class End:
    """The request was carried out."""

    actions: int
    ok: int
    failed: int
    waited_ms: int = 0
    """Milliseconds of waiting for a device that was too hot."""
    fruitless: bool = False
    """Whether it stayed too hot."""
    allowed_khz: tuple[int | None, ...] = field(default=(), compare=False)
    """The highest ``scaling_max_freq`` seen of each CPU, before or now."""
    drivers: tuple[DriverFacts, ...] = field(default=(), compare=False)
    simulated_ms: int = field(default=0, compare=False)
    """Milliseconds that the actions took by the clock of a simulated phone."""


@dataclass(frozen=True, slots=True)
class ErrorLine:
    """The agent gives up on the whole request."""

    message: str


class NnapiEntryPoint(enum.Enum):
    """The entry points of a library with NNAPI's functions; only NNAPI's own have a runtime that
    chooses among accelerators."""

    NNAPI = "nnapi"
    SUPPORT_LIBRARY = "support library"
    NEURON_ADAPTER = "neuron adapter"


@dataclass(frozen=True, slots=True)
class NnapiInfo:
    """The NNAPI of libneuralnetworks.so, or of a library in its place, on the device."""

    library: str | None
    error: str | None
    missing: tuple[str, ...]
    """Names of functions this version lacks."""
    accelerators: tuple[Accelerator, ...]
    """With other entry points than NNAPI's they are called NAME@FILE, after the library's file."""
    door: NnapiEntryPoint = NnapiEntryPoint.NNAPI
    stalled: bool = False
    """Whether NNAPI did not answer in time: one of its drivers hangs."""


@dataclass(frozen=True, slots=True)
class Readings:
    """Readings over all CPUs at the time of ``agent info``; None where there are none."""

    cpu_khz: int | None = None
    thermal_mc: int | None = None
    """The hottest zone, or a simulated phone's temperature, in thousandths of a degree Celsius."""
    throttled: bool | None = None


class HalfArithmetic(enum.Enum):
    """How an agent's CPU engine computes float32 as float16."""

    NONE = "none"
    EMULATED = "emulated"
    """Computed by kernels that convert and use float32, more slowly than float32's own."""
    NATIVE = "native"

    @property
    def has_wide_sums(self) -> bool:
        """Whether sums are in float32, as in measuring errors of units. ARM's kernels add up in
        float16: their error grows with the length of a sum."""
        return self is not HalfArithmetic.NATIVE

    def serves(self, precision: Precision) -> bool:
        """Returns whether the CPU engine uses float16 for this precision."""
        if precision is Precision.RELAXED:
            return self is HalfArithmetic.NATIVE
        return precision is Precision.FLOAT16 and self is not HalfArithmetic.NONE


@dataclass(frozen=True)
class AgentInfo:
    """The answer of ``agent info`` about a device."""

    protocol: int
    agent: str
    abi: str
    os: str
    properties: Mapping[str, str] = field(repr=False)
    api_level: int | None
    cpus: int
    cpu_max_khz: tuple[int | None, ...]
    memory_kb: int | None
    simulated: bool
    phone: str | None
    identity: str
    """Identifies a simulated phone's description; empty for real devices."""
    nnapi: NnapiInfo
    engines: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Engine -> the libraries whose kernels it has, the preferred ones first."""
    big_cores: str | None = None
    """Affinity mask of the cores with the highest clock rate, as hex text."""
    threads_max: int | None = None
    cpu_float16: HalfArithmetic = HalfArithmetic.NONE
    readings: Readings = Readings()

    @property
    def cost_version(self) -> str:
        """Name of the agent in the cost table: measurements under another name are repeated.

        An agent without XNNPACK computes more slowly on the CPU, which matters where the clock is
        real.
        """
        slow = not self.simulated and "xnnpack" not in self.engines.get("cpu", ())
        return f"{self.agent} portable" if slow else self.agent


@dataclass(frozen=True, slots=True)
class Cleaned:
    """The files that ``agent clean`` deleted, and those that it left."""

    files: int
    n_bytes: int
    kept_bytes: int


Event = Hello | Missing | Start | Wait | ActionResult | End | ErrorLine
"""The events of ``agent run``."""
