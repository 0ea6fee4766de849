"""Small programs for the converter; stock PyTorch, or NNAPI's C API, to run what it makes of them;
and an independent reading of NNAPI's facts, not through nnapi_prof.nnapi, to judge it."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property
from pathlib import Path

import torch
from torch import Tensor, fx
from torch.utils._pytree import tree_leaves

from nnapi_prof.convert import NnapiModel
from nnapi_prof.convert.lower import convert_region
from nnapi_prof.convert.region import Region
from nnapi_prof.device.host_nnapi import HostNnapi
from nnapi_prof.frontend import prepare
from nnapi_prof.frontend.torch_logging import quiet_torch
from nnapi_prof.graph import DimOrder, TensorType
from nnapi_prof.graph.node import describe
from nnapi_prof.graph.program import Program
from nnapi_prof.graph.quantisation import annotate_quantisation
from nnapi_prof.graph.unit import Unit, UnitGraph

aten = torch.ops.aten

LAST, FIRST = DimOrder.CHANNELS_LAST, DimOrder.CONTIGUOUS
LEVELS = (27, 28, 29, 30)
ROOT = Path(__file__).resolve().parents[2]
OPERATIONS = {
    op["code"]: op for op in json.loads((ROOT / "nnapi_prof/nnapi/data/nnapi_ops.json").read_text())
}
KINDS = {"INT32": "int32", "FLOAT32": "float32", "FLOAT16": "float16", "BOOL": "bool"}


@dataclass(frozen=True)
class Case:
    """One conversion: ``function`` calls ATen overloads only; constants are its closure's tensors.

    Images lie as ``order`` says unless ``orders`` names their node. ``refused`` maps levels to a
    pattern of the expected sentence; at all others the case must convert and run.
    ``operations`` maps levels to the expected NNAPI operations. ``beyond`` names levels above the
    fourth to try as well.
    """

    function: Callable[..., Tensor]
    inputs: tuple[Tensor, ...]
    order: DimOrder = LAST
    orders: dict[str, DimOrder] = field(default_factory=dict)
    refused: dict[int, str] = field(default_factory=dict)
    operations: dict[int, str] = field(default_factory=dict)
    beyond: tuple[int, ...] = ()
    rtol: float = 1e-5
    atol: float = 1e-5

    @property
    def levels(self) -> tuple[int, ...]:
        return (*LEVELS, *self.beyond)

    @cached_property
    def program(self) -> Program:
        return program_of(self.function, self.inputs, self.order, self.orders)


def image(*shape: int, seed: int = 0) -> Tensor:
    """Normal numbers of a shape, the same for the same arguments."""
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed + sum(shape)))


def program_of(
    function: Callable[..., Tensor],
    inputs: Sequence[Tensor],
    order: DimOrder = LAST,
    orders: dict[str, DimOrder] | None = None,
    split: bool = False,
) -> Program:
    """A program of one unit that holds all calls, or with ``split`` of one unit per call."""
    module = typed(function, inputs, order, orders)
    annotate_quantisation(module.graph)
    nodes = list(module.graph.nodes)
    calls = [node for node in nodes if node.op == "call_function"]
    groups = [[call] for call in calls] if split else [calls]
    names = tuple(node.name for node in nodes if node.op == "placeholder")
    (result,) = (node for node in nodes if node.op == "output")
    units = tuple(_unit(i, group, result) for i, group in enumerate(groups))
    values = {
        node.name: node.meta["tensor"]
        for node in nodes
        if "tensor" in node.meta and node.op != "get_attr"
    }
    outputs = tuple(node.name for node in result.all_input_nodes)
    return Program(module, UnitGraph(units, values, names, outputs), "test", tuple(inputs))


def typed(
    function: Callable[..., object],
    inputs: Sequence[Tensor],
    order: DimOrder,
    orders: dict[str, DimOrder] | None = None,
) -> fx.GraphModule:
    """The function's graph, in which each value has its type."""
    module = fx.symbolic_trace(function)
    _Recorder(module, order, orders or {}).run(*inputs)
    return module


def _unit(index: int, group: list[fx.Node], result: fx.Node) -> Unit:
    inside = set(group)
    reads = [a for node in group for a in node.all_input_nodes if a.op != "get_attr"]
    leaves = [node for node in group if result in node.users or set(node.users) - inside]
    return Unit(
        index=index,
        name=group[-1].name,
        operation=group[-1].name,
        nodes=tuple(node.name for node in group),
        inputs=tuple(dict.fromkeys(a.name for a in reads if a not in inside)),
        outputs=tuple(node.name for node in leaves),
        signature=f"test:{index}",
    )


class _Recorder(fx.Interpreter):
    """Runs a module and writes each value's type to its node."""

    def __init__(self, module, order, orders):
        super().__init__(module)
        self.order, self.orders = order, orders

    def run_node(self, n):
        value = super().run_node(n)
        if isinstance(value, Tensor) and n.op != "output":
            plain = describe(value)
            order = FIRST
            if n.op != "get_attr" and value.dim() == 4:
                order = self.orders.get(n.name, self.order)
            n.meta["tensor"] = TensorType(plain.shape, plain.dtype, order)
        return value


def whole(program: Program, level: int = 30) -> Region:
    """All units of a program as one region."""
    return convert_region(program, range(len(program.units.units)), level)


def traced(function: Callable[..., object], inputs: tuple[Tensor, ...]) -> torch.jit.ScriptModule:
    with quiet_torch():
        return torch.jit.trace(function, inputs, check_trace=False)


def run_whole(program: Program, inputs: Sequence[Tensor], level: int = 30) -> list[Tensor]:
    """The outputs of a program as one region on the emulator; one may be an input."""
    region = whole(program, level)
    values = dict(zip(program.units.inputs, inputs, strict=True))
    values |= zip(region.outputs, run_region(region, values), strict=True)
    return [values[name] for name in program.units.outputs]


def agree(
    model: object,
    inputs: tuple[Tensor, ...],
    eager: Callable[..., object] | None = None,
    tolerance: float = 1e-5,
    level: int = 30,
) -> None:
    """A model that is prepared, converted whole and run gives what eager PyTorch does."""
    with torch.inference_mode():
        expected = (eager or model)(*(value.clone() for value in inputs))
    actual = run_whole(prepare(model, inputs, "model"), inputs, level)
    near = {"rtol": tolerance, "atol": tolerance, "equal_nan": True}
    torch.testing.assert_close(actual, tree_leaves(expected), **near)


def run_region(
    region: Region, values: dict[str, Tensor], nnapi: HostNnapi | None = None
) -> list[Tensor]:
    """Runs a region on the emulator, on logical tensors in and out: in stock PyTorch's NNAPI
    runtime where that carries the types and the arguments left out, else, and by another library,
    through NNAPI's C API."""
    types = (*region.input_types, *region.output_types)
    model = region.model
    plain = {t.dtype for t in types} == {"float32"} and all(len(b) % 4 == 0 for b in region.buffers)
    plain = plain and all(operand.channels is None for operand in model.operands)
    if nnapi is None and plain and all(value.source for value in model.values):
        return run_in_pytorch(region, values)
    compiled = (nnapi or _loaded_nnapi()).compile(region)
    return list(compiled.run([values[name] for name in region.inputs]))


@cache
def _loaded_nnapi() -> HostNnapi:
    """The library that this process has loaded: the fixture nnapi_library does."""
    return HostNnapi(Path("libneuralnetworks.so"))


def run_in_pytorch(region: Region, values: dict[str, Tensor]) -> list[Tensor]:
    """Runs a float32 region in stock PyTorch's NNAPI runtime, on logical tensors in and out."""
    serialized = torch.frombuffer(bytearray(region.serialized), dtype=torch.int32)
    buffers = [torch.frombuffer(bytearray(b), dtype=torch.float32) for b in region.buffers]
    compilation = torch.classes._nnapi.Compilation()
    compilation.init2(serialized, buffers, 1, False)
    inputs = [
        to_memory(values[name], type_)
        for name, type_ in zip(region.inputs, region.input_types, strict=True)
    ]
    outputs = [torch.full(type_.memory_shape, torch.nan) for type_ in region.output_types]
    compilation.run(inputs, outputs)
    return list(map(from_memory, outputs, region.output_types))


def to_memory(value: Tensor, type_: TensorType) -> Tensor:
    if type_.dim_order is LAST:
        value = value.permute(0, 2, 3, 1)
    return value.contiguous().reshape(type_.memory_shape)


def from_memory(value: Tensor, type_: TensorType) -> Tensor:
    return value.permute(0, 3, 1, 2) if type_.dim_order is LAST else value.reshape(type_.shape)


def broken_rules(model: NnapiModel, api_level: int) -> list[str]:
    """What in a model is newer than a level, or against an operation's form."""
    level = api_level - 1_000_000 if api_level > 1_000_000 else api_level - 26
    items = []
    for operation in model.operations:
        facts = OPERATIONS[operation.code]
        name = facts["name"]
        if facts["min_feature_level"] > level:
            items.append(f"{name} is of level {facts['min_feature_level']}")
        operands = [model.operands[i] for i in operation.inputs]
        kinds = [KINDS.get(operand.type.name, "tensor") for operand in operands]
        if not any(_fits(form, kinds, level) for form in facts["signatures"]):
            items.append(f"{name} has no form {kinds} at level {level}")
        limit = facts["rank"]["max"]
        ranks = [len(model.operands[i].dims) for i in (operation.inputs[0], *operation.outputs)]
        if limit is not None and max(ranks) > limit:
            items.append(f"{name} has ranks {ranks}, at most {limit}")
    return items


def _fits(form, kinds, level):
    arguments = list(form["inputs"])
    if ".." in str(arguments[0]["index"]):
        arguments[:1] = arguments[:1] * (len(kinds) - len(arguments) + 1)
    if form["since_level"] > level or len(kinds) > len(arguments):
        return False
    if any(not a["optional"] for a in arguments[len(kinds) :]):
        return False
    pairs = zip(arguments, kinds, strict=False)
    return all(kind in a["kind"].split("|") and a["since_level"] <= level for a, kind in pairs)
