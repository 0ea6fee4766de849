"""Estimates of a model on Snapdragons without a phone: supported operations and latencies.

``profile(model, device="qnn:SM8750")`` estimates costs of units and regions. They never go into a
cost table: compiled results stay in the cache folder, and the same call gives the same costs. A
plan made from them is estimated, and its folder says so; no device runs it, ``nnapi-prof report``
shows it, and ``advise`` starts from it.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from nnapi_prof.api import SILENT, Listener
from nnapi_prof.api.costs import CalibrationOptions, Costs
from nnapi_prof.api.model import Model
from nnapi_prof.api.plan import ModelPlan
from nnapi_prof.costs import Conditions
from nnapi_prof.execution.estimation import estimated_costs, read_phone
from nnapi_prof.execution.objectives import Latency
from nnapi_prof.execution.profile.unit_graph_cache import load_program
from nnapi_prof.graph.plan import Plan
from nnapi_prof.partition.solver import PlanSearch, find_plans
from nnapi_prof.qnn import (
    LICENCE,
    PREFIX,
    Chip,
    QnnPrecision,
    is_qnn,
    one_chip,
    parse_device,
    qairt_version,
    require_compiler,
)
from nnapi_prof.qnn.calibration import ChipCalibration, ChipOrigin, calibrate
from nnapi_prof.qnn.costs import ChipCosts
from nnapi_prof.qnn.network import FORMS_APART, other_form, times_as_slow
from nnapi_prof.reports.words import calibration_words

LOGGER = logging.getLogger(__name__)
MOST_SAMPLES = 16
"""Maximum number of inputs for ranges: all values of the model stay in memory for each."""
PHONE = "sm8750"
"""The phone whose description gives the costs of the CPU beside the NPU."""
USUAL = Latency()

if TYPE_CHECKING:
    import pandas as pd
    from torch import Tensor

    from nnapi_prof.graph.program import Program
    from nnapi_prof.qnn.graphs import Form
    from nnapi_prof.qnn.network import ChipEstimate, ChipFiles
    from nnapi_prof.qnn.profile import ChipProfile


@dataclass(frozen=True)
class ChipEstimates:
    """One model's estimates for several chips."""

    model: str
    precision: QnnPrecision
    chips: tuple[ChipEstimate, ...]
    qairt: str
    """Version of Qualcomm's compiler and simulator."""
    licence: str = LICENCE

    def frame(self) -> pd.DataFrame:
        """Returns one row for each chip: ``chip``, ``whole_ms``, ``low_ms`` and ``high_ms`` (nine
        of ten published networks lie between), ``taken`` and ``refused`` (operations),
        ``doubts``."""
        import pandas as pd

        rows = [
            {
                "chip": one.chip,
                "whole_ms": _ms(one.whole_ns),
                "low_ms": _ms(one.low_ns),
                "high_ms": _ms(one.high_ns),
                "taken": sum(one.taken.values()),
                "refused": sum(part.count for part in one.refused),
                "doubts": len(one.doubts),
            }
            for one in self.chips
        ]
        return pd.DataFrame(rows)


def _ms(ns: float | None) -> float:
    return float("nan") if ns is None else ns / 1e6


def estimate_chips(
    model: Model | str | os.PathLike[str],
    device: str,
    *,
    inputs: Sequence[str] = (),
    samples: CalibrationOptions | None = None,
    listener: Listener = SILENT,
) -> ChipEstimates:
    """Estimates a whole model on Snapdragons' NPUs by Qualcomm's own compiler and simulator.

    ``device`` is ``"qnn:SM8550,SM8750"``, with ``/int8`` appended for 8 bits, whose ranges come
    from ``samples``, as :func:`nnapi_prof.profile` takes them. This needs the extra ``qnn``, but no
    phone and no network. Nothing is measured: times are fitted to published networks, and each has
    its interval. ``inputs`` are the shapes of a file that leaves them open, and a ``listener``
    hears slow steps.

    Raises UsageError where the extra is missing or a chip does not exist, ConversionError where
    ``torch.onnx`` cannot export the model.
    """
    text = device if is_qnn(device) else f"{PREFIX}{device}"
    chips, precision = parse_device(text)
    require_compiler()
    path = model.path if isinstance(model, Model) else Path(model)
    stated = model.inputs if isinstance(model, Model) else tuple(inputs)
    with listener.working(f"exporting {path.name} to ONNX"):
        form = whole_form(path, stated)
    name = model.name if isinstance(model, Model) else path.stem
    own = samples or CalibrationOptions()
    drawn = None
    if precision is QnnPrecision.INT8:
        drawn = _drawn(path, stated, own, listener)
    else:
        own.refuse("/int8")
    first = _estimate(name, form, chips, drawn, listener)
    from nnapi_prof.qnn.graphs import attends

    if not attends(form.model) and not any(map(_suspect, first.chips)):
        return first
    with listener.working(f"exporting {path.name} in another form"):
        other = other_form(path)
    if other is None:
        return first
    return _better(first, _estimate(name, other, chips, drawn, listener))


def _suspect(one: ChipEstimate) -> bool:
    from nnapi_prof.qnn.doubts import SUSPECT

    return one.npu_ns is None or any(doubt.kind in SUSPECT for doubt in one.doubts)


def _better(first: ChipEstimates, second: ChipEstimates) -> ChipEstimates:
    """Returns the second form's estimates for all chips, as one file ships, where its simulation is
    faster by more than exporters mostly differ; else the first's."""
    from nnapi_prof.qnn.doubts import Doubt, DoubtKind

    times = times_as_slow(first.chips[0], second.chips[0])
    if times is None or 0 < times < FORMS_APART:
        return first
    doubt = Doubt(DoubtKind.EXPORTERS_DIFFER, value=times, limit=FORMS_APART)
    chips = tuple(replace(one, doubts=(doubt, *one.doubts)) for one in second.chips)
    return replace(second, chips=chips)


Drawn = Sequence[Sequence["Tensor"]]
"""Sets of inputs of a program."""


def _drawn(
    path: Path, inputs: Sequence[str], options: CalibrationOptions, listener: Listener
) -> Drawn:
    return calibration_inputs(load_program(path, inputs), path, options, listener)


def _estimate(
    name: str, form: Form, chips: Sequence[Chip], drawn: Drawn | None, listener: Listener
) -> ChipEstimates:
    """Estimates a form in 8 bits with ranges from the ``drawn`` inputs, or in fp16 for None."""
    from nnapi_prof.qnn.compiler import CompilerPool
    from nnapi_prof.qnn.network import estimate_network

    rival, precision = None, QnnPrecision.FP16
    if drawn is not None:
        from nnapi_prof.qnn.graphs import quantise_form, samples_for

        precision = QnnPrecision.INT8
        with listener.working("quantising to int8"):
            form, rival = quantise_form(form, samples_for(form.model, drawn)), form
    else:
        from nnapi_prof.qnn.graphs import float_form

        form = float_form(form)
    with (
        CompilerPool() as pool,
        listener.working("compiling for " + ", ".join(map(_chip_name, chips))),
    ):
        estimates = estimate_network(form, chips, precision, pool, rival=rival)
    return ChipEstimates(name, precision, estimates, qairt_version())


def _chip_name(chip: Chip) -> str:
    return chip.name


def whole_form(path: Path, inputs: Sequence[str] = ()) -> Form:
    """Exports a model file to the ONNX graph that ships. The exporter that traces takes an
    ExportedProgram, as for Qualcomm AI Hub's models, else the other exporter; TorchScript is
    exported from its normalised graph.

    Raises the errors of :func:`nnapi_prof.frontend.load`, and ConversionError.
    """
    from nnapi_prof.qnn.graphs import export_onnx, preprocess
    from nnapi_prof.qnn.network import exported_form

    if (form := exported_form(path, inputs)) is not None:
        return form
    loaded = load_program(path, inputs)
    return preprocess(export_onnx(loaded.module, loaded.example_inputs))


def _faster_form(path: Path, form: Form, chip: Chip, listener: Listener) -> Form:
    """Returns the other exporter's form where it is faster by more than exporters mostly differ,
    else the given one."""
    other = other_form(path)
    if other is None:
        return form
    times = times_as_slow(
        *(_estimate(path.stem, one, (chip,), None, listener).chips[0] for one in (form, other))
    )
    if times is None or 0 < times < FORMS_APART:
        return form
    listener.note(
        "the graph of torch.onnx's exporter with dynamo=True is faster there, and is taken"
    )
    return other


def convert_for_chip(
    model: str | os.PathLike[str],
    device: str,
    output: str | os.PathLike[str] | None = None,
    *,
    inputs: Sequence[str] = (),
    samples: CalibrationOptions | None = None,
    listener: Listener = SILENT,
) -> ChipFiles:
    """Writes an ONNX file whose NPU parts are compiled for one chip, and the binary beside it.

    ``device`` is ``"qnn:SM8650"`` or with ``/int8``; the file is ``MODEL.SM8650.qnn.onnx`` beside
    the model where ``output`` is None. ``samples`` set the ranges of 8 bits, as in
    :func:`estimate_chips`, whose errors this raises, too, and OSError for a folder of ``output``
    that does not exist.
    """
    chip, precision = one_chip(device)
    require_compiler()
    from nnapi_prof.qnn.compiler import CompilerPool
    from nnapi_prof.qnn.graphs import attends
    from nnapi_prof.qnn.network import SUFFIX, write_context

    path = Path(model)
    target = Path(output) if output is not None else path.with_suffix(f".{chip.name}{SUFFIX}")
    target.parent.stat()  # fails now rather than after minutes
    with listener.working(f"exporting {path.name} to ONNX"):
        form = whole_form(path, inputs)
    if attends(form.model):
        form = _faster_form(path, form, chip, listener)
    if precision is QnnPrecision.INT8:
        from nnapi_prof.qnn.graphs import quantise_form, samples_for

        drawn = _drawn(path, inputs, samples or CalibrationOptions(), listener)
        with listener.working("quantising to int8"):
            form = quantise_form(form, samples_for(form.model, drawn))
    else:
        from nnapi_prof.qnn.graphs import float_form

        (samples or CalibrationOptions()).refuse("/int8")
        form = float_form(form)
    with CompilerPool(1) as pool, listener.working(f"compiling for {chip.name}"):
        return write_context(form, chip, precision, target, pool)


@dataclass(frozen=True)
class ChipResult:
    """Costs on a chip, the plan made from them, and the accuracy of both."""

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
        """Names of baselines that the plan beats by less than the estimate can resolve."""
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

    ``workers`` is the number of processes that compile (None: one a core), ``objective`` and
    ``seconds`` are those of :func:`nnapi_prof.partition`, ``samples`` is the source of inputs for
    calibration in 8 bits. Raises UsageError where the extra ``qnn`` is missing or there is no such
    chip, ConversionError where the model cannot be exported, CostError where too few published
    networks exist to calibrate on.
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

    searches: list[PlanSearch] = []

    def planned(costs: ChipCosts) -> Sequence[Plan]:
        graph, table = program.units, costs.table
        searches.append(
            find_plans(
                graph,
                table,
                objective.constraints(graph, table.targets),
                listed=objective.listed_units(graph),
                best=objective.best,
                seconds=seconds,
            )
        )
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
    from nnapi_prof.qnn.graphs import float_form, quantise_form
    from nnapi_prof.qnn.regions import RegionCutter

    cutter = RegionCutter(model.program)
    if precision is QnnPrecision.FP16:
        options.refuse("/int8")
        return lambda region: float_form(cutter.cut(region))

    drawn = calibration_inputs(model.program, model.path, options, listener)
    values = cutter.run(drawn)

    def cut(region: Iterable[int]) -> Form:
        form = cutter.cut(region)
        return quantise_form(form, cutter.samples(region, form, values))

    return cut


def calibration_inputs(
    program: Program, path: Path, options: CalibrationOptions, listener: Listener
) -> list[tuple[Tensor, ...]]:
    """Draws at most :data:`MOST_SAMPLES` inputs of a program, as every calibration in 8 bits does,
    and reports their source to the listener."""
    from nnapi_prof.precision.samples import LIMIT, load_samples

    drawn = load_samples(
        program,
        options.source,
        model=path,
        limit=LIMIT if options.limit is None else options.limit,
    )
    listener.notes(*drawn.notes)
    return [sample.inputs for sample in drawn.calibration[:MOST_SAMPLES]]
