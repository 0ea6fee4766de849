"""Models, loaded from a file or from memory."""

from __future__ import annotations

import logging
import os
import re
import shutil
import tempfile
import weakref
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from functools import cached_property
from inspect import signature
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nnapi_prof.api import SILENT, Listener
from nnapi_prof.bundle import MixedPrecision
from nnapi_prof.errors import InputSpecError, KeepsState
from nnapi_prof.execution.profile.unit_graph_cache import UnitGraphCache, cached_units, load_program
from nnapi_prof.graph.unit import UnitGraph
from nnapi_prof.reports import notebook
from nnapi_prof.reports.words import count

if TYPE_CHECKING:
    import pandas as pd
    import torch
    from torch import Tensor
    from torch.export import ExportedProgram

    from nnapi_prof.frontend.loader import SavedModel
    from nnapi_prof.graph.program import Program

    Input = str | int | float | bool | None | Tensor | Sequence["Input"] | Mapping[str, "Input"]

LOGGER = logging.getLogger(__name__)


class _OwnFolder:
    """A temporary folder that is deleted with the last model whose file is in it."""

    def __init__(self) -> None:
        self.path = Path(tempfile.mkdtemp(prefix="nnapi-prof-"))
        weakref.finalize(self, shutil.rmtree, self.path, ignore_errors=True)

    def new_file(self, step: str, name: str) -> Path:
        """Returns the path of a file that a step writes, named like the file it read."""
        target = self.path / step / name
        target.parent.mkdir()
        return target


@dataclass(frozen=True)
class Model:
    """A model, cut into units: the smallest pieces that can run on one target each.

    :func:`nnapi_prof.load` makes one.
    """

    path: Path
    """Its file; for a model from memory a temporary copy, deleted with this object."""
    inputs: tuple[str, ...]
    """Input shapes that the caller stated, ``1x3x224x224``; empty where bundled or guessed."""
    unit_cache: UnitGraphCache = field(repr=False)
    """Its units, and the function that reads the rest of it."""
    _folder: _OwnFolder | None = field(default=None, repr=False, compare=False)
    mixed: MixedPrecision | None = field(default=None, repr=False)
    """Its units in 8 bits and their quantisation, if any; the file has the float model."""

    @property
    def name(self) -> str:
        """The name of the model, for people."""
        return self.unit_cache.name

    @property
    def graph(self) -> UnitGraph:
        """Its units, and the values between them."""
        return self.unit_cache.units

    @property
    def notes(self) -> tuple[str, ...]:
        """Notes on the model: guessed input shapes, open sizes."""
        return self.unit_cache.notes

    @cached_property
    def program(self) -> Program:
        """The normalised graph over ATen operators, read from the file at first use.

        Raises NnapiProfError where the file is gone or has changed.
        """
        return self.unit_cache.load()

    @cached_property
    def eager(self) -> Callable[..., tuple[Tensor, ...]]:
        """The saved model in eager PyTorch: takes its input tensors, and returns its outputs,
        flattened to a tuple."""
        from nnapi_prof.frontend import reference

        return reference(self.path)

    def in_precision(self, mixed: MixedPrecision) -> Model:
        """Returns the model with some of its units in 8 bits. Raises ConversionError."""
        unit_cache = replace(UnitGraphCache.of(mixed.applied(self.program)), name=self.name)
        return replace(self, unit_cache=unit_cache, mixed=mixed)

    def frame(self) -> pd.DataFrame:
        """Returns one row for each unit, in order: ``unit`` (its number), ``name``, ``label``,
        ``macs`` (multiply-accumulates), ``weight_bytes``, ``input_bytes``, ``output_bytes``."""
        import pandas as pd

        rows = []
        for unit in self.graph.units:
            entering, leaving = self.graph.boundary((unit.index,))
            rows.append(
                {
                    "unit": unit.index,
                    "name": unit.name,
                    "label": unit.label,
                    "macs": unit.macs,
                    "weight_bytes": unit.constant_bytes,
                    "input_bytes": sum(self.graph.values[name].n_bytes for name in entering),
                    "output_bytes": sum(self.graph.values[name].n_bytes for name in leaving),
                }
            )
        return pd.DataFrame(rows)

    def __repr__(self) -> str:
        return (
            f"Model({self.name!r}, {count(len(self.graph.units), 'unit')}, inputs {self._shapes()})"
        )

    def _shapes(self) -> str:
        shapes = (self.graph.values[name].shape for name in self.graph.inputs)
        return ", ".join("x".join(map(str, shape)) for shape in shapes) or "none"

    def _repr_html_(self) -> str:
        units = self.graph.units
        kinds = Counter(re.split(r"[ +]", unit.label, maxsplit=1)[0] for unit in units)
        pairs = [
            ("inputs", ", ".join(self.inputs) or self._shapes()),
            ("units", str(len(units))),
            ("operations", ", ".join(f"{count} {kind}" for kind, count in kinds.most_common(8))),
            ("multiply-accumulates", f"{sum(unit.macs for unit in units) / 1e6:,.1f} million"),
            ("weights", f"{sum(unit.constant_bytes for unit in units) / 1e6:,.1f} MB"),
        ]
        return notebook.facts(f"Model {self.name}", pairs) + notebook.notes(self.notes)


def load(
    model: str | os.PathLike[str] | torch.nn.Module | ExportedProgram,
    inputs: Input = None,
    *,
    name: str | None = None,
    listener: Listener = SILENT,
) -> Model:
    """Loads a model from a file (TorchScript, ExportedProgram) or from memory.

    ``inputs`` are its input shapes, as texts (``"1x3x224x224"``, ``"1x128:int64"``, with an open
    size ``"1x3x?x?"``), as tuples of sizes (``(1, 3, 224, 224)``) or as example tensors; a list for
    several, nested as the model takes them, or a dict with the names of its arguments.
    ``"@values.npz"`` has the tensors themselves, by the names of arguments or in their order.
    Numbers and texts as arguments are fixed to the stated value, ``16000`` or ``"rate=16000"``.
    TorchScript stores no shapes: without ``inputs``, bundled ones are used, or a guess, which
    ``Model.notes`` reports. A module in memory that is neither scripted nor traced is exported with
    ``torch.export``, and requires them.

    Operations that depend on the values of tensors (a mask that picks rows, a loop until a token
    ends it) become one unit that only a host runs, and the rest is cut around it.

    A model that keeps state in attributes is changed to take its state as its last inputs and to
    return it as its last outputs; ``Model.notes`` lists them.

    ``name`` is that of a model in memory, for people. A ``listener`` hears the notes, and when the
    file is read: the units of a model are cached, and its file is read again only where the units
    are not enough.

    Raises ModelFileError where the file is missing or not a model, InputSpecError where the inputs
    do not fit, FrontendError where the model cannot become a graph.
    """
    return _load(model, inputs, name, listener)


def _load(
    model: str | os.PathLike[str] | torch.nn.Module | ExportedProgram,
    inputs: Input,
    name: str | None,
    listener: Listener,
) -> Model:
    if isinstance(model, str | os.PathLike):
        result = _from_file(Path(model), texts(inputs), listener)
    else:
        result = _from_memory(model, inputs, name)
    listener.notes(*result.notes)
    return result


def as_model(model: Model | str | os.PathLike[str]) -> Model:
    """Returns the model, loaded from its file without stated inputs where it is a path."""
    return model if isinstance(model, Model) else load(model)


def _from_file(
    path: Path, inputs: tuple[str, ...], listener: Listener, folder: _OwnFolder | None = None
) -> Model:
    """Loads a file; one in ``folder``, a temporary copy, leaves no units in the cache."""
    if any(text.startswith(VALUES) for text in inputs):
        with listener.working(f"reading {path.name}"):
            folder = folder or _OwnFolder()
            path, inputs = _with_values(path, inputs, folder), ()

    def read() -> Program:
        with listener.working(f"reading {path.name}"):
            return load_program(path, inputs)

    if not any(map(is_named, inputs)):
        try:
            units = UnitGraphCache.of(read()) if folder else cached_units(path, inputs, read)
            return Model(path, inputs, units, folder)
        except KeepsState:
            LOGGER.debug("%s keeps state: it becomes inputs and outputs", path)
    with listener.working(f"reading {path.name}"):
        return _stateless(path, inputs, folder or _OwnFolder())


VALUES = "@"
"""Prefix of an input that names a file of values."""


def is_named(text: str) -> bool:
    """Returns whether an input is stated by name or by value; otherwise only open shapes have an
    equals sign."""
    named = "=" in text and "?" not in text.partition("=")[0]
    return named or text.startswith(VALUES)


def _with_values(path: Path, inputs: tuple[str, ...], folder: _OwnFolder) -> Path:
    """Returns a copy of a file in which the model's inputs have the stated values."""
    from nnapi_prof.frontend.loader import read
    from nnapi_prof.frontend.rewrite import with_values

    target = folder.new_file("values", path.name)
    return _save(with_values(read(path), inputs, path.name), target)


def _stateless(path: Path, inputs: tuple[str, ...], folder: _OwnFolder) -> Model:
    """Loads a model that keeps state, or has inputs other than tensors, from a rewritten file
    without these."""
    from nnapi_prof.frontend.loader import read
    from nnapi_prof.frontend.rewrite import without_state

    stateless = without_state(read(path), inputs, path.name)
    target = _save(stateless.model, folder.new_file("stateless", path.name))
    unit_cache = UnitGraphCache.of(load_program(target, stateless.inputs))
    notes = (*unit_cache.notes, *stateless.notes)
    return Model(target, stateless.inputs, replace(unit_cache, notes=notes), folder)


def _save(model: SavedModel, path: Path) -> Path:
    """Saves a model, and returns the path."""
    import torch

    from nnapi_prof.frontend.torch_logging import quiet_torch

    with quiet_torch():
        if isinstance(model, torch.jit.ScriptModule):
            torch.jit.save(model, str(path))
        else:
            torch.export.save(model, path)
    return path


def _from_memory(
    model: torch.nn.Module | ExportedProgram,
    inputs: Input,
    name: str | None,
) -> Model:
    """Saves the model to a temporary file and loads that: all later steps read files, so that the
    bundle has exactly the measured model."""
    import torch
    from torch.export import ExportedProgram

    from nnapi_prof.frontend.loader import eval_mode
    from nnapi_prof.frontend.torch_logging import quiet_torch

    if not isinstance(model, torch.nn.Module | ExportedProgram):
        raise InputSpecError(
            "load() takes a path, a torch.nn.Module or an ExportedProgram:"
            f" {type(model).__name__} is not one of these"
        )
    called, folder = name or _name_of(model), _OwnFolder()
    mode = eval_mode(model) if isinstance(model, torch.nn.Module) else nullcontext()
    with mode, quiet_torch():
        if isinstance(model, torch.jit.ScriptModule | ExportedProgram):
            saved, stated = model, texts(inputs)
        else:
            saved, stated = _exported(model, inputs, called)
        suffix = "pt" if isinstance(saved, torch.jit.ScriptModule) else "pt2"
        file = re.sub(r"[^\w.-]", "_", called)
        path = _save(saved, folder.path / f"{file}.{suffix}")
    return _from_file(path, stated, SILENT, folder)


def _exported(
    model: torch.nn.Module, inputs: Input, name: str
) -> tuple[ExportedProgram, tuple[str, ...]]:
    """Returns the module as an ExportedProgram, and the shapes of its tensors."""
    from nnapi_prof.frontend.examples import (
        SIZES,
        exported_module,
        find_examples,
        leaves_of,
        runner,
    )

    positional, by_name = arguments(inputs)
    order = {argument: n for n, argument in enumerate(signature(model.forward).parameters)}
    by_name = dict(sorted(by_name.items(), key=lambda item: order.get(item[0], len(order))))
    call = positional, by_name
    leaves = leaves_of(call)
    if not leaves:
        raise InputSpecError(
            f"{name} is a module in memory",
            'say its inputs, as in load(module, inputs=["1x3x224x224"]) or with example tensors',
        )
    specs, examples = find_examples(leaves, runner(model, call, name), SIZES[1:])
    program = exported_module(model, call, specs, examples, name)
    return program, texts([*leaves])


def _name_of(model: Any) -> str:
    """Returns the name of the model's class; an ExportedProgram does not know it."""
    if not hasattr(model, "eval"):
        return "model"
    return str(getattr(model, "original_name", None) or type(model).__name__)


# Inputs as Python values: shapes, example tensors, tuples and dicts of these.


def arguments(inputs: Input) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Returns the arguments of a call of the model, by position and by name: shapes as texts,
    tensors, numbers.

    A single text, tuple of sizes or tensor is the only argument; a mapping names the arguments.
    Raises InputSpecError for anything else.
    """
    if inputs is None:
        return (), {}
    if isinstance(inputs, Mapping):
        return (), {str(name): _shapes_as_text(value) for name, value in inputs.items()}
    if isinstance(inputs, Sequence) and not isinstance(inputs, str) and not _is_shape(inputs):
        return tuple(map(_shapes_as_text, inputs)), {}
    return (_shapes_as_text(inputs),), {}


def texts(inputs: Input) -> tuple[str, ...]:
    """Returns inputs as ``--input`` takes them: a text for each tensor, ``NAME=TEXT`` for named
    ones, ``=VALUE`` for numbers. Raises InputSpecError."""
    positional, by_name = arguments(inputs)
    flat = [text for value in positional for text in _texts(value)]
    for name, value in by_name.items():
        inner = _texts(value)
        if len(inner) != 1:
            raise InputSpecError(
                f"the input {name} holds {len(inner)} values",
                "give inputs as a list, in the order"
                " of the model's arguments, where one of them is nested",
            )
        flat.append(f"{name}={inner[0].removeprefix('=')}")
    return tuple(flat)


def _shapes_as_text(value: Any) -> Any:
    """Returns a value with its shapes as texts."""
    if value is None or isinstance(value, str | int | float) or hasattr(value, "is_quantized"):
        return value
    if isinstance(value, Mapping):
        return {name: _shapes_as_text(item) for name, item in value.items()}
    if not isinstance(value, list | tuple) or not value:
        raise InputSpecError(
            f"the input {_short(value)} is neither a shape nor a tensor",
            "write '1x3x224x224' or (1, 3, 224, 224), or give an example tensor",
        )
    if _is_shape(value):
        return "x".join(map(str, value))
    if all(isinstance(item, int | float) for item in value):
        raise InputSpecError(
            f"the input {_short(value)} is not a shape: sizes are required, as in (1, 3, 224, 224)"
            " or '1x3x224x224'"
        )
    return (
        tuple(map(_shapes_as_text, value))
        if isinstance(value, tuple)
        else list(map(_shapes_as_text, value))
    )


def _is_shape(value: object) -> bool:
    """Returns whether a value is a shape: ``(1, 3, 224, 224)``."""
    return (
        isinstance(value, Sequence)
        and not isinstance(value, str)
        and len(value) > 0
        and all(isinstance(size, int) and not isinstance(size, bool) for size in value)
    )


def _texts(value: Any) -> list[str]:
    if isinstance(value, Mapping):
        return [text for item in value.values() for text in _texts(item)]
    if isinstance(value, list | tuple):
        return [text for item in value for text in _texts(item)]
    if isinstance(value, str):
        return [value]
    if hasattr(value, "is_quantized"):
        from nnapi_prof.frontend.inputs import InputSpec

        return [str(InputSpec.of(value))]
    return [f"={value}"]


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 40 else f"{text[:37]}..."
