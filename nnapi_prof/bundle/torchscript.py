"""A converted model as a TorchScript module that stock PyTorch runs.

The module holds nothing of ours: PyTorch's own ``NnapiModule`` around
``torch.classes._nnapi.Compilation``, which an app's PyTorch Mobile has. PyTorch cannot name an
accelerator (it calls ``Compilation_create``), so such a module always runs where NNAPI's own
runtime puts it; its costs are those of the target ``auto``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch.backends._nnapi.prepare import NnapiModule

from nnapi_prof.convert.converted import ConvertedRegion
from nnapi_prof.convert.serialize import parse
from nnapi_prof.errors import NnapiProfError
from nnapi_prof.frontend.quiet import quiet_torch
from nnapi_prof.frontend.structure import (
    Leaf,
    Structure,
    annotation,
    checks,
    expression,
    places,
)
from nnapi_prof.graph.plan import Preference
from nnapi_prof.graph.types import DimOrder, Quantisation, TensorType
from nnapi_prof.graph.unit import UnitGraph


class _FixedShapes(torch.nn.Module):
    """Gives the runtime its output templates: all shapes are known, so ``prepare`` is constant."""

    def __init__(self, templates: list[torch.Tensor]) -> None:
        super().__init__()
        self.templates = templates

    @torch.jit.export
    def prepare(self, ser_model: torch.Tensor, args: list[torch.Tensor]) -> list[torch.Tensor]:
        return self.templates

    def forward(self, args: list[torch.Tensor]) -> list[torch.Tensor]:
        return args


def stock_module(
    graph: UnitGraph,
    region: ConvertedRegion,
    constants: Mapping[str, torch.Tensor],
    preference: Preference = Preference.SUSTAINED_SPEED,
    relaxed: bool = False,
    structure: Structure | None = None,
) -> torch.jit.ScriptModule:
    """Wraps ``region``, which is all units of ``graph``, for stock PyTorch.

    The module takes the model's inputs as logical (NCHW) float tensors, in order, those included
    that nothing reads, and returns the model's outputs, both nested as ``structure`` says: without,
    each input is an argument, and outputs are one tensor or a tuple of several. An output may stand
    there twice, be an input as it is, or a constant; ``constants`` has those by name. Running it
    needs a ``libneuralnetworks.so``: the phone's, or on a host our emulator's loaded first with
    ``ctypes.CDLL``. Quantised inputs may come as quint8 or as their integers, quantised outputs are
    quint8. NnapiProfError where a value that NNAPI takes or gives is neither float32 nor quantised
    uint8, which is all that PyTorch's runtime carries here, where the model leaves out optional
    arguments, or where filters have a scale for each channel.
    """
    refuse_uncarried(region)
    templates = list(map(_template, region.output_types))
    inner = runtime_module(region, _FixedShapes(templates), preference, relaxed)

    # ``define`` adds to the class that TorchScript makes of this one: each module needs its own.
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


def refuse_uncarried(region: ConvertedRegion) -> None:
    """Raises NnapiProfError for what PyTorch's runtime does not carry."""
    for tensor_type in (*region.input_types, *region.output_types):
        quantised = tensor_type.dtype == "uint8" and tensor_type.quant is not None
        if tensor_type.dtype != "float32" and not quantised:
            raise NnapiProfError(
                "a stock PyTorch module carries float32 and quantised uint8 inputs and outputs, "
                f"found {tensor_type}"
            )
    model = parse(region.serialized)
    if any(operand.channels for operand in model.operands):
        raise NnapiProfError(
            "filters of the model have a scale for each channel, which the format of stock "
            "PyTorch's runtime cannot say: quantise with one scale for each tensor, or run it by "
            "the agent"
        )
    if any(not value.source for value in model.values):
        raise NnapiProfError(
            "operations of the model leave out optional arguments (those of an LSTM or RNN), which "
            "stock PyTorch's runtime cannot: run it by the agent"
        )


def runtime_module(
    region: ConvertedRegion, shapes: torch.nn.Module, preference: Preference, relaxed: bool
) -> NnapiModule:
    """PyTorch's module for a region; ``shapes.prepare`` gives its output templates."""
    serialized = torch.frombuffer(bytearray(region.serialized), dtype=torch.int32)
    # PyTorch takes float32 tensors for the bytes; a constant of bools need not fill its last one
    weights = [
        torch.frombuffer(bytearray(data + bytes(-len(data) % 4)), dtype=torch.float32)
        for data in region.buffers
    ]
    return NnapiModule(
        shapes,
        serialized,
        weights,
        [_memory_format(t) for t in region.input_types],
        [_memory_format(t) for t in region.output_types],
        preference.value,
        relaxed,
    )


def input_places(graph: UnitGraph, structure: Structure) -> dict[str, str]:
    """How TorchScript reads each input of the graph from the arguments of ``forward``."""
    return {
        graph.inputs[leaf.index]: place
        for name, tree in structure.inputs.items()
        for place, leaf in places(name, tree)
        if isinstance(leaf, Leaf)
    }


def forward_text(
    graph: UnitGraph,
    region: ConvertedRegion,
    constants: Sequence[str],
    first: str = "",
    structure: Structure | None = None,
) -> str:
    """TorchScript of the wrapper's ``forward``, its arguments ``arg_0``, ... unless ``structure``
    says others; ``first`` has the lines that come before the rest, indented.

    NnapiProfError where TorchScript has no type for the structure.
    """
    structure = structure or Structure.flat(len(graph.inputs), len(graph.outputs))
    given = input_places(graph, structure)
    read = [
        _carried(given[name], known.quant)
        for name, known in zip(region.inputs, region.input_types, strict=True)
    ]
    said = {
        **given,
        **{name: f"self.constant_{index}" for index, name in enumerate(constants)},
        **{name: f"outputs[{index}]" for index, name in enumerate(region.outputs)},
    }
    annotation(structure.outputs)  # refuses what TorchScript cannot say
    arguments = [f"{name}: {annotation(tree)}" for name, tree in structure.inputs.items()]
    asserted = [
        f"    {line}\n" for name, tree in structure.inputs.items() for line in checks(name, tree)
    ]
    return (
        f"def forward(self, {', '.join(arguments)}):\n"
        f"{''.join(asserted)}{first}"
        f"    outputs = self.mod([{', '.join(read)}])\n"
        f"    return {expression(structure.outputs, [said[name] for name in graph.outputs])}\n"
    )


def _template(known: TensorType) -> torch.Tensor:
    """A tensor without values of the shape and type that an output has in memory."""
    if known.quant is None:
        return torch.empty(known.memory_shape)
    with quiet_torch():
        return torch._empty_affine_quantized(
            known.memory_shape,
            scale=known.quant.scale,
            zero_point=known.quant.zero_point,
            dtype=torch.quint8,
        )


def _carried(place: str, quant: Quantisation | None) -> str:
    """TorchScript of an input as PyTorch's runtime takes it: integers become quint8."""
    if quant is None:
        return place
    made = f"torch._make_per_tensor_quantized_tensor({place}, {quant.scale!r}, {quant.zero_point})"
    return f"{place} if {place}.is_quantized else {made}"


def _memory_format(tensor_type: TensorType) -> int:
    """PyTorch's NNAPI code of a dim order: 0 as the shape reads, 1 channels last."""
    return 1 if tensor_type.dim_order is DimOrder.CHANNELS_LAST else 0
