"""Turn a model into one TorchScript module for stock PyTorch: in parts, or with open sizes.

The NNAPI parts are PyTorch's own ``NnapiModule``, the CPU parts are ATen operators traced from the
normalised graph. Neither needs nnapi-prof. A constant that several parts use is stored once in the
file and in memory; this includes NNAPI's copy if NNAPI reads the same bytes.

PyTorch's ``NnapiModule`` compiles its model for the first inputs, after calling ``prepare``, which
may change the serialized model. For open sizes, this module's ``prepare`` writes the sizes of those
inputs, and the sizes that depend on them, into the model, so that NNAPI sees fixed sizes. PyTorch's
module would then pass inputs of other sizes to the same compilation, which NNAPI refuses; this one
compiles again whenever sizes change.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor, fx

from nnapi_prof.bundle.parts import ModelPart, Parts
from nnapi_prof.bundle.torchscript import (
    call_lines,
    carried,
    fixed_module,
    forward_text,
    head_text,
    input_places,
    refuse_uncarried,
    runtime_module,
    weight,
)
from nnapi_prof.convert.dynamic_shapes import OpenSize, Template
from nnapi_prof.convert.dynamic_shapes.template import Expression, word_map
from nnapi_prof.errors import NnapiProfError
from nnapi_prof.frontend.structure import Structure
from nnapi_prof.frontend.torch_logging import quiet_torch
from nnapi_prof.frontend.trees import expression
from nnapi_prof.graph.node import ScriptCall, constant_value, is_constant
from nnapi_prof.graph.plan import Preference
from nnapi_prof.graph.program import Program
from nnapi_prof.graph.quantisation import DEQUANTIZE, DEQUANTIZE_CHANNELS, QUANTIZE
from nnapi_prof.graph.unit import UnitGraph

aten = torch.ops.aten


def mixed_module(
    program: Program,
    parts: Parts,
    constants: Mapping[str, Tensor],
    relaxed: bool = False,
    structure: Structure | None = None,
) -> torch.jit.ScriptModule:
    """Return the module that runs the ``parts`` of ``program`` one after the other.

    Inputs, outputs and ``constants`` are the same as for
    :func:`~nnapi_prof.bundle.torchscript.stock_module`. NNAPI's members are called ``nnapi_0``,
    ``nnapi_1``, ..., those of the CPU ``cpu_0``, ...; each NNAPI model is compiled when it first
    runs. If a compilation fails, the next call tries it again. Raises NnapiProfError if stock
    PyTorch does not support a part.
    """
    graph = program.units
    structure = structure or Structure.flat(len(graph.inputs), len(graph.outputs))
    weights = _Weights()
    members: dict[str, torch.nn.Module] = {}
    places = dict(input_places(graph, structure))
    places |= {name: f"self.constant_{index}" for index, name in enumerate(constants)}
    lines: list[str] = []
    names: list[str] = []
    for part in parts.parts:  # NNAPI's weights first, because the CPU's parts may share them
        if part.region is not None:
            name = f"nnapi_{len(members)}"
            buffers = [weights.for_nnapi(data) for data in part.region.buffers]
            members[name] = fixed_module(part.region, part.preference, relaxed, buffers)
            names.append(name)
        else:
            names.append(f"cpu_{len(names) - len(members)}")
    examples = _examples(program, parts)
    for name, part in zip(names, parts.parts, strict=True):
        if part.region is None:
            members[name] = _cpu_module(program, part, examples, weights)
            part_lines, outputs = _cpu_lines(program, part, name, places)
        else:
            part_lines, outputs = call_lines(name, part.region, places, f"out_{name}")
        lines += part_lines
        places |= outputs
    returned = [
        carried(places[name], graph.values[name])
        if graph.values[name].dtype == "uint8"
        else places[name]
        for name in graph.outputs
    ]

    class Wrapper(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            for name, member in members.items():
                self.add_module(name, member)
            for index, value in enumerate(constants.values()):
                self.register_buffer(f"constant_{index}", value)

    text = head_text(structure) + "".join(f"    {line}\n" for line in lines)
    with quiet_torch():
        wrapper = torch.jit.script(Wrapper())
        wrapper.define(f"{text}    return {expression(structure.outputs, returned)}\n")
    return wrapper


def _cpu_lines(
    program: Program, part: ModelPart, member: str, places: Mapping[str, str]
) -> tuple[list[str], dict[str, str]]:
    """Return TorchScript that calls a CPU part, and the expressions of its outputs."""
    entering, leaving = program.units.boundary(part.units)
    arguments = []
    for name in entering:
        place, type_ = places[name], program.units.values[name]
        if type_.quant is not None or type_.dtype == "uint8":
            place = f"{place}.int_repr() if {place}.is_quantized else {place}"
        arguments.append(place)
    variable = f"out_{member}"
    outputs = {name: f"{variable}[{index}]" for index, name in enumerate(leaving)}
    return [f"{variable} = self.{member}({', '.join(arguments)})"], outputs


def _examples(program: Program, parts: Parts) -> dict[str, Tensor]:
    """Return the inputs of the CPU's parts for the program's example inputs."""
    names = {
        name
        for part in parts.parts
        if part.region is None
        for name in program.units.boundary(part.units)[0]
    }

    class Collect(fx.Interpreter):
        def run_node(self, n: fx.Node) -> Any:
            result = super().run_node(n)
            if n.name in names:
                values[n.name] = result
            return result

    values: dict[str, Tensor] = {}
    if names:
        with torch.no_grad():
            Collect(program.module).run(*program.example_inputs)
    return values


def _cpu_module(
    program: Program, part: ModelPart, examples: Mapping[str, Tensor], weights: _Weights
) -> torch.nn.Module:
    """Return a part as TorchScript that maps its inputs to a tuple of its outputs."""
    entering, leaving = program.units.boundary(part.units)
    module = _sub_graph(program.module, entering, leaving, weights)
    inputs = tuple(examples[name] for name in entering)
    with quiet_torch(), torch.no_grad():
        try:
            traced = torch.jit.trace(  # type: ignore[no-untyped-call]
                module, inputs, check_trace=False
            )
        except RuntimeError as error:
            raise NnapiProfError(
                f"a part on the CPU ({program.units.units[part.units[0]].label}, ...) cannot become"
                f" TorchScript: {error}"
            ) from error
    assert isinstance(traced, torch.jit.ScriptModule)
    torch._C._jit_pass_inline(traced.graph)  # functions cannot be saved without a name
    return traced


def _sub_graph(
    source: fx.GraphModule, entering: Sequence[str], leaving: Sequence[str], weights: _Weights
) -> fx.GraphModule:
    """Extract the part of ``source`` between some of its values, in ATen operators only.

    Views become reshapes: a value from NNAPI has the graph's dim order in memory, which may differ
    from eager PyTorch's.
    """
    nodes = {node.name: node for node in source.graph.nodes}
    copy = fx.GraphModule(torch.nn.Module(), fx.Graph())
    graph = copy.graph
    copies = {nodes[name]: graph.placeholder(f"value_{i}") for i, name in enumerate(entering)}
    needed: set[fx.Node] = set()
    waiting = [nodes[name] for name in leaving]
    while waiting:
        node = waiting.pop()
        if node not in copies and node not in needed:
            needed.add(node)
            waiting += node.all_input_nodes
    for node in source.graph.nodes:
        if node not in needed:
            continue
        if is_constant(node):
            name = f"constant_{len(copies)}"
            copy.register_buffer(name, weights.for_cpu(constant_value(node).detach()))
            copies[node] = graph.get_attr(name)
            continue
        if isinstance(node.target, ScriptCall) and isinstance(
            node.target.function, torch.jit.ScriptModule
        ):  # tracing requires such a module to be a submodule of the traced one
            copy.add_module(node.name, node.target.function)
            copies[node] = graph.call_module(node.name, tuple(copies[n] for n in node.args))
            continue
        copies[node] = graph.node_copy(node, lambda n: copies[n])
        copies[node].target = _PLAIN.get(node.target, node.target)
    graph.output(tuple(copies[nodes[name]] for name in leaving))
    copy.recompile()
    return copy


def _quantize(
    x: Tensor, scale: float, zero_point: int, low: int, high: int, dtype: torch.dtype
) -> Tensor:
    return torch.clamp(torch.round(x * (1.0 / scale)) + zero_point, low, high).to(dtype)


def _dequantize(
    x: Tensor,
    scale: float,
    zero_point: int,
    low: int,
    high: int,
    dtype: torch.dtype,
    *,
    out_dtype: torch.dtype | None = None,
) -> Tensor:
    return (x.to(out_dtype or torch.float32) - zero_point) * scale


def _dequantize_channels(
    x: Tensor,
    scales: Tensor,
    zero_points: Tensor | None,
    axis: int,
    low: int,
    high: int,
    dtype: torch.dtype,
    *,
    out_dtype: torch.dtype | None = None,
) -> Tensor:
    shape = [-1 if dim == axis else 1 for dim in range(x.dim())]
    floats = x.to(out_dtype or torch.float32)
    if zero_points is not None:
        floats = floats - zero_points.reshape(shape)
    return (floats * scales.reshape(shape)).to(out_dtype or torch.float32)


_PLAIN: dict[Any, Any] = {
    aten.view.default: aten.reshape.default,
    QUANTIZE: _quantize,
    DEQUANTIZE: _dequantize,
    DEQUANTIZE_CHANNELS: _dequantize_channels,
}
"""Replacements in plain ATen for operators that stock PyTorch lacks, or that may not apply."""


class _Weights:
    """Constants of all parts; equal bytes are stored once."""

    ORDERS: ClassVar = {
        2: ((0, 1), (1, 0)),
        4: ((0, 1, 2, 3), (0, 2, 3, 1), (1, 2, 3, 0), (2, 3, 0, 1)),
    }
    """Rank -> orders of axes in which NNAPI may store a constant; other ranks keep their order."""

    def __init__(self) -> None:
        self._held: dict[bytes, Tensor] = {}
        self._lengths: set[int] = set()
        self._of_cpu: dict[tuple[Any, ...], Tensor] = {}

    def for_nnapi(self, data: bytes) -> Tensor:
        """Return the bytes in the tensor that PyTorch's NNAPI runtime expects."""
        key = hashlib.sha256(data).digest()
        if key not in self._held:
            self._held[key] = weight(data)
            self._lengths.add(len(data))
        return self._held[key]

    def for_cpu(self, value: Tensor) -> Tensor:
        """Return the same tensor, as a view of NNAPI's copy if there is one."""
        place = (value.data_ptr(), value.dtype, value.shape, value.stride())
        if place not in self._of_cpu or not value.numel():
            self._of_cpu[place] = self._found(value)
        return self._of_cpu[place]

    def _found(self, value: Tensor) -> Tensor:
        n_bytes = value.numel() * value.element_size()
        if value.untyped_storage().nbytes() > n_bytes:
            value = value.clone()  # a file holds all of a tensor's memory
        if n_bytes not in self._lengths or n_bytes % 4:
            return value
        rank = value.dim()
        for order in self.ORDERS.get(rank, (tuple(range(rank)),)):
            lying = value.permute(order).contiguous()
            data = lying.reshape(-1).view(torch.uint8).numpy().data
            held_tensor = self._held.get(hashlib.sha256(data).digest())
            if held_tensor is not None:
                back = [order.index(dim) for dim in range(rank)]
                return held_tensor.view(value.dtype).view(lying.shape).permute(back)
        return value


def flexible_stock_module(
    graph: UnitGraph,
    template: Template,
    constants: Mapping[str, torch.Tensor],
    preference: Preference = Preference.SUSTAINED_SPEED,
    relaxed: bool = False,
    structure: Structure | None = None,
) -> torch.jit.ScriptModule:
    """Return the :func:`~nnapi_prof.bundle.torchscript.stock_module` for inputs of all sizes that
    the template supports; for others the module raises an exception that names the possible sizes.
    """
    region = template.region
    refuse_uncarried(region)
    if any(type_.dtype == "bool" for type_ in region.input_types):
        raise NnapiProfError(
            "stock PyTorch hands NNAPI no bools: with open sizes, let the model take a mask as"
            " integers, and compare them with 0"
        )

    class Shapes(torch.nn.Module):
        """Module that writes sizes; the wrapper sets the open ones in ``sizes``."""

        def __init__(self) -> None:
            super().__init__()
            self.sizes = [type_.example for type_ in template.opens]
            for index, words in enumerate(_by_expression(template).values()):
                self.register_buffer(f"words_{index}", torch.tensor(words))

    with quiet_torch():
        shapes = torch.jit.script(Shapes())
        shapes.define(_prepare_text(template))
    inner = runtime_module(region, shapes, preference, relaxed)

    class Wrapper(torch.nn.Module):
        """The module; ``seen`` has ranks and sizes of the inputs that the model is compiled for."""

        def __init__(self) -> None:
            super().__init__()
            self.mod = inner
            self.seen = [0]
            for index, value in enumerate(constants.values()):
                self.register_buffer(f"constant_{index}", value)

    structure = structure or Structure.flat(len(graph.inputs), len(graph.outputs))
    places = input_places(graph, structure)
    check = _check_text(
        [places[name] for name in graph.inputs],
        [graph.values[name].shape for name in graph.inputs],
        template.opens,
    )
    with quiet_torch():
        wrapper = torch.jit.script(Wrapper())
        wrapper.define(
            forward_text(graph, region, list(constants), check, structure, template.leading)
        )
    return wrapper


def _by_expression(template: Template) -> dict[Expression, list[int]]:
    words: dict[Expression, list[int]] = {}
    for word, size in template.patches.items():
        words.setdefault(size, []).append(word)
    return words


def _prepare_text(template: Template) -> str:
    """Return TorchScript that patches the serialized model and returns output templates."""
    names = [f"size_{index}" for index in range(len(template.opens))]
    lines = [f"{name} = self.sizes[{index}]" for index, name in enumerate(names)]
    for index, size in enumerate(_by_expression(template)):
        value = size.text(names)
        lines.append(f"ser_model.index_fill_(0, self.words_{index}, {value})")
    model = template.region.model
    dims_at = word_map(model).dims
    outputs = []
    for operand, type_ in zip(model.outputs, template.region.output_types, strict=True):
        words = range(dims_at[operand], dims_at[operand] + len(model.operands[operand].dims))
        dims = [
            template.patches[word].text(names) if word in template.patches else str(size)
            for word, size in zip(words, model.operands[operand].dims, strict=True)
        ]
        shape = f"[{', '.join(dims)}]"
        outputs.append(f"torch.empty({shape}, dtype=torch.{type_.device_dtype})")
        if type_.quant is not None and type_.dtype == "uint8":
            outputs[-1] = (
                f"torch._empty_affine_quantized({shape}, scale={type_.quant.scale!r}, "
                f"zero_point={type_.quant.zero_point}, dtype=torch.quint8)"
            )
    lines.append(f"return [{', '.join(outputs)}]")
    head = "def prepare(self, ser_model: Tensor, args: List[Tensor]) -> List[Tensor]:\n"
    return head + "".join(f"    {line}\n" for line in lines)


def _open_dims(open_size: OpenSize) -> list[tuple[int, int]]:
    return [(open_size.input, open_size.dim), *open_size.equal]


def _check_text(
    places: Sequence[str], shapes: Sequence[tuple[int, ...]], opens: Sequence[OpenSize]
) -> str:
    """Return TorchScript that checks inputs whose sizes changed and makes the model compile again.
    ``places`` are expressions of the inputs."""
    seen = " + ".join(f"[{place}.dim()] + {place}.size()" for place in places)
    lines = [f"seen = {seen}", "if seen != self.seen:"]
    for index, shape in enumerate(shapes):
        open_dims = {dim for open_size in opens for i, dim in _open_dims(open_size) if i == index}
        fixed = {dim: n for dim, n in enumerate(shape) if dim not in open_dims}
        place = places[index]
        wrong = [f"{place}.dim() != {len(shape)}"]
        wrong += [f"{place}.size({dim}) != {n}" for dim, n in fixed.items()]
        form = "x".join(str(fixed.get(dim, "?")) for dim in range(len(shape))) or "a scalar"
        lines += [
            f"    if {' or '.join(wrong)}:",
            f'        raise RuntimeError("input {index} has the shape " + str({place}.size())'
            f' + ", {form} is required")',
        ]
    for number, open_size in enumerate(opens):
        size = f"size_{number}"
        rest = open_size.step - open_size.example % open_size.step
        steps = f" in steps of {open_size.step}" if open_size.step > 1 else ""
        lines += [
            f"    {size} = {places[open_size.input]}.size({open_size.dim})",
            f"    if {size} < {open_size.least} or {size} > {open_size.most}"
            f" or ({size} + {rest}) % {open_size.step} != 0:",
            f'        raise RuntimeError("dimension {open_size.dim} of input {open_size.input} is "'
            f' + str({size}) + ", {open_size.least} to {open_size.most}{steps} are possible")',
        ]
        for index, dim in open_size.equal:
            also = f"{places[index]}.size({dim})"
            lines += [
                f"    if {also} != {size}:",
                f'        raise RuntimeError("dimension {dim} of input {index} is " + str({also})'
                f' + ", dimension {open_size.dim} of input {open_size.input} is " + str({size})'
                ' + ": equal ones are required")',
            ]
    sizes = ", ".join(f"size_{number}" for number in range(len(opens)))
    lines += [
        f"    self.mod.shape_compute_module.sizes = [{sizes}]",
        "    self.mod.comp = None",
        "    self.seen = seen",
    ]
    return "".join(f"    {line}\n" for line in lines)
