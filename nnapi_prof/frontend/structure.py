"""The nesting of a model's inputs and outputs: tuples, lists and dicts around flat tensors."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import GenericAlias, MappingProxyType
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind, TensorArgument
from torch.utils import _pytree as pytree

from nnapi_prof.errors import InputSpecError
from nnapi_prof.frontend import export
from nnapi_prof.frontend.torch_logging import quiet_torch, run_once
from nnapi_prof.frontend.torchscript.inputs import first_bundled
from nnapi_prof.frontend.trees import (
    Constant,
    Leaf,
    Named,
    Sequenced,
    Tree,
    expression,
    missing_value,
    named_classes,
    retyped,
    tree_of,
    with_types,
)

NO_VALUES: Mapping[str, Constant] = MappingProxyType({})


# TorchScript models that take tuples, lists and dicts, turned into models that only take tensors.
#
# TorchScript does not store the length of a list or the keys of a dict. They come from the code: a
# list's unpacking or the indices that are read, and the keys that are read, in that order. Bundled
# inputs (torch.utils.bundled_inputs) take precedence.


PLAIN = ("Tensor", "Optional[Tensor]")
"""Types of arguments that are one tensor."""
_NUMBERS = ("int", "float", "bool", "str", "number")


def input_trees(
    model: torch.jit.ScriptModule, name: str, values: Mapping[str, Constant] = NO_VALUES
) -> dict[str, Tree]:
    """Returns the tree of each argument of ``forward`` (``arg_0``, ...), its tensors numbered
    across all arguments; empty where the model only takes tensors.

    ``values`` has values of arguments that are numbers or texts; others have their defaults, and
    are omitted at the end. Raises InputSpecError where a type holds anything but tensors, or its
    length or keys cannot be found.
    """
    forward: Any = model.forward
    given = list(forward.schema.arguments[1:])
    arguments = list(given)
    while arguments and arguments[-1].name not in values and _left_out(arguments[-1]):
        arguments.pop()
    if all(str(a.type) in PLAIN for a in arguments):
        return {}
    numbers = itertools.count()
    example = first_bundled(model)
    if example is not None and len(example) >= len(arguments):
        flat = tree_of(tuple(example[: len(arguments)]))
        assert isinstance(flat, Sequenced)
        return {f"arg_{index}": tree for index, tree in enumerate(flat.items)}

    def said(argument: Any) -> str:
        return f"{name} takes the input {argument.name} of type {argument.type}"

    nodes = dict(zip((a.name for a in given), list(model.inlined_graph.inputs())[1:], strict=True))

    def tree(argument: Any) -> Tree:
        if argument.name in values:
            return values[argument.name]
        if _left_out(argument):
            return tree_of(argument.default_value)
        if str(argument.type) in _NUMBERS:
            raise InputSpecError(missing_value(name, argument.name, str(argument.type)))
        return _tree(argument.type, nodes[argument.name], said(argument), numbers)

    return {f"arg_{number}": tree(argument) for number, argument in enumerate(arguments)}


def flat_inputs(
    model: torch.jit.ScriptModule, name: str, values: Mapping[str, Constant] = NO_VALUES
) -> torch.jit.ScriptModule:
    """Wraps a model to take the tensors of its inputs one by one, unless it already does.

    ``values`` are fixed values of arguments that are not tensors. Raises InputSpecError as
    :func:`input_trees` does.
    """
    trees = input_trees(model, name, values)
    if not trees:
        return model

    class Flat(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = model

    names = [f"input_{index}" for index in range(sum(map(_n_leaves, trees.values())))]
    call = ", ".join(expression(tree, names) for tree in trees.values())
    with quiet_torch():
        flat = torch.jit.script(Flat())
        arguments = ", ".join(f"{name}: Tensor" for name in names)
        code = f"def forward(self, {arguments}):\n    return self.model({call})\n"
        classes = {cls.__name__: cls for tree in trees.values() for cls in named_classes(tree)}
        flat._c._define(flat._concrete_type, code, classes.get)
        flat.eval()
    example = first_bundled(model)
    if example is not None:  # where the front end looks for it
        leaves = [leaf for leaf in pytree.tree_leaves(example) if isinstance(leaf, Tensor)]
        object.__setattr__(flat, "get_all_bundled_inputs", lambda: [tuple(leaves)])
    assert isinstance(flat, torch.jit.ScriptModule)
    return flat


def _left_out(argument: Any) -> bool:
    return bool(argument.has_default_value()) and str(argument.type) not in PLAIN


def _n_leaves(tree: Tree) -> int:
    match tree:
        case Leaf():
            return 1
        case Sequenced(items):
            return sum(map(_n_leaves, items))
        case Named(items):
            return sum(_n_leaves(item) for _, item in items)
        case _:
            return 0


def _tree(kind: Any, value: Any, prefix: str, numbers: Iterator[int]) -> Tree:
    """Returns the tree of a type; ``value`` is the graph's value of that type, None for nested
    types. ``prefix`` begins the error message."""
    if str(kind) in PLAIN:
        return Leaf(next(numbers))
    if kind.kind() == "TupleType":
        parts = tuple(_tree(item, None, prefix, numbers) for item in kind.elements())
        return Sequenced(parts, named=_named_class(kind) if _field_names(kind) else None)
    if kind.kind() == "ListType":
        n = _n_items(value) if value is not None else None
        if n is not None:
            item = kind.getElementType()
            return Sequenced(tuple(_tree(item, None, prefix, numbers) for _ in range(n)), True)
    if kind.kind() == "DictType" and str(kind.getKeyType()) == "str":
        keys = _keys(value) if value is not None else []
        if keys:
            item = kind.getValueType()
            return Named(tuple((key, _tree(item, None, prefix, numbers)) for key in keys))
    raise InputSpecError(
        f"{prefix}: only tensors can be inputs, in tuples, or in lists and dicts whose items the"
        " code names; wrap the model to take tensors, or bundle an example"
        " (torch.utils.bundled_inputs)"
    )


def _field_names(kind: Any) -> list[str]:
    """Returns the field names of a named tuple; none for another tuple."""
    text = kind.str()
    if not text.startswith("NamedTuple("):
        return []
    depths = itertools.accumulate((c in "([") - (c in ")]") for c in text)
    level = "".join(c for c, depth in zip(text, depths, strict=True) if depth == 1)
    return re.findall(r"(\w+) : ", level)


def _named_class(kind: Any) -> type:
    """Makes a named tuple with such fields: TorchScript compares names and types, not the class."""
    fields = zip(_field_names(kind), map(_python_type, kind.elements()), strict=True)
    name = re.sub(r"\W", lambda c: f"_{ord(c[0]):x}_", kind.str())
    make: Callable[[str, list[tuple[str, Any]]], type] = NamedTuple  # type: ignore[assignment]
    return make(name, list(fields))


def _python_type(kind: Any) -> Any:
    """Returns the Python type for a TorchScript type of tensors in tuples, lists and dicts."""
    match kind.kind():
        case "TupleType" if _field_names(kind):
            return _named_class(kind)
        case "TupleType":
            return GenericAlias(tuple, tuple(map(_python_type, kind.elements())))
        case "ListType":
            return GenericAlias(list, _python_type(kind.getElementType()))
        case "DictType":
            return GenericAlias(dict, (str, _python_type(kind.getValueType())))
        case "OptionalType":
            return Tensor | None
        case _:
            return Tensor


def _n_items(value: Any) -> int | None:
    """Returns the length of a list by the nodes that read it; None where they do not tell."""
    n = 0
    for use in value.uses():
        node = use.user
        if node.kind() == "prim::ListUnpack":
            return int(node.outputsSize())
        if node.kind() == "aten::__getitem__":
            index = node.inputsAt(1).toIValue()
            if not isinstance(index, int) or index < 0:
                return None
            n = max(n, index + 1)
        elif node.kind() != "aten::len":
            return None
    return n or None


def _keys(value: Any) -> list[str]:
    """Returns the keys of a dict by the nodes that read it; none where they do not tell."""
    keys: dict[str, None] = {}
    for use in value.uses():
        node = use.user
        if node.kind() not in ("aten::__getitem__", "aten::__contains__"):
            return []
        key = node.inputsAt(1).toIValue()
        if not isinstance(key, str):
            return []
        keys[key] = None
    return list(keys)


# Inputs and outputs of one model


@dataclass(frozen=True)
class Structure:
    """The nesting of a model's arguments and results.

    ``inputs`` maps the name of each argument of the call to what it holds; names of positional
    arguments are ``arg_0``, ``arg_1``, ... Lists and dicts hold values of one type.
    """

    inputs: Mapping[str, Tree]
    outputs: Tree
    notes: tuple[str, ...] = ()
    """Notes on lists and dicts of several types, which become tuples."""

    @classmethod
    def flat(cls, n_inputs: int, n_outputs: int) -> Structure:
        """Returns a structure with a tensor for each argument, and one or a tuple as result."""
        outputs = tuple(map(Leaf, range(n_outputs)))
        return cls(
            {f"arg_{i}": Leaf(i) for i in range(n_inputs)},
            outputs[0] if n_outputs == 1 else Sequenced(outputs),
        )


def structure_of(
    model: torch.jit.ScriptModule | ExportedProgram, examples: Sequence[Tensor], name: str
) -> Structure:
    """Returns a model's structure. ``examples`` are flat inputs; the model runs on them once."""
    inputs: Mapping[str, Tree]
    run: Callable[..., object]
    with quiet_torch():
        if isinstance(model, ExportedProgram):
            inputs, run = _exported_inputs(model), export.eager(model)
        else:
            inputs = input_trees(model, name) or Structure.flat(len(examples), 0).inputs
            run = flat_inputs(model, name)
    with run_once():
        returned = run(*(example.clone() for example in examples))
    before = {**inputs, "the output": tree_of(returned)}
    after = {place: with_types(tree) for place, tree in before.items()}
    notes = [note for place in before for note in retyped(place, before[place], after[place])]
    return Structure({place: after[place] for place in inputs}, after["the output"], tuple(notes))


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
