"""Options that constrain a plan: the fields of :class:`nnapi_prof.api.wishes.Wishes`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from collections.abc import Callable

F = TypeVar("F", bound="Callable[..., Any]")

SOLVERS = ("search", "milp")


def wishes_options(function: F) -> F:
    """``--forbid``, ``--pin``, ``--preference``, ``--max-regions``, ``--max-compile-ms``,
    ``--max-error``, ``--list``, ``--solver``, ``--best``, ``--seconds``: the fields of
    :class:`~nnapi_prof.api.wishes.Wishes`."""
    units = "UNITS is a unit's name, or a pattern of its label, as `softmax*`"
    options = (
        click.option(
            "--forbid",
            multiple=True,
            metavar="UNITS[=TARGETS]",
            help=f"Keep units off targets (patterns; default: all accelerators). {units}.",
        ),
        click.option(
            "--pin",
            multiple=True,
            metavar="UNITS=TARGET",
            help=f"Run units on one target, as `conv2d*=cpu`. {units}.",
        ),
        click.option(
            "--preference",
            type=click.Choice(["low_power", "fast", "sustained"]),
            help="Accelerators under this PreferenceCode only.",
        ),
        click.option(
            "--max-regions", type=click.IntRange(0), help="Most segments on accelerators."
        ),
        click.option(
            "--max-compile-ms",
            type=click.FloatRange(min=0),
            help="Most that compiling all segments on accelerators may take, measured or summed"
            " from parts.",
        ),
        click.option(
            "--max-error",
            type=click.FloatRange(min=0),
            help="With --relaxed or --float16: keep what differs from float32 by more than this"
            " (of its largest value, in float16 on this host) off accelerators.",
        ),
        click.option(
            "--list",
            "listed",
            multiple=True,
            metavar="UNITS",
            help="Show a baseline that keeps these units, and all behind them, off accelerators.",
        ),
        click.option(
            "--solver",
            type=click.Choice(SOLVERS),
            default="search",
            show_default=True,
            help="`milp` asks HiGHS for the optimum: a second opinion for small models. It keeps to"
            " all limits but --max-compile-ms.",
        ),
        click.option(
            "--best",
            is_flag=True,
            help="The plan of least latency, however many segments it takes. Default: the fewest"
            " within noise of it.",
        ),
        click.option(
            "--seconds",
            type=click.FloatRange(0.1, 86_400),
            help="Most that the search for the plan may take. Default: 10.",
        ),
    )
    for option in reversed(options):
        function = option(function)
    return function
