"""How a model nests its inputs and outputs around the graph's flat ones."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind, TensorArgument
from torch.utils import _pytree as pytree

from nnapi_prof.frontend import exported
from nnapi_prof.frontend.loading import ModelKind, model_kind, read_exported, read_nested
from nnapi_prof.frontend.nested import flat_inputs, input_trees
from nnapi_prof.frontend.quiet import quiet_torch, run_once
from nnapi_prof.frontend.trees import (
    Leaf,
    Sequenced,
    Tree,
    annotation,
    checks,
    expression,
    places,
    tree_of,
)


@dataclass(frozen=True)
class Structure:
    """What a model is called with and returns.

    ``inputs`` maps the name of each argument of the call to what it holds; names of positional
    arguments are ``arg_0``, ``arg_1``, ...
    """

    inputs: Mapping[str, Tree]
    outputs: Tree

    @classmethod
    def flat(cls, n_inputs: int, n_outputs: int) -> Structure:
        """One tensor for each argument, and one tensor or a tuple of several back."""
        outputs = tuple(map(Leaf, range(n_outputs)))
        return cls(
            {f"arg_{i}": Leaf(i) for i in range(n_inputs)},
            outputs[0] if n_outputs == 1 else Sequenced(outputs),
        )


def model_structure(path: Path, examples: Sequence[Tensor]) -> Structure:
    """How the model of a file that was loaded (``nnapi_prof.frontend.load``) nests its values.

    ``examples`` are flat inputs; the model runs on them once.
    """
    with quiet_torch():
        if model_kind(path) is ModelKind.EXPORTED:
            return structure_of(read_exported(path), examples, path.name)
    return structure_of(read_nested(path), examples, path.name)


def structure_of(
    model: torch.jit.ScriptModule | ExportedProgram, examples: Sequence[Tensor], name: str
) -> Structure:
    """:func:`model_structure` of a model in memory."""
    inputs: Mapping[str, Tree]
    run: Callable[..., object]
    with quiet_torch():
        if isinstance(model, ExportedProgram):
            inputs, run = _exported_inputs(model), exported.eager(model)
        else:
            inputs = input_trees(model, name) or Structure.flat(len(examples), 0).inputs
            run = flat_inputs(model, name)
    with run_once():
        returned = run(*(example.clone() for example in examples))
    return Structure(inputs, tree_of(returned))


def _exported_inputs(program: ExportedProgram) -> dict[str, Tree]:
    numbers = itertools.count()
    leaves = [
        Leaf(next(numbers))
        if isinstance(spec.arg, TensorArgument)
        else getattr(spec.arg, "value", None)  # a constant the program was exported with
        for spec in program.graph_signature.input_specs
        if spec.kind is InputKind.USER_INPUT
    ]
    args, kwargs = pytree.tree_unflatten(leaves, program.call_spec.in_spec)
    positional = {f"arg_{index}": tree_of(value) for index, value in enumerate(args)}
    return positional | {name: tree_of(value) for name, value in kwargs.items()}


__all__ = [
    "Leaf",
    "Sequenced",
    "Structure",
    "annotation",
    "checks",
    "expression",
    "model_structure",
    "places",
    "structure_of",
]
