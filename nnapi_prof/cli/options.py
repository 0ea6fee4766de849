"""Options and small things that several commands share."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from nnapi_prof.graph.plan import Preference

if TYPE_CHECKING:
    from rich.console import Console

    from nnapi_prof.costs.conditions import Conditions
    from nnapi_prof.device.find import OpenDevice
    from nnapi_prof.graph.program import Program

F = TypeVar("F", bound=Callable[..., Any])

PREFERENCES = [preference.short for preference in Preference]

MODEL = click.argument("model", type=click.Path(path_type=Path))
BUNDLE = click.argument("bundle", type=click.Path(path_type=Path))


def device_option(function: F) -> F:
    return click.option(
        "--device",
        "device_spec",
        metavar="SERIAL",
        help="Serial of a phone, HOST:PORT, `local` or `sim:NAME`. Default: the only connected"
        " phone, else a simulated one.",
    )(function)


def costs_option(function: F) -> F:
    return click.option(
        "--costs",
        metavar="FILE|URL",
        help="Cost table: an SQLite file or a PostgreSQL URL. Default: $NNAPI_PROF_COSTS, else"
        " a file in the user's data folder.",
    )(function)


def input_option(function: F) -> F:
    return click.option(
        "--input",
        "inputs",
        multiple=True,
        metavar="1x3x224x224[:DTYPE]",
        help="Shape of an input; repeat it for each. ? or ?=256 leaves a size open (quote it),"
        " ?n one that all called ?n have."
        " Default: what the file bundles, else a guess.",
    )(function)


def threads_option(function: F) -> F:
    return click.option(
        "--threads",
        type=click.IntRange(1, 64),
        default=1,
        show_default=True,
        help="Threads of the device's CPU engine.",
    )(function)


def _cpus(_context: click.Context, _parameter: click.Parameter, value: str | None) -> str | None:
    from nnapi_prof.costs.conditions import parse_cpus

    try:
        return None if value is None else parse_cpus(value)
    except ValueError as error:
        raise click.BadParameter(str(error)) from error


def cpus_option(default: str | None) -> Callable[[F], F]:
    """``--cpus``; without a default it is the bundle's."""
    said = "" if default else " Default: as the bundle was planned for."
    return click.option(
        "--cpus",
        metavar="big|all|MASK",
        default=default,
        show_default=default is not None,
        callback=_cpus,
        help="Cores to keep to: those of the highest clock rate, all, or a mask like 0xf0." + said,
    )


def conditions_options(function: F) -> F:
    """``--threads``, ``--cpus``, ``--mode``, ``--relaxed``, ``--float16``: what
    :func:`conditions_of` takes."""
    options = (
        threads_option,
        cpus_option("big"),
        click.option(
            "--mode",
            type=click.Choice(["sync", "burst", "async"]),
            default="sync",
            show_default=True,
            help="How NNAPI is asked to compute.",
        ),
        click.option(
            "--relaxed",
            is_flag=True,
            help="Let NNAPI compute float32 as float16; the CPU does not.",
        ),
        click.option(
            "--float16",
            is_flag=True,
            help="Models for NNAPI in float16 (API 29), their inputs and outputs in float32; the"
            " CPU's stay in float32.",
        ),
    )
    for option in reversed(options):
        function = option(function)
    return function


def conditions_of(threads: int, cpus: str, mode: str, relaxed: bool, float16: bool) -> Conditions:
    """Raises UsageError where the options exclude each other."""
    from nnapi_prof.costs.conditions import Conditions, Mode, Precision
    from nnapi_prof.errors import UsageError

    if relaxed and float16:
        raise UsageError("--relaxed lets float32 be computed as float16, --float16 has no float32")
    precision = Precision.FLOAT32
    if relaxed or float16:
        precision = Precision.RELAXED if relaxed else Precision.FLOAT16
    return Conditions(precision, Mode(mode), threads, cpus)


def cooldown_option(function: F) -> F:
    return click.option(
        "--cooldown-s",
        type=click.FloatRange(0, 3600),
        default=60.0,
        show_default=True,
        help="Wait this long at most for a phone that is too hot, and measure again what was"
        " measured hot; 0 does not.",
    )(function)


def memory_option(function: F) -> F:
    return click.option(
        "--memory-mb",
        type=click.IntRange(1, (1 << 22) - 1),
        help="Memory that one measurement's process may use. Default: three quarters of what is"
        " available on the device.",
    )(function)


def stdout() -> Console:
    """For results: wide when nobody watches, so that pipes stay whole.

    No markup: what devices and models say may have brackets of its own.
    """
    from rich.console import Console

    console = Console(highlight=False, markup=False)
    return console if console.is_terminal else Console(highlight=False, markup=False, width=160)


def stderr() -> Console:
    """For progress and notes, so that results can be piped."""
    from rich.console import Console

    return Console(stderr=True, highlight=False, markup=False, soft_wrap=True)


def say(text: str) -> None:
    """A note on standard error."""
    stderr().print(text)


def say_notes(notes: Iterable[str]) -> None:
    """What a user should know of a model (a guessed input shape), on standard error."""
    for note in notes:
        say(f"note: {note}")


def load_model(
    path: Path, inputs: Sequence[str], silent: bool = False, keep: bool = False
) -> Program:
    """Loads a model and, unless ``silent``, says its notes; ``keep`` is that of frontend.load.

    Raises what :func:`nnapi_prof.api.loading.read_model` raises.
    """
    from nnapi_prof.api.loading import read_model

    program = read_model(path, inputs, keep)
    if not silent:
        say_notes(program.notes)
    return program


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turns what goes wrong while a result is written to ``path`` into a UsageError."""
    from nnapi_prof.errors import UsageError

    try:
        yield
    except OSError as error:
        raise UsageError(
            f"cannot write {path}: {error.strerror or error}: name another --output"
        ) from error


@contextmanager
def device(spec: str | None) -> Iterator[OpenDevice]:
    """Opens what ``--device`` says, and tells the user where the choice was ours."""
    from nnapi_prof.device.find import open_device

    with open_device(spec, say) as opened:
        if opened.note:
            say(f"note: {opened.note}")
        yield opened


def ms(nanoseconds: float | None) -> str:
    """``12.345``: milliseconds for a table; a dash where there is none."""
    return "–" if nanoseconds is None else f"{nanoseconds / 1e6:.3f}"


def unit_of(simulated: bool) -> str:
    """The unit in a column's head: simulated latencies are always labelled."""
    return "ms, simulated" if simulated else "ms"
