"""Checks arguments of the Python interface."""

from __future__ import annotations

import os
from collections.abc import Sequence

from nnapi_prof.costs.conditions import Conditions, Precision
from nnapi_prof.errors import UsageError, for_caller
from nnapi_prof.execution.options import Boundary
from nnapi_prof.options import one_of


def table(costs: str | os.PathLike[str] | None) -> str | None:
    """Returns the location of a cost table as text. Raises UsageError where it is no path and no
    URL."""
    if costs is None or isinstance(costs, str | os.PathLike):
        return None if costs is None else str(costs)
    raise UsageError(
        f"costs is a {type(costs).__name__}: the path or URL of a cost table is wanted"
    )


def device_name(device: str | None) -> None:
    """Raises UsageError where a device is not named by text."""
    if device is not None and not isinstance(device, str):
        raise UsageError(
            f"device is {device!r}: a serial, HOST:PORT, 'local' or 'sim:NAME' is wanted"
        )


def boundary_of(boundary: str) -> Boundary:
    """Returns the boundary of this name. Raises UsageError where there is none."""
    one_of("boundary", boundary, [each.value for each in Boundary])
    return Boundary(boundary)


def precisions_of(
    words: Sequence[str | Precision] | None, conditions: Conditions
) -> tuple[Precision, ...] | None:
    """The precisions that regions may compute in, float32 always first; None where none are asked
    for. Raises UsageError where one is none, or the conditions say one for all."""
    if words is None:
        return None
    if conditions.precision is not Precision.FLOAT32:
        raise UsageError(
            for_caller(
                "--relaxed and --float16 are for the whole model: name them in --precisions",
                "relaxed and float16 are for the whole model: name them in precisions",
            )
        )
    chosen = [Precision.FLOAT32]
    for word in [words] if isinstance(words, str) else words:
        try:
            chosen.append(Precision(word))
        except ValueError as error:
            names = ", ".join(precision.value for precision in Precision)
            raise UsageError(f"precision {word!r} is not one of {names}") from error
    return tuple(dict.fromkeys(chosen))
