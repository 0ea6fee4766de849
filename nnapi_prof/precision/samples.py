"""Samples of a model's inputs, for calibration and, held out from it, for evaluation."""

from __future__ import annotations

import itertools
import os
import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.export import ExportedProgram
from torch.utils import _pytree as pytree

from nnapi_prof.errors import InputSpecError, option_name
from nnapi_prof.frontend.loader import read
from nnapi_prof.frontend.quant import plain
from nnapi_prof.frontend.structure import flat_inputs
from nnapi_prof.frontend.torchscript.inputs import bundled_examples
from nnapi_prof.graph import TensorType
from nnapi_prof.graph.node import describe, torch_dtype
from nnapi_prof.graph.program import Program
from nnapi_prof.precision.user_files import KINDS, is_function, read_samples, user_function

LIMIT = 128
"""Default for the largest number of samples."""
HELD_OUT = 0.25
"""Share of samples that is held out."""
N_RANDOM = 32
"""Number of random samples where there are none."""
TARGETS = ("target", "targets", "label", "labels")
"""Names of arrays that are targets rather than inputs."""

Source = str | os.PathLike[str] | Iterable[Any] | Callable[[], Iterable[Any]]


@dataclass(frozen=True, eq=False)
class Sample:
    """Inputs of one run, with the program's shapes and element types, and their target."""

    inputs: tuple[Tensor, ...]
    target: Tensor | None = None
    """Labels, if the data has any; the first dimension is that of the batch."""


@dataclass(frozen=True, eq=False)
class Samples:
    """Samples in two parts, made by :func:`load_samples`."""

    calibration: tuple[Sample, ...]
    held_out: tuple[Sample, ...]
    notes: tuple[str, ...] = ()
    """Notes on the samples, for the user."""
    made_up: bool = False
    """True for random numbers, which say little about accuracy."""


def load_samples(
    program: Program,
    source: Source | None = None,
    *,
    model: Path | None = None,
    limit: int = LIMIT,
    held_out: float = HELD_OUT,
    seed: int = 0,
) -> Samples:
    """Loads samples of the inputs of ``program``, in two parts that ``seed`` chooses.

    ``source`` is an iterable, such as a DataLoader, the path of a ``.pt`` or ``.npz`` file, or a
    function or its name, ``module:function``, that returns an iterable. Each element is a sample or
    a batch: a tensor, a tuple of the model's inputs, such a tuple with a target at its end, or a
    mapping by the names of inputs. Batches larger than the model's are split.

    Without a source, the examples in ``model``, the model's file, are used, or else random inputs;
    ``notes`` say so. Raises InputSpecError where samples do not fit the program or there are none,
    UsageError where a function cannot be found.
    """
    notes: list[str] = []
    made_up = False
    if source is not None:
        samples = list(itertools.islice(_fitted(program, _elements(program, source)), limit))
        if not samples:
            raise InputSpecError(
                f"{option_name('calibration')} has no samples: {KINDS} is what they are read from"
            )
    else:
        samples = list(itertools.islice(stored_samples(program, model), limit))
        made_up = not samples
        if made_up:
            samples = random_samples(program, min(N_RANDOM, limit), seed)
            notes.append(
                f"no calibration data: {len(samples)} random inputs stand for it, so that ranges "
                f"and errors may be far from those of real ones; give {option_name('calibration')}"
            )
        else:
            notes.append(
                f"no calibration data: what is stored with the model stands for it "
                f"({len(samples)} of its inputs); give {option_name('calibration')} for more"
            )
    order = list(range(len(samples)))
    random.Random(seed).shuffle(order)
    n_held_out = min(max(round(len(samples) * held_out), 1), len(samples) - 1)
    if n_held_out == 0:
        notes.append("there is one sample only: what is calibrated with it is judged by it, too")
        return Samples(tuple(samples), tuple(samples), tuple(notes), made_up)
    held_out_part = sorted(order[:n_held_out])
    return Samples(
        tuple(samples[i] for i in sorted(order[n_held_out:])),
        tuple(samples[i] for i in held_out_part),
        tuple(notes),
        made_up,
    )


def _elements(program: Program, source: Source) -> Iterable[Any]:
    if isinstance(source, str) and is_function(source) and not Path(source).exists():
        source = user_function(source)
    if isinstance(source, str | os.PathLike):
        return read_samples(Path(source))
    elements: Any = source
    if callable(source) and not isinstance(source, Tensor):
        elements = source()
    if isinstance(elements, Tensor | np.ndarray | Mapping) or _is_one(elements, program):
        elements = [elements]
    if not isinstance(elements, Iterable):
        raise InputSpecError(
            f"samples are {type(elements).__name__}: an iterable of tensors, tuples or mappings is "
            "wanted"
        )
    return elements


def _is_one(elements: object, program: Program) -> bool:
    """Returns whether a tuple has all inputs of one sample, rather than several samples."""
    n = len(program.example_inputs)
    alone = isinstance(elements, tuple) and len(elements) in (n, n + 1) and n > 1
    return alone and all(isinstance(value, Tensor | np.ndarray) for value in elements)  # type: ignore[attr-defined]


# Without data


def stored_samples(program: Program, model: Path | None) -> Iterator[Sample]:
    """Yields the examples in a model's file that fit the program: bundled inputs of TorchScript, or
    the inputs that an ExportedProgram was exported with."""
    if model is None:
        return
    stored: list[Sequence[Any]]
    saved = read(model)
    if isinstance(saved, ExportedProgram):
        leaves = pytree.tree_leaves(saved.example_inputs)
        stored = [[leaf for leaf in leaves if isinstance(leaf, Tensor)]]
    else:
        stored = bundled_examples(flat_inputs(saved, model.name))
    expected = [describe(value) for value in program.example_inputs]
    for example in stored:
        values = [plain(value) for value in example if isinstance(value, Tensor)]
        if [describe(value) for value in values] == expected:
            yield Sample(tuple(value.detach() for value in values))


def random_samples(program: Program, n: int, seed: int) -> list[Sample]:
    """Returns samples with normal floats; integers and truth values are those of the program's
    example."""
    generator = torch.Generator().manual_seed(seed)
    return [
        Sample(
            tuple(
                torch.randn(value.shape, generator=generator).to(value.dtype)
                if value.dtype.is_floating_point
                else value
                for value in program.example_inputs
            )
        )
        for _ in range(n)
    ]


# Samples and batches in the program's form


def _fitted(program: Program, elements: Iterable[Any]) -> Iterator[Sample]:
    types = [describe(value) for value in program.example_inputs]
    for element in elements:
        if isinstance(element, Sample):
            element = (*element.inputs, *([] if element.target is None else [element.target]))
        inputs, target = _inputs_and_target(element, program.units.inputs)
        yield from _split_batch(inputs, target, types, program.name)


def _inputs_and_target(element: Any, names: Sequence[str]) -> tuple[list[Tensor], Tensor | None]:
    """Returns inputs and target of a sample or batch."""
    if isinstance(element, Mapping):
        return _named_parts(element, names)
    if not isinstance(element, list | tuple):
        element = [element]
    if len(element) == 2 and isinstance(element[0], list | tuple | Mapping):
        inputs, _ = _inputs_and_target(element[0], names)
        return inputs, _tensor_of_value(element[1])
    if len(element) not in (len(names), len(names) + 1):
        raise InputSpecError(
            f"a sample has {len(element)} values, the model takes {len(names)} inputs",
            "give these, and behind them at most a target",
        )
    values = [_tensor_of_value(value) for value in element]
    return values[: len(names)], values[len(names)] if len(values) > len(names) else None


def _named_parts(
    element: Mapping[str, Any], names: Sequence[str]
) -> tuple[list[Tensor], Tensor | None]:
    target_name = next((name for name in TARGETS if name in element and name not in names), None)
    target = None if target_name is None else _tensor_of_value(element[target_name])
    rest = [name for name in element if name != target_name]
    by_name = all(name in element for name in names)
    if not by_name and len(rest) != len(names):
        raise InputSpecError(
            f"a sample has {', '.join(map(str, rest)) or 'nothing'}, the model takes "
            f"{', '.join(names)}",
            f"name the arrays so, and labels {TARGETS[1]}",
        )
    return [_tensor_of_value(element[name]) for name in (names if by_name else rest)], target


def _tensor_of_value(value: Any) -> Tensor:
    if isinstance(value, Tensor):
        integers = plain(value.detach().cpu())
        assert isinstance(integers, Tensor)
        return integers
    try:
        array = np.asarray(value)
        return torch.from_numpy(array if array.flags.writeable else array.copy())
    except (TypeError, ValueError) as error:
        raise InputSpecError(
            f"a sample has {type(value).__name__} in it, tensors and arrays are required"
        ) from error


def _split_batch(
    inputs: list[Tensor], target: Tensor | None, types: Sequence[TensorType], name: str
) -> Iterator[Sample]:
    """Yields samples of the program's shapes from a sample, a sample without the dimension of a
    batch of one, or a batch, which is split."""
    shapes = [tuple(value.shape) for value in inputs]
    wanted = [type_.shape for type_ in types]
    if shapes == wanted:
        yield Sample(_cast_inputs(inputs, types, name), target)
        return
    if all(w[:1] == (1,) and s == w[1:] for s, w in zip(shapes, wanted, strict=True)):
        values = [value.unsqueeze(0) for value in inputs]
        yield Sample(_cast_inputs(values, types, name), target)
        return
    sizes = {shape[:1] for shape in shapes}
    if len(sizes) == 1 and all(s[1:] == w for s, w in zip(shapes, wanted, strict=True)):
        for index in range(shapes[0][0]):  # whole samples, stacked
            values = [value[index] for value in inputs]
            own = target[index] if target is not None and target.ndim else target
            yield Sample(_cast_inputs(values, types, name), own)
        return
    batches = {shape[:1] for shape in wanted}
    rests = all(s[1:] == w[1:] for s, w in zip(shapes, wanted, strict=True))
    if len(sizes) != 1 or len(batches) != 1 or not rests or () in sizes | batches:
        raise InputSpecError(
            f"a sample has the shapes {_shapes_text(shapes)}, {name} takes {_shapes_text(wanted)}",
            "give samples of these, or batches of them",
        )
    (n,), (batch,) = sizes.pop(), batches.pop()
    if n < batch:
        raise InputSpecError(
            f"a batch has {n} samples, {name} takes {batch} at once", "give as many"
        )
    for start in range(0, n - batch + 1, batch):
        values = [value[start : start + batch] for value in inputs]
        own = target
        if target is not None and target.ndim and len(target) == n:
            own = target[start : start + batch]
        yield Sample(_cast_inputs(values, types, name), own)


def _cast_inputs(
    values: Sequence[Tensor], types: Sequence[TensorType], name: str
) -> tuple[Tensor, ...]:
    """Copies values, which may belong to a file or a batch, to the program's element types. Raises
    InputSpecError where that would change a value."""
    converted = []
    for value, type_ in zip(values, types, strict=True):
        dtype = torch_dtype(type_.dtype)
        same_kind = value.is_floating_point() == dtype.is_floating_point
        result = value.to(dtype) if same_kind else value
        exact = dtype.is_floating_point or torch.equal(result.to(value.dtype), value)
        if not same_kind or not exact:
            raise InputSpecError(
                f"a sample is {str(value.dtype).removeprefix('torch.')}, {name} takes "
                f"{type_.dtype}",
                "convert it, as the model's own preparation does",
            )
        if dtype.is_floating_point and not bool(torch.isfinite(result).all()):
            raise InputSpecError(f"a sample for {name} has values that are not finite numbers")
        converted.append(result.clone(memory_format=torch.contiguous_format))
    return tuple(converted)


def _shapes_text(shapes: Sequence[tuple[int, ...]]) -> str:
    return ", ".join("x".join(map(str, shape)) or "scalar" for shape in shapes)
