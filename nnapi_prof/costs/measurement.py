"""One measurement as data: what was run, where, under which conditions, and what came out."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

from nnapi_prof.costs.conditions import Conditions, Mode, Precision
from nnapi_prof.costs.rounds import Round, doubts
from nnapi_prof.costs.summary import Summary, summarise
from nnapi_prof.graph.plan import Target
from nnapi_prof.graph.work import ELEMENT_BYTES, Work


class Kind(enum.Enum):
    """What was measured."""

    UNIT = "unit"
    CHAIN = "chain"
    """Two or three neighbouring units, measured to tell marginal costs from overheads."""
    REGION = "region"
    """A segment of some plan, measured whole."""
    PLAN = "plan"
    """All segments of a plan, one after the other."""


class Status(enum.Enum):
    """How it ended. Every status is conclusive: a crash or a timeout is not tried again."""

    OK = "ok"
    REFUSED = "refused"
    """The converter or the driver does not support it; ``message`` says why."""
    FAILED = "failed"
    CRASHED = "crashed"
    TIMEOUT = "timeout"


WORK_SIZES = (
    *("macs", "weight_bytes", "pixels", "width", "in_channels", "out_channels", "kernel"),
    *("stride", "n_inputs", "rank"),
)
"""Columns of a unit's work that are numbers, named as :class:`Work`'s fields."""


def work_columns(works: Sequence[Work | None]) -> dict[str, Any]:
    """The columns of a row that ran these units: of one, all of its work, of more the
    multiply-accumulates. Empty where that of one is not known."""
    known = [work for work in works if work is not None]
    if not works or len(known) < len(works):
        return {}
    if len(known) > 1:
        return {"macs": round(sum(work.macs for work in known))}
    (work,) = known
    named = {"operation": work.kind, "element": work.data, "kernel_class": work.rate}
    return named | {name: round(getattr(work, name)) for name in WORK_SIZES}


class Key(NamedTuple):
    """What makes two measurements of one device the same measurement."""

    signature: str
    target: str
    """:attr:`Target.key`."""
    precision: str
    mode: str
    threads: int
    cpus: str
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
            self.driver_version,
            self.agent_version,
        )

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
    def work(self) -> Work | None:
        """What the unit computes and moves; None of a chain, a region or a plan, and of a row that
        does not say."""
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
        """What a reader should know before trusting the latency, for people."""
        return doubts(self.rounds, self.warm)

    @property
    def why_not(self) -> str:
        """The sentence for a measurement without a latency."""
        said = f": {self.message}" if self.message else ""
        return f"{self.status.value}{said}"
