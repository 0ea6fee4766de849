"""Run models in memory on examples: tensors, texts that state shapes, sizes left open."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.export import Dim, ExportedProgram
from torch.utils import _pytree as pytree

from nnapi_prof.errors import FrontendError, InputSpecError
from nnapi_prof.frontend.export import eager, restored_buffers
from nnapi_prof.frontend.inputs import InputSpec, example_tensors, parse_input_specs
from nnapi_prof.frontend.structure import flat_inputs
from nnapi_prof.frontend.torch_logging import essential_line, quiet_torch, run_once

SIZES = ((1, 224), (2, 32), (4, 7), (16, 16))
"""Sizes tried for open dimensions (those of size 0): for a first dimension, and for others."""


def runner(
    model: torch.nn.Module | ExportedProgram, call: Call, name: str
) -> Callable[[Sequence[Tensor]], object]:
    """Returns a function that runs a model on flat inputs."""
    if isinstance(model, ExportedProgram):
        exported = eager(model)
        return lambda tensors: exported(*tensors)
    if isinstance(model, torch.jit.ScriptModule):
        flat = flat_inputs(model, name)
        return lambda tensors: flat(*tensors)

    def run(tensors: Sequence[Tensor]) -> object:
        args, by_name = with_tensors(call, tensors)
        with restored_buffers(model):
            return model(*args, **by_name)

    return run


Call = tuple[tuple[Any, ...], dict[str, Any]]
"""Arguments by position and by name; texts that state shapes may stand for tensors."""


def leaves_of(call: Call) -> list[Tensor | str]:
    """Returns the tensors of a call, and the texts that stand for tensors."""
    return [leaf for leaf in pytree.tree_leaves(call) if isinstance(leaf, Tensor | str)]


def with_tensors(call: Call, tensors: Sequence[Any]) -> Call:
    """Returns the call with ``tensors`` in the places of its tensors and texts."""
    leaves, form = pytree.tree_flatten(call)
    values = iter(tensors)
    filled = [next(values) if isinstance(leaf, Tensor | str) else leaf for leaf in leaves]
    nested: Call = pytree.tree_unflatten(filled, form)
    return nested


def find_examples(
    leaves: Sequence[Tensor | str],
    run: Callable[[Sequence[Tensor]], object],
    sizes: Sequence[tuple[int, int]],
) -> tuple[list[InputSpec], tuple[Tensor, ...]]:
    """Finds the shape and type of each input, and tensors on which the model runs.

    Sizes of 0 become the first of ``sizes`` at which the model runs and returns no empty tensor.
    """
    texts = parse_input_specs([leaf for leaf in leaves if isinstance(leaf, str)])
    failed: Exception | None = None
    for first, other in sizes:
        stated = iter(texts)
        specs = [
            next(stated) if isinstance(leaf, str) else _spec(leaf, first, other) for leaf in leaves
        ]
        examples = tuple(
            leaf.detach() if isinstance(leaf, Tensor) and not spec.open_dims else random
            for leaf, spec, random in zip(leaves, specs, example_tensors(specs), strict=True)
        )
        try:
            with run_once():
                returned = run([example.clone() for example in examples])
        except Exception as error:
            failed = failed or error
        else:
            results = [value for value in pytree.tree_leaves(returned) if isinstance(value, Tensor)]
            if all(value.numel() for value in results):
                return specs, examples
        if not any(isinstance(leaf, Tensor) and 0 in leaf.shape for leaf in leaves):
            break
    if failed is None:
        return specs, examples
    shapes = ", ".join(map(str, specs))
    raise InputSpecError(
        f"the model does not run on the inputs {shapes}: {essential_line(failed)}"
    ) from failed


def _spec(example: Tensor, first: int, other: int) -> InputSpec:
    spec = InputSpec.of(example)
    open_dims = tuple(dim for dim, size in enumerate(spec.shape) if size == 0)
    shape = tuple(size or (other if dim else first) for dim, size in enumerate(spec.shape))
    return InputSpec(shape, spec.dtype, open_dims, quant=spec.quant)


def exported_module(
    model: torch.nn.Module,
    call: Call,
    specs: Sequence[InputSpec],
    examples: Sequence[Tensor],
    name: str,
) -> ExportedProgram:
    """Exports a module, leaving open the sizes that ``specs`` leave open."""
    open_dims = [dict.fromkeys(spec.open_dims, Dim.AUTO) for spec in specs]
    args, by_name = with_tensors(call, examples)
    dynamic: Any = None
    if any(open_dims):
        opened, opened_by_name = with_tensors(call, open_dims)
        dynamic = opened or opened_by_name
    try:
        with quiet_torch():
            return torch.export.export(model, args, by_name, dynamic_shapes=dynamic, strict=False)
    except Exception as error:
        raise FrontendError(
            f"{name} cannot be exported: {essential_line(error)}",
            "give torch.jit.trace or torch.jit.script of it",
        ) from error
