"""Inputs of a model as Python writes them: shapes, example tensors, tuples and dicts of these."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from nnapi_prof.errors import InputSpecError

if TYPE_CHECKING:
    from torch import Tensor

    Input = str | int | float | bool | None | Tensor | Sequence["Input"] | Mapping[str, "Input"]


def arguments(inputs: Input) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Returns the arguments of a call of the model, by position and by name: shapes as texts,
    tensors, numbers.

    A text, sizes or a tensor alone is the only argument; a mapping names them. Raises
    InputSpecError where something is none of these.
    """
    if inputs is None:
        return (), {}
    if isinstance(inputs, Mapping):
        return (), {str(name): _shapes_as_text(value) for name, value in inputs.items()}
    if isinstance(inputs, Sequence) and not isinstance(inputs, str) and not _is_shape(inputs):
        return tuple(map(_shapes_as_text, inputs)), {}
    return (_shapes_as_text(inputs),), {}


def texts(inputs: Input) -> tuple[str, ...]:
    """The same as ``--input`` takes it: a text for each tensor, ``NAME=TEXT`` for what is named,
    ``=VALUE`` for numbers. Raises InputSpecError."""
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
    """A value with its shapes as texts."""
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
            f"the input {_short(value)} is not a shape: sizes are wanted, as in (1, 3, 224, 224) or"
            " '1x3x224x224'"
        )
    return (
        tuple(map(_shapes_as_text, value))
        if isinstance(value, tuple)
        else list(map(_shapes_as_text, value))
    )


def _is_shape(value: object) -> bool:
    """Whether it is sizes: ``(1, 3, 224, 224)``."""
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
