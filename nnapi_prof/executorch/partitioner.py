"""A partitioner of ExecuTorch that gives the NNAPI segments of our plan to our delegate.

Other partitioners are found by name, in ExecuTorch's wheel or in any module.
"""

from __future__ import annotations

import copy
import importlib
import inspect
import math
import operator
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np
import torch
from torch import fx
from torch._ops import OpOverload
from torch.export import ExportedProgram
from torch.utils import _pytree as pytree

from nnapi_prof.api import SILENT, Listener, open_client
from nnapi_prof.api.model import Model
from nnapi_prof.bundle import Bundle
from nnapi_prof.bundle.deployment import ALIGNMENT
from nnapi_prof.convert.lower import why_not
from nnapi_prof.costs import Conditions
from nnapi_prof.errors import UsageError, did_you_mean, option_name
from nnapi_prof.execution.build import DescribedDevice, bundle_at, levels_of
from nnapi_prof.execution.profile.jobs import device_targets
from nnapi_prof.executorch.aot import (
    BackendDetails,
    CompileSpec,
    DelegationSpec,
    NamedDataStore,
    Partitioner,
    PartitionResult,
    PreprocessResult,
    silence,
)
from nnapi_prof.executorch.placement import (
    LEVEL,
    DelegatedCall,
    bundle_for,
    check_exported,
    computes_nothing,
    find,
    placed_module,
)
from nnapi_prof.frontend.torch_logging import quiet_torch
from nnapi_prof.graph.plan import AUTO, CPU, Engine, Plan, Precision, Preference, Segment, Target
from nnapi_prof.graph.program import Program
from nnapi_prof.partition import Problem
from nnapi_prof.partition.baselines import merge_by_target

if TYPE_CHECKING:
    from nnapi_prof.api.costs import Costs
    from nnapi_prof.api.plan import ModelPlan


# ExecuTorch's back end, ahead of time: a delegated call becomes bytes and named weights.


PREFIX = "nnapi_prof/"
"""Prefix of the names of weights in a file; their SHA-256 follows."""


class NnapiBackend(BackendDetails):  # type: ignore[misc]
    """Writes the data that the delegate of device_agent/executorch reads.

    A partition is one delegated call, which :class:`.partitioner.NnapiPartitioner` puts into the
    program. Weights are data named by their hash: the file holds equal ones of all calls, methods
    and back ends that use these names only once.
    """

    @staticmethod
    def preprocess(
        edge_program: ExportedProgram, compile_specs: list[CompileSpec]
    ) -> PreprocessResult:
        """Lowers a program of one delegated call. Raises UsageError for any other."""
        graph = edge_program.graph
        calls = [node for node in graph.nodes if is_call(node)]
        if len(calls) != 1:
            raise UsageError(
                f"NnapiBackend lowers what NnapiPartitioner gives it, one call, found {len(calls)}",
                "put NnapiPartitioner among the partitioners",
            )
        inputs, key = calls[0].args
        call = find(key)
        arguments = [node for node in graph.nodes if node.op == "placeholder"]
        in_order = [inputs.index(node) for node in arguments]
        out_order = [node.args[1] for node in graph.output_node().args[0]]
        store = NamedDataStore()
        for name, data in call.weights.items():
            store.add_named_data(PREFIX + name, data, ALIGNMENT)
        return PreprocessResult(
            processed_bytes=call.processed(in_order, out_order),
            data_store_output=store.get_named_data_store_output(),
        )


def is_call(node: fx.Node) -> bool:
    """Returns whether a node of an edge program, or of its source, is a delegated call."""
    target = node.target
    if not isinstance(target, OpOverload):
        target = getattr(target, "_op", target)
    return node.op == "call_function" and str(target) == "nnapi_prof.call.default"


# All that NNAPI supports goes to one accelerator: a partitioner that needs no costs.


NAME = "supported"
"""Name of the plan that gives an accelerator all that NNAPI supports."""


def supported_bundle(model: Model, target: Target, level: int) -> Bundle:
    """Returns a bundle whose plan gives a target all units that a feature level supports, in
    regions as large as possible, and the CPU the rest. Raises UnsupportedOp."""
    program = model.program
    plan = supported_plan(program, target, level)
    device = DescribedDevice({target.base.key: level, CPU.key: level}, "", "", False)
    file = f"model{model.path.suffix}"
    return bundle_at(program, file, device, (plan,), Conditions(), model.notes)


def supported_plan(program: Program, target: Target, level: int) -> Plan:
    """Plans all supported units on the target, except changes of dim order next to the model's
    inputs and outputs."""
    graph = program.units
    n = len(graph.units)
    border = {*graph.inputs, *graph.outputs}
    on_cpu = [
        why_not(program, unit.index, level) is not None
        or (
            computes_nothing(program, unit) and not border.isdisjoint((*unit.inputs, *unit.outputs))
        )
        for unit in graph.units
    ]
    unit_ns = np.array([[0.0, math.inf if off else 0.0] for off in on_cpu]).reshape(n, 2)
    problem = Problem(
        labels=tuple(unit.label for unit in graph.units),
        predecessors=tuple(graph.predecessors(u) for u in range(n)),
        values=(),
        targets=(CPU, target),
        unit_ns=unit_ns,
        overhead_ns=np.zeros(2),
        in_ns_per_byte=np.zeros(2),
        out_ns_per_byte=np.zeros(2),
    )
    segments = tuple(
        Segment(units, problem.targets[k], 0.0, f"NNAPI can say it at level {level}")
        if k
        else Segment(units, CPU, 0.0, "NNAPI cannot say it, or it computes nothing")
        for units, k in merge_by_target(problem, [0 if off else 1 for off in on_cpu])
    )
    return Plan(NAME, segments, False)


Priority = Literal["low", "medium", "high"]
"""NNAPI's PriorityCode, in words."""


class NnapiPartitioner(Partitioner):  # type: ignore[misc]
    """A partitioner for ``to_edge_transform_and_lower``: ``partitioner=[NnapiPartitioner(costs)]``.

    ``source`` decides what runs where. It is a plan (``nnapi_prof.partition``, ``read_plan``); or
    :class:`~nnapi_prof.Costs` of the program's model to make one from, measured
    (``nnapi_prof.profile``) or estimated (``nnapi_prof.estimate``, the static model); or an
    accelerator, ``"nnapi:NAME/fast"``, which gets all that NNAPI supports. ``options`` are those of
    :func:`nnapi_prof.partition`; ``level`` is the phone's feature level where it is not known;
    ``priority`` is NNAPI's for its segments, ``low``, ``medium`` or ``high``. The program is
    rewritten before it is decomposed, so this partitioner must come first; later ones get what the
    plan leaves to the CPU. ``plan`` holds the plan afterwards; None where an accelerator was named.

    Raises UsageError where ``source`` or ``priority`` is none of these.
    """

    def __init__(
        self,
        source: Costs | ModelPlan | Target | str,
        *,
        level: int = LEVEL,
        priority: Priority | None = None,
        **options: Any,
    ) -> None:
        super().__init__()
        if priority not in (None, *get_args(Priority)):
            raise UsageError(f"priority {priority!r}: {', '.join(get_args(Priority))} exist")
        self._level = level
        self._specs = [CompileSpec("priority", priority.encode())] if priority else []
        self._source = accelerator(source) if isinstance(source, str | Target) else source
        self._priority = priority
        self._options = options
        self.plan: ModelPlan | None = None
        self.calls: tuple[DelegatedCall, ...] = ()
        """Delegated calls; the back end finds them as long as this object lives."""

    @classmethod
    def of_calls(
        cls, plan: ModelPlan, calls: tuple[DelegatedCall, ...], priority: Priority | None = None
    ) -> NnapiPartitioner:
        """Makes a partitioner for a program that already has these calls."""
        partitioner = cls(plan, priority=priority)
        partitioner.plan, partitioner.calls = plan, calls
        return partitioner

    def targets(self) -> tuple[tuple[Target, int], ...]:
        """Returns the known targets on NNAPI, each with its feature level."""
        source = self._source
        if isinstance(source, Target):
            return ((source, self._level),)
        from nnapi_prof.api.plan import ModelPlan

        placed: Iterable[Target]
        if isinstance(source, ModelPlan):
            placed = (s.target for plan in source.plans for s in plan.segments)
            levels = {} if source.converted is None else source.converted.levels
        else:
            placed, info = source.priced.targets, source.agent_info
            levels = {} if info is None else levels_of(info)
        return tuple(
            (target, levels.get(target.base.key, self._level))
            for target in dict.fromkeys(placed)
            if target.engine is Engine.NNAPI
        )

    def on(self, target: Target, level: int) -> NnapiPartitioner:
        """Makes one of the same priority that gives an accelerator all that NNAPI supports."""
        return NnapiPartitioner(target, level=level, priority=self._priority)

    def transform_for_pre_decomposition(self, exported_program: ExportedProgram) -> ExportedProgram:
        """Returns the program with the plan's delegated calls. Raises NnapiProfError where no plan
        can be made, the plan is of another program, or sizes are left open."""
        if any(map(is_call, exported_program.graph.nodes)):
            return exported_program
        check_exported(exported_program, "the program")
        from nnapi_prof.api.model import load

        model = load(exported_program)
        bundle = self._bundle(model)
        if not any(s.target.engine is Engine.NNAPI for s in bundle.plan.segments):
            return exported_program
        module, self.calls = placed_module(model.program, bundle)
        return _in_form_of(exported_program, module)

    def _bundle(self, model: Model) -> Bundle:
        from nnapi_prof.api.plan import ModelPlan
        from nnapi_prof.api.planning import partition

        source = self._source
        if isinstance(source, Target):
            return supported_bundle(model, source, self._level)
        self.plan = (
            source if isinstance(source, ModelPlan) else partition(model, source, **self._options)
        )
        return bundle_for(self.plan, self._level)

    def partition(self, exported_program: ExportedProgram) -> PartitionResult:
        """Tags each delegated call, and the readers of its tuple of outputs."""
        specs = {}
        for number, node in enumerate(filter(is_call, exported_program.graph.nodes)):
            tag = f"nnapi_{number}"
            specs[tag] = DelegationSpec(NnapiBackend.__name__, self._specs)
            for each in (node, *(u for u in node.users if u.target is operator.getitem)):
                each.meta["delegation_tag"] = tag
        return PartitionResult(tagged_exported_program=exported_program, partition_tags=specs)


def accelerator(source: str | Target) -> Target:
    """Returns a target on NNAPI by its key. Raises UsageError where it is not one."""
    try:
        target = Target.parse(str(source))
    except ValueError as error:
        raise UsageError(f"the accelerator {error}") from None
    if target.engine is not Engine.NNAPI:
        raise UsageError(
            f"{target} is not an NNAPI accelerator", "name one, such as nnapi:NAME/fast"
        )
    return target


def _in_form_of(program: ExportedProgram, module: torch.nn.Module) -> ExportedProgram:
    """Exports a module of flat tensors with the arguments and results of a program."""
    form = program.call_spec.out_spec

    class ExportedCall(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = module

        def forward(self, *args: Any, **kwargs: Any) -> Any:
            leaves = pytree.tree_leaves((args, kwargs))
            outputs = self.inner(*(leaf for leaf in leaves if isinstance(leaf, torch.Tensor)))
            return pytree.tree_unflatten(outputs, form)

    args, kwargs = program.example_inputs
    with quiet_torch():
        return torch.export.export(ExportedCall(), args, kwargs, strict=False)


PORTABLE = "portable"
"""Name for ExecuTorch's own kernels, which need no partitioner."""
NNAPI = "nnapi"
LIST_ORDER = "list-order"
_NAME = re.compile(r"[\w.-]+")
_NO_NAME = re.compile(r"[^\w.-]+")
_WHEEL = {
    "vulkan": "executorch.backends.vulkan.partitioner.vulkan_partitioner:VulkanPartitioner",
    "xnnpack": "executorch.backends.xnnpack.partition.xnnpack_partitioner:XnnpackPartitioner",
}
"""Partitioners for phones in ExecuTorch's wheel that need no arguments."""


@dataclass(frozen=True)
class Candidate:
    """A place for a region: a partitioner with its back end, or none, portable kernels."""

    name: str
    partitioner: Partitioner | None

    @property
    def target(self) -> Target:
        return target_of(self.name)

    def fresh(self) -> list[Partitioner]:
        """Returns its partitioner for one program. A NnapiPartitioner holds the calls of its
        program, so each program gets its own."""
        if self.partitioner is None:
            return []
        ours = isinstance(self.partitioner, NnapiPartitioner)
        return [copy.copy(self.partitioner) if ours else self.partitioner]


def target_of(name: str) -> Target:
    """Returns the target ``executorch:NAME``."""
    return Target(f"{Engine.EXECUTORCH.value}:{name}")


def checked(partitioners: Mapping[str, Partitioner]) -> None:
    """Raises UsageError where there are none, one is not a partitioner, or a name is not valid."""
    if not partitioners:
        raise UsageError("there is nothing to choose among", "name one partitioner at least")
    for name, partitioner in partitioners.items():
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            raise UsageError(
                f"{name!r} is not a name for a partitioner", "use letters, digits and _ . -"
            )
        if name in (PORTABLE, LIST_ORDER):
            raise UsageError(
                f"the name {name} is reserved", "choose another name for the partitioner"
            )
        if not isinstance(partitioner, Partitioner):
            what = "its class" if inspect.isclass(partitioner) else type(partitioner).__name__
            raise UsageError(
                f"{name} is {what}",
                "give an instance of a class derived from"
                " executorch.exir.backend.partitioner.Partitioner",
            )


def region_candidates(partitioners: Mapping[str, Partitioner]) -> tuple[Candidate, ...]:
    """Lists the candidates for a region: each partitioner as it is; for one that knows several
    NNAPI accelerators, NAME-ACCELERATOR for each; the portable kernels last."""
    candidates: list[Candidate] = []
    for name, partitioner in partitioners.items():
        if isinstance(partitioner, NnapiPartitioner):
            targets = _one_each(partitioner.targets())
            for target, level in targets:
                own = name if len(targets) == 1 else _candidate_name(name, target)
                candidates.append(Candidate(own, partitioner.on(target, level)))
        else:
            candidates.append(Candidate(name, partitioner))
    return (*candidates, Candidate(PORTABLE, None))


def _one_each(targets: Sequence[tuple[Target, int]]) -> list[tuple[Target, int]]:
    """Picks the fast preference of each named accelerator, or its first."""
    best: dict[str, tuple[Target, int]] = {}
    for target, level in targets:
        name = target.accelerator or AUTO
        fast = target.preference is Preference.FAST_SINGLE_ANSWER
        if target.precision is Precision.FLOAT32 and name != AUTO and (fast or name not in best):
            best[name] = (target, level)
    return list(best.values())


def named(names: Sequence[str], device: str, listener: Listener = SILENT) -> dict[str, Partitioner]:
    """Returns partitioners by name: ``nnapi``, one for each of the device's accelerators; those of
    the wheel, ``xnnpack`` and ``vulkan``; any ``MODULE:CLASS``, created without arguments and named
    like its class.

    Raises UsageError where there is none of that name, or it is not installed, and DeviceError
    where the device cannot be reached.
    """
    partitioners: dict[str, Partitioner] = {}
    for name in names:
        if name == NNAPI:
            partitioners |= _accelerators(device, listener)
        elif ":" in name:
            partitioners[name.rpartition(":")[2]] = _imported(name, name)
        elif name in _WHEEL:
            partitioners[name] = _imported(name, _WHEEL[name])
        else:
            known = (NNAPI, *_WHEEL)
            raise UsageError(
                f"{option_name('partitioners')}: there is no {name!r}{did_you_mean(name, known)};"
                f" {', '.join(known)} and MODULE:CLASS can be named"
            )
    return partitioners


def _accelerators(device: str, listener: Listener) -> dict[str, Partitioner]:
    with open_client(device, listener) as client:
        specs = device_targets(client.info(), (Preference.FAST_SINGLE_ANSWER,))
    places = [
        (spec.target, spec.level)
        for spec in specs
        if spec.target.engine is Engine.NNAPI and spec.target.accelerator != AUTO
    ]
    if not places:
        raise UsageError(f"{device} has no accelerator of NNAPI's", f"leave {NNAPI} out")
    if len(places) == 1:
        return {NNAPI: NnapiPartitioner(places[0][0], level=places[0][1])}
    return {
        _candidate_name(NNAPI, target): NnapiPartitioner(target, level=level)
        for target, level in places
    }


def _candidate_name(name: str, target: Target) -> str:
    """Returns ``NAME-ACCELERATOR``, or the accelerator alone if it begins with NAME. Characters
    that names cannot have become dashes."""
    accelerator = _NO_NAME.sub("-", target.accelerator or "")
    return accelerator if accelerator.startswith(name) else f"{name}-{accelerator}"


def _imported(name: str, place: str) -> Partitioner:
    module, _, word = place.partition(":")
    try:
        with silence():
            return getattr(importlib.import_module(module), word)()
    except Exception as error:  # any error of a foreign module
        words = f"{type(error).__name__}: {error}"
        raise UsageError(f"the partitioner {name} cannot be loaded: {words}") from error
