"""Inputs that are stated by name, and those that are numbers or texts: ``rate=16000``, ``=0.5``."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from nnapi_prof.errors import InputSpecError, for_caller

Constant = None | bool | int | float | str

_NAMED = re.compile(r"([A-Za-z_]\w*)?=(.*)", re.DOTALL)
_READ: dict[str, Callable[[str], Constant]] = {
    "int": int,
    "float": float,
    "number": float,
    "str": lambda text: text.strip("\"'"),
    "bool": lambda text: {"true": True, "1": True, "false": False, "0": False}[text.lower()],
}
"""TorchScript's name of a type -> what reads a value of it; raises ValueError or KeyError."""


def is_named(text: str) -> bool:
    """Whether an input is stated by its name, or as a value."""
    return _NAMED.fullmatch(text.strip()) is not None


@dataclass(frozen=True, slots=True)
class BoundInputs:
    """Stated inputs in the model's order: shapes of tensors, and the values of the others."""

    shapes: tuple[str, ...]
    values: Mapping[str, Constant]


def bind_inputs(texts: Sequence[str], arguments: Mapping[str, str], model: str) -> BoundInputs:
    """Sorts stated inputs by the model's ``arguments``: name to TorchScript's type, in order.

    ``NAME=TEXT`` is of that argument, ``=TEXT`` of the next that is no tensor; others are the
    shapes of tensors in their order. Raises InputSpecError.
    """
    named: dict[str, str] = {}
    shapes: list[str] = []
    values: list[str] = []
    for text in texts:
        match = _NAMED.fullmatch(text.strip())
        if match is None:
            shapes.append(text)
        elif match[1] is None:
            values.append(match[2])
        elif match[1] not in arguments:
            raise InputSpecError(
                f"{model} has no input {match[1]!r}: its inputs are {', '.join(arguments)}"
            )
        else:
            named[match[1]] = match[2]
    ordered: list[str] = []
    constants: dict[str, Constant] = {}
    rest = iter(values)
    for name, kind in arguments.items():
        if "Tensor" in kind:
            if name in named:
                ordered.append(named[name])
            elif shapes and kind in ("Tensor", "Optional[Tensor]"):
                ordered.append(shapes.pop(0))
            elif texts and kind == "Optional[Tensor]":
                constants[name] = None
            continue
        stated = named[name] if name in named else next(rest, None)
        if stated is not None:
            constants[name] = _read_value(stated, kind, name, model)
    left = next(rest, None)
    if left is not None:
        raise InputSpecError(f"{model} has no input for the value {left!r}", "leave it out")
    return BoundInputs((*ordered, *shapes), constants)


def missing_value(model: str, name: str, kind: str) -> str:
    """Returns the remedy for an argument that is no tensor and was not stated."""
    value = {"int": "16", "float": "0.5", "bool": "true", "str": "fast"}.get(kind, "VALUE")
    how = for_caller(f"--input {name}={value}", f'"{name}={value}" in inputs')
    return f"{model} takes the input {name}, of type {kind}: say which it always is to have, {how}"


def _read_value(text: str, kind: str, name: str, model: str) -> Constant:
    inner = kind.removeprefix("Optional[").removesuffix("]")
    if inner != kind and text.lower() == "none":
        return None
    try:
        return _READ[inner](text)
    except (KeyError, ValueError) as error:
        raise InputSpecError(
            f"the input {name} of {model} is of type {kind}, {text!r} was stated"
        ) from error
