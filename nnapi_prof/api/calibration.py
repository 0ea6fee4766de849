"""Prepares what several precisions need beside a model: samples of its inputs, and scales for 8
bits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from nnapi_prof.api.events import Listener
from nnapi_prof.api.model import Model
from nnapi_prof.device.protocol.results import AgentInfo
from nnapi_prof.errors import UsageError, option_name
from nnapi_prof.execution.profile.jobs import NEWEST_LEVEL, device_targets
from nnapi_prof.graph.plan import AUTO, Engine, Precision

if TYPE_CHECKING:
    from nnapi_prof.precision.recipe import Recipe
    from nnapi_prof.precision.samples import Samples, Source


@dataclass(frozen=True)
class CalibrationOptions:
    """The source of samples, as :func:`nnapi_prof.precision.samples.load_samples` takes it."""

    source: Source | None = None
    limit: int | None = None
    """None: as many as :data:`nnapi_prof.precision.samples.LIMIT`."""

    def refuse(self, precision: str) -> None:
        """Raises UsageError where there are samples, and nothing that is in 8 bits: ``precision``
        would ask for that."""
        if self != CalibrationOptions():
            raise UsageError(
                f"{option_name('calibration')} and {option_name('samples')} are for 8 bits",
                f"add {precision} to the name of the device",
            )


@dataclass(frozen=True)
class Calibration:
    """The calibration of one model for one device."""

    samples: Samples = field(repr=False)
    recipe: Recipe | None = field(default=None, repr=False)
    """How units are quantised; None where 8 bits were not asked for."""
    level: int = NEWEST_LEVEL
    """The feature level that 8-bit units are for, as devices report it."""


def calibrate_model(
    model: Model,
    info: AgentInfo,
    precisions: Sequence[Precision],
    options: CalibrationOptions,
    listener: Listener,
) -> Calibration:
    """Samples and, where 8 bits are asked for, the recipe for what a device's accelerators run.

    The same samples give the same recipe. Raises what reading samples and calibrating raise
    (InputSpecError, UsageError).
    """
    from nnapi_prof.precision.samples import LIMIT, load_samples

    program = model.program
    with listener.working("reading calibration data"):
        samples = load_samples(
            program,
            options.source,
            model=model.path,
            limit=LIMIT if options.limit is None else options.limit,
        )
    listener.notes(*samples.notes)
    level = int8_level(info)
    if Precision.INT8 not in precisions:
        return Calibration(samples, None, level)
    from nnapi_prof.precision.calibrate import calibrate

    with listener.working(f"calibrating 8 bits on {len(samples.calibration)} samples"):
        recipe = calibrate(program, [sample.inputs for sample in samples.calibration], level)
    return Calibration(samples, recipe, level)


def int8_level(info: AgentInfo) -> int:
    """The lowest feature level among a device's accelerators: what all of them take."""
    levels = [
        spec.level
        for spec in device_targets(info)
        if spec.target.engine is Engine.NNAPI and spec.target.accelerator != AUTO
    ]
    return min(levels, default=NEWEST_LEVEL)
