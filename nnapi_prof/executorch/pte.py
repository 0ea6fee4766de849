"""Lower a model to a whole ``.pte`` by our plan, or join programs that were lowered separately.

Separately lowered programs are joined unchanged, so that the file holds what was measured.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, fx
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.export import ExportedProgram
from torch.export.exported_program import ModuleCallEntry, ModuleCallSignature
from torch.export.graph_signature import (
    ExportGraphSignature,
    InputKind,
    InputSpec,
    OutputKind,
    OutputSpec,
    TensorArgument,
)
from torch.utils import _pytree as pytree

from nnapi_prof.errors import NnapiProfError, UsageError
from nnapi_prof.executorch.aot import (
    EdgeCompileConfig,
    EdgeProgramManager,
    ExecutorchProgramManager,
    XnnpackPartitioner,
    portable_lib,
    silence,
    to_edge_transform_and_lower,
)
from nnapi_prof.executorch.partitioner import NnapiPartitioner, Priority
from nnapi_prof.executorch.placement import (
    LEVEL,
    DelegatedCall,
    bundle_for,
    check_sizes,
    placed_module,
    plain_module,
)
from nnapi_prof.executorch.region_times import NotLowered, error_line
from nnapi_prof.frontend.loader import ModelKind, model_kind, read_exported
from nnapi_prof.graph.plan import Engine

if TYPE_CHECKING:
    from nnapi_prof.api.costs import Costs
    from nnapi_prof.api.model import Model
    from nnapi_prof.api.plan import ModelPlan


@dataclass(frozen=True)
class Lowered:
    """A program for ExecuTorch, and the plan that it follows."""

    plan: ModelPlan
    calls: tuple[DelegatedCall, ...] = field(repr=False)
    """Calls that our delegate runs, in order."""
    manager: ExecutorchProgramManager = field(repr=False)
    """ExecuTorch's lowered program."""

    @property
    def buffer(self) -> bytes:
        """The bytes of the file."""
        return bytes(self.manager.buffer)

    def backends(self) -> dict[str, int]:
        """Returns the number of calls in ``forward`` by name of the back end."""
        counts: dict[str, int] = {}
        program = self.manager.exported_program()
        for name in program.graph_module._modules:
            backend = getattr(getattr(program.graph_module, name), "backend_id", None)
            if backend is not None:
                counts[backend] = counts.get(backend, 0) + 1
        return counts

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Writes the ``.pte``."""
        file = Path(path)
        with file.open("wb") as stream:
            self.manager.write_to_file(stream)
        return file


def lower(
    model: Model | ModelPlan | str | os.PathLike[str],
    costs: Costs | None = None,
    *,
    whole: bool = False,
    level: int = LEVEL,
    priority: Priority | None = None,
    **options: Any,
) -> Lowered:
    """Lowers a model for ExecuTorch: NNAPI segments of its plan go to our delegate, CPU segments to
    XNNPACK's, and the rest to ExecuTorch's portable kernels.

    ``model`` is a plan (of :func:`nnapi_prof.partition`, or a bundle's folder), or a model to plan
    from ``costs`` with ``options``, as :func:`nnapi_prof.partition` does. Where costs are
    estimated, ``level`` is the phone's feature level. With ``whole``, the plan is one delegated
    call, our own engine runs its CPU segments, and the file has all plans of a mixture.
    ``priority`` is NNAPI's for its segments. A plan without NNAPI segments gives the file of
    ExecuTorch with XNNPACK alone.

    Raises NnapiProfError where there is no such plan, UsageError where ExecuTorch cannot lower it
    or lacks a kernel for it.
    """
    planned = _planned(model, costs, options)
    program = planned.model.program
    on_nnapi = any(s.target.engine is Engine.NNAPI for s in planned.plan.segments)
    calls: tuple[DelegatedCall, ...] = ()
    if on_nnapi or whole:
        check_sizes(planned.model)
    with silence():
        if on_nnapi or whole:
            module, calls = placed_module(program, bundle_for(planned, level), whole)
            exported = torch.export.export(module, program.example_inputs, strict=False)
        elif planned.model.mixed is None and model_kind(planned.model.path) is ModelKind.EXPORTED:
            exported = read_exported(planned.model.path)
        else:
            module = plain_module(program)
            exported = torch.export.export(module, program.example_inputs, strict=False)
        try:
            manager = to_pte(exported, planned, calls, priority)
        except NnapiProfError:
            raise
        except Exception as error:  # ExecuTorch's passes and verifiers raise any error
            raise UsageError(
                f"ExecuTorch cannot lower {planned.plan.name} of {planned.model.name}:"
                f" {error_line(error)}; take another way into the app"
            ) from error
    missing = missing_kernels(manager)
    if missing:
        raise UsageError(
            f"ExecuTorch has no kernel of {', '.join(missing)}, which {planned.plan.name} of"
            f" {planned.model.name} leaves to it: it would not load the file; pin that unit to an"
            " accelerator (`nnapi-prof partition --pin`), or take another way into the app"
        )
    return Lowered(planned, calls, manager)


def missing_kernels(manager: ExecutorchProgramManager) -> list[str]:
    """Returns operators of a program, outside of delegates, that ExecuTorch lacks on this host,
    which has the portable and quantised kernels of every phone."""
    registered = set(portable_lib._get_operator_names())
    names = (
        f"{operator.name}.{operator.overload}" if operator.overload else operator.name
        for plan in manager.executorch_program.execution_plan
        for operator in plan.operators
    )
    return [name for name in dict.fromkeys(names) if name not in registered]


def to_pte(
    exported: torch.export.ExportedProgram,
    planned: ModelPlan,
    calls: tuple[DelegatedCall, ...],
    priority: Priority | None = None,
) -> ExecutorchProgramManager:
    """Lowers a program with these delegated calls, and XNNPACK's delegate for the rest."""
    ours = [NnapiPartitioner.of_calls(planned, calls, priority)] if calls else []
    edge = to_edge_transform_and_lower(exported, partitioner=[*ours, XnnpackPartitioner()])
    return edge.to_executorch()


def _planned(
    model: Model | ModelPlan | str | os.PathLike[str], costs: Costs | None, options: dict[str, Any]
) -> ModelPlan:
    from nnapi_prof.api.model import as_model
    from nnapi_prof.api.plan import ModelPlan, read_plan
    from nnapi_prof.api.planning import partition

    if isinstance(model, ModelPlan):
        return model
    if costs is not None:
        return partition(as_model(model), costs, **options)
    if isinstance(model, str | os.PathLike) and (Path(model) / "manifest.json").is_file():
        return read_plan(model)
    raise UsageError(
        "costs or a plan are missing",
        "give costs (profile() measures, estimate() needs no phone),"
        " or a plan instead of the model",
    )


_CONSTANT = (InputKind.PARAMETER, InputKind.BUFFER, InputKind.CONSTANT_TENSOR)


@dataclass(frozen=True)
class LoweredPart:
    """A lowered program, and the values of the whole that it takes and returns, in order."""

    edge: ExportedProgram
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]


def concatenate_programs(
    parts: Sequence[LoweredPart],
    inputs: Sequence[str],
    outputs: Sequence[str],
    values: Mapping[str, Tensor],
) -> Any:
    """Returns an EdgeProgramManager that runs the parts one after another.

    ``inputs`` and ``outputs`` are those of the whole; ``values`` has an example of each; for an
    output that no part computes, it is the constant itself. Raises NotLowered where parts do not
    fit together.
    """
    joint = _ProgramConcatenator(values)
    constants = [joint.constants(number, part.edge) for number, part in enumerate(parts)]
    computed = {name for part in parts for name in part.outputs}
    for name in dict.fromkeys(outputs):
        if name not in computed and name not in inputs:
            joint.constant(name, f"output_{name}", values[name])
    for name in inputs:
        joint.user_input(name)
    for number, (part, own) in enumerate(zip(parts, constants, strict=True)):
        joint.inline(number, part, own)
    try:
        with silence():
            return EdgeProgramManager(
                joint.program(outputs, parts[0].edge),
                compile_config=EdgeCompileConfig(_check_ir_validity=False),
            )
    except Exception as error:  # ExecuTorch's verifiers raise any error
        raise NotLowered(f"its parts do not make one program: {error_line(error)}") from error


class _ProgramConcatenator:
    """Builds the graph of the whole. Tensors in the metadata of its nodes all have one fake mode,
    as ExecuTorch's passes require."""

    def __init__(self, values: Mapping[str, Tensor]) -> None:
        self._values = values
        self._mode = FakeTensorMode()
        self._graph = fx.Graph()
        self._root = torch.nn.Module()
        self._nodes: dict[str, fx.Node] = {}
        """Nodes by value of the whole."""
        self._specs: list[InputSpec] = []
        self._state: dict[str, Tensor] = {}
        self._constants: dict[str, Any] = {}

    def constants(self, number: int, edge: ExportedProgram) -> dict[str, fx.Node]:
        """Adds placeholders for a part's weights; returns them by their names in the part."""
        nodes = {}
        examples = {n.name: n.meta for n in edge.graph.nodes if n.op == "placeholder"}
        for spec in edge.graph_signature.input_specs:
            if spec.kind is InputKind.USER_INPUT:
                continue
            if spec.kind not in _CONSTANT or not isinstance(spec.target, str):
                raise NotLowered(f"a part takes {spec.arg.name} as {spec.kind.name.lower()}")
            own = f"part_{number}_{spec.target}"
            store = edge.state_dict if spec.target in edge.state_dict else edge.constants
            into = self._state if spec.target in edge.state_dict else self._constants
            into[own] = store[spec.target]
            node = self._placeholder(f"part_{number}_{spec.arg.name}", examples[spec.arg.name])
            self._specs.append(replace(spec, arg=TensorArgument(node.name), target=own))
            nodes[spec.arg.name] = node
        return nodes

    def constant(self, name: str, own: str, value: Tensor) -> None:
        """Adds a value of the whole that no part computes."""
        node = self._placeholder(own, {"val": value})
        kind = InputKind.CONSTANT_TENSOR
        self._specs.append(InputSpec(kind, TensorArgument(node.name), own))
        self._constants[own] = value
        self._nodes[name] = node

    def user_input(self, name: str) -> None:
        node = self._placeholder(name, {"val": self._values[name]})
        self._specs.append(InputSpec(InputKind.USER_INPUT, TensorArgument(node.name), None))
        self._nodes[name] = node

    def inline(self, number: int, part: LoweredPart, constants: Mapping[str, fx.Node]) -> None:
        """Copies a part's nodes. Raises NotLowered where a value that it returns is not contiguous,
        as its readers expect."""
        nodes = dict(constants)
        nodes |= {
            name: self._nodes[value]
            for name, value in zip(part.edge.graph_signature.user_inputs, part.inputs, strict=True)
        }
        for node in part.edge.graph.nodes:
            if node.op == "get_attr":
                own = f"part_{number}_{node.target}"
                self._root.register_module(own, getattr(part.edge.graph_module, node.target))
                nodes[node.name] = self._graph.get_attr(own)
            elif node.op == "call_function":
                copy = self._graph.node_copy(node, lambda n: nodes[n.name])
                copy.meta = self._meta(node.meta)
                nodes[node.name] = copy
        (results,) = part.edge.graph.output_node().args
        for name, result in zip(part.outputs, results, strict=True):
            value = result.meta["val"]
            if not value.is_contiguous():
                raise NotLowered(f"value {name} leaves it with strides {tuple(value.stride())}")
            self._nodes[name] = nodes[result.name]

    def program(self, outputs: Sequence[str], like: ExportedProgram) -> ExportedProgram:
        """Returns the whole program, with the verifier of one of its parts."""
        nodes = [self._nodes[name] for name in outputs]
        self._graph.output(tuple(nodes))
        module = fx.GraphModule(self._root, self._graph)
        kind = OutputKind.USER_OUTPUT
        specs = [OutputSpec(kind, TensorArgument(node.name), None) for node in nodes]
        n_inputs = sum(spec.kind is InputKind.USER_INPUT for spec in self._specs)
        form = ModuleCallSignature(
            inputs=[],
            outputs=[],
            in_spec=pytree.tree_flatten(((0,) * n_inputs, {}))[1],
            out_spec=pytree.tree_flatten((0,) * len(nodes))[1],
        )
        return ExportedProgram(
            root=module,
            graph=module.graph,
            graph_signature=ExportGraphSignature(self._specs, specs),
            state_dict=self._state,
            range_constraints={},
            module_call_graph=[ModuleCallEntry("", form)],
            constants=self._constants,
            verifiers=[like.verifier],
        )

    def _placeholder(self, name: str, meta: Mapping[str, Any]) -> fx.Node:
        node = self._graph.placeholder(name)
        node.meta = self._meta({"val": meta["val"]})
        return node

    def _meta(self, meta: Mapping[str, Any]) -> dict[str, Any]:
        return {**meta, "val": pytree.tree_map_only(Tensor, self._fake, meta.get("val"))}

    def _fake(self, value: Tensor) -> Tensor:
        with self._mode:
            return torch.empty_strided(value.shape, value.stride(), dtype=value.dtype)
