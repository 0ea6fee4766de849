"""Deploy a bundle: the ways into an app, each with its command, and the file for apps.

The file has the format of device_agent/library/FORMAT.md.
"""

from __future__ import annotations

import math
import os
import shlex
import struct
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from nnapi_prof.bundle import Bundle
from nnapi_prof.bundle.plan_set import OTHERS, PlanChoice, SelectionRule
from nnapi_prof.convert.region import Region, operand_of
from nnapi_prof.costs import ALL, BIG, Mode
from nnapi_prof.errors import UsageError
from nnapi_prof.graph import DimOrder
from nnapi_prof.graph.plan import AUTO, TARGET_KINDS, Engine, Plan, Precision, Segment, Target
from nnapi_prof.nnapi import container
from nnapi_prof.nnapi.container import (
    BUNDLE_VERSION,
    ContainerKind,
    Models,
    Strings,
    counted,
    listed,
    words,
    write_container,
)

COMPILE_LIMIT_NS = 10_000_000_000
"""The library's default time limit of a compilation, NNP_COMPILE_LIMIT_NS."""
RUN_LIMIT_NS = 2_000_000_000
"""The library's default time limit of a run, NNP_RUN_LIMIT_NS."""
RUN_LIMIT_FACTOR = 20
"""Multiple of its prediction after which a run counts as hanging."""
_CORES = {ALL: container.ANY_CORES, BIG: container.BIG_CORES}
ALIGNMENT = 64
CHANNELS_LAST = 0x1320
"""Dim order of an image in NHWC, 4 bits per axis, the lowest first."""


def needs_host(plan: Plan) -> bool:
    """Return whether a plan has a segment that only eager PyTorch runs."""
    return any(segment.target.engine is Engine.HOST for segment in plan.segments)


def runtime_plans(bundle: Bundle) -> tuple[Plan, ...]:
    """Return the plans that an app can run, the bundle's own first, and only one of several with
    the same segments; all plans of a mixture or a set for phones are included.

    Raises UsageError with the operations if the bundle's own plan, or one of such a set, has a
    segment that only eager PyTorch runs.
    """
    return tuple(bundle.plans[index] for index in _runtime_indices(bundle))


def _runtime_indices(bundle: Bundle) -> tuple[int, ...]:
    """Return the indices of :func:`runtime_plans` among the bundle's plans."""
    several = dict.fromkeys(
        choice.plan
        for rule in (SelectionRule.MIXTURE, SelectionRule.PHONES)
        for choice in _choices(bundle, rule)
    )
    for plan in [bundle.plans[index] for index in several] or [bundle.plan]:
        for segment in plan.segments:
            if segment.target.engine is Engine.HOST:
                labels = sorted({bundle.graph.units[unit].label for unit in segment.units})
                raise UsageError(
                    "an app has no PyTorch, and neither NNAPI nor the CPU engine can run "
                    f"{', '.join(labels)}: {segment.cause}"
                )
    placements = {_placement(bundle.plans[index]) for index in several}
    indices = list(several)
    for index, plan in enumerate(bundle.plans):
        if not needs_host(plan) and _placement(plan) not in placements:
            placements.add(_placement(plan))
            indices.append(index)
    return tuple(sorted(indices))


def _choices(bundle: Bundle, rule: SelectionRule) -> tuple[PlanChoice, ...]:
    """Return the choices of the bundle's set if it has this rule, else none."""
    plan_set = bundle.plan_set
    return plan_set.choices if plan_set is not None and plan_set.rule is rule else ()


def _placement(plan: Plan) -> tuple[tuple[tuple[int, ...], Target], ...]:
    return tuple((segment.units, segment.target) for segment in plan.segments)


def runtime_bundle(bundle: Bundle) -> bytes:
    """Return the file that ``libnnapi_prof_runtime`` opens. Raises UsageError if an app cannot run
    the bundle: segments that need PyTorch, outputs that no segment computes."""
    writer = _Writer(bundle, runtime_plans(bundle))
    content = writer.sections()
    weights = bytearray()
    for offset, buffer in writer.weights():
        weights += bytes(offset - len(weights)) + buffer
    return write_container(ContainerKind.BUNDLE, {**content, "WGHT": bytes(weights)}, ALIGNMENT)


def runtime_parts(bundle: Bundle) -> tuple[bytes, tuple[tuple[int, bytes], ...]]:
    """Return the parts for ``nnp_bundle_open_parts``: the file without weights, and the weights,
    each with its offset in the section of weights."""
    writer = _Writer(bundle, runtime_plans(bundle))
    content = writer.sections()
    return write_container(ContainerKind.BUNDLE, content, ALIGNMENT), writer.weights()


def unit_shares(bundle: Bundle, segment: Segment) -> tuple[float, ...]:
    """Return each unit's share of a segment's predicted latency: by its target's fitted costs, else
    by multiply-accumulates, else equal shares."""
    units = [bundle.graph.units[unit] for unit in segment.units]
    fit = (bundle.fits or {}).get(segment.target)
    fitted_ns = [None if fit is None else fit.unit_ns.get(unit.signature) for unit in units]
    for weights in (fitted_ns, [float(unit.macs) for unit in units]):
        if None not in weights:
            costs = [max(0.0, weight) for weight in weights if weight is not None]
            if sum(costs) > 0:
                return tuple(cost / sum(costs) for cost in costs)
    return (1 / len(units),) * len(units)


class _Writer:
    """Collector of the plans' strings, models and weights; equal ones are stored once."""

    def __init__(self, bundle: Bundle, plans: tuple[Plan, ...]) -> None:
        self.bundle = bundle
        self.plans = plans
        self.strings = Strings()
        self.tensors: dict[tuple[str, bool], int] = {}
        self.models: dict[tuple[bytes, tuple[int, ...]], int] = {}
        self.buffers: dict[bytes, int] = {}
        self.stored = Models()
        self.n_weight_bytes = 0

    def weights(self) -> tuple[tuple[int, bytes], ...]:
        """Return each buffer that the sections refer to, with its offset, ascending."""
        return tuple((offset, buffer) for buffer, offset in self.buffers.items())

    def sections(self) -> dict[str, bytes]:
        """Return all sections except the weights."""
        graph, conditions = self.bundle.graph, self.bundle.conditions
        outputs = list(dict.fromkeys(graph.outputs))
        copied = () if self.bundle.copies is None else self.bundle.copies.outputs
        beside = [name for name in outputs if name not in (*graph.producer, *copied)]
        if beside:
            raise UsageError(
                f"outputs that no segment computes (constants, or inputs as they are): "
                f"{', '.join(beside)}; export the model without them, the app has them anyway"
            )
        inputs = self._ends([name for name in dict.fromkeys(graph.inputs) if self._is_read(name)])
        plans = [self._plan(plan) for plan in self.plans]
        ends = self._ends(outputs, copied)
        phones = self._phones()
        units = self._units()
        return {
            "HEAD": words(BUNDLE_VERSION, conditions.mode.code, conditions.threads),
            "STRS": self.strings.section(),
            "TENS": listed([self._tensor_row(name) for name, _ in self.tensors]),
            "PLAN": listed(plans),
            "INPT": inputs,
            "OUTP": ends,
            **self.stored.sections(),
            "COND": self._conditions(),
            "UNIT": units,
            **self._mixture(),
            **self._overlaps(),
            **phones,
        }

    def _conditions(self) -> bytes:
        """Return the section of cores and time limits. The limit of a run is a multiple of the
        slowest segment's prediction, and never below the library's default."""
        cpus = self.bundle.conditions.cpus
        if cpus in _CORES:
            cores, mask = _CORES[cpus], 0
        elif _choices(self.bundle, SelectionRule.PHONES):  # a mask is specific to one phone
            cores, mask = _CORES[ALL], 0
        else:
            cores, mask = container.MASKED_CORES, int(cpus, 16)
        slowest = max(s.predicted_ns for plan in self.plans for s in plan.segments)
        limit_ns = max(RUN_LIMIT_NS, math.ceil(RUN_LIMIT_FACTOR * slowest))
        pointers = self.bundle.conditions.mode is Mode.POINTERS
        return container.conditions(cores, mask, COMPILE_LIMIT_NS, limit_ns, pointers)

    def _units(self) -> bytes:
        """Return the section of units' labels and their shares of the predicted latency."""
        rows = []
        for plan in self.plans:
            for segment in plan.segments:
                shares = unit_shares(self.bundle, segment)
                rows.append(
                    struct.pack("<d", segment.predicted_ns)
                    + listed(
                        [
                            words(self._string(self.bundle.graph.units[unit].label))
                            + struct.pack("<d", share)
                            for unit, share in zip(segment.units, shares, strict=True)
                        ]
                    )
                )
            if self.bundle.copies is not None:  # the last segment: no units, no predicted time
                rows.append(struct.pack("<dI", 0.0, 0))
        return words(BUNDLE_VERSION) + b"".join(rows)

    def _overlaps(self) -> dict[str, bytes]:
        """Return the section of plans whose segments may overlap, if the bundle has any."""
        frames = self.bundle.frames
        if frames is None or not frames.ways[0].overlaps:
            return {}
        indices = _runtime_indices(self.bundle)
        return {"OVLP": counted([indices.index(c.plan) for c in frames.ways[0].choices])}

    def _mixture(self) -> dict[str, bytes]:
        """Return the section of shares, if the bundle is a mixture."""
        indices = _runtime_indices(self.bundle)
        shares = [
            (indices.index(choice.plan), choice.share)
            for choice in _choices(self.bundle, SelectionRule.MIXTURE)
        ]
        return {"MIXT": container.mixture(shares)} if shares else {}

    def _phones(self) -> dict[str, bytes]:
        """Return the sections of phones' names and threads, if the bundle is for several phones."""
        indices = _runtime_indices(self.bundle)
        rows, threads, others = [], list[int](), None
        for choice in _choices(self.bundle, SelectionRule.PHONES):
            plan = indices.index(choice.plan)
            keys = [key for key in choice.keys if key != OTHERS]
            rows += [words(self._string(key), plan) for key in keys]
            threads += [choice.threads.get(key, 0) for key in keys]
            others = plan if OTHERS in choice.keys else others
        if others is None:
            return {}
        return {
            "PHON": words(BUNDLE_VERSION, others) + listed(rows),
            "PTHR": words(BUNDLE_VERSION) + counted(threads),
        }

    def _is_read(self, name: str) -> bool:
        graph, copies = self.bundle.graph, self.bundle.copies
        return (copies is not None and name in copies.inputs) or any(
            name in graph.boundary(s.units)[0] for s in self.plans[0].segments
        )

    def _ends(self, names: Sequence[str], copied: Collection[str] = ()) -> bytes:
        rows = []
        for name in names:
            last = self.bundle.graph.values[name].dim_order is DimOrder.CHANNELS_LAST
            tensor = self._tensor(name, is_copy=name in copied)
            rows.append(words(self._string(name), tensor, last * CHANNELS_LAST))
        return listed(rows)

    def _plan(self, plan: Plan) -> bytes:
        rows = []
        conditions = self.bundle.conditions
        for segment in plan.segments:
            target = segment.target
            region = self.bundle.region(segment.units, target)
            has_name = target.accelerator is not None and target.accelerator != AUTO
            code = TARGET_KINDS[target.engine].code
            assert code is not None, f"{target} is not a part of a device's plan"
            rows.append(
                container.segment(
                    code,
                    self._string(target.accelerator or "") if has_name else None,
                    None if target.preference is None else target.preference.value,
                    conditions.flags_of(target),
                    self._model(region.serialized, region.buffers),
                    map(self._tensor, region.inputs),
                    map(self._tensor, region.outputs),
                )
            )
        if self.bundle.copies is not None:
            rows.append(self._copies(self.bundle.copies))
        return words(self._string(plan.name)) + listed(rows)

    def _copies(self, region: Region) -> bytes:
        """Return the last segment, on the CPU, for outputs that no unit computes."""
        code = TARGET_KINDS[Engine.CPU].code
        assert code is not None
        model = self._model(region.serialized, region.buffers)
        outputs = [self._tensor(name, is_copy=True) for name in region.outputs]
        inputs = map(self._tensor, region.inputs)
        return container.segment(code, None, None, 0, model, inputs, outputs)

    def _string(self, text: str) -> int:
        return self.strings.add(text)

    def _tensor(self, name: str, is_copy: bool = False) -> int:
        """Return the index of a value, or of its copy that is a separate output."""
        return self.tensors.setdefault((name, is_copy), len(self.tensors))

    def _tensor_row(self, name: str) -> bytes:
        type_ = self.bundle.graph.values[name]
        operand = operand_of(type_)
        assert operand is not None, f"{name} crosses to a device as {type_}"
        return container.tensor(operand.type, operand.dims, operand.scale, operand.zero_point)

    def _model(self, serialized: bytes, buffers: tuple[bytes, ...]) -> int:
        offsets = tuple(self._buffer(buffer) for buffer in buffers)
        key = (serialized, offsets)
        if key not in self.models:
            places = zip(offsets, map(len, buffers), strict=True)
            self.models[key] = self.stored.add(serialized, places)
        return self.models[key]

    def _buffer(self, buffer: bytes) -> int:
        if buffer not in self.buffers:
            self.n_weight_bytes += -self.n_weight_bytes % ALIGNMENT
            self.buffers[buffer] = self.n_weight_bytes
            self.n_weight_bytes += len(buffer)
        return self.buffers[buffer]


class AppRuntime(Enum):
    """A runtime that runs a bundle in an app."""

    AAR = "Android app (Java, Kotlin)"
    LIBRARY = "C library"
    EXECUTORCH = "ExecuTorch"
    CPP = "C++ classes for NNAPI"
    STOCK = "stock PyTorch"


@dataclass(frozen=True)
class DeployStep:
    """The command that puts a bundle into one runtime."""

    runtime: AppRuntime
    command: str
    refusal: str | None
    """Reason why the runtime cannot run the bundle; None if it can."""


def deploy_steps(bundle: Bundle, folder: str | os.PathLike[str]) -> tuple[DeployStep, ...]:
    """List the next commands, one step for each runtime that may run the bundle in ``folder`` in an
    app."""
    path = Path(folder)
    if path.name in ("", ".."):
        path = path.resolve()
    stem, named = path.with_suffix(""), _quoted(path)
    refusal = _refusal(runtime_bundle, bundle)
    on_nnapi = any(segment.target.engine is Engine.NNAPI for segment in bundle.plan.segments)
    return (
        DeployStep(AppRuntime.AAR, f"nnapi-prof ship --aar {named}", refusal),
        DeployStep(
            AppRuntime.LIBRARY,
            f"nnapi-prof convert --format runtime -o {_quoted(stem.with_suffix('.nnprt'))} {named}",
            refusal,
        ),
        DeployStep(
            AppRuntime.EXECUTORCH,
            f"nnapi-prof convert --to executorch -o {_quoted(stem.with_suffix('.pte'))} {named}",
            _executorch_refusal(bundle),
        ),
        DeployStep(
            AppRuntime.CPP,
            f"nnapi-prof convert --format cpp -o {_quoted(stem)} {named}",
            None if on_nnapi else "its plan gives NNAPI nothing to run",
        ),
        DeployStep(AppRuntime.STOCK, f"nnapi-prof convert {named}", _refusal(stock_plan, bundle)),
    )


def _executorch_refusal(bundle: Bundle) -> str | None:
    engines = {segment.target.engine for segment in bundle.plan.segments}
    if engines == {Engine.HOST}:
        return only_host(bundle.model)
    return open_sizes(bundle.model, bundle.inputs) if Engine.NNAPI in engines else None


def only_host(model: str) -> str:
    """Return why a plan with no part on a device cannot be used."""
    return f"nothing of {model} runs on the device: every operation is left to eager PyTorch"


def open_sizes(model: str, inputs: Sequence[str]) -> str | None:
    """Return why a model with these inputs cannot become an ExecuTorch file, whose calls have fixed
    sizes; None if it can."""
    stated = [text for text in inputs if "?" in text]
    if not stated:
        return None
    return (
        f"{model} leaves sizes open ({', '.join(stated)}), and those of a delegated call are fixed:"
        " make the plan with each stated; for several sizes write a file of each"
    )


def stock_plan(bundle: Bundle) -> Plan:
    """Return the fastest of a bundle's plans that stock PyTorch can follow.

    Stock PyTorch cannot name an accelerator, so only plans for the CPU and ``auto`` qualify. Raises
    UsageError if every plan names an accelerator, or if the fastest gives NNAPI nothing to run.
    """
    possible = [plan for plan in bundle.plans if all(map(_can_follow, plan.segments))]
    if not possible:
        raise UsageError(
            "every plan of the bundle names an accelerator, which stock PyTorch cannot",
            "convert the"
            " model instead, or make the bundle again where NNAPI's own choice (auto) was measured",
        )
    plan = min(possible, key=lambda p: p.predicted_ns)
    if not any(s.target.engine is Engine.NNAPI for s in plan.segments):
        raise UsageError(
            f"of the bundle's plans that name no accelerator, which stock PyTorch cannot, the"
            f" fastest is {plan.name}, and it gives NNAPI nothing to run",
            "use the model as it is, or convert it in spite of the plan",
        )
    return plan


def float32_cpu(bundle: Bundle, plan: Plan, by: str) -> str | None:
    """Return a note that ``by``, which only supports float32, computes a half-precision plan's
    parts on the CPU in float32; None if there are none."""
    precision = bundle.conditions.precision
    on_cpu = [s for s in plan.segments if s.target.engine is Engine.CPU]
    if precision not in (Precision.RELAXED, Precision.FLOAT16) or not on_cpu:
        return None
    return (
        f"{by} computes what the plan has on the CPU in float32; times under"
        f" --{precision.value} are of float16, where the phone's CPU has it"
    )


def _can_follow(segment: Segment) -> bool:
    target = segment.target
    return target.engine is not Engine.NNAPI or target.accelerator == AUTO


def _refusal(check: Callable[[Bundle], object], bundle: Bundle) -> str | None:
    """Return why ``check`` refuses the bundle; None if it does not."""
    try:
        check(bundle)
    except UsageError as error:
        return str(error)
    return None


def _quoted(path: Path) -> str:
    return shlex.quote(str(path))
