"""Programs that were lowered one by one, put together as one: what was measured is in the file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

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

from nnapi_prof.executorch.aot import EdgeCompileConfig, EdgeProgramManager, silence
from nnapi_prof.executorch.region_times import NotLowered, error_line

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
    """An EdgeProgramManager of parts run one after another.

    ``inputs`` and ``outputs`` are those of the whole; ``values`` has examples of all of them, and
    of an output that no part makes the value itself, which is constant. Raises NotLowered where
    parts do not fit together.
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
    except Exception as error:  # ExecuTorch's verifiers raise what they like
        raise NotLowered(f"its parts do not make one program: {error_line(error)}") from error


class _ProgramConcatenator:
    """The graph of the whole as it grows. Tensors of its nodes' meta data are all of one mode, as
    ExecuTorch's passes want them."""

    def __init__(self, values: Mapping[str, Tensor]) -> None:
        self._values = values
        self._mode = FakeTensorMode()
        self._graph = fx.Graph()
        self._root = torch.nn.Module()
        self._nodes: dict[str, fx.Node] = {}
        """By value of the whole."""
        self._specs: list[InputSpec] = []
        self._state: dict[str, Tensor] = {}
        self._constants: dict[str, Any] = {}

    def constants(self, number: int, edge: ExportedProgram) -> dict[str, fx.Node]:
        """Placeholders of a part's weights, by their names in it."""
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
        """A value of the whole that nothing computes."""
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
        """Copies a part's nodes. Raises NotLowered where a value that it returns does not lie as
        others read it."""
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
        """The whole, with verifiers and version of one of its parts."""
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
