"""Read stated input shapes, and make example tensors of them."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from nnapi_prof.errors import InputSpecError, for_caller
from nnapi_prof.graph.node import dtype_name, torch_dtype

DTYPES = ("float32", "float16", "bfloat16", "float64", "int64", "int32", "uint8", "int8", "bool")
_QUANTISED = {"uint8": "quint8", "int8": "qint8"}
_SHORT = {
    "float": "float32",
    "half": "float16",
    "double": "float64",
    "long": "int64",
    "int": "int32",
}
SCALAR = "scalar"
"""Text in place of the sizes of a tensor without dimensions."""

_SIZE = r"(?:\d{1,19}|\?[a-wyzA-WYZ]*(?:=\d{1,19})?)"
_OPEN_BATCH, _OPEN_SIZE = 1, 224
"""Default examples of open sizes: of a first dimension, and of others."""


@dataclass(frozen=True, slots=True)
class InputSpec:
    """One input of a model: its shape and element type (a name in DTYPES).

    Dimensions in ``open_dims`` stay open until the model is loaded; ``shape`` has examples of them.
    ``names`` has a name for each, or is empty: sizes of one name are equal, also across inputs, and
    those named "" are free. ``quant`` has the scale and zero point of a quantised tensor, and
    ``dtype`` is then the type of its integers.
    """

    shape: tuple[int, ...]
    dtype: str = "float32"
    open_dims: tuple[int, ...] = ()
    names: tuple[str, ...] = ()
    quant: tuple[float, int] | None = None

    def __str__(self) -> str:
        suffix = "" if self.dtype == "float32" else f":{self.dtype}"
        if self.quant is not None:
            suffix = f":{_QUANTISED[self.dtype]}@{self.quant[0]!r}@{self.quant[1]}"
        sizes = list(map(str, self.shape))
        for dim in self.open_dims:
            sizes[dim] = f"?{self.name_of(dim)}={self.shape[dim]}"
        return ("x".join(sizes) or SCALAR) + suffix

    def name_of(self, open_dim: int) -> str:
        """Returns the name of an open dimension, "" where it has none."""
        return self.names[self.open_dims.index(open_dim)] if self.names else ""

    @property
    def closed(self) -> InputSpec:
        """The same spec with every open size fixed at its example."""
        return InputSpec(self.shape, self.dtype, quant=self.quant)

    @classmethod
    def of(cls, tensor: Tensor) -> InputSpec:
        """Returns the spec that ``tensor`` fits."""
        if tensor.is_quantized:
            name = dtype_name(tensor.dtype)
            dtype = next((dtype for dtype, q in _QUANTISED.items() if q == name), name)
            return cls(tuple(tensor.shape), dtype, quant=(tensor.q_scale(), tensor.q_zero_point()))
        return cls(tuple(tensor.shape), dtype_name(tensor.dtype))


def parse_input_spec(text: str) -> InputSpec:
    """Reads ``1x3x224x224``, ``1x128:int64`` or, with sizes left open, ``1x3x?x?``.

    ``?=256`` leaves a size open with 256 as its example; the default example is 1 for the first
    dimension and 224 for others. ``1x3x?nx?n`` leaves open one size that both dimensions have.
    ``1x16:quint8@0.05@128`` is a quantised tensor with that scale and zero point, ``scalar`` a
    tensor without dimensions. Raises InputSpecError where ``text`` is none of these.
    """
    return parse_input_specs([text])[0]


def parse_input_specs(texts: Sequence[str]) -> list[InputSpec]:
    """Reads all inputs of a model by :func:`parse_input_spec`; sizes of one name are equal.

    Raises InputSpecError where a name has two examples.
    """
    words = [_split_spec(text) for text in texts]
    examples: dict[str, int] = {}
    for text, (sizes, _) in zip(texts, words, strict=True):
        for word in sizes:
            name, _, stated = word.removeprefix("?").partition("=")
            if word.startswith("?") and name and stated:
                if examples.setdefault(name, int(stated)) != int(stated):
                    raise InputSpecError(
                        f"input {text!r}: the size {name} is {stated} here and {examples[name]} "
                        "elsewhere: sizes of one name are equal"
                    )
    return [
        _spec(text, *words_and_type, examples)
        for text, words_and_type in zip(texts, words, strict=True)
    ]


def _split_spec(text: str) -> tuple[list[str], str]:
    """Splits the text into a word for each size, and the element type."""
    shape, _, dtype = text.strip().partition(":")
    if shape == SCALAR:
        return [], _SHORT.get(dtype, dtype) or "float32"
    if not re.fullmatch(rf"{_SIZE}(x{_SIZE})*", shape):
        raise InputSpecError(
            f"input {text!r} is not a shape",
            "write sizes joined by x, as in 1x3x224x224 or "
            f"1x128:int64; ? or ?=256 leaves a size open, ?n or ?n=256 one that others have too, "
            f"{SCALAR} is a tensor without dimensions",
        )
    return shape.split("x"), _SHORT.get(dtype, dtype) or "float32"


def _spec(text: str, words: Sequence[str], dtype: str, examples: dict[str, int]) -> InputSpec:
    """Makes a spec. ``examples`` has the size of each name; a new name gets one at first use."""
    sizes, open_dims, names = [], [], []
    for dim, word in enumerate(words):
        if not word.startswith("?"):
            sizes.append(int(word))
            continue
        name, _, stated = word.removeprefix("?").partition("=")
        example = int(stated) if stated else _OPEN_BATCH if dim == 0 else _OPEN_SIZE
        sizes.append(examples.setdefault(name, example) if name else example)
        open_dims.append(dim)
        names.append(name)
    if 0 in sizes:
        raise InputSpecError(f"input {text!r} has a dimension of 0: every size must be at least 1")
    dtype, quant = _element(text, dtype)
    named = tuple(names) if any(names) else ()
    return InputSpec(tuple(sizes), dtype, tuple(open_dims), named, quant)


def _element(text: str, type_text: str) -> tuple[str, tuple[float, int] | None]:
    """Returns the stated element type, and the scale and zero point of a quantised one."""
    if type_text in DTYPES:
        return type_text, None
    for dtype, name in _QUANTISED.items():
        numbers = re.fullmatch(rf"{name}@([\d.]+(?:e-?\d+)?)@(-?\d+)", type_text)
        if numbers is not None:
            scale, zero_point = float(numbers[1]), int(numbers[2])
            info = torch.iinfo(torch_dtype(dtype))
            if scale > 0 and info.min <= zero_point <= info.max:
                return dtype, (scale, zero_point)
    raise InputSpecError(
        f"input {text!r} has the element type {type_text!r}: one of {', '.join(DTYPES)}, or quint8 "
        "or qint8 with scale and zero point as in quint8@0.05@128, is required"
    )


def example_tensors(specs: Sequence[InputSpec]) -> tuple[Tensor, ...]:
    """Returns tensors of these shapes: normally distributed, integers 0 or 1; always the same.

    Raises InputSpecError where there is no memory for one.
    """
    random = torch.Generator().manual_seed(0)
    return tuple(_example(spec, random) for spec in specs)


def _example(spec: InputSpec, random: torch.Generator) -> Tensor:
    try:
        return _random_tensor(spec, random)
    except (RuntimeError, TypeError) as error:  # the latter where a size exceeds 64 bits
        megabytes = math.prod(spec.shape) * torch_dtype(spec.dtype).itemsize // 10**6
        raise InputSpecError(
            f"input {spec} takes {megabytes:,} MB, more than this computer gives",
            "state smaller sizes",
        ) from error


def _random_tensor(spec: InputSpec, random: torch.Generator) -> Tensor:
    dtype = torch_dtype(spec.dtype)
    if spec.quant is not None:
        # covers more than one standard deviation on either side, whatever the scale
        scale, zero_point = spec.quant
        limits = torch.iinfo(dtype)
        steps = (torch.randn(spec.shape, generator=random) * 60).round() + zero_point
        integers = steps.clamp(limits.min, limits.max).to(dtype)
        return torch._make_per_tensor_quantized_tensor(integers, scale, zero_point)
    if dtype.is_floating_point:
        return torch.randn(spec.shape, generator=random).to(dtype)
    return torch.randint(0, 2, spec.shape, generator=random).to(dtype)


def listed(specs: Sequence[InputSpec]) -> str:
    """Returns specs as text for a message."""
    return ", ".join(map(str, specs)) or "none"


def check_count(name: str, stated: int, fewest: int, most: int) -> None:
    """Raises InputSpecError unless ``fewest <= stated <= most``."""
    if fewest <= stated <= most:
        return
    count = str(most) if fewest == most else f"{fewest} to {most}"
    plural = "" if most == 1 else "s"
    verb = "was" if stated == 1 else "were"
    raise InputSpecError(
        f"{name} takes {count} input{plural}, {stated} {verb} stated",
        for_caller("give --input SHAPE once for each", "state a shape in inputs for each"),
    )


def shapes_or_values() -> str:
    """Returns the options or arguments by which a user states inputs."""
    return for_caller("--input, or values with --input @FILE.npz", "inputs")
