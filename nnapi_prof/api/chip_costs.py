"""Costs of a model on a Snapdragon that is not there: ``profile(model, device="qnn:SM8750")``.

Nothing of it goes into a cost table: what was compiled is remembered in the cache folder, and the
same call gives the same costs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from nnapi_prof.api.costs import Costs
from nnapi_prof.api.events import SILENT, Listener
from nnapi_prof.api.model import Model
from nnapi_prof.api.program_costs import estimated_costs, read_phone
from nnapi_prof.costs.conditions import Conditions
from nnapi_prof.errors import UsageError
from nnapi_prof.graph.plan import Plan
from nnapi_prof.partition import baselines, solve
from nnapi_prof.qnn.calibration import ChipCalibration, calibrate
from nnapi_prof.qnn.chips import Chip, QnnPrecision, one_chip
from nnapi_prof.qnn.wheel import LICENCE, qairt_version, require
from nnapi_prof.reports.words import calibration_words

if TYPE_CHECKING:
    from nnapi_prof.qnn.costs import ChipCosts
    from nnapi_prof.qnn.graphs import Form
    from nnapi_prof.qnn.profile import ChipProfile

PHONE = "sm8750"
"""The described phone whose CPU stands beside the NPU."""


@dataclass(frozen=True)
class ChipResult:
    """Costs on a chip, the plan that they lead to, and how far both can be trusted."""

    chip: Chip
    precision: QnnPrecision
    costs: Costs
    profile: ChipProfile
    calibration: ChipCalibration
    notes: tuple[str, ...]

    @property
    def plan(self) -> Plan:
        return self.profile.plans[0]

    @property
    def ties(self) -> tuple[str, ...]:
        """Rivals that the plan beats by less than the estimate can see."""
        return self.profile.ties(self.calibration)


def profile_on_chip(
    model: Model, device: str, listener: Listener = SILENT, workers: int | None = None
) -> ChipResult:
    """Estimates a model's units and regions on a chip's NPU, and the plan beside its CPU.

    ``workers`` are processes that compile at once (None: one a core). Raises UsageError where the
    extra ``qnn`` is missing or there is no such chip, ConversionError where the model cannot be
    exported, CostError where nothing was published to calibrate on.
    """
    chip, precision = one_chip(device)
    require()
    calibration = calibrate(chip, precision, qairt_version())
    listener.note(LICENCE)
    phone = read_phone(PHONE)
    program = model.program
    from nnapi_prof.qnn.compiler import CompilerPool
    from nnapi_prof.qnn.profile import phone_side, profile_chip

    with listener.working("exporting the model to ONNX"):
        cut = _cutter(model, precision)
    cpu = phone_side(estimated_costs(program, phone))

    def planned(costs: ChipCosts) -> Sequence[Plan]:
        return (solve(program.units, costs), *baselines(program.units, costs))

    with CompilerPool(workers) as pool, listener.working(f"compiling for {chip.name}"):
        profiled = profile_chip(
            program.units,
            cut,
            chip,
            precision,
            calibration,
            cpu,
            pool,
            planned,
            listener.busy,
        )
    notes = [calibration_words(calibration), f"the CPU is that of {phone['description']}"]
    if chip.name != PHONE.upper():
        notes.append(
            f"that CPU is another phone's than {chip.name}'s: of a plan between the two only the"
            " NPU's part is the chip's own"
        )
    costs = Costs(
        model=model,
        device=f"{chip.name} ({chip.marketing}), NPU in {precision.value}",
        conditions=Conditions(),
        priced=profiled.costs,
        estimated=True,
        notes=(*model.notes, *notes),
    )
    return ChipResult(chip, precision, costs, profiled, calibration, tuple(notes))


def _cutter(model: Model, precision: QnnPrecision) -> Callable[[Iterable[int]], Form]:
    from nnapi_prof.qnn.regions import RegionCutter

    cutter = RegionCutter(model.program)
    if precision is QnnPrecision.FP16:
        return cutter.cut
    from nnapi_prof.qnn.int8 import quantise_form

    return lambda region: quantise_form(cutter.cut(region))


def no_conditions(device: str, asked: Iterable[str]) -> None:
    """Raises UsageError where a chip is to be measured under conditions that only devices have."""
    if names := list(asked):
        raise UsageError(
            f"{device} is estimated by Qualcomm's simulator, which does not support"
            f" {', '.join(names)}",
            "leave that out",
        )
