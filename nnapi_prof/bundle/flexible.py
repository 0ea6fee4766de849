"""A converted model with open sizes as a TorchScript module that stock PyTorch runs.

PyTorch's ``NnapiModule`` compiles its model at the first inputs, after a call of its ``prepare``
that may change the serialized model. Ours writes the sizes of those inputs, and all that follows
from them, into it, so that NNAPI sees fixed sizes. PyTorch's module would then give inputs of other
sizes to the same compilation, which NNAPI refuses; ours compiles anew whenever sizes change.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch

from nnapi_prof.bundle.torchscript import (
    forward_text,
    input_places,
    refuse_uncarried,
    runtime_module,
)
from nnapi_prof.convert.dynamic_shapes import OpenSize, Template
from nnapi_prof.convert.dynamic_shapes.template import Expression, word_map
from nnapi_prof.errors import NnapiProfError
from nnapi_prof.frontend.structure import Structure
from nnapi_prof.frontend.torch_logging import quiet_torch
from nnapi_prof.graph.plan import Preference
from nnapi_prof.graph.unit import UnitGraph


def flexible_stock_module(
    graph: UnitGraph,
    template: Template,
    constants: Mapping[str, torch.Tensor],
    preference: Preference = Preference.SUSTAINED_SPEED,
    relaxed: bool = False,
    structure: Structure | None = None,
) -> torch.jit.ScriptModule:
    """:func:`~nnapi_prof.bundle.torchscript.stock_module` for inputs of any sizes that the template
    holds for; others are refused by an exception that says which are possible."""
    region = template.region
    refuse_uncarried(region)
    if any(type_.dtype == "bool" for type_ in region.input_types):
        raise NnapiProfError(
            "stock PyTorch hands NNAPI no bools: with open sizes, let the model take a mask as"
            " integers, and compare them with 0"
        )

    class Shapes(torch.nn.Module):
        """``sizes`` are the open ones, written by the wrapper."""

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
        """``seen`` are ranks and sizes of the inputs that the model is compiled for."""

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
    for word, expression in template.patches.items():
        words.setdefault(expression, []).append(word)
    return words


def _prepare_text(template: Template) -> str:
    """TorchScript that patches the serialized model and gives output templates."""
    names = [f"size_{index}" for index in range(len(template.opens))]
    lines = [f"{name} = self.sizes[{index}]" for index, name in enumerate(names)]
    for index, expression in enumerate(_by_expression(template)):
        value = expression.text(names)
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
    """TorchScript that, at inputs of other sizes than before, checks them and has the model
    compiled anew. ``places`` are expressions of the inputs."""
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
            f' + ", {form} is wanted")',
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
                ' + ": equal ones are wanted")',
            ]
    sizes = ", ".join(f"size_{number}" for number in range(len(opens)))
    lines += [
        f"    self.mod.shape_compute_module.sizes = [{sizes}]",
        "    self.mod.comp = None",
        "    self.seen = seen",
    ]
    return "".join(f"    {line}\n" for line in lines)
