"""Find inputs on which a TorchScript model runs: stated, bundled with it, or guessed and tried."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from nnapi_prof.errors import InputSpecError, for_caller
from nnapi_prof.frontend.inputs import (
    InputSpec,
    check_count,
    example_tensors,
    listed,
    shapes_or_values,
)
from nnapi_prof.frontend.torch_logging import essential_line, quiet_torch, run_once, source_line
from nnapi_prof.frontend.torchscript.builtins import all_nodes

_IMAGE_SIZES = (224, 64, 32, 28, 299, 512, 16)
"""Sides tried for a guess: ImageNet's first, then what small models are trained on."""
_TOKENS = (64, 128, 16, 8)
"""Lengths tried for a sequence of tokens."""
_INTEGERS = (torch.int64, torch.int32, torch.uint8, torch.int8)
_WEIGHT_KINDS = {
    "aten::_convolution": "conv",
    "aten::convolution": "conv",
    "aten::conv1d": "conv",
    "aten::conv2d": "conv",
    "aten::conv3d": "conv",
    "aten::linear": "linear",
    "aten::embedding": "embedding",
}


def forward_arguments(model: torch.jit.ScriptModule) -> list[Any]:
    """Returns the schema's arguments of ``model.forward``, without self."""
    forward: Any = model.forward
    return list(forward.schema.arguments)[1:]


def find_inputs(
    model: torch.jit.ScriptModule, stated: Sequence[InputSpec], name: str
) -> tuple[tuple[Tensor, ...], tuple[str, ...]]:
    """Returns example inputs on which the model runs, and notes about guesses.

    Stated specs come first, then bundled inputs, then a guess from the first layer. Raises
    InputSpecError where their number is wrong, the model fails on them, or none can be found.
    """
    arguments = forward_arguments(model)
    needed = sum(not argument.has_default_value() for argument in arguments)
    _refuse_other_types(arguments[:needed], name)
    if stated:
        check_count(name, len(stated), needed, len(arguments))
        return _examples_without_zeros(model, example_tensors(stated), name), ()
    bundled = bundled_inputs(model)
    if bundled is not None:
        try_model(name, model, bundled)
        return bundled, ()
    return _guessed(model, needed, name)


def _examples_without_zeros(
    model: torch.jit.ScriptModule, examples: tuple[Tensor, ...], name: str
) -> tuple[Tensor, ...]:
    """Returns the examples, with ones for integers where the model divides by zeros among them."""
    try:
        try_model(name, model, examples)
    except InputSpecError as error:
        if "ZeroDivisionError" not in str(error):
            raise
        examples = tuple(
            torch.ones_like(example) if example.dtype in _INTEGERS else example
            for example in examples
        )
        try_model(name, model, examples)
    return examples


def _refuse_other_types(arguments: Sequence[Any], name: str) -> None:
    for argument in arguments:
        if str(argument.type) not in ("Tensor", "Optional[Tensor]"):
            raise InputSpecError(
                f"{name} takes the input {argument.name} of type {argument.type}: only tensors can "
                f"be inputs; wrap the model to take tensors"
            )


def try_model(name: str, model: torch.jit.ScriptModule, examples: Sequence[Tensor]) -> None:
    """Runs the model once. Raises InputSpecError with PyTorch's essential line if it fails."""
    try:
        with run_once():
            model(*examples)
    except Exception as error:
        line = source_line(error)
        where = f" (at {line})" if line else ""
        stated = listed([InputSpec.of(t) for t in examples])
        raise InputSpecError(
            f"{name} does not run on the input {stated}: {essential_line(error)}{where}",
            _remedy(model, examples, str(error)),
        ) from error


def _remedy(model: torch.jit.ScriptModule, examples: Sequence[Tensor], error: str) -> str:
    """Returns advice for a model that does not run."""
    weights = [*model.parameters(), *model.buffers()]
    if any(value.dtype is torch.float64 for value in weights):
        return "state the element type, too, where it takes float64, as in 1x8:float64"
    floats = all(example.is_floating_point() for example in examples)
    if "double" in error.lower() and not floats:
        return (
            "a trace stores numbers as float64, and integers become that beside them: write"
            " x.float() in the model before arithmetic on an integer input, or save it with"
            " torch.jit.script or torch.export"
        )
    return f"state the shapes it wants with {shapes_or_values()}"


def bundled_examples(model: torch.jit.ScriptModule) -> list[Sequence[object]]:
    """Returns all examples that torch.utils.bundled_inputs stored with the model."""
    if not hasattr(model, "get_all_bundled_inputs"):
        return []
    with quiet_torch():
        return list(model.get_all_bundled_inputs())


def first_bundled(model: torch.jit.ScriptModule) -> Sequence[object] | None:
    """Returns the first bundled example; None where there is none."""
    examples = bundled_examples(model)
    return examples[0] if examples else None


def bundled_inputs(model: torch.jit.ScriptModule) -> tuple[Tensor, ...] | None:
    """Returns the first bundled example if it consists of tensors, else None."""
    example = first_bundled(model)
    tensors = [value for value in example or () if isinstance(value, Tensor)]
    if example is None or len(tensors) < len(example):
        return None
    return tuple(value.contiguous().clone() for value in tensors)


@dataclass(frozen=True, slots=True)
class Guess:
    """Input shapes worth trying, and the kind of layer they come from."""

    layer: str
    specs: tuple[InputSpec, ...]


def _guessed(
    model: torch.jit.ScriptModule, needed: int, name: str
) -> tuple[tuple[Tensor, ...], tuple[str, ...]]:
    tried = []
    guess = guesses(_first_weights(model))
    of_tokens = guess is not None and guess.layer == "embedding"
    for spec in guess.specs if guess and (needed == 1 or of_tokens) else ():
        specs = [spec] * needed  # tokens, their mask and their types are of one shape
        examples = example_tensors(specs)
        try:
            try_model(name, model, examples)
        except InputSpecError:
            tried.append(str(spec))
            continue
        assert guess is not None
        # The note stays with the model, so it names neither an option nor an argument.
        shapes = f"shape guessed as {spec}" if needed == 1 else f"shapes guessed as {listed(specs)}"
        note = f"input {shapes} from the first {guess.layer}; state it where it is not"
        return examples, (note,)
    example = "1x64:int64" if of_tokens else "1x3x224x224"
    counted = "1 input" if needed == 1 else f"{needed} inputs"
    failed = f" (the model does not run on {', '.join(tried)})" if tried else ""
    raise InputSpecError(
        f"{name} takes {counted} and stores no shapes{failed}: state each with "
        + for_caller(f"--input, as in --input {example}", f'inputs, as in inputs=["{example}"]')
    )


def guesses(weights: Iterator[tuple[str, tuple[int, ...]]]) -> Guess | None:
    """Returns shapes for a model whose first layer is the first ``(kind, shape)`` of ``weights``.

    ``conv2d`` gives 1 x C x side x side, ``conv1d`` 1 x C x length, ``linear`` 1 x features,
    ``embedding`` 1 x tokens of int64; the channels are those of the whole input, groups multiplied
    in.
    """
    for kind, shape in weights:
        if kind == "embedding":
            specs = tuple(InputSpec((1, length), "int64") for length in _TOKENS)
            return Guess("embedding", (*specs, InputSpec((_TOKENS[0],), "int64")))
        if kind == "linear":
            return Guess("linear layer", (InputSpec((1, shape[1])), InputSpec((1, 1, shape[1]))))
        rank = len(shape) - 2
        sides = _IMAGE_SIZES if rank == 2 else (1024, 256, 64) if rank == 1 else (16, 32)
        specs = tuple(InputSpec((1, shape[1], *[side] * rank)) for side in sides)
        return Guess("convolution", specs)
    return None


def _first_weights(model: torch.jit.ScriptModule) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Yields kind and weight shape of each layer in code order, with the channels of all groups."""
    with quiet_torch():
        graph = frozen(model).graph
        nodes = list(all_nodes(graph))
    for node in nodes:
        kind = _WEIGHT_KINDS.get(node.kind())
        if kind is None:
            continue
        weight = node.inputsAt(0 if kind == "embedding" else 1).toIValue()
        if not isinstance(weight, Tensor):
            continue
        shape = list(weight.shape)
        if kind == "conv":
            groups = node.inputsAt(8 if "_convolution" in node.kind() else 6).toIValue()
            transposed = "_convolution" in node.kind() and node.inputsAt(6).toIValue()
            shape[1] = shape[0] if transposed else shape[1] * int(groups or 1)
        yield kind, tuple(shape)


def frozen(model: torch.jit.ScriptModule) -> torch.jit.ScriptModule:
    """Returns the model with attributes inlined as constants; itself if it is frozen already."""
    if not hasattr(model, "training"):
        return model
    return torch.jit.freeze(model)  # type: ignore[no-any-return]
