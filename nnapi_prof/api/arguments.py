"""Arguments as the functions of the Python interface want them; the command line checks its own."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from numbers import Real

from nnapi_prof.errors import UsageError

MOST_THREADS = 64
MOST_RUNS = 100_000
MOST_ROUNDS = 1000
MOST_WAIT_S = 3600.0
MOST_MEMORY_MB = 4_194_303


def number(name: str, value: object, least: float, most: float | None = None) -> None:
    """Raises UsageError where ``value`` is no number from ``least`` to ``most``; None, which means
    what the function says it does, is let through."""
    if value is None:
        return
    wanted = f"at least {least:g}" if most is None else f"from {least:g} to {most:g}"
    known = isinstance(value, Real) and not isinstance(value, bool)
    if not known or not least <= float(value) <= (float("inf") if most is None else most):  # type: ignore[arg-type]
        raise UsageError(f"{name} is {value!r}: a number {wanted} is wanted")


def one_of(name: str, value: object, known: Sequence[str]) -> None:
    """Raises UsageError where ``value`` is none of ``known``; None is let through."""
    if value is not None and value not in known:
        raise UsageError(f"{name} is {value!r}: one of {', '.join(known)} is wanted")


def names(name: str, value: Sequence[str]) -> tuple[str, ...]:
    """Several texts; a text alone is one. Raises UsageError where there is anything else."""
    if isinstance(value, Mapping) or not isinstance(value, Iterable):
        raise UsageError(f"{name} is {value!r}: texts are wanted")
    texts = (value,) if isinstance(value, str) else tuple(value)
    if not all(isinstance(text, str) for text in texts):
        raise UsageError(f"{name} is {value!r}: texts are wanted")
    return texts


def placements(name: str, value: str | Sequence[str] | Mapping[str, str]) -> tuple[str, ...]:
    """:func:`names` of patterns that may say where, as ``"softmax*=cpu"``; a mapping from units to
    targets says it, too. Raises UsageError where there is anything else."""
    if not isinstance(value, Mapping):
        return names(name, value)
    if not all(isinstance(text, str) for pair in value.items() for text in pair):
        raise UsageError(f"{name} is {value!r}: units and targets as text are wanted")
    return tuple(f"{unit}={where}" for unit, where in value.items())


def table(costs: str | os.PathLike[str] | None) -> str | None:
    """Where a cost table is, as text. Raises UsageError where that is no path and no URL."""
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


def repeats(runs: int | None, cooldown_s: float, memory_mb: int | None) -> None:
    """What :func:`nnapi_prof.profile`, ``run`` and ``go`` have in common."""
    number("runs", runs, 1, MOST_RUNS)
    number("cooldown_s", cooldown_s, 0, MOST_WAIT_S)
    number("memory_mb", memory_mb, 1, MOST_MEMORY_MB)
