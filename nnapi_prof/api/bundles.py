"""Make bundles of a model and its plans, for phones and for chips.

A device runs a phone's bundle. A plan for a Snapdragon that is not there is estimated, and its
folder says so; no device runs it, ``nnapi-prof report`` shows it, and ``advise`` starts from it:

    manifest.json         the plan, the costs behind it and their origin, with its own SHA-256
    model.pt | model.pt2  the original
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

from nnapi_prof.api.costs import Costs
from nnapi_prof.api.model import Model, load, load_program
from nnapi_prof.api.options import SILENT, Listener
from nnapi_prof.bundle.bundle import Bundle, RegionKey, needed_regions, region_key
from nnapi_prof.bundle.findings import kept_advice
from nnapi_prof.bundle.plan_set import PhoneTraits, phone_of
from nnapi_prof.bundle.storage import (
    CHIP_FORMAT,
    check_model,
    file_checksum,
    read_manifest,
    replace_folder,
    write_bundle,
    write_manifest,
)
from nnapi_prof.convert.lower import convert_copies, convert_region
from nnapi_prof.convert.region import Region, growth_note, to_float16, units_in_floats
from nnapi_prof.costs.conditions import Conditions
from nnapi_prof.costs.model.forms import Forms, forms_note
from nnapi_prof.costs.model.regression import TargetFit
from nnapi_prof.device.agent import AgentClient
from nnapi_prof.device.protocol.description import describe, device_fingerprint
from nnapi_prof.device.protocol.results import AgentInfo
from nnapi_prof.errors import (
    InputSpecError,
    SerializationError,
    UsageError,
    escape_untrusted,
    option_name,
)
from nnapi_prof.execution.options import RunOptions
from nnapi_prof.execution.profile.jobs import device_targets
from nnapi_prof.execution.timing import choose_measured
from nnapi_prof.frontend.inputs import InputSpec, listed, parse_input_spec, parse_input_specs
from nnapi_prof.graph.advice import Advice
from nnapi_prof.graph.plan import Engine, Plan, Target
from nnapi_prof.graph.program import Program, constant_outputs
from nnapi_prof.qnn.calibration import ChipOrigin
from nnapi_prof.qnn.costs import ChipCosts

if TYPE_CHECKING:
    from nnapi_prof.reports.data import ReportData


def bundle_of(
    program: Program,
    model_file: str,
    info: AgentInfo,
    plans: tuple[Plan, ...],
    conditions: Conditions,
    notes: tuple[str, ...],
    fits: Mapping[Target, TargetFit] | None = None,
    levels: Mapping[str, int] | None = None,
    forms: Forms | None = None,
) -> Bundle:
    """Some plans of a model for a device, with every region of theirs converted.

    ``model_file`` is the original's name in the bundle, ``fits`` are what it was planned with,
    ``levels`` the feature levels of targets by their keys, where they are not the device's own, and
    ``forms`` those of products of activations that the costs are of.
    Raises UsageError where a plan needs what the device lacks, UnsupportedOp where a region cannot
    be converted for it.
    """
    if levels is None:
        levels = levels_of(info)
    targets = {s.target for plan in plans for s in plan.segments if s.target.engine != Engine.HOST}
    for target in sorted(targets):
        if target.base.key not in levels:
            raise UsageError(
                f"the plan needs {target}, which {describe(info)} does not offer",
                "make one for this device, from costs that were measured on it",
            )
    return bundle_at(
        program,
        model_file,
        DescribedDevice(levels, describe(info), device_fingerprint(info), info.simulated),
        plans,
        conditions,
        notes,
        fits,
        forms or {},
    )


@dataclass(frozen=True)
class DescribedDevice:
    """A device as a bundle describes it."""

    levels: Mapping[str, int]
    """Key of a target -> feature level."""
    words: str
    fingerprint: str
    simulated: bool


def bundle_at(
    program: Program,
    model_file: str,
    device: DescribedDevice,
    plans: tuple[Plan, ...],
    conditions: Conditions,
    notes: tuple[str, ...],
    fits: Mapping[Target, TargetFit] | None = None,
    forms: Forms = MappingProxyType({}),
) -> Bundle:
    """:func:`bundle_of` for a device that need not be there. Raises UnsupportedOp."""
    levels = device.levels
    regions = {
        key: convert_region(program, *key)
        for key in needed_regions(plans, levels, lambda t: not conditions.halves(t), forms)
    }
    halved = {
        key: to_float16(convert_region(program, *key))
        for key in needed_regions(plans, levels, conditions.halves, forms)
    }
    formed = forms_note(plans[0], forms)
    return Bundle(
        model=program.name,
        model_file=model_file,
        inputs=input_specs(program),
        device=device.words,
        fingerprint=device.fingerprint,
        simulated=device.simulated,
        graph=program.units,
        plans=plans,
        levels=levels,
        regions=regions,
        halved=halved,
        forms=forms,
        copies=_copies(program, levels),
        conditions=conditions,
        notes=(
            *notes,
            *([] if formed is None else [formed]),
            *_floats(program, (*regions.values(), *halved.values())),
            *_grown(program, plans[0], levels, forms, regions | halved),
        ),
        fits=fits,
    )


def levels_of(info: AgentInfo) -> dict[str, int]:
    """Key of each of a device's targets -> the feature level to convert for."""
    return {spec.target.key: spec.level for spec in device_targets(info, one_thread=True)}


def _copies(program: Program, levels: Mapping[str, int]) -> Region | None:
    """Converts the copies that an app makes for outputs that no unit computes."""
    return convert_copies(program.units, constant_outputs(program), max(levels.values()))


def _grown(
    program: Program,
    plan: Plan,
    levels: Mapping[str, int],
    forms: Forms,
    regions: Mapping[RegionKey, Region],
) -> list[str]:
    """Lists notes on a plan's NNAPI regions that became far larger than their graph."""
    sizes = [
        (s.units, len(regions[region_key(s.units, s.target, levels, forms)].operations))
        for s in plan.segments
        if s.target.engine is Engine.NNAPI
    ]
    note = growth_note(program.units, sizes, "what the plan gives to NNAPI")
    return [] if note is None else [note]


def _floats(program: Program, regions: Iterable[Region]) -> list[str]:
    """Lists notes on quantised units that are computed in float32, one for each rule."""
    broken: dict[str, list[int]] = {}
    for unit, rule in units_in_floats(program.units, regions).items():
        broken.setdefault(rule, []).append(unit)
    return [
        f"{len(units)} quantised {'unit is' if len(units) == 1 else 'units are'} computed in "
        f"float32 between conversions, {program.units.units[min(units)].label} first: {rule}"
        for rule, units in broken.items()
    ]


def at_sizes(bundle: Bundle, model: Path, stated: Sequence[str]) -> tuple[Bundle, Program]:
    """The bundle for the sizes that ``stated`` gives to those it leaves open, and its program.

    The plan stays, its regions are converted for the sizes. Raises InputSpecError where the bundle
    does not leave them open, or the model has other units with them.
    """
    specs = [parse_input_spec(text) for text in stated]
    made_for = [parse_input_spec(text) for text in bundle.inputs]
    if len(specs) != len(made_for) or not all(map(_fills, made_for, specs)):
        raise InputSpecError(
            f"the bundle is for the input {listed(made_for)}, {listed(specs)} was stated: sizes"
            ' that may change must be left open in `nnapi-prof partition --input "1x3x?x?"`'
        )
    program = load_program(model, stated, mixed=bundle.mixed)
    for before, now in zip(bundle.graph.units, program.units.units, strict=False):
        if (before.nodes, before.inputs, before.outputs) != (now.nodes, now.inputs, now.outputs):
            break
    else:
        if len(bundle.graph.units) == len(program.units.units):
            return _converted_again(bundle, program, listed(specs)), program
    raise InputSpecError(
        f"with the input {listed(specs)} the model has other units than in the bundle",
        "make a bundle for these sizes with `nnapi-prof partition`",
    )


def _fills(made_for: InputSpec, spec: InputSpec) -> bool:
    """Whether ``spec`` is ``made_for`` with numbers in place of its open sizes."""
    if made_for.dtype != spec.dtype or spec.open_dims:
        return False
    return len(made_for.shape) == len(spec.shape) and all(
        dim in made_for.open_dims or planned_size == size
        for dim, (planned_size, size) in enumerate(zip(made_for.shape, spec.shape, strict=True))
    )


def _converted_again(bundle: Bundle, program: Program, stated: str) -> Bundle:
    regions = {key: convert_region(program, *key) for key in bundle.regions}
    halved = {key: to_float16(convert_region(program, *key)) for key in bundle.halved}
    note = f"the plan and its predicted latencies are for the bundle's own sizes, not {stated}"
    return replace(
        bundle,
        graph=program.units,
        regions=regions,
        halved=halved,
        copies=_copies(program, bundle.levels),
        notes=(*program.notes, note),
    )


def input_specs(program: Program) -> tuple[str, ...]:
    """The inputs as ``--input`` takes them."""
    examples = program.as_given(program.example_inputs)
    return tuple(str(InputSpec.of(value)) for value in examples)


VERIFYING = "running plan and baselines whole"
"""The phase in which plans run end to end before one is chosen."""


def with_open_sizes(bundle: Bundle, inputs: Sequence[str]) -> Bundle:
    """The bundle, in which sizes that the stated inputs leave open stay so."""
    if not inputs:
        return bundle
    return replace(bundle, inputs=tuple(map(str, parse_input_specs(inputs))))


def verified(
    bundle: Bundle,
    program: Program,
    client: AgentClient,
    options: RunOptions,
    listener: Listener = SILENT,
) -> Bundle:
    """The bundle with the plan that is fastest end to end (:mod:`nnapi_prof.execution.timing`)."""
    heard = listener.counting(VERIFYING, len(bundle.plans))
    return choose_measured(bundle, program, client, options, heard)


def save_bundle(path: Path, bundle: Bundle, model: Path) -> None:
    """Writes a bundle and its model. Raises UsageError where ``path`` cannot be written."""
    try:
        write_bundle(path, bundle, model)
    except OSError as error:
        raise UsageError(
            f"cannot write {path}: {error.strerror or error}",
            f"name another {option_name('output')}",
        ) from error


VERSION = 1


@dataclass(frozen=True)
class ChipPlan:
    """The content of such a folder."""

    model: Model
    plans: tuple[Plan, ...]
    """The plan, then its rivals."""
    costs: Costs
    advice: tuple[Advice, ...] = ()


def write_chip_bundle(folder: Path, model: Model, plans: Sequence[Plan], costs: Costs) -> None:
    """Writes a plan made from a chip's costs. A bundle that stands there is replaced.

    Raises UsageError where something else stands there.
    """
    priced, origin = _chip_costs(costs)
    model_file = f"model{model.path.suffix}"

    def write(target: Path) -> None:
        target.mkdir(parents=True)
        shutil.copyfile(model.path, target / model_file)
        manifest = {
            "format": CHIP_FORMAT,
            "version": VERSION,
            "estimated": True,
            "model": model.name,
            "model_file": model_file,
            "model_sha256": file_checksum(target / model_file),
            "inputs": list(input_specs(model.program)),
            "device": costs.device,
            "plans": [json.loads(plan.to_json()) for plan in plans],
            "costs": priced.to_json(),
            "origin": origin.to_json(),
            "notes": list(costs.notes),
        }
        write_manifest(target, manifest)

    replace_folder(folder, write)


def read_chip_bundle(folder: Path) -> ChipPlan:
    """Reads what :func:`write_chip_bundle` wrote. SerializationError where it is damaged."""
    try:
        data = read_manifest(folder / "manifest.json", CHIP_FORMAT, VERSION)
        check_model(folder, data)
        model = load(folder / data["model_file"], data["inputs"])
        model = replace(model, unit_cache=replace(model.unit_cache, name=data["model"]))
        plans = tuple(Plan.from_json(json.dumps(plan)) for plan in data["plans"])
        costs = Costs(
            model=model,
            device=data["device"],
            conditions=Conditions(),
            priced=ChipCosts.from_json(model.graph, data["costs"]),
            estimated=True,
            origin=ChipOrigin.from_json(data["origin"]),
            notes=tuple(data["notes"]),
        )
        placed = {unit for segment in plans[0].segments for unit in segment.units}
        if placed != set(range(len(model.graph.units))):
            raise SerializationError("the plan is not of the model beside it")
        return ChipPlan(model, plans, costs, kept_advice(folder))
    except (KeyError, TypeError, ValueError, IndexError, SerializationError, OSError) as error:
        raise SerializationError(
            f"{folder}: the bundle is damaged ({escape_untrusted(str(error), 300)})",
            "make it again with `nnapi-prof partition`",
        ) from error


def chip_report(
    model: Model, plans: Sequence[Plan], costs: Costs, advice: tuple[Advice, ...] = ()
) -> ReportData:
    """All that a report of such a plan shows: nothing of it was measured."""
    from nnapi_prof.reports.data import ReportData, this_environment

    priced, origin = _chip_costs(costs)
    return ReportData(
        model=model.name,
        graph=model.graph,
        cost_model=priced.as_cost_model(),
        measurements=(),
        plan=plans[0],
        baselines=tuple(plans[1:]),
        device_info={"phone": costs.device},
        notes=costs.notes,
        environment=this_environment(),
        advice=advice,
        origin=origin,
    )


def _chip_costs(costs: Costs) -> tuple[ChipCosts, ChipOrigin]:
    assert isinstance(costs.priced, ChipCosts)
    assert costs.origin is not None
    return costs.priced, costs.origin


def names_of(info: AgentInfo | None) -> PhoneTraits:
    """By what a bundle knows the device."""
    if info is None:
        return PhoneTraits()
    return phone_of(info.properties, ((a.name, a.feature_level) for a in info.nnapi.accelerators))
