"""Options of commands that choose precisions: which ones, what is calibrated with, what an error
is."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import click

from nnapi_prof.api.objectives import Within
from nnapi_prof.cli.command import F, option_group
from nnapi_prof.cli.options import declared
from nnapi_prof.graph.plan import Precision

CALIBRATION = ("precisions", "calibration", "samples")
"""What :func:`precision_options` gives to a command."""
WORDS = ",".join(precision.value for precision in Precision)
_BUDGET = re.compile(r"([0-9.]+(?:e-?[0-9]+)?) *(%|dB)?", re.IGNORECASE)


class ErrorBudget(click.ParamType[float]):
    """An error as a share: ``2%``, ``0.02``, or as its distance, ``34dB``."""

    name = "error"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        match = _BUDGET.fullmatch(str(value).strip())
        try:
            number = float(match[1]) if match else -1.0
        except ValueError:
            number = -1.0
        unit = (match[2] or "").lower() if match else ""
        if number < 0 or (unit == "db" and number == 0):
            self.fail(f"{value!r} is not an error: write 2%, 0.02 or 34dB", param, ctx)
        return 10 ** (-number / 20) if unit == "db" else number / 100 if unit else number


def _precisions(
    _context: click.Context, _parameter: click.Parameter, value: str | None
) -> tuple[Precision, ...] | None:
    if value is None:
        return None
    try:
        words = [word.strip() for word in value.split(",")]
        return tuple(dict.fromkeys(Precision(word) for word in words))
    except ValueError as error:
        raise click.BadParameter(f"{value!r}: some of {WORDS} are wanted") from error


calibration_options = option_group(
    click.option(
        "--calibration",
        metavar="DATA",
        help="Inputs to calibrate 8 bits and measure errors with: a .pt or .npz file, or"
        " module:function, which returns an iterable such as a DataLoader. Default:"
        " the inputs in the model file, else random ones.",
    ),
    click.option(
        "--samples",
        type=click.IntRange(2, 100_000),
        help="Largest number of samples; a quarter of them is held out. Default: 128.",
    ),
)


def precision_options(default: str | None) -> Callable[[F], F]:
    """``--precisions`` (None where none are asked for), ``--calibration``, ``--samples``:
    arguments of :func:`nnapi_prof.profile`."""
    return option_group(
        click.option(
            "--precisions",
            metavar=WORDS,
            default=default,
            show_default=default is not None,
            callback=_precisions,
            help="Precisions that regions may use; each is measured.",
        ),
        calibration_options,
    )


METRIC = declared(Within, "metric")
