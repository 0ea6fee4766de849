"""Options and small things that several commands share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from rich.console import Console

    from nnapi_prof.graph.program import Program

F = TypeVar("F", bound=Callable[..., Any])

MODEL = click.argument("model", type=click.Path(path_type=Path))
BUNDLE = click.argument("bundle", type=click.Path(path_type=Path))


def device_option(function: F) -> F:
    return click.option(
        "--device",
        metavar="SERIAL",
        help="Serial of a phone, HOST:PORT, `local` or `sim:NAME`. Default: the only connected"
        " phone, else a simulated one.",
    )(function)


def costs_option(function: F) -> F:
    return click.option(
        "--costs",
        metavar="FILE|URL",
        help="Cost table: an SQLite file or any SQLAlchemy URL.",
    )(function)


def input_option(function: F) -> F:
    return click.option(
        "--input",
        "inputs",
        multiple=True,
        metavar="1x3x224x224[:DTYPE]",
        help="Shape of an input, one option for each. Default: what the file bundles, else a guess.",
    )(function)


def stdout() -> Console:
    """For results."""
    from rich.console import Console

    return Console(highlight=False, soft_wrap=False)


def stderr() -> Console:
    """For progress and notes, so that results can be piped."""
    from rich.console import Console

    return Console(stderr=True, highlight=False)


def load_model(path: Path, inputs: Sequence[str]) -> Program:
    """Loads a model and says its notes (a guessed input shape) on standard error."""
    from nnapi_prof.frontend import load
    from nnapi_prof.frontend.inputs import parse_input_spec

    program = load(path, [parse_input_spec(text) for text in inputs])
    for note in program.notes:
        stderr().print(f"note: {note}", markup=False)
    return program


def ms(nanoseconds: float | None, simulated: bool = False) -> str:
    """``12.345``: milliseconds for a table; an em dash where there is none."""
    if nanoseconds is None:
        return "—"
    return f"{nanoseconds / 1e6:.3f}"
