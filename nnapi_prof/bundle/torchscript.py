"""Wrap a converted model in a TorchScript module that stock PyTorch runs.

The module does not need nnapi-prof: it is PyTorch's own ``NnapiModule`` around
``torch.classes._nnapi.Compilation``, which PyTorch Mobile in an app provides. PyTorch cannot name
an accelerator (it calls ``Compilation_create``), so NNAPI's runtime always chooses where the module
runs; its costs are those of the target ``auto``.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import replace

import torch
from torch.backends._nnapi.prepare import NnapiModule

from nnapi_prof.convert import ConstantValue, NnapiModel, Operand, OperandId, Operation
from nnapi_prof.convert.region import Region
from nnapi_prof.errors import NnapiProfError
from nnapi_prof.frontend.structure import Structure
from nnapi_prof.frontend.torch_logging import quiet_torch
from nnapi_prof.frontend.trees import Leaf, annotation, checks, expression, places
from nnapi_prof.graph import MAX_RANK, DimOrder, TensorType
from nnapi_prof.graph.node import torch_dtype
from nnapi_prof.graph.plan import Preference
from nnapi_prof.graph.unit import UnitGraph
from nnapi_prof.nnapi.codes import OperandCode, OperationCode

_TAKEN = ("float32", "int32", "int64", "bool")
_GIVEN = (*_TAKEN, "float16")


class _FixedShapes(torch.nn.Module):
    """Module that gives the runtime its output templates, whose shapes are known.

    Each template is one expanded element, because a file contains a tensor's whole storage.
    """

    def __init__(self, templates: list[torch.Tensor]) -> None:
        super().__init__()
        self.templates = templates

    # The names of locals are part of the written files, which should not change.
    @torch.jit.export
    def prepare(self, ser_model: torch.Tensor, args: list[torch.Tensor]) -> list[torch.Tensor]:
        form = torch.contiguous_format
        return [torch.empty_like(given, memory_format=form) for given in self.templates]

    def forward(self, args: list[torch.Tensor]) -> list[torch.Tensor]:
        return args


def stock_module(
    graph: UnitGraph,
    region: Region,
    constants: Mapping[str, torch.Tensor],
    preference: Preference = Preference.SUSTAINED_SPEED,
    relaxed: bool = False,
    structure: Structure | None = None,
) -> torch.jit.ScriptModule:
    """Wrap ``region``, which contains all units of ``graph``, for stock PyTorch.

    The module takes the model's inputs as logical (NCHW) tensors, in order, including unused ones,
    and returns the model's outputs, both nested according to ``structure``. Without it, each input
    is an argument, and the outputs are one tensor or a tuple of several. An output may occur twice,
    be an unchanged input, or a constant; ``constants`` has those by name. Running the module needs
    a ``libneuralnetworks.so``: the phone's, or on a host the emulator's, loaded first with
    ``ctypes.CDLL``. Quantised inputs may be quint8 or integers; outputs quantised to uint8 are
    quint8. Raises NnapiProfError if :func:`why_uncarried` returns a reason.
    """
    refuse_uncarried(region)
    inner = fixed_module(region, preference, relaxed)

    # ``define`` changes the class that TorchScript makes of this one: each module needs its own.
    class Wrapper(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.mod = inner
            for index, value in enumerate(constants.values()):
                self.register_buffer(f"constant_{index}", value)

    with quiet_torch():
        wrapper = torch.jit.script(Wrapper())
        wrapper.define(forward_text(graph, region, list(constants), structure=structure))
    return wrapper


def refuse_uncarried(region: Region) -> None:
    """Raise NnapiProfError if PyTorch's runtime does not support a region."""
    reason = why_uncarried(region)
    if reason is not None:
        raise NnapiProfError(reason)


def why_uncarried(region: Region) -> str | None:
    """Return why PyTorch's runtime does not support a region, in a sentence; None if it does."""
    input_type = next((t for t in region.input_types if not takes(t)), None)
    output_type = next((t for t in region.output_types if not gives(t)), None)
    if input_type is not None:
        return (
            "a stock PyTorch module carries float32, int32, int64, bool and quantised uint8 "
            f"inputs to NNAPI, found {input_type}"
        )
    if output_type is not None:
        return f"a stock PyTorch module carries no {output_type} from NNAPI"
    return why_not_said(region)


def why_not_said(region: Region) -> str | None:
    """Return why stock PyTorch cannot read a region, apart from the types of its inputs and
    outputs; None if it can."""
    model = region.model
    if any(operand.channels for operand in model.operands):
        return (
            "filters of the model have a scale for each channel, which the format of stock "
            "PyTorch's runtime cannot say: quantise with one scale for each tensor, or run it by "
            "the agent"
        )
    if any(not value.source for value in model.values):
        return (
            "operations of the model leave out optional arguments (those of an LSTM or RNN), which "
            "stock PyTorch's runtime cannot: run it by the agent"
        )
    return None


def takes(type_: TensorType) -> bool:
    """Return whether PyTorch's runtime can pass such a value to NNAPI: int64 as int32, checked, and
    bools as int32, too."""
    if type_.quant is not None:
        return type_.dtype == "uint8"
    return type_.dtype in _TAKEN


def gives(type_: TensorType) -> bool:
    """Return whether PyTorch's runtime can return such a value from NNAPI."""
    return type_.dtype in _GIVEN if type_.quant is None else type_.dtype in ("uint8", "int8")


def runtime_module(
    region: Region,
    shapes: torch.nn.Module,
    preference: Preference,
    relaxed: bool,
    weights: Sequence[torch.Tensor] | None = None,
) -> NnapiModule:
    """Return PyTorch's module for a region; ``shapes.prepare`` returns its output templates.

    ``weights`` holds the region's buffers (:func:`weight`) and defaults to new tensors.
    """
    serialized = torch.frombuffer(bytearray(region.serialized), dtype=torch.int32)
    return NnapiModule(
        shapes,
        serialized,
        [weight(data) for data in region.buffers] if weights is None else list(weights),
        [_memory_format(t) for t in region.input_types],
        [_memory_format(t) for t in region.output_types],
        preference.value,
        relaxed,
    )


def fixed_module(
    region: Region,
    preference: Preference,
    relaxed: bool,
    weights: Sequence[torch.Tensor] | None = None,
) -> NnapiModule:
    """Return the :func:`runtime_module` of a region without open sizes."""
    region = bools_as_integers(region)
    shapes = _FixedShapes(list(map(_template, region.output_types)))
    return runtime_module(region, shapes, preference, relaxed, weights)


def weight(data: bytes) -> torch.Tensor:
    """Return the bytes of a buffer in a float32 tensor, as PyTorch's runtime expects.

    The last number is padded with zeros, for constants of bools.
    """
    return torch.frombuffer(bytearray(data + bytes(-len(data) % 4)), dtype=torch.float32)


def input_places(graph: UnitGraph, structure: Structure) -> dict[str, str]:
    """Return the TorchScript expression of each graph input in the arguments of ``forward``."""
    return {
        graph.inputs[leaf.index]: place
        for name, tree in structure.inputs.items()
        for place, leaf in places(name, tree)
        if isinstance(leaf, Leaf)
    }


def forward_text(
    graph: UnitGraph,
    region: Region,
    constants: Sequence[str],
    first: str = "",
    structure: Structure | None = None,
    leading: Mapping[str, int] | None = None,
) -> str:
    """Return TorchScript of the wrapper's ``forward``. Its arguments are ``arg_0``, ... unless
    ``structure`` names others; ``first`` has indented lines to put before the rest, and ``leading``
    is that of :func:`call_lines`.
    """
    structure = structure or Structure.flat(len(graph.inputs), len(graph.outputs))
    inputs = input_places(graph, structure)
    lines, outputs = call_lines("mod", region, inputs, "outputs", leading)
    expressions = {
        **inputs,
        **{name: f"self.constant_{index}" for index, name in enumerate(constants)},
        **outputs,
    }
    returned = expression(structure.outputs, [expressions[name] for name in graph.outputs])
    call_text = "".join(f"    {line}\n" for line in lines)
    return f"{head_text(structure)}{first}{call_text}    return {returned}\n"


def head_text(structure: Structure) -> str:
    """Return TorchScript of the first lines of ``forward``: its arguments and their checks."""
    arguments = [f"{name}: {annotation(tree)}" for name, tree in structure.inputs.items()]
    asserted = [
        f"    {line}\n" for name, tree in structure.inputs.items() for line in checks(name, tree)
    ]
    return f"def forward(self, {', '.join(arguments)}):\n{''.join(asserted)}"


def call_lines(
    module: str,
    region: Region,
    expressions: Mapping[str, str],
    variable: str,
    leading: Mapping[str, int] | None = None,
) -> tuple[list[str], dict[str, str]]:
    """Return TorchScript that calls a region's member ``module``, and its outputs' expressions.

    ``expressions`` has those of the region's inputs, ``leading`` is that of a Template.
    """
    leading = leading or {}
    lines, arguments = [], []
    for index, (name, type_) in enumerate(zip(region.inputs, region.input_types, strict=True)):
        place = expressions[name]
        if type_.dtype == "int64":
            narrow = f"{variable}_{index}"
            lines += [
                f"{narrow} = {place}.to(torch.int32)",
                f"if not torch.equal({narrow}.to(torch.int64), {place}):",
                f'    raise RuntimeError("{name} has integers beyond 32 bits, which NNAPI lacks")',
            ]
            place = narrow
        if type_.dtype == "bool":
            place = f"{place}.to(torch.int32)"
        place = carried(place, type_)
        if not type_.shape:
            place = f"({place}).reshape([1])"
        elif len(type_.shape) > MAX_RANK:
            place = f"({place}).flatten(0, {len(type_.shape) - MAX_RANK})"
        arguments.append(place)
    lines.append(f"{variable} = self.{module}([{', '.join(arguments)}])")
    outputs = {}
    for index, (name, type_) in enumerate(zip(region.outputs, region.output_types, strict=True)):
        outputs[name] = f"{variable}[{index}]"
        if not type_.shape:
            outputs[name] += ".reshape([])"
        elif len(type_.shape) > MAX_RANK:
            first = list(type_.shape[: len(type_.shape) - MAX_RANK + 1])
            if name in leading:
                first[leading[name]] = -1
            outputs[name] += f".reshape({first} + {outputs[name]}.size()[1:])"
        if type_.dtype == "int64":
            outputs[name] += ".to(torch.int64)"
    return lines, outputs


def _template(type_: TensorType) -> torch.Tensor:
    """Return a tensor of an output's shape and type in memory that stores a single element."""
    one = [1] * len(type_.memory_shape)
    if type_.quant is None or type_.dtype != "uint8":
        element = torch.zeros(one, dtype=torch_dtype(type_.device_dtype))
        return element.expand(type_.memory_shape)
    with quiet_torch():
        quantised = torch.quantize_per_tensor(
            torch.zeros(one), type_.quant.scale, type_.quant.zero_point, torch.quint8
        )
        return quantised.expand(type_.memory_shape)


def carried(place: str, type_: TensorType) -> str:
    """Return TorchScript of an input for PyTorch's runtime: quantised integers become quint8, and
    inputs with other scales or zero points than the model's are quantised again."""
    if type_.quant is None:
        return place
    scale, zero_point = type_.quant.scale, type_.quant.zero_point
    quint8 = f"torch._make_per_tensor_quantized_tensor({place}, {scale!r}, {zero_point})"
    fits = f"{place}.q_scale() == {scale!r} and {place}.q_zero_point() == {zero_point}"
    anew = f"torch.quantize_per_tensor({place}.dequantize(), {scale!r}, {zero_point}, torch.quint8)"
    return f"({place} if {fits} else {anew}) if {place}.is_quantized else {quint8}"


def _memory_format(tensor_type: TensorType) -> int:
    """Return PyTorch's NNAPI code of a dim order: 0 contiguous, 1 channels last."""
    return 1 if tensor_type.dim_order is DimOrder.CHANNELS_LAST else 0


# Bool inputs of a region become int32, because PyTorch's runtime cannot pass bools to NNAPI.


def bools_as_integers(region: Region) -> Region:
    """Return the region with int32 instead of bool inputs; the same region if it has none.

    Given:
        %y = SELECT(%m:bool input, ...)
    Result:
        %m:bool = NOT_EQUAL(%m':int32 input, 0), %y = SELECT(%m, ...)

    NOT_EQUAL came with level 3, like operations on bools. ``input_types`` keeps bool, the type of
    the graph's values.
    """
    model = region.model
    entering = [
        index for index in model.inputs if model.operands[index].type is OperandCode.TENSOR_BOOL8
    ]
    if not entering:
        return region
    zero = OperandId(len(model.operands))
    integers = {index: OperandId(zero + 1 + i) for i, index in enumerate(entering)}
    new_inputs = [replace(model.operands[i], type=OperandCode.TENSOR_INT32) for i in entering]
    compared = [
        Operation(OperationCode.NOT_EQUAL, (integers[index], zero), (index,)) for index in entering
    ]
    changed = NnapiModel(
        operands=(*model.operands, Operand(OperandCode.TENSOR_INT32, (1,)), *new_inputs),
        values=(*model.values, ConstantValue(zero, struct.pack("<i", 0))),
        operations=(*compared, *model.operations),
        inputs=tuple(integers.get(index, index) for index in model.inputs),
        outputs=model.outputs,
    )
    return replace(region, model=changed)
