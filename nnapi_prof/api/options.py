"""Checks arguments of the Python interface."""

from __future__ import annotations

import os
from collections.abc import Sequence

from nnapi_prof.costs.conditions import (
    BY_TRIAL,
    MOST_SUSTAINED_S,
    MOST_THREADS,
    Conditions,
    Mode,
    Precision,
    parse_cpus,
)
from nnapi_prof.device.protocol.actions import MAX_RUNS
from nnapi_prof.device.state import Gates
from nnapi_prof.errors import UsageError, for_caller
from nnapi_prof.execution.options import MOST_MEMORY_MB, MOST_WAIT_S, Boundary
from nnapi_prof.graph.plan import Preference
from nnapi_prof.options import names, number, one_of


def table(costs: str | os.PathLike[str] | None) -> str | None:
    """Returns the location of a cost table as text. Raises UsageError where it is no path and no
    URL."""
    if costs is None or isinstance(costs, str | os.PathLike):
        return None if costs is None else str(costs)
    raise UsageError(
        f"costs is a {type(costs).__name__}: the path or URL of a cost table is wanted"
    )


def preferences_of(preferences: Sequence[str] | None) -> tuple[Preference, ...]:
    """Returns the preferences of these names, all for None. Raises UsageError where a name is
    unknown."""
    if preferences is None:
        return tuple(Preference)
    chosen = names("preferences", preferences)
    for name in chosen:
        one_of("preferences", name, [each.short for each in Preference])
    return tuple(each for each in Preference if each.short in chosen)


def device_name(device: str | None) -> None:
    """Raises UsageError where a device is not named by text."""
    if device is not None and not isinstance(device, str):
        raise UsageError(
            f"device is {device!r}: a serial, HOST:PORT, 'local' or 'sim:NAME' is wanted"
        )


def repeats(runs: int | None, cooldown_s: float | None, memory_mb: int | None) -> None:
    """Checks the options that :func:`nnapi_prof.profile`, ``run`` and ``go`` share."""
    number("runs", runs, 1, MAX_RUNS)
    number("cooldown_s", cooldown_s, 0, MOST_WAIT_S)
    number("memory_mb", memory_mb, 1, MOST_MEMORY_MB)


def boundary_of(boundary: str) -> Boundary:
    """Returns the boundary of this name. Raises UsageError where there is none."""
    one_of("boundary", boundary, [each.value for each in Boundary])
    return Boundary(boundary)


USUAL = Conditions()
"""Whose fields are the defaults of ``cpus`` and ``mode`` everywhere; that of ``threads`` is
:data:`.BY_TRIAL`."""


def conditions_of(
    threads: int | str = BY_TRIAL,
    cpus: str = USUAL.cpus,
    mode: str = USUAL.mode.value,
    relaxed: bool = False,
    float16: bool = False,
    sustained: int = USUAL.sustained_s,
) -> Conditions:
    """The conditions; where ``threads`` is ``auto``, before a trial decides, one thread.

    Raises UsageError where one of them is none, or two exclude each other.
    """
    if relaxed and float16:
        raise UsageError(
            for_caller(
                "--relaxed lets float32 be computed as float16, --float16 has no float32: choose"
                " one",
                "relaxed lets float32 be computed as float16, float16 has no float32",
            )
        )
    n_threads = USUAL.threads
    if isinstance(threads, str):
        one_of("threads", threads, (BY_TRIAL,))
    else:
        number("threads", threads, 1, MOST_THREADS)
        n_threads = threads
    number("sustained", sustained, 0, MOST_SUSTAINED_S)
    one_of("mode", mode, [each.value for each in Mode])
    try:
        cores = parse_cpus(cpus)
    except ValueError as error:
        raise UsageError(f"cpus: {error}") from error
    precision = Precision.FLOAT32
    if relaxed or float16:
        precision = Precision.RELAXED if relaxed else Precision.FLOAT16
    return Conditions(precision, Mode(mode), n_threads, cores, sustained)


def gates_of(
    max_temp_c: float | None,
    min_battery: int | None,
    max_load: int | None,
    wait_s: float,
    anchor_s: float | None,
) -> Gates:
    """Raises UsageError where one of them is none."""
    number("max_temp_c", max_temp_c, 0, 120)
    number("min_battery", min_battery, 0, 100)
    number("max_load", max_load, 0, 100)
    number("wait_s", wait_s, 0)
    number("anchor_s", anchor_s, 0)
    return Gates(max_temp_c, min_battery, max_load, wait_s, anchor_s)


def precisions_of(
    words: Sequence[str | Precision] | None, relaxed: bool = False, float16: bool = False
) -> tuple[Precision, ...] | None:
    """The precisions that regions may compute in, float32 always first; None where none are asked
    for. Raises UsageError where one is none, or the conditions say one for all."""
    if words is None:
        return None
    if relaxed or float16:
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
