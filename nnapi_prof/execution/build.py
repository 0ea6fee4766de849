"""Make the bundle of a model's plans for a device, with every region converted for it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType

from nnapi_prof.bundle import Bundle, RegionKey, needed_regions, region_key
from nnapi_prof.bundle.plan_set import PhoneTraits, phone_of
from nnapi_prof.bundle.storage import write_bundle
from nnapi_prof.convert.lower import convert_copies, convert_region
from nnapi_prof.convert.region import Region, growth_note, to_float16, units_in_floats
from nnapi_prof.costs import Conditions
from nnapi_prof.costs.model.forms import Forms, forms_note
from nnapi_prof.costs.model.regression import TargetFit
from nnapi_prof.device import describe, device_fingerprint
from nnapi_prof.device.agent import AgentClient
from nnapi_prof.device.protocol import AgentInfo
from nnapi_prof.errors import InputSpecError, UsageError, option_name
from nnapi_prof.execution.profile.jobs import device_targets
from nnapi_prof.execution.profile.unit_graph_cache import load_program
from nnapi_prof.frontend.inputs import InputSpec, listed, parse_input_spec, parse_input_specs
from nnapi_prof.graph.plan import AUTO, Engine, Plan, Target
from nnapi_prof.graph.program import Program, constant_outputs


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
    """Returns a bundle of a model's plans for a device, with all their regions converted.

    ``model_file`` is the original's name in the bundle. ``fits`` are those that the plans were made
    with. ``levels`` are the feature levels of targets by their keys, by default the device's own.
    ``forms`` are the forms of products of activations that the costs refer to. Raises UsageError
    where a plan needs a target that the device lacks, UnsupportedOp where a region cannot be
    converted for it.
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
    """Returns the bundle of :func:`bundle_of` without the device. Raises UnsupportedOp."""
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
    """Returns the feature level to convert for, by the key of each of a device's targets."""
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
    """Returns the bundle with the sizes that ``stated`` gives for its open ones, and its program.

    The plan stays the same; its regions are converted again. Raises InputSpecError where the bundle
    does not leave these sizes open, or the model has other units with them.
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
    """Returns whether ``spec`` is ``made_for`` with numbers in place of its open sizes."""
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
    """Returns the inputs in the syntax of ``--input``."""
    examples = program.as_given(program.example_inputs)
    return tuple(str(InputSpec.of(value)) for value in examples)


def with_open_sizes(bundle: Bundle, inputs: Sequence[str]) -> Bundle:
    """Returns the bundle with those sizes left open that the stated inputs leave open."""
    if not inputs:
        return bundle
    return replace(bundle, inputs=tuple(map(str, parse_input_specs(inputs))))


def save_bundle(path: Path, bundle: Bundle, model: Path) -> None:
    """Writes a bundle and its model. Raises UsageError where ``path`` cannot be written."""
    try:
        write_bundle(path, bundle, model)
    except OSError as error:
        raise UsageError(
            f"cannot write {path}: {error.strerror or error}",
            f"name another {option_name('output')}",
        ) from error


def names_of(info: AgentInfo | None) -> PhoneTraits:
    """Returns the traits by which a bundle recognises the device."""
    if info is None:
        return PhoneTraits()
    return phone_of(info.properties, ((a.name, a.feature_level) for a in info.nnapi.accelerators))


def check_device(plan: Plan, made_for: str, client: AgentClient, name: str) -> None:
    """Raises UsageError where the device lacks an accelerator that a plan for another device uses.
    ``name`` is the plan's name for people."""
    info = client.info()
    there = [each.name for each in info.nnapi.accelerators]
    needed = dict.fromkeys(s.target.accelerator or "" for s in plan.segments)
    missing = [each for each in needed if each not in (*there, AUTO, "")]
    if missing:
        raise UsageError(
            f"{name} was made for {made_for}, and runs on its {' and '.join(missing)}:"
            f" {describe(info)} has {', '.join(there) or 'no accelerators'}; choose the right"
            f" device with {option_name('device')}, or make a bundle for this one with `nnapi-prof"
            " profile` and `nnapi-prof partition`"
        )


def check_levels(bundle: Bundle, info: AgentInfo, name: str) -> None:
    """Raises UsageError where a bundle's model has an operation of a later feature level than the
    accelerator of that name on a device. ``name`` is the plan's name for people."""
    levels = {each.name: each.feature_level for each in info.nnapi.accelerators}
    for segment in (segment for plan in bundle.plans for segment in plan.segments):
        own = levels.get(segment.target.accelerator or "")
        if own is None:
            continue
        needed = bundle.region(segment.units, segment.target).level
        if needed > max(own, bundle.levels[segment.target.base.key]):
            raise UsageError(
                f"{name} was made for {bundle.device}, and has an operation of feature level"
                f" {needed} on {segment.target.accelerator}: {describe(info)} has level {own}"
                " there; make a bundle for this one with `nnapi-prof profile` and"
                " `nnapi-prof partition`"
            )
