"""Rewrite models: without state, and with values for the inputs.

A model without state takes only tensors and keeps nothing between runs. Attributes that a model
writes become inputs and outputs, and arguments that are numbers or texts get their stated values.
The rewritten model is saved, and later steps read its file like any other: what is measured is what
a bundle has.

    forward(x: Tensor, rate: int) -> y         forward(x: Tensor, total: Tensor) -> (y, total)
        self.total = self.total + x      =>

Values for inputs come from an ``.npz`` file, as lengths, masks and positions cannot be random. They
are stored in the model, where every later step finds them: as bundled inputs of TorchScript, or as
the example inputs of an ExportedProgram.
"""

from __future__ import annotations

import copy
import zipfile
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.export import ExportedProgram
from torch.utils import _pytree as pytree
from torch.utils.bundled_inputs import InflatableArg, bundle_inputs

from nnapi_prof.errors import (
    FrontendError,
    InputSpecError,
    escape_untrusted,
    non_regular_kind,
    option_name,
)
from nnapi_prof.frontend import export
from nnapi_prof.frontend.inputs import InputSpec, parse_input_specs
from nnapi_prof.frontend.loader import SavedModel
from nnapi_prof.frontend.structure import PLAIN, flat_inputs
from nnapi_prof.frontend.torch_logging import essential_line, quiet_torch, run_once
from nnapi_prof.frontend.torchscript.builtins import KeptAttribute, kept_attributes
from nnapi_prof.frontend.torchscript.inputs import find_inputs, forward_arguments
from nnapi_prof.frontend.trees import bind_inputs, expression, places, tree_of

UNREADABLE = (
    *(OSError, ValueError, TypeError, AttributeError, EOFError, RuntimeError),
    *(zipfile.BadZipFile, zlib.error),
)
"""Exceptions of NumPy and zipfile for archives that are damaged or not of arrays of numbers."""


@dataclass(frozen=True, slots=True)
class Stateless:
    """A rewritten model, the shapes of all its inputs, and notes for the user."""

    model: SavedModel
    inputs: tuple[str, ...]
    notes: tuple[str, ...]


def without_state(model: SavedModel, inputs: Sequence[str], name: str) -> Stateless:
    """Rewrites a model that keeps state or takes numbers.

    ``inputs`` are texts as :func:`~nnapi_prof.frontend.trees.bind_inputs` takes them. The inputs
    are the model's tensors, then those of its state; the outputs end with the state's new values.
    Raises InputSpecError, and FrontendError where the model keeps anything but tensors of fixed
    sizes.
    """
    if isinstance(model, ExportedProgram):
        return _without_buffers(model, inputs, name)
    types = {argument.name: str(argument.type) for argument in forward_arguments(model)}
    stated = bind_inputs(inputs, types, name)
    flat = flat_inputs(model, name, stated.values)
    specs = parse_input_specs(stated.shapes)
    with quiet_torch():
        examples, notes = find_inputs(copy.deepcopy(flat), specs, name)
        kept = kept_attributes(flat, examples, name)
        written = _wrapped(copy.deepcopy(flat), kept, examples) if kept else flat
        first = [tensor.clone() for attribute in kept for tensor in attribute.first_tensors]
        begins_so = not kept or _same(flat, copy.deepcopy(written), examples, first)
    shapes = list(stated.shapes) or [str(InputSpec.of(example)) for example in examples]
    names = [name for attribute in kept for name in _names(attribute)]
    notes += _notes_on_state(names, first, len(examples), begins_so)
    return Stateless(written, (*shapes, *_shapes(first)), notes)


def _without_buffers(program: ExportedProgram, inputs: Sequence[str], name: str) -> Stateless:
    types = {node.name: "Tensor" for node in export.tensor_inputs(program)}
    stated = parse_input_specs(bind_inputs(inputs, types, name).shapes)
    specs, examples = export.find_inputs(program, stated, name)
    with quiet_torch():  # only decomposed programs report in-place writes as state
        state = export.kept_buffers(program.run_decompositions({}))
    if state:
        first = [value.clone() for value in state.values()]
        wrapped = _WithoutBuffers(program, tuple(state))
        try:
            with quiet_torch():
                program = torch.export.export(wrapped, (*examples, *first), strict=False)
        except Exception as error:
            raise FrontendError(
                f"{name} keeps state in {', '.join(state)} and cannot be exported without:"
                f" {essential_line(error)}"
            ) from error
    shapes = tuple(str(spec.closed) for spec in specs) + tuple(_shapes(list(state.values())))
    notes = _notes_on_state(list(state), list(state.values()), len(examples), True)
    return Stateless(program, shapes, notes)


class _WithoutBuffers(torch.nn.Module):
    """An exported program with its buffers as last inputs, and their new values as last outputs."""

    def __init__(self, program: ExportedProgram, names: tuple[str, ...]) -> None:
        super().__init__()
        self.model = program.module()
        self.nest = export.nested_arguments(program)
        self.names = names

    def forward(self, *args: Tensor) -> tuple[Any, ...]:
        n_inputs = len(args) - len(self.names)
        held = {name: t.clone() for name, t in zip(self.names, args[n_inputs:], strict=True)}
        positional, by_name = self.nest(args[:n_inputs])
        returned = torch.func.functional_call(self.model, held, positional, by_name)
        return (returned, *(held[name] for name in self.names))


def _wrapped(
    model: torch.jit.ScriptModule, kept: Sequence[KeptAttribute], examples: Sequence[Tensor]
) -> torch.jit.ScriptModule:
    """Wraps the model in a ``forward`` that sets its state and reads it back. The model runs once
    first, to settle numbers that it keeps, such as the last rate."""
    with run_once():
        model(*(example.clone() for example in examples))

    class Wrapper(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = model

    n_taken = len(examples)
    inputs = [f"input_{index}" for index in range(n_taken)]
    taken = [argument.name for argument in forward_arguments(model)[:n_taken]]
    if all(map(str.isidentifier, taken)) and len(set(taken)) == n_taken:
        inputs = taken
    before, after, states, results = [], [], list[str](), list[str]()
    for number, attribute in enumerate(kept):
        tree = tree_of(attribute.settled)
        names = [f"state_{name}" for name in _names(attribute)]
        names = [f"{name}_{number}" if name in states else name for name in names]
        states += names
        clones = [f"{name}.clone()" for name in names]
        before.append(f"self.model.{attribute.path} = {expression(tree, clones)}")
        after.append(f"held_{number} = self.model.{attribute.path}")
        if attribute.type.startswith("Optional"):
            after.append(f"assert held_{number} is not None")
        results += [f"{place}" for place, leaf in places(f"held_{number}", tree) if _is_leaf(leaf)]
    arguments = ", ".join(f"{name}: Tensor" for name in (*inputs, *states))
    call = f"returned = self.model({', '.join(inputs)})"
    end = f"return (returned, {', '.join(results)})"
    lines = [f"def forward(self, {arguments}):", *before, call, *after, end]
    wrapper = torch.jit.script(Wrapper())
    wrapper.define("\n    ".join(lines) + "\n")
    wrapper.eval()
    assert isinstance(wrapper, torch.jit.ScriptModule)
    return wrapper


def _is_leaf(leaf: object) -> bool:
    return type(leaf).__name__ == "Leaf"


def _names(attribute: KeptAttribute) -> list[str]:
    """Returns a name for each tensor of an attribute, without leading underscores."""
    name = attribute.path.removeprefix("model.").replace(".", "_").strip("_")
    n_tensors = len(attribute.first_tensors)
    return [name] if n_tensors == 1 else [f"{name}_{index}" for index in range(n_tensors)]


def _shapes(tensors: Sequence[Tensor]) -> list[str]:
    return [str(InputSpec.of(tensor)) for tensor in tensors]


def _same(
    model: torch.jit.ScriptModule,
    wrapped: torch.jit.ScriptModule,
    examples: Sequence[Tensor],
    first: Sequence[Tensor],
) -> bool:
    """Returns whether the saved model and the wrapped one with state ``first`` give the same."""
    with run_once():
        own = pytree.tree_leaves(model(*(example.clone() for example in examples)))
        ours = pytree.tree_leaves(wrapped(*(value.clone() for value in (*examples, *first))))
    pairs = zip(own, ours, strict=False)  # ours ends with the state
    return all(torch.allclose(a, b) for a, b in pairs if isinstance(a, Tensor))


def _notes_on_state(
    names: Sequence[str], first: Sequence[Tensor], n_inputs: int, begins_so: bool
) -> tuple[str, ...]:
    """Returns notes on the model's state for callers."""
    if not names:
        return ()
    pairs = zip(names, _shapes(first), strict=True)
    listed = ", ".join(f"{name} {shape}" for name, shape in pairs)
    n, last = len(names), n_inputs + len(names) - 1
    numbers = f"input {n_inputs}" if n == 1 else f"inputs {n_inputs} to {last}"
    ends = "the last output" if n == 1 else f"the last {n} outputs"
    if not begins_so:
        begin = "only the model itself knows what it begins with"
    elif any(value.count_nonzero() for value in first):
        begin = "it begins with what the model's file has"
    else:
        begin = "it begins with zeros"
    return (
        f"the model keeps state ({listed}): it comes in as {numbers}, counted from 0, and goes out"
        f" as {ends}; {begin}",
    )


MARK = "@"
"""First character of a text that names a file of values."""
MAX_BYTES = 1 << 31


def with_values(model: SavedModel, inputs: Sequence[str], name: str) -> SavedModel:
    """Rewrites a model to store values of its inputs.

    ``inputs`` are texts. One is ``@FILE.npz``, with an array for each tensor, named like its
    argument or, as ``numpy.savez`` does without names, in order. The others are numbers and texts
    by name. Raises InputSpecError where the values do not fit.
    """
    files = [text for text in inputs if text.startswith(MARK)]
    others = [text for text in inputs if not text.startswith(MARK)]
    if len(files) > 1:
        raise InputSpecError(
            f"{len(files)} files of values were stated", "put all arrays into one, with numpy.savez"
        )
    file = Path(files[0].removeprefix(MARK))
    if isinstance(model, ExportedProgram):
        names = [node.name for node in export.tensor_inputs(model)]
        tensors = _arranged(_arrays(file), names, name, file)
        export.check_specs(model, [InputSpec.of(value) for value in tensors], name)
        _try(export.eager(model), tensors, name, file)
        model._example_inputs = export.nested_arguments(model)(tensors)
        return model
    types = {argument.name: str(argument.type) for argument in forward_arguments(model)}
    fixed = bind_inputs(others, types, name).values
    flat = flat_inputs(model, name, fixed)
    names = [argument.name for argument in forward_arguments(flat)]
    own = [argument for argument, kind in types.items() if kind in PLAIN and argument not in fixed]
    names = own if len(own) == len(names) else names  # flat ones have numbers
    tensors = _arranged(_arrays(file), names, name, file)
    _try(copy.deepcopy(flat), tensors, name, file)  # a run changes what the model keeps
    with quiet_torch():
        whole = tuple(InflatableArg(value=value, fmt="{}") for value in tensors)
        bundled: torch.jit.ScriptModule = bundle_inputs(flat, [whole])
    return bundled


def _arrays(file: Path) -> dict[str, Tensor]:
    if what := non_regular_kind(file):
        raise InputSpecError(f"{file} is {what}", "give an .npz file of the values of inputs")
    try:
        if not zipfile.is_zipfile(file):
            raise ValueError("it is not an .npz archive, or was cut off")
        with np.load(file, allow_pickle=False) as archive:
            sizes = sum(info.file_size for info in archive.zip.infolist())
            if sizes > MAX_BYTES:
                raise InputSpecError(f"{file} unpacks to {sizes:,} bytes, which no inputs have")
            arrays = {name: archive[name] for name in archive.files}
        tensors = {name: _tensor_of_array(array) for name, array in arrays.items()}
    except UNREADABLE as error:
        first_line = next(iter(str(error).splitlines()), type(error).__name__)
        # NumPy's own words advise to load them in an unsafe way.
        reason = (
            "it has Python objects, not numbers" if "allow_pickle" in first_line else first_line
        )
        raise InputSpecError(
            f"{file} cannot be read as arrays ({escape_untrusted(reason, 200)})",
            "write it with numpy.savez",
        ) from error
    for name, tensor in tensors.items():
        if strange := int(tensor.isnan().sum()):
            raise InputSpecError(
                f"{file}: {strange} of {tensor.numel()} values of {name} are NaN, and outputs that"
                " are NaN cannot be compared",
                "give numbers; a mask may have infinities",
            )
    return tensors


def _tensor_of_array(array: npt.NDArray[np.generic]) -> Tensor:
    """Returns an array as a tensor; float64, NumPy's default, becomes float32."""
    tensor = torch.from_numpy(np.ascontiguousarray(array))
    tensor = tensor.reshape(array.shape)
    return tensor.float() if tensor.dtype is torch.float64 else tensor


def _arranged(
    arrays: dict[str, Tensor], names: Sequence[str], model: str, file: Path
) -> tuple[Tensor, ...]:
    """Returns the arrays in the order of the model's arguments, ``names``."""
    unnamed = [f"arr_{index}" for index in range(len(arrays))]
    if list(arrays) == unnamed and len(arrays) <= len(names):
        return tuple(arrays.values())
    if extra := [name for name in arrays if name not in names]:
        raise InputSpecError(
            f"{file} has {', '.join(extra)}, and the inputs of {model} are {', '.join(names)}",
            "name the arrays after them, or give arrays without names in their order",
        )
    first = names[: len(arrays)]
    if missing := [name for name in first if name not in arrays]:
        raise InputSpecError(
            f"{file} has no array for the input {missing[0]} of {model}: its inputs are"
            f" {', '.join(names)}"
        )
    return tuple(arrays[name] for name in first)


def _try(run: Callable[..., object], tensors: Sequence[Tensor], model: str, file: Path) -> None:
    try:
        with quiet_torch(), run_once():
            run(*tensors)
    except Exception as error:
        raise InputSpecError(
            f"{model} does not run on the values of {file}: {essential_line(error)}",
            f"give others with {option_name('input', MARK + 'FILE.npz')}",
        ) from error
