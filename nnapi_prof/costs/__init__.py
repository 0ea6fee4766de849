"""Cost tables: measurements, their store, and the models that turn them into a region's latency.

This module holds the conditions under which models are measured, planned for and run, and the
location of the default table. SQLAlchemy, pandas and scipy load with the modules that need them.
"""

from __future__ import annotations

import enum
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from nnapi_prof.errors import UsageError, for_caller
from nnapi_prof.graph.plan import TARGET_KINDS, Engine, Target
from nnapi_prof.graph.plan import Precision as Precision
from nnapi_prof.options import option, validate

VARIABLE = "NNAPI_PROF_COSTS"


def default_location() -> str:
    """Returns ``$NNAPI_PROF_COSTS`` (a path or database URL), else a file in ``$XDG_DATA_HOME``."""
    named = os.environ.get(VARIABLE)
    if named:
        return named
    data = os.environ.get("XDG_DATA_HOME") or str(Path.home() / ".local" / "share")
    return str(Path(data) / "nnapi-prof" / "costs.sqlite")


def is_there(location: str) -> bool:
    """Returns whether a table can be read from there: True for a URL and for an existing file."""
    return "://" in location or Path(location).expanduser().exists()


def existing(costs: str | None) -> str:
    """Returns the table to read from, given ``--costs``.

    Raises UsageError for a file that does not exist, so that a mistyped path creates none.
    """
    where = default_location() if costs is None else costs
    if not is_there(where):
        makes = for_caller("`nnapi-prof profile`", "profile()")
        raise UsageError(f"cost table {where} does not exist: {makes} makes one")
    return where


def absolute(location: str) -> str:
    """Returns a table's location independent of the working directory: a file's absolute path, or
    the URL unchanged."""
    return location if "://" in location else str(Path(location).expanduser().absolute())


BIG = "big"
"""``cpus``: the cores with the highest clock rate, found on the device."""
ALL = "all"
"""``cpus``: any core, as the system schedules."""
MOST_SUSTAINED_S = 3600
MOST_THREADS = 64
BY_TRIAL = "auto"
"""Stands for a number of threads that a trial on the device chooses
(:mod:`nnapi_prof.execution.profile.threads`). :class:`Conditions` hold the chosen number."""
_MASK = re.compile(r"0[xX][0-9a-fA-F]{1,16}")


class Mode(enum.Enum):
    """Execution mode of NNAPI."""

    SYNC = "sync"
    BURST = "burst"
    ASYNC = "async"
    """Starts the execution, then waits for its event."""
    POINTERS = "pointers"
    """``SYNC``, but tensors are passed by address, as stock PyTorch passes them, instead of in
    shared memory."""

    @property
    def code(self) -> int:
        """The mode's number in requests and bundles for apps, which state the memory separately."""
        return {Mode.BURST: 1, Mode.ASYNC: 2}.get(self, 0)


CONDITIONAL = (Precision.FLOAT32, Precision.RELAXED, Precision.FLOAT16)
"""Precisions that a whole float model may be computed in; 8 bits are chosen region by region."""


class SegmentFlag(enum.IntFlag):
    """Flags of a segment in requests and in bundles for apps (PROTOCOL.md, FORMAT.md)."""

    NONE = 0
    RELAXED = 1
    HALF = 2
    """CPU engine only: it computes float32 as float16, also with kernels that convert."""
    ONE_THREAD = 4
    """CPU engine only: the segment runs on one thread, whatever the number for other segments."""


@dataclass(frozen=True, slots=True)
class Conditions:
    """Conditions of a measurement or a run. ``mode`` concerns NNAPI, ``threads`` the CPU engine,
    and the other fields both, since the process that drives NNAPI runs on cores, too. ``cpus`` is
    :data:`BIG`, :data:`ALL` or a mask in hex; ``sustained_s`` is the number of seconds that the
    device has been busy before."""

    precision: Precision = Precision.FLOAT32
    mode: Mode = Mode.SYNC
    threads: int = 1
    cpus: str = BIG
    sustained_s: int = 0

    def __post_init__(self) -> None:
        if self.precision not in CONDITIONAL:
            raise ValueError(f"{self.precision.value} is not a condition of a whole model")

    def on(self, target: Target) -> Conditions:
        """Returns the conditions that concern a target, with defaults for the rest, so that (for
        example) burst mode for NNAPI does not cause the CPU to be measured again."""
        concern = TARGET_KINDS[target.engine].conditions
        own = Conditions(**{name: getattr(self, name) for name in concern})
        return replace(own, threads=1) if target.has_one_thread else own

    def precision_of(self, target: Target) -> Precision:
        """Returns the precision of a region on a target: the target's own, else this one."""
        own = target.precision
        return own if own is not Precision.FLOAT32 else self.on(target).precision

    def halves(self, target: Target) -> bool:
        """Returns whether a target's models are converted to float16. The CPU's never are: its
        weights stay float32 in files and are rounded when a plan is loaded."""
        return target.engine is not Engine.CPU and self.precision_of(target) is Precision.FLOAT16

    def flags_of(self, target: Target) -> SegmentFlag:
        """Returns the flags of a segment on a target."""
        precision = self.precision_of(target)
        flags = SegmentFlag.ONE_THREAD if target.has_one_thread else SegmentFlag.NONE
        if precision is Precision.RELAXED:
            return flags | SegmentFlag.RELAXED
        half = precision is Precision.FLOAT16 and target.engine is Engine.CPU
        return flags | SegmentFlag.HALF if half else flags

    @property
    def options(self) -> str:
        """The command-line options for the conditions that differ from the defaults."""
        threads, *others = self._stated()
        return " ".join(others if self.threads == 1 else [threads, *others])

    @property
    def stated(self) -> str:
        """The command-line options for these conditions. The number of threads is always stated: a
        command without it leaves the number to a trial."""
        return " ".join(self._stated())

    def _stated(self) -> list[str]:
        options = [f"--threads {self.threads}"]
        if self.mode is not Mode.SYNC:
            options.append(f"--mode {self.mode.value}")
        if self.precision is not Precision.FLOAT32:
            options.append(f"--{self.precision.value}")
        if self.cpus != BIG:
            options.append(f"--cpus {self.cpus}")
        if self.sustained_s:
            options.append(f"--sustained {self.sustained_s}")
        return options

    def to_json(self) -> dict[str, object]:
        return {
            "precision": self.precision.value,
            "mode": self.mode.value,
            "threads": self.threads,
            "cpus": self.cpus,
            "sustained_s": self.sustained_s,
        }

    @classmethod
    def from_json(cls, data: Mapping[str, object]) -> Conditions:
        """Reads the output of :meth:`to_json`.

        Raises ValueError, KeyError or TypeError where ``data`` is something else.
        """
        threads, sustained_s = data["threads"], data.get("sustained_s", 0)
        for name, number in (("threads", threads), ("sustained_s", sustained_s)):
            if not isinstance(number, int):
                raise TypeError(f"{name} is {number!r}")
        assert isinstance(threads, int) and isinstance(sustained_s, int)
        cpus = parse_cpus(str(data["cpus"]))
        return cls(Precision(data["precision"]), Mode(data["mode"]), threads, cpus, sustained_s)


@dataclass(frozen=True, slots=True)
class ConditionOptions:
    """Conditions that a user asks for: :class:`Conditions` whose number of threads a trial may
    choose."""

    threads: int | str = field(
        default=BY_TRIAL,
        metadata=option(
            "Threads of the device's CPU engine; auto: a trial of some units decides, made by"
            " profile and go, and read from the cost table by other commands.",
            1,
            MOST_THREADS,
            choices=[BY_TRIAL],
            metavar="auto|N",
        ),
    )
    cpus: str = field(
        default=BIG,
        metadata=option(
            "Cores to keep to: those of the highest clock rate, all, or a mask like 0xf0.",
            metavar="big|all|MASK",
        ),
    )
    mode: str = field(
        default=Mode.SYNC.value,
        metadata=option(
            "Execution mode of NNAPI; pointers: sync, with tensors at addresses, as stock PyTorch"
            " passes them, instead of in shared memory.",
            choices=[each.value for each in Mode],
        ),
    )
    relaxed: bool = field(
        default=False,
        metadata=option(
            "Let NNAPI compute float32 as float16, and the CPU where it has arithmetic for that."
        ),
    )
    float16: bool = field(
        default=False,
        metadata=option(
            "Use float16 models for NNAPI (API 29), with inputs and outputs in float32; the CPU"
            " computes in float16 where it can."
        ),
    )
    sustained: int = field(
        default=0,
        metadata=option(
            "Keep the device's processors busy for this long first.",
            0,
            MOST_SUSTAINED_S,
            metavar="SECONDS",
        ),
    )

    def __post_init__(self) -> None:
        validate(self)
        if self.relaxed and self.float16:
            raise UsageError(
                for_caller(
                    "--relaxed lets float32 be computed as float16, --float16 has no float32:"
                    " choose one",
                    "relaxed lets float32 be computed as float16, float16 has no float32",
                )
            )
        try:
            object.__setattr__(self, "cpus", parse_cpus(self.cpus))
        except (TypeError, ValueError) as error:
            raise UsageError(f"cpus: {error}") from error

    @classmethod
    def of(cls, asked: ConditionOptions | Conditions | None) -> ConditionOptions:
        """Converts conditions to options; None gives the defaults.

        Raises UsageError for anything else.
        """
        if isinstance(asked, Conditions):
            return cls(
                threads=asked.threads,
                cpus=asked.cpus,
                mode=asked.mode.value,
                relaxed=asked.precision is Precision.RELAXED,
                float16=asked.precision is Precision.FLOAT16,
                sustained=asked.sustained_s,
            )
        if asked is not None and not isinstance(asked, cls):
            raise UsageError(
                f"conditions are {asked!r}", "give ConditionOptions(...) of nnapi_prof"
            )
        return cls() if asked is None else asked

    @property
    def by_trial(self) -> bool:
        """True where a trial chooses the number of threads."""
        return isinstance(self.threads, str)

    @property
    def conditions(self) -> Conditions:
        """The conditions, with one thread until a trial has chosen the number."""
        precision = Precision.RELAXED if self.relaxed else Precision.FLOAT32
        return Conditions(
            Precision.FLOAT16 if self.float16 else precision,
            Mode(self.mode),
            1 if isinstance(self.threads, str) else self.threads,
            self.cpus,
            self.sustained,
        )


def parse_cpus(text: str) -> str:
    """Returns ``big``, ``all``, or a hexadecimal mask in its shortest spelling. Raises ValueError
    for anything else."""
    if text in (BIG, ALL):
        return text
    mask = int(text, 16) if _MASK.fullmatch(text) else 0
    if mask == 0:
        raise ValueError(f"{text!r} is neither {BIG} nor {ALL} nor a mask like 0xf0")
    return f"{mask:#x}"
