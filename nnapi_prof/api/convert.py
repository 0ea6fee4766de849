"""One call from a model, in memory or in a file, to a module for stock PyTorch."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.export import Dim, ExportedProgram
from torch.utils import _pytree as pytree

from nnapi_prof.api.model import load
from nnapi_prof.bundle.flexible import flexible_stock_module
from nnapi_prof.bundle.mixed import mixed_module
from nnapi_prof.bundle.parts import largest_parts
from nnapi_prof.bundle.torchscript import stock_module, why_uncarried
from nnapi_prof.convert.dynamic_shapes import flexible_region
from nnapi_prof.convert.float16 import to_float16
from nnapi_prof.convert.lower import convert_region
from nnapi_prof.convert.region import Region
from nnapi_prof.errors import (
    FrontendError,
    InputSpecError,
    KeepsState,
    NnapiProfError,
    UnsupportedOp,
)
from nnapi_prof.frontend import prepare
from nnapi_prof.frontend.export import eager
from nnapi_prof.frontend.flexible import FlexibleModel
from nnapi_prof.frontend.inputs import InputSpec, example_tensors, parse_input_specs
from nnapi_prof.frontend.loader import ModelKind, eval_mode, model_kind, read_exported, read_nested
from nnapi_prof.frontend.structure import flat_inputs, structure_of
from nnapi_prof.frontend.torch_logging import essential_line, quiet_torch, run_once
from nnapi_prof.graph.eager import constant_outputs
from nnapi_prof.graph.plan import Preference
from nnapi_prof.nnapi.codes import FeatureLevel

LOGGER = logging.getLogger(__name__)


def convert_model(
    model: str | Path | torch.nn.Module | ExportedProgram,
    inputs: Any,
    *,
    level: int = 30,
    preference: str = "sustained",
    relaxed: bool = False,
    float16: bool = False,
    whole: bool = False,
) -> torch.jit.ScriptModule:
    """``nnapi-prof convert`` as a function: a module that stock PyTorch runs on NNAPI.

    ``model`` is TorchScript, an ExportedProgram, the path of either's file, or another module,
    which is exported. ``inputs`` is an example of its arguments: a tensor, or a sequence of what
    the call takes, nested as there. In the place of a tensor a text may stand that says its shape,
    as ``--input`` does: ``"1x3x?x?"``. Sizes of ``?`` and 0 are left open, and taken from the
    inputs whenever these change. Images that have the attribute ``nnapi_nhwc`` lie channels last
    on NNAPI's side, and so do, if any has it, the images that the module returns.

    Arguments that are numbers, and state, become what :func:`nnapi_prof.load` makes of them.

    The module takes and returns what ``model`` does; ``torch.jit.save`` saves it. What NNAPI lacks
    at ``level`` (27 to 31, 1000006 to 1000008) stays on the CPU in it; with ``whole`` that is
    refused, as it is with open sizes. ``preference`` is low_power, fast or sustained.

    Raises NnapiProfError, in a sentence.
    """
    chosen = next((p for p in Preference if p.short == preference), None)
    if chosen is None:
        names_of_preferences = ", ".join(p.short for p in Preference)
        raise InputSpecError(
            f"the preference is {preference!r}: one of {names_of_preferences} is wanted"
        )
    if level not in list(FeatureLevel):
        levels = ", ".join(str(int(names_of_preferences)) for names_of_preferences in FeatureLevel)
        raise InputSpecError(f"the level is {level}: one of {levels} is wanted")
    options = _Options(level, chosen, relaxed, float16, whole)
    is_ready = isinstance(model, str | Path | torch.jit.ScriptModule)
    if not is_ready or all(isinstance(v, Tensor | str) for v in pytree.tree_leaves(inputs)):
        try:
            return _converted(model, inputs, options)
        except KeepsState as kept:
            LOGGER.debug("%s", kept)
    of_tensors = load(model, inputs)
    return _converted(of_tensors.path, of_tensors.inputs, options)


class _Options(NamedTuple):
    """How a model is converted."""

    level: int
    preference: Preference
    relaxed: bool
    float16: bool
    whole: bool


def _converted(
    model: str | Path | torch.nn.Module | ExportedProgram, inputs: Any, options: _Options
) -> torch.jit.ScriptModule:
    """:func:`convert_model` of a model of tensors alone. Raises KeepsState for others."""
    level, chosen, relaxed, float16, whole = options
    args = (inputs,) if isinstance(inputs, Tensor | str) else tuple(inputs)
    leaves = leaves_of((args, {}))
    name = Path(model).name if isinstance(model, str | Path) else "model"
    loaded = _read(Path(model)) if isinstance(model, str | Path) else model
    mode = eval_mode(loaded) if isinstance(loaded, torch.nn.Module) else nullcontext()
    with quiet_torch(), mode:
        is_ready = isinstance(loaded, torch.jit.ScriptModule | ExportedProgram)
        sizes = SIZES if is_ready else SIZES[1:]  # an export takes a 1 for what must be 1
        specs, examples = find_examples(leaves, runner(loaded, (args, {}), name), sizes)
        is_open = any(spec.open_dims for spec in specs)
        if is_open and float16:
            raise InputSpecError("float16 is for fixed sizes: state them instead of leaving them")
        if not isinstance(loaded, torch.jit.ScriptModule | ExportedProgram):
            loaded = exported_module(loaded, (args, {}), specs, examples, name)
        flat = flat_inputs(loaded, name) if isinstance(loaded, torch.jit.ScriptModule) else loaded
        keep = not whole and not is_open
        last = [i for i, leaf in enumerate(leaves) if getattr(leaf, "nnapi_nhwc", False)]
        program = prepare(flat, examples, name, keep, last)
        if not program.units.units:
            raise NnapiProfError(
                f"{name} computes nothing: its outputs are constants or its inputs as they are, "
                "and NNAPI has nothing to run"
            )
        structure = structure_of(loaded, examples, name)
        rest = (constant_outputs(program), chosen, relaxed, structure)
        if is_open:
            template = flexible_region(FlexibleModel(flat, specs, name, last), level)
            return flexible_stock_module(program.units, template, *rest)
        region: Region | None = None
        try:
            every = tuple(range(len(program.units.units)))
            region = convert_region(program, every, level, for_stock=True)
        except UnsupportedOp:
            if whole:
                raise
        if region is not None and (whole or not why_uncarried(region)):
            return stock_module(program.units, to_float16(region) if float16 else region, *rest)
        parts = largest_parts(program, level, chosen)
        if not parts.regions:
            reasons = "; ".join(dict.fromkeys(parts.cpu_reasons.values()))
            raise NnapiProfError(f"NNAPI can run nothing of {name} in stock PyTorch: {reasons}")
        parts = parts.in_float16() if float16 else parts
        return mixed_module(program, parts, rest[0], relaxed, structure)


def _read(path: Path) -> torch.jit.ScriptModule | ExportedProgram:
    """The model of a file, its inputs nested as they are."""
    if model_kind(path) is ModelKind.EXPORTED:
        return read_exported(path)
    return read_nested(path)


# Inputs for models in memory: tensors, texts that say their shapes, sizes left open.


SIZES = ((1, 224), (2, 32), (4, 7), (16, 16))
"""Tried for the sizes of 0 that are left open: that of a first dimension, and of others."""


def runner(
    model: torch.nn.Module | ExportedProgram, call: Call, name: str
) -> Callable[[Sequence[Tensor]], object]:
    """Runs a model on flat inputs."""
    if isinstance(model, ExportedProgram):
        exported = eager(model)
        return lambda tensors: exported(*tensors)
    if isinstance(model, torch.jit.ScriptModule):
        flat = flat_inputs(model, name)
        return lambda tensors: flat(*tensors)

    def run(tensors: Sequence[Tensor]) -> object:
        args, by_name = with_tensors(call, tensors)
        return model(*args, **by_name)

    return run


Call = tuple[tuple[Any, ...], dict[str, Any]]
"""Arguments by position and by name; texts that say shapes may stand for tensors."""


def leaves_of(call: Call) -> list[Tensor | str]:
    """The tensors of a call, and the texts that stand for some."""
    return [leaf for leaf in pytree.tree_leaves(call) if isinstance(leaf, Tensor | str)]


def with_tensors(call: Call, tensors: Sequence[Any]) -> Call:
    """The call with these in the places of tensors and texts."""
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
    """What each input is, and tensors on which the model runs.

    Sizes of 0 become the first of ``sizes`` at which the model runs and gives something.
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
    """A module as an ExportedProgram, with the sizes open that are to be."""
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
            f"{name} cannot be exported: {essential_line(error)}: give torch.jit.trace or"
            " torch.jit.script of it"
        ) from error
