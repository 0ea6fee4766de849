"""From a model, a device and a cost table to a bundle: what ``partition`` and ``run`` share."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from nnapi_prof.api.estimating import filled_costs
from nnapi_prof.api.found import INTERRUPTED, Found
from nnapi_prof.api.listener import SILENT, Listener, Progress
from nnapi_prof.api.loading import read_model
from nnapi_prof.api.start_up import start_ups
from nnapi_prof.api.wishes import Wishes
from nnapi_prof.bundle.bundle import Bundle, RegionKey, halves, needed_regions
from nnapi_prof.convert.float16 import to_float16
from nnapi_prof.convert.lower import convert_region
from nnapi_prof.convert.region import Region, growth_note, units_in_floats
from nnapi_prof.costs.conditions import Conditions, Precision
from nnapi_prof.costs.model.fit import fit
from nnapi_prof.costs.model.region import CostModel
from nnapi_prof.costs.model.regression import TargetFit
from nnapi_prof.costs.model.views import drop_dominated_targets, with_intervals
from nnapi_prof.costs.store import CostStore
from nnapi_prof.device.agent import AgentClient
from nnapi_prof.device.protocol.results import AgentInfo, describe, device_fingerprint
from nnapi_prof.errors import CostError, InputSpecError, UsageError, option, spelled
from nnapi_prof.execution.profile.jobs import device_targets
from nnapi_prof.execution.profile.options import tell_planning
from nnapi_prof.frontend.inputs import InputSpec, listed, parse_input_spec
from nnapi_prof.graph.plan import Engine, Plan, Target
from nnapi_prof.graph.program import Program
from nnapi_prof.graph.unit import UnitGraph
from nnapi_prof.partition import (
    TOLERANCE,
    Constraints,
    Costs,
    SearchLimits,
    baselines,
    plan_graph,
    solve,
)

PLANNING = "finding the best plan"
"""The phase in which the partitioner searches: seconds of those it may take."""


def fitted_costs(
    graph: UnitGraph, store: CostStore, fingerprint: str, conditions: Conditions
) -> CostModel:
    """The cost model of a graph on a device.

    CostError where a unit was never measured there under these conditions, or not on the CPU.
    """
    rows = store.measurements(fingerprint, conditions=conditions)
    costs = fit(graph, rows)
    on_cpu = {row.signature for row in rows if row.target.engine is Engine.CPU}
    missing = [unit for unit in graph.units if unit.signature not in on_cpu]
    if missing:
        plural = "" if conditions.threads == 1 else "s"
        asked = f"nnapi-prof profile {conditions.options}".rstrip()
        raise CostError(
            f"{len(missing)} of the model's {len(graph.units)} units were never measured on this"
            f" device's CPU with {conditions.threads} thread{plural} on cores {conditions.cpus}"
            f" (the first is {missing[0].label}): run `{asked}` with the same model, inputs and"
            " device"
        )
    for_nnapi = Conditions(conditions.precision, conditions.mode).options
    if for_nnapi and all(row.target.engine is Engine.CPU for row in rows):
        raise CostError(
            f"nothing was measured on this device's NNAPI with {for_nnapi}: run `nnapi-prof profile"
            f" {conditions.options}` with the same model, inputs and device"
        )
    return costs


def make_bundle(
    program: Program,
    model: Path,
    client: AgentClient,
    store: CostStore,
    conditions: Conditions,
    wishes: Wishes | None = None,
    estimate: bool = False,
    listener: Listener = SILENT,
) -> tuple[Bundle, Found]:
    """Partitions a model for a device and converts every region of the plan and its baselines.

    ``estimate`` lets the static model price what was never measured. Ctrl-C ends the search for the
    plan, with the best one until then.
    """
    wishes = wishes or Wishes()
    info = client.info()
    fingerprint = device_fingerprint(info)
    notes = program.notes
    costs: CostModel
    if estimate:
        costs, note = filled_costs(program, store, fingerprint, conditions)
        notes = (*notes, note) if note else notes
    else:
        costs = fitted_costs(program.units, store, fingerprint, conditions)
    guard = unit_guard(program, costs, conditions, wishes)
    found = find_plans(
        program.units,
        costs,
        wishes,
        guard=guard,
        listener=listener,
    ).each(lambda plan: with_intervals(plan, costs))
    file, fits = f"model{model.suffix}", None if estimate else costs.fits
    return bundle_of(program, file, info, found.plans, conditions, notes, fits), found


Guard = Callable[[Constraints], Constraints]
"""Adds to constraints what accuracy asks for."""


def unit_guard(program: Program, costs: Costs, conditions: Conditions, wishes: Wishes) -> Guard:
    """:func:`guarded`, where the wishes limit errors."""
    limit = wishes.max_error
    if limit is None:
        return lambda constraints: constraints
    return lambda constraints: guarded(program, costs, constraints, conditions, limit)


def find_plans(
    graph: UnitGraph,
    costs: Costs,
    wishes: Wishes,
    *,
    tolerance: float = TOLERANCE,
    guard: Guard | None = None,
    listener: Listener = SILENT,
) -> Found:
    """The plans that keep to the wishes, and their baselines, which need not.

    Ctrl-C ends the search: a note of the plans says so. Raises UsageError where a wish names what
    is not there, PartitionError where no plan exists.
    """
    constraints = wishes.constraints(graph, costs.targets)
    if guard is not None:
        constraints = guard(constraints)
    kept_off = wishes.listed_units(graph)
    rivals = costs
    named = constraints.forbidden or constraints.pinned or constraints.preference
    if isinstance(costs, CostModel) and not named:
        costs, rivals = drop_dominated_targets(costs), drop_dominated_targets(costs, auto=True)
    limits = SearchLimits() if wishes.seconds is None else SearchLimits(seconds=wishes.seconds)
    if wishes.solver == "milp":
        plan = solve(graph, costs, constraints=constraints, solver="milp", limits=limits)
        return Found(plan, baselines(graph, rivals, kept_off), plan, plan)
    answer = plan_graph(
        graph,
        costs,
        tolerance=tolerance,
        constraints=constraints,
        limits=limits,
        report=tell_planning(lambda *told: listener.progress(Progress(*told)), PLANNING),
    )
    found = Found(
        plan=answer.best if wishes.best else answer.default,
        baselines=baselines(graph, rivals, kept_off),
        default=answer.default,
        best=answer.best,
        curve=answer.curve,
        start_ups=start_ups(graph, costs, answer.curve),
    )
    if not answer.interrupted:
        return found
    return found.each(lambda plan: plan if plan.proof is None else plan.with_note(INTERRUPTED))


def bundle_of(
    program: Program,
    model_file: str,
    info: AgentInfo,
    plans: tuple[Plan, ...],
    conditions: Conditions,
    notes: tuple[str, ...],
    fits: Mapping[Target, TargetFit] | None = None,
) -> Bundle:
    """Some plans of a model for a device, with every region of theirs converted.

    ``model_file`` is the original's name in the bundle, ``fits`` are what it was planned with.
    Raises UsageError where a plan needs what the device lacks, UnsupportedOp where a region cannot
    be converted for it.
    """
    levels = {spec.target.key: spec.level for spec in device_targets(info)}
    half = [engine for engine in (Engine.CPU, Engine.NNAPI) if halves(conditions, engine)]
    full = [engine for engine in (Engine.CPU, Engine.NNAPI) if engine not in half]
    wanted = {s.target for plan in plans for s in plan.segments if s.target.engine != Engine.HOST}
    for target in sorted(wanted):
        if target.key not in levels:
            raise UsageError(
                f"the plan needs {target}, which {describe(info)} does not offer: make one for this"
                " device, from costs that were measured on it"
            )
    regions = {key: convert_region(program, *key) for key in needed_regions(plans, levels, full)}
    halved = {
        key: to_float16(convert_region(program, *key))
        for key in needed_regions(plans, levels, half)
    }
    return Bundle(
        model=program.name,
        model_file=model_file,
        inputs=input_specs(program),
        device=describe(info),
        fingerprint=device_fingerprint(info),
        simulated=info.simulated,
        graph=program.units,
        plans=plans,
        levels=levels,
        regions=regions,
        halved=halved,
        conditions=conditions,
        notes=(
            *notes,
            *_floats(program, (*regions.values(), *halved.values())),
            *_grown(program, plans[0], levels, regions | halved),
        ),
        fits=fits,
    )


def _grown(
    program: Program,
    plan: Plan,
    levels: Mapping[str, int],
    regions: Mapping[RegionKey, Region],
) -> list[str]:
    """What to tell of a plan's regions on NNAPI that became far larger."""
    found = [
        (s.units, len(regions[tuple(sorted(s.units)), levels[s.target.key]].operations))
        for s in plan.segments
        if s.target.engine is Engine.NNAPI
    ]
    note = growth_note(program.units, found, "what the plan gives to NNAPI")
    return [] if note is None else [note]


def _floats(program: Program, regions: Iterable[Region]) -> list[str]:
    """What to tell of quantised units that are computed in float32: a line for each rule."""
    broken: dict[str, list[int]] = {}
    for unit, rule in units_in_floats(program.units, regions).items():
        broken.setdefault(rule, []).append(unit)
    return [
        f"{len(found)} quantised {'unit is' if len(found) == 1 else 'units are'} computed in "
        f"float32 between conversions, {program.units.units[min(found)].label} first: {rule}"
        for rule, found in broken.items()
    ]


def guarded(
    program: Program,
    costs: Costs,
    constraints: Constraints,
    conditions: Conditions,
    max_error: float,
) -> Constraints:
    """The constraints, and no accelerator for units that less than float32 moves by more than
    ``max_error``; computed on this host. Raises UsageError where NNAPI is to compute in float32."""
    from nnapi_prof.execution.float16 import unit_errors

    if conditions.precision is Precision.FLOAT32:
        raise UsageError(
            f"{option('max-error')} guards what {option('relaxed')} or {option('float16')} allow: "
            + spelled("add one of them", "profile() with one of them")
        )
    accelerators = frozenset(t for t in costs.targets if t.engine is Engine.NNAPI)
    offered = [
        unit.index
        for unit in program.units.units
        if any(costs.unit_cost(unit.index, target) is not None for target in accelerators)
    ]
    forbidden, reasons = dict(constraints.forbidden), dict(constraints.reasons)
    for unit, error in unit_errors(program, offered).items():
        if error.relative <= max_error:
            continue
        forbidden[unit] = forbidden.get(unit, frozenset()) | accelerators
        reasons[unit] = error.message or (
            f"float16 moves its result by {error.relative:.1e} of its largest value, more than"
            f" {max_error:g}"
        )
    return replace(constraints, forbidden=forbidden, reasons=reasons)


def at_sizes(bundle: Bundle, model: Path, stated: Sequence[str]) -> tuple[Bundle, Program]:
    """The bundle for the sizes that ``stated`` gives to those it leaves open, and its program.

    The plan stays, its regions are converted for the sizes. Raises InputSpecError where the bundle
    does not leave them open, or the model has other units with them.
    """
    given = [parse_input_spec(text) for text in stated]
    made_for = [parse_input_spec(text) for text in bundle.inputs]
    if len(given) != len(made_for) or not all(map(_fills, made_for, given)):
        raise InputSpecError(
            f"the bundle is for the input {listed(made_for)}, {listed(given)} was stated: sizes"
            ' that may change must be left open in `nnapi-prof partition --input "1x3x?x?"`'
        )
    program = read_model(model, stated)
    for known, found in zip(bundle.graph.units, program.units.units, strict=False):
        if (known.nodes, known.inputs, known.outputs) != (found.nodes, found.inputs, found.outputs):
            break
    else:
        if len(bundle.graph.units) == len(program.units.units):
            return _converted_again(bundle, program, listed(given)), program
    raise InputSpecError(
        f"with the input {listed(given)} the model has other units than with that which the bundle"
        f" was made for: make one for these sizes with `nnapi-prof partition`"
    )


def _fills(made_for: InputSpec, given: InputSpec) -> bool:
    """Whether ``given`` is ``made_for`` with numbers in place of its open sizes."""
    if made_for.dtype != given.dtype or given.open_dims:
        return False
    return len(made_for.shape) == len(given.shape) and all(
        dim in made_for.open_dims or wanted == size
        for dim, (wanted, size) in enumerate(zip(made_for.shape, given.shape, strict=True))
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
        notes=(*program.notes, note),
    )


def input_specs(program: Program) -> tuple[str, ...]:
    """The inputs as ``--input`` takes them."""
    given = program.as_given(program.example_inputs)
    return tuple(str(InputSpec.of(value)) for value in given)
