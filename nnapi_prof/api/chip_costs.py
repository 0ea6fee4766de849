"""Costs of a model on a Snapdragon that is not there: ``profile(model, device="qnn:SM8750")``.

Nothing of it goes into a cost table: what was compiled is remembered in the cache folder, and the
same call gives the same costs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from nnapi_prof.api.costs import CalibrationOptions, Costs
from nnapi_prof.api.model import Model
from nnapi_prof.api.objectives import Latency
from nnapi_prof.api.options import SILENT, Listener
from nnapi_prof.api.plan import ModelPlan
from nnapi_prof.api.plan_search import Search, find_plans
from nnapi_prof.api.program_costs import estimated_costs, read_phone
from nnapi_prof.costs.conditions import Conditions
from nnapi_prof.errors import UsageError
from nnapi_prof.graph.plan import Plan
from nnapi_prof.qnn.calibration import ChipCalibration, ChipOrigin, calibrate
from nnapi_prof.qnn.chips import (
    LICENCE,
    Chip,
    QnnPrecision,
    one_chip,
    qairt_version,
    require_compiler,
)
from nnapi_prof.reports.words import calibration_words

if TYPE_CHECKING:
    from pathlib import Path

    from torch import Tensor

    from nnapi_prof.graph.program import Program
    from nnapi_prof.qnn.costs import ChipCosts
    from nnapi_prof.qnn.graphs import Form
    from nnapi_prof.qnn.profile import ChipProfile

MOST_SAMPLES = 16
"""Inputs that ranges are taken from: every value of the model is kept for each."""
PHONE = "sm8750"
"""The described phone whose CPU stands beside the NPU."""
USUAL = Latency()


@dataclass(frozen=True)
class ChipResult:
    """Costs on a chip, the plan that they lead to, and how far both can be trusted."""

    chip: Chip
    precision: QnnPrecision
    costs: Costs
    profile: ChipProfile
    origin: ChipOrigin
    planned: ModelPlan

    @property
    def calibration(self) -> ChipCalibration:
        return self.origin.calibration

    @property
    def plan(self) -> Plan:
        return self.planned.plan

    @property
    def ties(self) -> tuple[str, ...]:
        """Rivals that the plan beats by less than the estimate can see."""
        return self.origin.ties(self.planned.plans)


def profile_on_chip(
    model: Model,
    device: str,
    listener: Listener = SILENT,
    workers: int | None = None,
    objective: Latency = USUAL,
    seconds: float | None = None,
    samples: CalibrationOptions | None = None,
) -> ChipResult:
    """Estimates a model's units and regions on a chip's NPU, and the plan beside its CPU.

    ``workers`` are processes that compile at once (None: one a core), ``objective`` and ``seconds``
    those of :func:`nnapi_prof.partition`, ``samples`` the source of what 8 bits are calibrated
    with. Raises UsageError where the extra ``qnn`` is missing or there is no such chip,
    ConversionError where the model cannot be exported, CostError where nothing was published to
    calibrate on.
    """
    chip, precision = one_chip(device)
    require_compiler()
    calibration = calibrate(chip, precision, qairt_version())
    listener.note(LICENCE)
    phone = read_phone(PHONE)
    program = model.program
    from nnapi_prof.qnn.compiler import CompilerPool
    from nnapi_prof.qnn.profile import phone_side, profile_chip

    with listener.working("exporting the model to ONNX"):
        cut = _cutter(model, precision, samples or CalibrationOptions(), listener)
    cpu = phone_side(estimated_costs(program, phone))

    searches: list[Search] = []

    def planned(costs: ChipCosts) -> Sequence[Plan]:
        searches.append(find_plans(program.units, costs.table, objective, seconds=seconds))
        return searches[-1].plans

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
    phone_words = str(phone["description"])
    notes = [calibration_words(calibration), f"the CPU is that of {phone_words}"]
    if chip.name != PHONE.upper():
        notes.append(
            f"that CPU is another phone's than {chip.name}'s: of a plan between the two only the"
            " NPU's part is the chip's own"
        )
    origin = ChipOrigin(
        calibration,
        phone_words,
        profiled.stable,
        profiled.errors,
        {label: tuple(d.words() for d in odd) for label, odd in profiled.doubts.items()},
        profiled.failures,
    )
    costs = Costs(
        model=model,
        device=f"{chip.name} ({chip.marketing}), NPU in {precision.value}",
        conditions=Conditions(),
        priced=profiled.costs,
        estimated=True,
        origin=origin,
        notes=(*model.notes, *notes),
    )
    plan = ModelPlan(
        model=model,
        plans=searches[-1].plans,
        device=costs.device,
        conditions=costs.conditions,
        estimated=True,
        costs=costs,
        search=searches[-1],
    )
    return ChipResult(chip, precision, costs, profiled, origin, plan)


def _cutter(
    model: Model, precision: QnnPrecision, options: CalibrationOptions, listener: Listener
) -> Callable[[Iterable[int]], Form]:
    from nnapi_prof.qnn.regions import RegionCutter

    cutter = RegionCutter(model.program)
    if precision is QnnPrecision.FP16:
        options.refuse("/int8")
        return cutter.cut
    from nnapi_prof.qnn.graphs import quantise_form

    drawn = calibration_inputs(model.program, model.path, options, listener)
    values = cutter.run(drawn)

    def cut(region: Iterable[int]) -> Form:
        form = cutter.cut(region)
        return quantise_form(form, cutter.samples(region, form, values))

    return cut


def calibration_inputs(
    program: Program, path: Path, options: CalibrationOptions, listener: Listener
) -> list[tuple[Tensor, ...]]:
    """Draws inputs of a program as every calibration in 8 bits does, and lets the listener know
    what they are: the first :data:`MOST_SAMPLES` of them."""
    from nnapi_prof.precision.samples import LIMIT, load_samples

    drawn = load_samples(
        program,
        options.source,
        model=path,
        limit=LIMIT if options.limit is None else options.limit,
    )
    listener.notes(*drawn.notes)
    return [sample.inputs for sample in drawn.calibration[:MOST_SAMPLES]]


def no_conditions(device: str, asked: Iterable[str]) -> None:
    """Raises UsageError where a chip is to be measured under conditions that only devices have."""
    if names := list(asked):
        raise UsageError(
            f"{device} is estimated by Qualcomm's simulator, which does not support"
            f" {', '.join(names)}",
            "leave that out",
        )
