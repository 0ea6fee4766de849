"""NNAPI's facts: the arguments of each operation, by feature level, from the files in ``data/``.

They are read once, on first use; ``codes.py`` is generated from the same files. A level here is the
number of a feature level (1, 2, ...); devices report it as 27, 28, ...
"""

from __future__ import annotations

import functools
import json
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nnapi_prof.errors import UsageError
from nnapi_prof.nnapi.codes import FeatureLevel, OperandCode, OperationCode

DATA = Path(__file__).resolve().parent / "data" / "nnapi_ops.json"

_SCALARS = {
    "bool": OperandCode.BOOL,
    "float16": OperandCode.FLOAT16,
    "float32": OperandCode.FLOAT32,
    "int32": OperandCode.INT32,
    "model": OperandCode.MODEL,
}
TENSOR_CODES = frozenset(code for code in OperandCode if code.name.startswith("TENSOR_"))

LAST_API_LEVEL = FeatureLevel.LEVEL_5
"""Last API level reported as a feature level; level 6 and later report 1000000 + the number."""


def level_number(reported: int) -> int:
    """Returns the number (1, 2, ...) of the feature level that a device reports as 27, 28, ...

    API levels 32 and later without a number of their own count as level 5. Raises UsageError
    below 27, where NNAPI does not exist.
    """
    if reported < FeatureLevel.LEVEL_1:
        raise UsageError(f"feature level {reported}: NNAPI begins with 27 (Android 8.1)")
    if reported > 1_000_000:
        return reported - 1_000_000
    return min(reported, LAST_API_LEVEL) - FeatureLevel.LEVEL_1 + 1


def is_level(reported: int) -> bool:
    """Returns whether a device's answer is a feature level. Android 10 answers 10000 for its CPU, a
    placeholder for an unreleased API."""
    by_api = FeatureLevel.LEVEL_1 <= reported <= LAST_API_LEVEL
    return by_api or FeatureLevel.LEVEL_6 <= reported <= FeatureLevel.LEVEL_8


def level_name(number: int) -> str:
    """Returns ``level 3 (API 29)``, for example; levels after the fifth have no API level."""
    api = FeatureLevel.LEVEL_1 + number - 1
    return f"level {number} (API {api})" if api <= LAST_API_LEVEL else f"level {number}"


@dataclass(frozen=True, slots=True)
class Argument:
    """One argument of an operation; ``types`` are its permitted operand types."""

    name: str
    types: frozenset[OperandCode]
    optional: bool
    since: int


@dataclass(frozen=True, slots=True)
class Signature:
    """One form of an operation's argument list.

    ``variadic`` forms repeat their first argument once or more (CONCATENATION).
    """

    variant: str
    since: int
    arguments: tuple[Argument, ...]
    variadic: bool

    def match(self, types: Sequence[OperandCode]) -> tuple[Argument, ...] | None:
        """Returns the argument of each operand, or None where the form does not fit.

        Only arguments at the end may be left out.
        """
        arguments = self.arguments
        if self.variadic:
            repeats = len(types) - len(arguments) + 1
            if repeats < 1:
                return None
            arguments = arguments[:1] * repeats + arguments[1:]
        if len(types) > len(arguments):
            return None
        if any(not argument.optional for argument in arguments[len(types) :]):
            return None
        leading = arguments[: len(types)]
        fits = all(code in argument.types for code, argument in zip(types, leading, strict=True))
        return leading if fits else None


@dataclass(frozen=True, slots=True)
class OperationFacts:
    """One operation. ``tensor_types`` and the ranks limit its data, the input number ``data``."""

    code: OperationCode
    since: int
    data: int
    min_rank: int
    max_rank: int | None
    tensor_types: dict[OperandCode, int]
    """Type of the data -> the level that introduced it."""
    signatures: tuple[Signature, ...]


def _argument(fact: dict[str, Any]) -> Argument:
    types: set[OperandCode] = set()
    for kind in fact["kind"].split("|"):
        types |= TENSOR_CODES if kind == "tensor" else {_SCALARS[kind]}
    return Argument(fact["name"], frozenset(types), fact["optional"], fact["since_level"])


def _signature(fact: dict[str, Any]) -> Signature:
    inputs = fact["inputs"]
    variadic = bool(inputs) and ".." in str(inputs[0]["index"])
    arguments = tuple(_argument(argument) for argument in inputs)
    return Signature(fact["variant"], fact["since_level"], arguments, variadic)


@functools.cache
def all_facts() -> dict[OperationCode, OperationFacts]:
    """Returns the facts of every NNAPI operation, by its code."""
    return {
        OperationCode(op["code"]): OperationFacts(
            OperationCode(op["code"]),
            op["min_feature_level"],
            data_index(op),
            op["rank"].get("min") or 0,
            op["rank"].get("max"),
            {OperandCode[t["type"]]: t["since_level"] for t in op["tensor_types"]},
            tuple(map(_signature, op["signatures"])),
        )
        for op in json.loads(DATA.read_text())
    }


def why_not_at(
    code: OperationCode,
    types: Sequence[OperandCode],
    ranks: Sequence[int],
    level: int,
) -> str | None:
    """Returns why an operation with these operands does not exist at ``level``; None if it does.

    ``types`` and ``ranks`` describe the input operands in order (a scalar has rank 0).
    """
    facts = all_facts()[code]
    if facts.since > level:
        return (
            f"{code.name} exists from {level_name(facts.since)} on, wanted at {level_name(level)}"
        )

    matches = [(s, match) for s in facts.signatures if (match := s.match(types)) is not None]
    if not matches:
        type_names = ", ".join(code.name for code in types)
        return f"{code.name} takes no argument list of the form ({type_names})"
    needs = []
    for signature, arguments in matches:
        late = max(reversed(arguments), key=lambda argument: argument.since)
        if max(signature.since, late.since) <= level:
            break
        what = late.name if late.since > signature.since else signature.variant
        needs.append((max(signature.since, late.since), what))
    else:
        since, what = min(needs)
        return (
            f"{code.name} takes {what} from {level_name(since)} on, wanted at {level_name(level)}"
        )

    first, rank = types[facts.data], ranks[facts.data]
    since = facts.tensor_types.get(first, 0) if first in TENSOR_CODES else 1
    if since == 0:
        return f"{code.name} takes no {first.name}"
    if since > level:
        return (
            f"{code.name} takes {first.name} from {level_name(since)} on, "
            f"wanted at {level_name(level)}"
        )
    if rank < facts.min_rank:
        return f"{code.name} takes rank {facts.min_rank} or more, found {rank}"
    if facts.max_rank is not None and rank > facts.max_rank:
        return f"{code.name} takes rank {facts.max_rank} at most, found {rank}"
    return None


# Functions of NNAPI's C API, by the API level that introduced them.
#
# They are read once, on first use, from ``data/nnapi_api.json``.


API_DATA = Path(__file__).resolve().parent / "data" / "nnapi_api.json"
FIRST_API = 27


@functools.cache
def functions_by_api() -> dict[int, frozenset[str]]:
    """Returns the functions that each API level introduced, without platform-only ones."""
    levels: dict[int, set[str]] = {}
    for function in json.loads(API_DATA.read_text())["functions"]:
        if not function.get("platform_only"):
            levels.setdefault(function["api_level"], set()).add(function["name"])
    return {level: frozenset(levels[level]) for level in sorted(levels)}


def api_of(missing: Collection[str]) -> int:
    """Returns the API level of a libneuralnetworks.so without these functions: the newest whose
    functions it has, together with those of all levels before; at least 27."""
    highest = FIRST_API
    for level, names in functions_by_api().items():
        if not names.isdisjoint(missing):
            return highest
        highest = level
    return highest


def data_index(op: dict[str, Any]) -> int:
    """Returns the first tensor input whose type is free; the types of later inputs depend on it.

    ``op`` is an entry of ``nnapi_ops.json``. The result is 0 if all tensors have fixed types.
    """
    free = (
        index
        for index, entry in enumerate(op["signatures"][0]["inputs"])
        if entry["kind"] == "tensor" and "tensor_types" not in entry
    )
    return next(free, 0)
