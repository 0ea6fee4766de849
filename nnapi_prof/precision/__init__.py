"""Float models in 8 bits: calibration of their values, and quantised programs.

The result of calibration is a :class:`Recipe`: the scale of each value and weight, and the units
that can use them. A recipe is data. Applied to its float program it always gives the same quantised
program, so that a bundle stores the float model and its recipe.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from nnapi_prof.errors import SerializationError
from nnapi_prof.graph import Quantisation
from nnapi_prof.graph.quantisation import RANGES, Scheme

VERSION = 1
MAX_CHANNELS = 1 << 20
"""Most scales of a stored scheme, which is more than any layer has channels."""


@dataclass(frozen=True)
class Recipe:
    """Recipe to quantise a float program. Names are those of the nodes of its graph."""

    values: Mapping[str, Quantisation]
    """Values that the units read or write -> quantisation."""
    weights: Mapping[str, Scheme]
    """Constants that are integers in an 8-bit unit -> scheme; that of a bias follows from these."""
    units: frozenset[int]
    """Units that can be in 8 bits."""
    refusals: Mapping[int, str]
    """Other unit -> reason why it cannot be in 8 bits."""
    dtype: str
    """Element type of quantised values: ``int8`` from feature level 30 on, ``uint8`` below."""
    corrections: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    """Node of a layer -> correction added to its bias in 8 bits, one number for each output
    channel: the mean loss of its results due to rounded weights."""

    def to_json(self) -> dict[str, Any]:
        """Returns plain data, from which :meth:`from_json` makes an equal recipe."""
        return {
            "version": VERSION,
            "dtype": self.dtype,
            "values": {name: [q.scale, q.zero_point] for name, q in sorted(self.values.items())},
            "weights": {name: _scheme_json(s) for name, s in sorted(self.weights.items())},
            "units": sorted(self.units),
            "corrections": {name: list(c) for name, c in sorted(self.corrections.items())},
            "refusals": [[unit, why] for unit, why in sorted(self.refusals.items())],
        }

    @classmethod
    def from_json(cls, data: Any) -> Recipe:
        """Reads a recipe from plain data of unknown origin. Raises SerializationError."""
        try:
            return _recipe(data)
        except (AttributeError, KeyError, OverflowError, TypeError, ValueError) as error:
            raise SerializationError(f"this is not a recipe for 8 bits: {error!r}") from error


def _scheme_json(scheme: Scheme) -> dict[str, Any]:
    whole: dict[str, Any] = {"dtype": scheme.dtype, "scales": list(scheme.scales)}
    if any(scheme.zero_points):
        whole["zero_points"] = list(scheme.zero_points)
    if scheme.axis is not None:
        whole["axis"] = scheme.axis
    return whole


def _recipe(data: Any) -> Recipe:
    if data["version"] != VERSION:
        raise ValueError(f"version {data['version']!r}, {VERSION} is read here")
    dtype = _dtype(data["dtype"])
    values = {
        _read_name(name): Quantisation(_read_scale(scale), _zero_point(zero, dtype))
        for name, (scale, zero) in data["values"].items()
    }
    weights = {_read_name(name): _scheme(scheme) for name, scheme in data["weights"].items()}
    units = frozenset(map(_index, data["units"]))
    refusals = {_index(unit): _read_name(why) for unit, why in data["refusals"]}
    corrections = {
        _read_name(name): tuple(map(_read_number, numbers))
        for name, numbers in data["corrections"].items()
    }
    if units & set(refusals):
        raise ValueError(f"units both quantised and refused: {sorted(units & set(refusals))}")
    return Recipe(values, weights, units, refusals, dtype, corrections)


def _scheme(data: Any) -> Scheme:
    dtype = _dtype(data["dtype"])
    scales = tuple(map(_read_scale, data["scales"]))
    axis = data.get("axis")
    if not 1 <= len(scales) <= MAX_CHANNELS or (axis is None and len(scales) > 1):
        raise ValueError(f"{len(scales)} scales along axis {axis}")
    zeros = tuple(_zero_point(zero, dtype) for zero in data.get("zero_points", [0] * len(scales)))
    if len(zeros) != len(scales):
        raise ValueError(f"{len(zeros)} zero points for {len(scales)} scales")
    return Scheme(scales, zeros, None if axis is None else _index(axis), dtype)


def _dtype(value: Any) -> str:
    if value not in RANGES:
        raise ValueError(f"element type {value!r}")
    return str(value)


def _read_scale(value: Any) -> float:
    scale = _read_number(value)
    if scale <= 0:
        raise ValueError(f"scale {scale}")
    return scale


def _read_number(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, float | int):
        raise TypeError(f"number {value!r}")
    number = float(value)
    if not math.isfinite(number):
        raise ValueError(f"number {number}")
    return number


def _zero_point(value: Any, dtype: str) -> int:
    low, high = RANGES[dtype]
    if type(value) is not int or not low <= value <= high:
        raise ValueError(f"zero point {value!r} of {dtype}")
    return value


def _index(value: Any) -> int:
    if type(value) is not int or value < 0:
        raise ValueError(f"index {value!r}")
    return value


def _read_name(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r} instead of text")
    return value
