"""Load a model file or module as a Program."""

from __future__ import annotations

import contextlib
import enum
import importlib
import os
import re
import zipfile
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

import torch
from torch import Tensor, fx
from torch.export import ExportedProgram

from nnapi_prof.errors import FrontendError, KeepsState, ModelFileError, non_regular_kind
from nnapi_prof.frontend import export, torchscript
from nnapi_prof.frontend.eager import (
    draw_notes,
    element_type_notes,
    flat_outputs,
    in_float32,
    resolve_view_strides,
)
from nnapi_prof.frontend.export_check import check_export, classes_as_dicts
from nnapi_prof.frontend.inputs import InputSpec, listed
from nnapi_prof.frontend.quant import plain, plain_inputs
from nnapi_prof.frontend.script_check import load_script
from nnapi_prof.frontend.structure import Structure, flat_inputs, structure_of
from nnapi_prof.frontend.torch_logging import essential_line, logged_errors, quiet_torch
from nnapi_prof.frontend.torchscript.builtins import kept_attributes
from nnapi_prof.frontend.torchscript.inputs import find_inputs
from nnapi_prof.graph import Quantisation
from nnapi_prof.graph.dim_order import LIES_LAST
from nnapi_prof.graph.grouping import unit_graph
from nnapi_prof.graph.program import Program, verify
from nnapi_prof.passes.pipeline import DEFAULT_PASSES, run_passes

_ADVICE = (
    "save torch.jit.trace(model.eval(), example) with torch.jit.save, or torch.export.export(...) "
    "with torch.export.save"
)


STATISTICS = ("num_batches_tracked", "running_mean", "running_var")
"""Buffers that batch normalisation writes in training mode only."""


class ModelKind(enum.Enum):
    """The kind of model that a file holds."""

    TORCHSCRIPT = "TorchScript"
    EXPORTED = "ExportedProgram"


def model_kind(path: Path) -> ModelKind:
    """Returns the kind of model in a file, whatever its name. Raises ModelFileError, which says
    what the file is, for any other."""
    if not path.exists():
        raise ModelFileError(f"{path} does not exist", "give the path of a .pt or .pt2 file")
    if what := non_regular_kind(path):
        raise ModelFileError(f"{path} is {what}", "give the path of a .pt or .pt2 file")
    try:
        with path.open("rb") as file:
            head = file.read(4)
    except OSError as error:
        raise ModelFileError(f"{path} cannot be read: {error.strerror}") from error
    if not head:
        raise ModelFileError(f"{path} is empty: {_ADVICE}")
    if not head.startswith(b"PK"):
        if head[0] == 0x80:  # a pickle, protocol 2 or later: torch.save before 1.6
            raise ModelFileError(_pickled(path))
        raise ModelFileError(f"{path} is not a PyTorch model: {_ADVICE}")
    try:
        with zipfile.ZipFile(path) as archive:
            names = archive.namelist()
            if names and all(info.header_offset for info in archive.infolist()):
                # The end of an archive that lies in the file is the last one that is left.
                raise zipfile.BadZipFile("its end is missing")
    except (zipfile.BadZipFile, OSError) as error:
        raise ModelFileError(
            f"{path} is truncated or damaged ({error})", "save or copy the file again"
        ) from error
    return _kind_of(path, names)


def _kind_of(path: Path, names: Sequence[str]) -> ModelKind:
    inner = [name.partition("/")[2] for name in names]
    if any(name.startswith("code/") for name in inner) and "constants.pkl" in inner:
        return ModelKind.TORCHSCRIPT
    if "archive_format" in inner or "serialized_exported_program.json" in names:
        return ModelKind.EXPORTED
    if "data.pkl" in inner:
        raise ModelFileError(_pickled(path))
    raise ModelFileError(f"{path} is a zip archive but no PyTorch model", _ADVICE)


def _pickled(path: Path) -> str:
    return (
        f"{path} holds pickled Python objects (a state_dict or a whole module), not TorchScript: "
        f"{_ADVICE}"
    )


SavedModel = torch.jit.ScriptModule | ExportedProgram
"""A model in the form that its file has."""


def read(path: Path) -> SavedModel:
    """Reads a model file; TorchScript in eval mode, its inputs as they are. Raises
    ModelFileError."""
    return read_exported(path) if model_kind(path) is ModelKind.EXPORTED else read_nested(path)


def read_torchscript(path: Path) -> torch.jit.ScriptModule:
    """Reads a TorchScript file in eval mode, as a model that takes tensors one by one. Raises
    ModelFileError, InputSpecError."""
    return flat_inputs(read_nested(path), path.name)


def read_nested(path: Path) -> torch.jit.ScriptModule:
    """Reads a TorchScript file in eval mode, its inputs as they are. Raises ModelFileError."""
    try:
        with quiet_torch():
            model = with_extensions(lambda: load_script(path), path)
            if hasattr(model, "training"):
                model.eval()
    except ModelFileError:
        raise
    except Exception as error:
        raise ModelFileError(
            f"{path} cannot be loaded as TorchScript: {essential_line(error)}"
        ) from error
    assert isinstance(model, torch.jit.ScriptModule)
    return model


def read_exported(path: Path) -> ExportedProgram:
    """Reads the file of an ExportedProgram. Raises ModelFileError."""
    try:
        with quiet_torch():
            return with_extensions(lambda: _read_export(path), path)
    except ModelFileError:
        raise
    except Exception as error:
        raise ModelFileError(
            f"{path} cannot be loaded as an ExportedProgram: {essential_line(error)}"
        ) from error


def _read_export(path: Path) -> ExportedProgram:
    """Checks a file and loads it by torch.export.load, which reports errors to its logger only."""
    check_export(path)
    with logged_errors("torch.export") as told:
        try:
            with _weights_only(), classes_as_dicts():
                return torch.export.load(path)
        except RuntimeError as error:
            if told:
                raise told[-1] from error
            raise


@contextlib.contextmanager
def _weights_only() -> Iterator[None]:
    """Makes ``torch.load`` create tensors and containers only, whatever its caller's settings."""
    names = ("TORCH_FORCE_WEIGHTS_ONLY_LOAD", "TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD")
    before = {name: os.environ.pop(name, None) for name in names}
    os.environ[names[0]] = "1"
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value


def load(path: Path, inputs: Sequence[InputSpec] = (), keep: bool = False) -> Program:
    """Reads a ``.pt`` (TorchScript) or ``.pt2`` (ExportedProgram) into a normalised Program.

    Input shapes are the stated ones, else those stored with the model, else a guess that
    ``Program.notes`` announces. With ``keep``, shapes, branches and loops that depend on data stay
    calls of PyTorch, which only a host runs; otherwise they are refused. Raises ModelFileError,
    InputSpecError, FrontendError, and KeepsState where
    :func:`~nnapi_prof.frontend.rewrite.without_state` makes a model that can be loaded.
    """
    path = Path(path)
    saved = read(path)
    if isinstance(saved, ExportedProgram):
        export.check_stored(saved, path.name)
        export.check_open(saved, inputs, path.name)
        return _from_exported(saved, inputs, path.name, _open_notes(inputs), keep=keep)
    model = flat_inputs(saved, path.name)
    examples, notes = find_inputs(model, inputs, path.name)
    notes += _open_notes(inputs)
    if kept := kept_attributes(model, examples, path.name):
        for attribute in kept:
            if attribute.path.rpartition(".")[2] in STATISTICS:
                raise FrontendError(
                    f"{path.name}: {attribute.path} counts batches: the model is in training mode;"
                    " call model.eval() before tracing it"
                )
        raise KeepsState(f"{path.name} keeps state in {kept[0].path}")
    graph = torchscript.torchscript_graph(model, examples, path.name, keep)
    return _finish(graph, examples, path.stem, notes, lambda *args: model(*args))


def reference(path: Path) -> Callable[..., tuple[Tensor, ...]]:
    """Returns the model of ``path`` in eager PyTorch, its outputs flattened to a tuple of tensors,
    with integers for quantised ones.

    Raises ModelFileError.
    """
    saved = read(Path(path))
    if isinstance(saved, ExportedProgram):
        return flat_outputs(export.eager(saved))
    return flat_outputs(flat_inputs(saved, Path(path).name))


def model_structure(path: Path, examples: Sequence[Tensor]) -> Structure:
    """Returns the nesting of values in the model of a file that :func:`load` has read.

    ``examples`` are flat inputs; the model runs on them once.
    """
    return structure_of(read(path), examples, path.name)


def prepare(
    model: torch.nn.Module | ExportedProgram,
    example_inputs: Sequence[Tensor],
    name: str,
    keep: bool = False,
    last: Collection[int] = (),
) -> Program:
    """Makes a normalised Program of a module or exported program, for these input shapes.

    A module is exported in eval mode and keeps its own mode. ``keep`` is that of :func:`load`.
    Image inputs in ``last`` are channels last; if there are any, output images may be, too. Raises
    InputSpecError, FrontendError.
    """
    examples = tuple(example_inputs)
    if isinstance(model, ExportedProgram):
        specs = [InputSpec.of(t) for t in examples]
        return _from_exported(model, specs, name, last=last, examples=examples, keep=keep)
    with eval_mode(model):
        if isinstance(model, torch.jit.ScriptModule):
            graph = torchscript.torchscript_graph(model, examples, name, keep)
        else:
            try:
                with quiet_torch():
                    program = torch.export.export(model, examples, strict=False)
            except Exception as error:
                raise FrontendError(
                    f"{name} cannot be exported: {essential_line(error)}"
                ) from error
            graph = export.straight_graph(program, examples, name, keep)
        return _finish(graph, examples, name, (), model, last)


@contextlib.contextmanager
def eval_mode(model: torch.nn.Module) -> Iterator[None]:
    """Puts a module and its parts into eval mode, and restores their modes afterwards."""
    were_training = [part for part in model.modules() if getattr(part, "training", False)]
    for part in were_training:
        part.training = False
    try:
        yield
    finally:
        for part in were_training:
            part.training = True


def _open_notes(inputs: Sequence[InputSpec]) -> tuple[str, ...]:
    if not any(spec.open_dims for spec in inputs):
        return ()
    return (f"sizes left open are those of {listed([spec.closed for spec in inputs])} here",)


def _from_exported(
    program: ExportedProgram,
    inputs: Sequence[InputSpec],
    name: str,
    notes: tuple[str, ...] = (),
    last: Collection[int] = (),
    examples: tuple[Tensor, ...] | None = None,
    keep: bool = False,
) -> Program:
    if examples is None:
        _, examples = export.find_inputs(program, inputs, name)
    else:
        export.check_specs(program, inputs, name)
    graph = export.straight_graph(program, examples, name, keep)
    return _finish(graph, examples, Path(name).stem, notes, export.eager(program), last)


def mark_last(graph: fx.Graph, inputs: Collection[int]) -> None:
    """Marks these inputs of a straight graph as channels last for the passes."""
    placeholders = [node for node in graph.nodes if node.op == "placeholder"]
    for node in [*(placeholders[i] for i in inputs), *([graph.output_node()] if inputs else [])]:
        node.meta[LIES_LAST] = True


def _finish(
    graph: fx.GraphModule,
    examples: tuple[Tensor, ...],
    name: str,
    notes: tuple[str, ...],
    model: Callable[..., object],
    last: Collection[int] = (),
) -> Program:
    """Normalises the graph, checks it against the model on the examples, and cuts units. Quantised
    inputs and outputs are integers in the program."""
    quantised = {
        index: Quantisation(example.q_scale(), example.q_zero_point())
        for index, example in enumerate(examples)
        if example.is_quantized
    }
    model, examples = plain_inputs(model, examples), tuple(map(plain, examples))
    with quiet_torch():
        mark_last(graph.graph, last)
        graph, own, told = in_float32(graph, flat_outputs(model), examples)
        run_passes(graph, DEFAULT_PASSES)
        verify(graph.graph, types=True)
        _, more = resolve_view_strides(graph, examples, own, name)
    notes += told.notes + more + element_type_notes(graph.graph)
    units = unit_graph(graph.graph)
    program = Program(graph, units, name, examples, notes, quantised, told.changed)
    return replace(program, notes=notes + draw_notes(program.draws))


# Operators of packages other than torch, which model files name but do not contain


Loaded = TypeVar("Loaded")

_PACKAGES = {
    "torchvision": "torchvision",
    "torchaudio": "torchaudio",
    "torchao": "torchao",
    "fbgemm": "fbgemm_gpu",
    "transformers": "transformers.integrations.moe",
}
"""Namespace of operators -> the module that registers them when it is imported."""

_WITHOUT = {
    "transformers": "call model.set_experts_implementation('batched_mm') before the export",
}
"""Namespace of operators -> advice on making a model without them."""

_UNKNOWN = (
    re.compile(r"Unknown builtin op: (\w+)::(\w+)"),  # TorchScript's
    re.compile(r"failed to resolve torch\.ops\.(\w+)\.(\w+)"),  # torch.export's
)


def with_extensions(load: Callable[[], Loaded], path: object) -> Loaded:
    """Calls ``load``; imports the package of an operator that it does not know, and calls it again.

    Raises ModelFileError, which names the operator, where no package is known to register it or the
    package cannot be imported. Other exceptions of ``load`` pass through.
    """
    try:
        return load()
    except Exception as error:
        namespace, name = _unknown_operator(error)
        if not namespace:
            raise
        if namespace not in _PACKAGES:
            raise ModelFileError(
                f"{path} uses {namespace}::{name}, an operator that this torch does not have",
                "save the model without it",
            ) from error
        package = _PACKAGES[namespace].partition(".")[0]
        try:
            importlib.import_module(_PACKAGES[namespace])
        except Exception as failed:
            raise ModelFileError(
                f"{path} uses {namespace}::{name}, an operator of the package {package}, which "
                f"cannot be imported ({str(failed).splitlines()[0]})",
                " or ".join(
                    [f"install the {package} that belongs to this torch"]
                    + [_WITHOUT[name] for name in (namespace,) if name in _WITHOUT]
                ),
            ) from failed
    return load()


def _unknown_operator(error: Exception) -> tuple[str, str]:
    """Returns namespace and name of the unknown operator in an error; empty where there is none."""
    for pattern in _UNKNOWN:
        match = pattern.search(str(error))
        if match:
            return match[1], match[2]
    return "", ""
