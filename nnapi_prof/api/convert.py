"""One call from a model, in memory or in a file, to a module for stock PyTorch."""

from __future__ import annotations

import logging
from contextlib import nullcontext
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.export import ExportedProgram
from torch.utils import _pytree as pytree

from nnapi_prof.api.examples import SIZES, exported_module, find_examples, leaves_of, runner
from nnapi_prof.api.model import load
from nnapi_prof.bundle.flexible import flexible_stock_module
from nnapi_prof.bundle.mixed import mixed_module
from nnapi_prof.bundle.parts import Parts, largest_parts
from nnapi_prof.bundle.torchscript import stock_module, why_uncarried
from nnapi_prof.convert.dynamic_shapes import Template, flexible_region
from nnapi_prof.convert.float16 import to_float16
from nnapi_prof.convert.lower import convert_region
from nnapi_prof.convert.region import Region
from nnapi_prof.errors import InputSpecError, KeepsState, NnapiProfError, UnsupportedOp
from nnapi_prof.frontend import prepare
from nnapi_prof.frontend.flexible import FlexibleModel
from nnapi_prof.frontend.loader import ModelKind, eval_mode, model_kind, read_exported, read_nested
from nnapi_prof.frontend.structure import Structure, flat_inputs, structure_of
from nnapi_prof.frontend.torch_logging import quiet_torch
from nnapi_prof.graph.eager import constant_outputs
from nnapi_prof.graph.plan import Preference
from nnapi_prof.graph.program import Program
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
            return _convert_tensors_only(model, inputs, options)
        except KeepsState as kept:
            LOGGER.debug("%s", kept)
    of_tensors = load(model, inputs)
    return _convert_tensors_only(of_tensors.path, of_tensors.inputs, options)


class _Options(NamedTuple):
    """How a model is converted."""

    level: int
    preference: Preference
    relaxed: bool
    float16: bool
    whole: bool


def _convert_tensors_only(
    model: str | Path | torch.nn.Module | ExportedProgram, inputs: Any, options: _Options
) -> torch.jit.ScriptModule:
    """:func:`convert_model` of a model of tensors alone. Raises KeepsState for others."""
    level, chosen, relaxed, float16, whole = options
    args = (inputs,) if isinstance(inputs, Tensor | str) else tuple(inputs)
    leaves = leaves_of((args, {}))
    name = Path(model).name if isinstance(model, str | Path) else "model"
    loaded = _read_model(Path(model)) if isinstance(model, str | Path) else model
    mode = eval_mode(loaded) if isinstance(loaded, torch.nn.Module) else nullcontext()
    with quiet_torch(), mode:
        is_ready = isinstance(loaded, torch.jit.ScriptModule | ExportedProgram)
        sizes = SIZES if is_ready else SIZES[1:]  # an export takes a 1 for what must be 1
        specs, examples = find_examples(leaves, runner(loaded, (args, {}), name), sizes)
        is_open = any(spec.open_dims for spec in specs)
        if is_open and float16:
            raise InputSpecError("float16 is for fixed sizes", "state them instead of leaving them")
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
        rest = (chosen, relaxed, structure_of(loaded, examples, name))
        if is_open:
            template = flexible_region(FlexibleModel(flat, specs, name, last), level)
            return module_of(program, template, *rest)
        region: Region | None = None
        try:
            every = tuple(range(len(program.units.units)))
            region = convert_region(program, every, level, for_stock=True)
        except UnsupportedOp:
            if whole:
                raise
        if region is not None and (whole or not why_uncarried(region)):
            return module_of(program, to_float16(region) if float16 else region, *rest)
        parts = largest_parts(program, level, chosen)
        if not parts.regions:
            reasons = "; ".join(dict.fromkeys(map(str, parts.cpu_reasons.values())))
            raise NnapiProfError(f"NNAPI can run nothing of {name} in stock PyTorch: {reasons}")
        return module_of(program, parts.in_float16() if float16 else parts, *rest)


def module_of(
    program: Program,
    source: Region | Template | Parts,
    preference: Preference,
    relaxed: bool,
    structure: Structure,
) -> torch.jit.ScriptModule:
    """A converted program as a module for stock PyTorch: whole, whole with sizes left open, or in
    parts, which know their preferences."""
    constants = constant_outputs(program)
    if isinstance(source, Parts):
        return mixed_module(program, source, constants, relaxed, structure)
    rest = (constants, preference, relaxed, structure)
    if isinstance(source, Template):
        return flexible_stock_module(program.units, source, *rest)
    return stock_module(program.units, source, *rest)


def _read_model(path: Path) -> torch.jit.ScriptModule | ExportedProgram:
    """The model of a file, its inputs nested as they are."""
    if model_kind(path) is ModelKind.EXPORTED:
        return read_exported(path)
    return read_nested(path)
