"""Cut regions of a model for the compiler from one cached ONNX export.

Exporting takes seconds of a core, reading an export a tenth of one. A cache entry is named by
everything that determines its bytes: graph, weights, example shapes and versions of the exporters.

The normalised model is exported once, with every value between units as an output, so that each has
a name in the ONNX graph. A region is the part between its borders, where images are channels last
in float32: channels first in float16 makes the estimate several times as long, and a change of
layout is a separate cost (of the units that change it).
"""

from __future__ import annotations

import contextlib
import copy
import hashlib
import importlib.metadata
import os
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, fx

from nnapi_prof.advice import LEAST_GAIN
from nnapi_prof.errors import ConversionError
from nnapi_prof.graph import DimOrder, TensorType
from nnapi_prof.qnn.graphs import OPSET, Form, Sample, export_onnx, preprocess, rewritten
from nnapi_prof.toolchain import cache_dir

if TYPE_CHECKING:
    import onnx

    from nnapi_prof.advice.search import KnownRewrite
    from nnapi_prof.graph.plan import Plan
    from nnapi_prof.graph.program import Program
    from nnapi_prof.graph.unit import UnitGraph
    from nnapi_prof.qnn.costs import ChipCosts

EXPORT_FORMAT = 1
"""Version of entries; a change of :func:`export_onnx` or :func:`preprocess` raises it."""
MOST_EXPORT_BYTES, MOST_EXPORTS = 256 << 20, 8
"""Largest size of an entry, and number of entries that are kept; the oldest are removed first."""
EXPORTERS = ("torch", "onnx", "onnxscript", "onnxruntime", "onnxruntime-qnn", "numpy")


def prepared_export(
    module: fx.GraphModule, examples: Sequence[Tensor], outputs: Sequence[str]
) -> onnx.ModelProto:
    """Return :func:`preprocess` of :func:`export_onnx`, from the cache where it is there.

    Raises ConversionError where the module cannot be exported.
    """
    import onnx

    key = export_key(module, examples, outputs)
    entry = cache_dir() / "qnn" / "exports" / f"{key}.onnx"
    if key is not None:
        with contextlib.suppress(Exception):  # protobuf's own errors, of an invalid file
            return onnx.load_model(str(entry))
    model = preprocess(export_onnx(module, examples, outputs), last=False).model
    if key is not None and model.ByteSize() <= MOST_EXPORT_BYTES:
        _keep(entry, model.SerializeToString())
    return model


def export_key(
    module: fx.GraphModule, examples: Sequence[Tensor], outputs: Sequence[str]
) -> str | None:
    """Return the name of an export; None where the module holds something without bytes to hash."""
    versions = [(name, _package_version(name)) for name in EXPORTERS]
    sizes = [(tuple(each.shape), str(each.dtype)) for each in examples]
    digest = hashlib.sha256(repr((EXPORT_FORMAT, OPSET, versions, sizes, list(outputs))).encode())
    for node in module.graph.nodes:
        digest.update(repr((node.op, node.name, str(node.target), node.args, node.kwargs)).encode())
        if node.op == "call_module":
            return None
        if node.op == "get_attr":
            value = module
            for part in str(node.target).split("."):
                value = getattr(value, part)
            if not isinstance(value, Tensor) or value.layout is not torch.strided:
                return None
            digest.update(repr((tuple(value.shape), str(value.dtype))).encode())
            digest.update(value.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy())
    return digest.hexdigest()[:40]


def _package_version(name: str) -> str:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return ""


def _keep(entry: Path, data: bytes) -> None:
    """Write an entry whole or not at all; a cache that cannot be written only costs time."""
    with contextlib.suppress(OSError):
        entry.parent.mkdir(parents=True, exist_ok=True)
        draft = entry.with_suffix(f".{os.getpid()}")
        draft.write_bytes(data)
        draft.replace(entry)
        entries = sorted(entry.parent.glob("*.onnx"), key=lambda path: path.stat().st_mtime)
        for old in entries[:-MOST_EXPORTS]:
            old.unlink(missing_ok=True)


MOST_BYTES = 1 << 30
"""Bytes of values from which ranges in 8 bits are taken."""
TO_LAST, TO_FIRST = (0, 2, 3, 1), (0, 3, 1, 2)
_ELEMENTS = {
    "float32": "FLOAT",
    "float16": "FLOAT16",
    "float64": "DOUBLE",
    "int64": "INT64",
    "int32": "INT32",
    "int16": "INT16",
    "int8": "INT8",
    "uint8": "UINT8",
    "bool": "BOOL",
}
ACTIVATIONS = frozenset(
    "relu relu6 hardtanh gelu silu sigmoid tanh hardswish hardsigmoid leaky_relu elu selu softplus"
    " mish celu prelu erf clamp".split()
)
"""Operations on one tensor that the compiler computes with its producer, and that cost many times
as much alone."""


class RegionCutter:
    """Cuts regions of one program. Raises ConversionError where it cannot be exported."""

    def __init__(self, program: Program) -> None:
        self.graph: UnitGraph = program.units
        module, self._alias = _without_clones(program)
        values = [name for unit in self.graph.units for name in unit.outputs]
        self._exported = list(dict.fromkeys(self._origin(name) for name in values))
        outputs = [name for name in self._exported if name not in self.graph.inputs]
        _return(module, outputs)
        self._model = prepared_export(module, program.example_inputs, outputs)
        _rename_inputs(self._model, self.graph.inputs)
        nodes = self._model.graph.node
        self._producer = {name: index for index, n in enumerate(nodes) for name in n.output}
        self._constants = {c.name: c for c in self._model.graph.initializer}
        for node in nodes:  # the exporter computes equal values once
            if node.op_type == "Identity" and node.input[0] in self._producer:
                self._alias.setdefault(node.output[0], node.input[0])

    def _origin(self, value: str) -> str:
        """Returns the value itself, or the one whose layout it changes."""
        while value in self._alias:
            value = self._alias[value]
        return value

    def cut(self, region: Iterable[int]) -> Form:
        """Returns the region's graph, with images channels last at its borders.

        Raises ConversionError where its borders cannot be found in the export.
        """
        from onnx import helper

        entering, leaving = self.graph.boundary(region)
        border = {self._origin(name) for name in entering}
        nodes = self._between(border, [self._origin(name) for name in leaving])
        used = {name for index in nodes for name in self._model.graph.node[index].input}
        inputs, outputs, before, after = [], [], [], []
        body = [copy.deepcopy(self._model.graph.node[index]) for index in nodes]
        renamed: dict[str, str] = {}
        for place, name in enumerate(entering):
            origin, kind = self._origin(name), self.graph.values[name]
            if origin in renamed or (
                origin not in used and origin not in map(self._origin, leaving)
            ):
                continue
            renamed[origin] = f"in_{place}"
            inputs.append(_value_info(f"in_{place}_border", kind))
            before.append(_border(f"in_{place}_border", f"in_{place}", kind, TO_FIRST))
        for node in body:
            node.input[:] = [renamed.get(name, name) for name in node.input]
        for place, name in enumerate(leaving):
            origin, kind = self._origin(name), self.graph.values[name]
            outputs.append(_value_info(f"out_{place}", kind))
            source = renamed.get(origin, origin)
            after.append(_border(source, f"out_{place}", kind, TO_LAST))
        weights = [self._constants[name] for name in sorted(used) if name in self._constants]
        region_graph = helper.make_graph(
            [*before, *body, *after], "region", inputs, outputs, weights
        )
        model = helper.make_model(
            region_graph, opset_imports=self._model.opset_import, ir_version=self._model.ir_version
        )
        return rewritten(model)

    def run(self, inputs: Sequence[Sequence[torch.Tensor]]) -> list[Sample]:
        """Computes every value between units, for the inputs of the program in turn, until they
        exceed :data:`MOST_BYTES`, at least once."""
        import onnxruntime

        rows: list[Sample] = []
        n_bytes = 0
        with tempfile.TemporaryDirectory(prefix="nnapi-prof-qnn-") as folder:
            path = Form(self._model).write(Path(folder) / "model.onnx")
            session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
            names = [output.name for output in session.get_outputs()]
            read = {value.name for value in session.get_inputs()}
            for one in inputs:
                feeds = {
                    name: tensor.numpy()
                    for name, tensor in zip(self.graph.inputs, one, strict=True)
                    if name in read
                }
                rows.append(feeds | dict(zip(names, session.run(names, feeds), strict=True)))
                n_bytes += sum(value.nbytes for value in rows[-1].values())
                if n_bytes > MOST_BYTES:
                    break
        return rows

    def samples(self, region: Iterable[int], form: Form, values: Sequence[Sample]) -> list[Sample]:
        """Returns the inputs of a region's graph from the values of :meth:`run`."""
        entering, _ = self.graph.boundary(region)
        read = {value.name for value in form.model.graph.input}
        result: list[Sample] = []
        for one in values:
            sample = {}
            for place, name in enumerate(entering):
                if f"in_{place}_border" not in read:
                    continue
                value = one[self._origin(name)]
                if self.graph.values[name].dim_order is DimOrder.CHANNELS_LAST:
                    value = value.transpose(TO_LAST)
                sample[f"in_{place}_border"] = np.ascontiguousarray(value)
            result.append(sample)
        return result

    def _between(self, border: set[str], leaving: Sequence[str]) -> list[int]:
        """Returns places of the nodes that make ``leaving`` from ``border``, in graph order."""
        places: set[int] = set()
        asked = [name for name in leaving if name not in border]
        while asked:
            name = asked.pop()
            if not name or name in border or name in self._constants:
                continue
            index = self._producer.get(name)
            if index is None:
                raise ConversionError(
                    f"the value {name} has no counterpart in the exported graph: this region"
                    " cannot be cut from it"
                )
            if index not in places:
                places.add(index)
                asked += self._model.graph.node[index].input
        return sorted(places)


def _without_clones(program: Program) -> tuple[fx.GraphModule, dict[str, str]]:
    """Returns a copy of the module in which no value changes its layout, and value -> the one that
    it is a copy of."""
    module = fx.GraphModule(program.module, copy.deepcopy(program.module.graph))
    alias: dict[str, str] = {}
    for node in list(module.graph.nodes):
        if node.target is torch.ops.aten.clone.default and "memory_format" in node.kwargs:
            (source,) = node.args
            alias[node.name] = str(source)
            node.replace_all_uses_with(source)
            module.graph.erase_node(node)
    return module, alias


def _return(module: fx.GraphModule, names: Sequence[str]) -> None:
    """Makes the module return these values."""
    nodes = {node.name: node for node in module.graph.nodes}
    module.graph.output_node().args = (tuple(nodes[name] for name in names),)
    module.graph.lint()
    module.recompile()


def _rename_inputs(model: onnx.ModelProto, names: Sequence[str]) -> None:
    """Gives the graph's inputs the names of the program's."""
    renamed = {v.name: name for v, name in zip(model.graph.input, names, strict=True)}
    for value in model.graph.input:
        value.name = renamed[value.name]
    for node in model.graph.node:
        node.input[:] = [renamed.get(name, name) for name in node.input]


def _value_info(name: str, kind: TensorType) -> Any:
    from onnx import TensorProto, helper

    shape = kind.shape
    if kind.dim_order is DimOrder.CHANNELS_LAST:
        shape = tuple(shape[place] for place in TO_LAST)
    element = getattr(TensorProto, _ELEMENTS[kind.dtype])
    return helper.make_tensor_value_info(name, element, shape)


def _border(source: str, target: str, kind: TensorType, order: Sequence[int]) -> Any:
    from onnx import helper

    if kind.dim_order is DimOrder.CHANNELS_LAST:
        return helper.make_node("Transpose", [source], [target], f"layout_{target}", perm=order)
    return helper.make_node("Identity", [source], [target], f"border_{target}")


def activation_groups(graph: UnitGraph) -> dict[int, int]:
    """Returns unit -> the one that it is compiled with: an activation goes with the producer of its
    input, where nothing else reads that."""
    leader: dict[int, int] = {}
    for unit in graph.units:
        leader[unit.index] = unit.index
        if unit.kind not in ACTIVATIONS or len(unit.inputs) != 1:
            continue
        (value,) = unit.inputs
        producer = graph.producer.get(value)
        alone = graph.readers[value] == (unit.index,) and value not in graph.outputs
        if producer is not None and alone:
            leader[unit.index] = leader[producer]
    return leader


@dataclass(frozen=True)
class Obstacle:
    """The units of one operation that could be rewritten."""

    operation: str
    units: tuple[int, ...]
    reasons: tuple[str, ...]
    """Reasons that the NPU does not take them; empty where it does."""
    share_ns: float
    """Largest time that a rewrite can save, by the plan."""
    rules: Mapping[KnownRewrite, tuple[str, ...]]
    """Rewrite -> the nodes that it applies to."""


def obstacles_of(program: Program, costs: ChipCosts, plan: Plan) -> Iterator[Obstacle]:
    """Yield the operations of a plan for a chip that a known rewrite could make faster."""
    from nnapi_prof.advice.search import names_of, rules_for

    assert costs.npu is not None
    graph, leader = program.units, activation_groups(program.units)
    target = {unit: s.target for s in plan.segments for unit in s.units}
    operations: dict[str, list[int]] = {}
    for unit in graph.units:
        operations.setdefault(unit.kind, []).append(unit.index)
    for operation, units in operations.items():
        rules: dict[KnownRewrite, tuple[str, ...]] = {}
        for name in names_of(program, units):
            for rule in rules_for(program.nodes[name].target):
                rules[rule] = (*rules.get(rule, ()), name)
        why = {
            costs.refusals[u, costs.npu]: None for u in units if (u, costs.npu) in costs.refusals
        }
        share = sum(
            costs.unit_cost(unit, target[unit]) or 0.0
            for unit in {group for unit in units for group in (unit, leader[unit])}
        )
        if rules and (why or share >= LEAST_GAIN * plan.predicted_ns):
            yield Obstacle(operation, tuple(units), tuple(why), share, rules)
