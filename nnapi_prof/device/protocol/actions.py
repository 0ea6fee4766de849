"""Actions of a request as data, and the rules they keep: PROTOCOL.md, section 3. No I/O here."""

from __future__ import annotations

import enum
import math
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass

from nnapi_prof.costs import ALL, BIG, Mode, SegmentFlag
from nnapi_prof.errors import SerializationError
from nnapi_prof.graph.plan import AUTO, TARGET_KINDS, Engine, Preference, Target

MAX_RUNS = 100_000
MAX_CORUN = 8
"""Segments that may run at once."""
MAX_IN_FLIGHT = 63
"""Frames that a queue takes at once."""
MAX_VARIANTS = 64
"""Largest number of variants of the inputs of frames."""
MAX_GROUP = 32
"""Actions that may run interleaved."""
BIG_CORES = 0
"""CPU mask: the cores of the highest clock rate, found on the device."""
ALL_CORES = 0xFFFFFFFFFFFFFFFF
"""CPU mask: the affinity stays as it is."""
_U32_MAX = 0xFFFFFFFF
_U64_MAX = 0xFFFFFFFFFFFFFFFF


class TensorSource(enum.IntEnum):
    """The origin of a tensor's bytes."""

    SEGMENT = 0
    BLOB = 1
    RANDOM = 2
    ZERO = 3


class ActionFlag(enum.IntFlag):
    """Bits of an action's flags; of the first three at most one."""

    UNTIMED = 1
    """Run for the outputs only."""
    CORUN = 2
    """Segments run alone and then all at once, each on a processor of its own."""
    FRAMES = 4
    """Plans run many frames at once; set where an action has :class:`FramesSpec`."""
    COPIES = 8
    """A run goes from the caller's buffers to the caller's buffers, as in an app."""
    GAUGE = 16
    """Ran well before: only run to see whether its driver still works, and without a result."""


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """A tensor of an action. ``dims`` are as it lies in memory."""

    type_code: int
    """NNAPI operand code."""
    dims: tuple[int, ...]
    source: TensorSource = TensorSource.SEGMENT
    value: int = 0
    """Blob index (BLOB) or seed (RANDOM)."""
    keep: bool = False
    """Its bytes are written to the work folder after the last run."""


@dataclass(frozen=True, slots=True)
class SegmentSpec:
    """One model on one engine. ``inputs`` and ``outputs`` are tensor indices, in the model's order.

    ``accelerator`` is None (or ``auto``) where NNAPI chooses; ``model`` comes from
    :meth:`.request.RequestBuilder.add_model`.
    """

    engine: Engine
    model: int
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    accelerator: str | None = None
    preference: Preference | None = None
    flags: SegmentFlag = SegmentFlag.NONE

    @classmethod
    def on(
        cls,
        target: Target,
        model: int,
        inputs: tuple[int, ...],
        outputs: tuple[int, ...],
        flags: SegmentFlag = SegmentFlag.NONE,
    ) -> SegmentSpec:
        """Returns a segment on a plan's target."""
        return cls(
            target.engine, model, inputs, outputs, target.accelerator, target.preference, flags
        )


def cpu_mask(cpus: str) -> int:
    """Returns the mask of :attr:`~nnapi_prof.costs.Conditions.cpus`."""
    return {BIG: BIG_CORES, ALL: ALL_CORES}[cpus] if cpus in (BIG, ALL) else int(cpus, 16)


@dataclass(frozen=True, slots=True)
class Timing:
    """Warm-up and repeats of an action. PROTOCOL.md has the rules."""

    warmup_min: int = 2
    warmup_max: int = 2
    warmup_ns: int = 0
    """No further warm-up run after this long, once there were ``warmup_min``."""
    warm_ns: int = 0
    """Shortest busy time of the warm-up, which also lasts until the clock has stopped rising."""
    spin_ns: int = 0
    """Shortest busy time of each round before its recorded runs, likewise; 0 is one run, without
    watching the clock."""
    rounds: int = 1
    """Number of rounds that share the recorded runs; the actions of a group take turns in each."""
    min_runs: int = 5
    max_runs: int = 50
    """Recorded runs of all rounds: at least ``min_runs``, at most ``max_runs``, and no more once
    they have taken ``budget_ns``."""
    budget_ns: int = 500_000_000
    cooldown_ms: int = 0
    """Longest wait of a group for a hot device before it repeats rounds; 0 repeats none."""
    timeout_ms: int = 60_000
    """Watchdog over set-up, compilation and warm-up, and again over each round."""

    @classmethod
    def once(cls, timeout_ms: int = 60_000) -> Timing:
        """Returns the timing of one cold run."""
        return cls(
            warmup_min=0,
            warmup_max=0,
            rounds=1,
            min_runs=1,
            max_runs=1,
            budget_ns=0,
            timeout_ms=timeout_ms,
        )


@dataclass(frozen=True, slots=True)
class FramesSpec:
    """The frames of an action: its segments are those of its plans, one plan after the other, and
    its runs are frames, which each take a plan; several are in flight at once."""

    plans: tuple[tuple[int, float], ...]
    """Number of segments of each plan, and its share of the frames; the shares add up to 1."""
    in_flight: int
    """Largest number of frames in flight, 1 to :data:`MAX_IN_FLIGHT`."""
    variants: int = 1
    """Number of inputs that frames take in turn: number n has the elements rotated by n."""
    overlaps: bool = False
    """A frame's own segments run as soon as their inputs are ready, not one after the other."""


@dataclass(frozen=True, slots=True)
class ActionSpec:
    """Segments that run in order, measured together. A unit is one segment, a plan several."""

    id: int
    tensors: tuple[TensorSpec, ...]
    segments: tuple[SegmentSpec, ...]
    timing: Timing = Timing()
    flags: ActionFlag = ActionFlag(0)
    mode: Mode = Mode.SYNC
    pointers: bool = False
    """NNAPI gets addresses instead of shared memory."""
    threads: int = 1
    cpu_mask: int = ALL_CORES
    memory_kb: int = 0
    """Limit of its process's resident memory; 0 leaves the limit to the agent."""
    group: int = 0
    """Consecutive actions with the same number run interleaved; 0 runs alone."""
    frames: FramesSpec | None = None

    @property
    def all_flags(self) -> ActionFlag:
        """The flags, with FRAMES where it has frames."""
        return self.flags if self.frames is None else self.flags | ActionFlag.FRAMES


def check_action(action: ActionSpec, n_blobs: int, n_models: int) -> None:
    """Raises SerializationError where an action breaks a rule of the protocol."""

    def require(holds: bool, rule: str) -> None:
        if not holds:
            raise SerializationError(f"action {action.id}: {rule}")

    require(0 <= action.id <= _U32_MAX, "the id does not fit 32 bits")
    _check_timing(action, require)
    require(0 <= action.threads <= _U32_MAX, f"{action.threads} threads")
    require(0 <= action.cpu_mask <= _U64_MAX, "the CPU mask does not fit 64 bits")
    require(0 <= action.memory_kb <= _U32_MAX, f"{action.memory_kb} kB of memory")
    require(0 <= action.group <= _U32_MAX, "the group does not fit 32 bits")
    require(
        ActionFlag.UNTIMED not in action.flags or action.timing.max_runs == 1,
        f"up to {action.timing.max_runs} runs without timing, 1 wanted",
    )
    require(bool(action.segments), "no segments")
    if ActionFlag.CORUN in action.flags:
        _check_beside(action, require)

    for index, tensor in enumerate(action.tensors):
        what = f"tensor {index}"
        require(0 <= tensor.type_code <= _U32_MAX, f"{what} has type {tensor.type_code}")
        require(all(0 <= dim <= _U32_MAX for dim in tensor.dims), f"{what} has dims {tensor.dims}")
        require(0 <= tensor.value <= _U32_MAX, f"{what} has the value {tensor.value}")
        require(
            tensor.source is not TensorSource.BLOB or tensor.value < n_blobs,
            f"{what} is blob {tensor.value}, there are {n_blobs}",
        )

    if action.frames is None:
        _check_flow(action, range(len(action.segments)), n_models, require)
        return
    _check_frames(action, action.frames, require)
    first = 0
    for n_segments, _ in action.frames.plans:
        _check_flow(action, range(first, first + n_segments), n_models, require)
        first += n_segments


def _check_flow(
    action: ActionSpec, numbers: range, n_models: int, require: Callable[[bool, str], None]
) -> None:
    """Checks the segments of one plan."""
    ready = {i for i, t in enumerate(action.tensors) if t.source is not TensorSource.SEGMENT}
    for index in numbers:
        segment = action.segments[index]
        what = f"segment {index}"
        agents = TARGET_KINDS[segment.engine].code is not None
        require(agents, f"{what} runs on {segment.engine.value}")
        require(0 <= segment.model < n_models, f"{what} has model {segment.model} of {n_models}")
        for tensor_index in (*segment.inputs, *segment.outputs):
            require(
                0 <= tensor_index < len(action.tensors),
                f"{what} names tensor {tensor_index}, there are {len(action.tensors)}",
            )
        for tensor_index in segment.inputs:
            require(
                tensor_index in ready, f"{what} reads tensor {tensor_index} before it is written"
            )
        for tensor_index in segment.outputs:
            require(tensor_index not in ready, f"{what} writes tensor {tensor_index} a second time")
            ready.add(tensor_index)


def _check_frames(
    action: ActionSpec, frames: FramesSpec, require: Callable[[bool, str], None]
) -> None:
    alone = not action.flags & (ActionFlag.UNTIMED | ActionFlag.CORUN)
    require(alone, "frames at once are timed, and not side by side")
    require(1 <= frames.in_flight <= MAX_IN_FLIGHT, f"{frames.in_flight} frames in flight")
    require(1 <= frames.variants <= MAX_VARIANTS, f"{frames.variants} variants of the inputs")
    n_segments = [n for n, _ in frames.plans]
    whole = all(n > 0 for n in n_segments) and sum(n_segments) == len(action.segments)
    require(whole, f"plans of {n_segments} segments, there are {len(action.segments)}")
    shares = [share for _, share in frames.plans]
    one = all(0 < share <= 1 for share in shares) and abs(math.fsum(shares) - 1) < 1e-6
    require(one, f"shares of {shares}, above 0 and 1 in all wanted")


def _check_beside(action: ActionSpec, require: Callable[[bool, str], None]) -> None:
    timing, n = action.timing, len(action.segments)
    require(2 <= n <= MAX_CORUN, f"{n} segments side by side, 2 to {MAX_CORUN} wanted")
    require(ActionFlag.UNTIMED not in action.flags, "segments side by side are timed")
    require(
        timing.min_runs == timing.max_runs,
        f"runs from {timing.min_runs} to {timing.max_runs}, one number wanted side by side",
    )
    processors = [(s.engine, s.accelerator) for s in action.segments]
    require(len(set(processors)) == n, "two segments side by side are on one processor")
    own_choice = any(
        s.engine is Engine.NNAPI and s.accelerator in (None, AUTO) for s in action.segments
    )
    require(not own_choice, "NNAPI's own choice is not a processor to run side by side on")
    between = {t for s in action.segments for t in s.outputs}
    require(
        not any(between.intersection(s.inputs) for s in action.segments),
        "a segment reads what one that runs side by side with it writes",
    )


def _check_timing(action: ActionSpec, require: Callable[[bool, str], None]) -> None:
    timing = action.timing
    require(0 < timing.timeout_ms <= _U32_MAX, f"timeout of {timing.timeout_ms} ms")
    require(
        0 <= timing.warmup_min <= timing.warmup_max <= MAX_RUNS,
        f"warm-up runs from {timing.warmup_min} to {timing.warmup_max}",
    )
    require(0 <= timing.warmup_ns <= _U64_MAX, f"warm-up of {timing.warmup_ns} ns")
    require(0 <= timing.warm_ns <= _U64_MAX, f"warm-up of {timing.warm_ns} ns at least")
    require(0 <= timing.spin_ns <= _U64_MAX, f"{timing.spin_ns} ns before each round")
    require(1 <= timing.rounds <= MAX_RUNS, f"{timing.rounds} rounds")
    require(
        1 <= timing.min_runs <= timing.max_runs <= MAX_RUNS,
        f"runs from {timing.min_runs} to {timing.max_runs}, 1 <= min <= max <= {MAX_RUNS} wanted",
    )
    require(0 <= timing.budget_ns <= _U64_MAX, f"budget of {timing.budget_ns} ns")
    require(0 <= timing.cooldown_ms <= _U32_MAX, f"cool-down of {timing.cooldown_ms} ms")


def check_group(action: ActionSpec, before: Sequence[ActionSpec]) -> None:
    """Raises SerializationError where an action does not fit the earlier ones of its group."""
    others = [other for other in before if other.group == action.group]
    if action.group == 0 or not others:
        return
    rule = None
    if before[-1].group != action.group:
        rule = f"is of group {action.group}, which ended before"
    elif len(others) >= MAX_GROUP:
        rule = f"is one too many in its group, which may have {MAX_GROUP}"
    elif _shared(others[0]) != _shared(action):
        rule = "has other rounds or another cool-down than its group"
    if rule is not None:
        raise SerializationError(f"action {action.id} {rule}")


def _shared(action: ActionSpec) -> tuple[int, int]:
    """Returns the settings that the actions of a group share."""
    return action.timing.rounds, action.timing.cooldown_ms


MAX_GROUP_BYTES = 512 << 20
"""Largest size of weights that the processes of one group hold on the device, copies included."""
WEIGHT_COPIES = 3
"""Number of copies of weights: the blob, an engine's packed copy, a driver's copy."""


class Groups:
    """Numbers the groups of a request: consecutive actions under the same key share one, or have
    several where their weights would be too large at once."""

    def __init__(self) -> None:
        self._number = 0
        self._key: Hashable = None
        self._members = self._weight = 0

    def number(self, key: Hashable, weight_bytes: int) -> int:
        """Returns the group of the next action, whose models have so many bytes of weights."""
        self._members += 1
        self._weight += weight_bytes * WEIGHT_COPIES
        full = self._members > MAX_GROUP or self._weight > MAX_GROUP_BYTES
        if self._number == 0 or key != self._key or full:
            self._number += 1
            self._key, self._members = key, 1
            self._weight = weight_bytes * WEIGHT_COPIES
        return self._number
