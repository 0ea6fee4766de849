"""Split a model for a stock PyTorch module into parts for NNAPI and the CPU.

Stock PyTorch runs everything that is not converted on the CPU. A part is a group of units that run
together: as an NNAPI model or as TorchScript.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from nnapi_prof.bundle import Bundle
from nnapi_prof.bundle.deployment import stock_plan
from nnapi_prof.bundle.torchscript import gives, takes, why_not_said
from nnapi_prof.convert.lower import convert_region, why_not
from nnapi_prof.convert.region import Region, to_float16
from nnapi_prof.errors import Refusal, UnsupportedOp
from nnapi_prof.graph.plan import Engine, Plan, Preference
from nnapi_prof.graph.program import Program
from nnapi_prof.graph.unit import UnitGraph

MOVES = frozenset(
    {
        *("RESHAPE", "TRANSPOSE", "SQUEEZE", "EXPAND_DIMS", "SLICE", "STRIDED_SLICE", "SPLIT"),
        *("CONCATENATION", "PAD", "PAD_V2", "TILE", "GATHER", "CAST", "CHANNEL_SHUFFLE"),
        *("DEPTH_TO_SPACE", "SPACE_TO_DEPTH", "BATCH_TO_SPACE_ND", "SPACE_TO_BATCH_ND"),
    }
)
"""NNAPI operations that compute nothing; by themselves they are not worth the transfer."""


@dataclass(frozen=True)
class ModelPart:
    """Units that run together: on NNAPI if there is a region, else on the CPU."""

    units: tuple[int, ...]
    region: Region | None = field(default=None, repr=False)
    preference: Preference = Preference.SUSTAINED_SPEED


@dataclass(frozen=True)
class Parts:
    """All parts in their order, and the reasons that keep units on the CPU."""

    parts: tuple[ModelPart, ...]
    cpu_reasons: Mapping[int, Refusal] = field(default_factory=dict)

    @property
    def regions(self) -> tuple[Region, ...]:
        return tuple(part.region for part in self.parts if part.region is not None)

    def in_float16(self) -> Parts:
        """Return the same parts with those on NNAPI in float16."""
        parts = tuple(
            part if part.region is None else replace(part, region=to_float16(part.region))
            for part in self.parts
        )
        return replace(self, parts=parts)


def largest_parts(
    program: Program,
    level: int,
    preference: Preference,
    least: int = 1,
    on_cpu: Mapping[int, Refusal] | None = None,
) -> Parts:
    """Give NNAPI every unit that it can run at ``level``, in parts as large as possible.

    Parts of fewer than ``least`` NNAPI operations and parts that only move data stay on the CPU, as
    do the units of ``on_cpu``, for the reasons given there.
    """
    everything = range(len(program.units.units))
    reasons = {
        u: reason for u in everything if (reason := why_not(program, u, level, for_stock=True))
    }
    reasons |= on_cpu or {}
    parts = _settled(program, everything, level, preference, reasons, least)
    return Parts(tuple(parts), reasons)


def planned_parts(program: Program, bundle: Bundle) -> tuple[Plan, Parts]:
    """Return a bundle's :func:`stock_plan` and its parts. Raises the same UsageError."""
    plan = stock_plan(bundle)
    reasons: dict[int, Refusal] = {}
    parts: list[ModelPart] = []
    for segment in plan.segments:
        if segment.target.engine is not Engine.NNAPI:
            refusal = Refusal(f"the plan has it on the CPU: {segment.cause}")
            reasons |= dict.fromkeys(segment.units, refusal)
            parts.append(ModelPart(tuple(sorted(segment.units))))
            continue
        preference = segment.target.preference
        assert preference is not None
        level = bundle.levels[segment.target.base.key]
        parts += _settled(program, segment.units, level, preference, reasons, 0)
    return plan, Parts(tuple(parts), reasons)


def _settled(
    program: Program,
    units: Iterable[int],
    level: int,
    preference: Preference,
    reasons: dict[int, Refusal],
    least: int,
) -> list[ModelPart]:
    """Split ``units`` into parts; with ``least`` 0 no part is too small. Add to ``reasons`` the
    units that NNAPI could run, but not in these parts."""
    members = sorted(units)
    while True:
        parts: list[ModelPart] = []
        n_reasons = len(reasons)
        for piece, on_cpu in _pieces(program.units, members, reasons):
            if on_cpu:
                parts.append(ModelPart(piece))
                continue
            region = _region(program, piece, level, reasons)
            if region is not None:
                reasons |= _uncarried(program, piece, region)
                parts.append(ModelPart(piece, region, preference))
        if len(reasons) == n_reasons:
            small = {u: why for part in parts for u, why in _too_small(part, least)}
            if not small:
                return parts
            reasons |= small


def _region(
    program: Program, units: Sequence[int], level: int, reasons: dict[int, Refusal]
) -> Region | None:
    """Convert the units into one NNAPI model. Return None, and add to ``reasons``, if a unit can
    only be converted alone."""
    try:
        return convert_region(program, units, level, for_stock=True)
    except UnsupportedOp as error:
        unit_of = {name: u for u in units for name in program.units.units[u].nodes}
        readers = program.units.readers.get(error.node, ())
        culprits = (
            [unit_of[error.node]] if error.node in unit_of else [u for u in readers if u in units]
        )
        reasons |= dict.fromkeys(culprits or units, error.refusal)
        return None


def _uncarried(program: Program, units: Sequence[int], region: Region) -> dict[int, Refusal]:
    """Return the units whose inputs, outputs or constants PyTorch's runtime does not support, with
    the reasons."""
    graph, inside = program.units, set(units)
    reasons: dict[int, Refusal] = {}
    for name, type_ in zip(region.inputs, region.input_types, strict=True):
        if not takes(type_):
            reason = Refusal(f"it reads {name}, and stock PyTorch hands NNAPI no {type_}")
            reasons |= {u: reason for u in graph.readers[name] if u in inside}
    for name, type_ in zip(region.outputs, region.output_types, strict=True):
        if not gives(type_):
            reasons[graph.producer[name]] = Refusal(
                f"it makes {name}, and stock PyTorch gets no {type_} from NNAPI"
            )
    if not reasons and why_not_said(region) is not None:
        for u in units:
            reason_alone = why_not_said(convert_region(program, [u], region.level, for_stock=True))
            if reason_alone is not None:
                reasons[u] = Refusal(reason_alone)
    return reasons


def _too_small(part: ModelPart, least: int) -> Iterator[tuple[int, Refusal]]:
    if part.region is None or not least:
        return
    names = part.region.operations
    reason = None
    if len(names) < least:
        reason = f"alone it would be {len(names)} NNAPI operations, fewer than {least}"
    elif MOVES.issuperset(names):
        reason = "alone it would only move data to NNAPI and back"
    if reason is not None:
        yield from ((u, Refusal(reason)) for u in part.units)


def _pieces(
    graph: UnitGraph, units: Sequence[int], on_cpu: Collection[int]
) -> list[tuple[tuple[int, ...], bool]]:
    """Split ascending units into convex pieces, each all on the CPU or not, in execution order.

    One order begins on the CPU and one does not; the one with fewer pieces is returned.
    """
    orders = [_order_parts(graph, units, on_cpu, first) for first in (False, True)]
    return min(orders, key=len)


def _order_parts(
    graph: UnitGraph, units: Sequence[int], on_cpu: Collection[int], first: bool
) -> list[tuple[tuple[int, ...], bool]]:
    """Take all ready units of one kind, then all of the other that are ready then, and so on."""
    inside = set(units)
    missing = {u: {p for p in graph.predecessors(u) if p in inside} for u in units}
    readers: dict[int, list[int]] = {u: [] for u in units}
    for u, needed in missing.items():
        for p in needed:
            readers[p].append(u)
    ready: dict[bool, set[int]] = {True: set(), False: set()}
    for u in units:
        if not missing[u]:
            ready[u in on_cpu].add(u)
    pieces = []
    kind = first
    while ready[True] or ready[False]:
        piece: list[int] = []
        while ready[kind]:
            u = ready[kind].pop()
            piece.append(u)
            for reader in readers[u]:
                missing[reader].discard(u)
                if not missing[reader]:
                    ready[reader in on_cpu].add(reader)
        if piece:
            pieces.append((tuple(sorted(piece)), kind))
        kind = not kind
    return pieces
