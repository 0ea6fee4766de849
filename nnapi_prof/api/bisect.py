"""Find where a device's results differ from PyTorch's, how to avoid it, and at what cost."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nnapi_prof.api import Listener, Progress, open_client, to_log
from nnapi_prof.api.cost_tables import measured_threads, open_table
from nnapi_prof.api.model import Model, load
from nnapi_prof.api.plan import ModelPlan, read_plan
from nnapi_prof.bisection import Region
from nnapi_prof.bisection.diagnosis import Bisection, Culprit, Cure, Unchecked
from nnapi_prof.bundle.storage import Fault, keep_faults
from nnapi_prof.costs import ConditionOptions, Conditions, Precision
from nnapi_prof.costs.measurement import Kind, Measurement, Status
from nnapi_prof.device import describe, device_fingerprint
from nnapi_prof.device.agent import AgentClient
from nnapi_prof.device.protocol import AgentInfo
from nnapi_prof.errors import CostError, UsageError, option_name
from nnapi_prof.execution.objectives import BisectOptions, Latency
from nnapi_prof.execution.profile import MeasureOptions
from nnapi_prof.execution.profile.jobs import TargetSpec, device_targets
from nnapi_prof.execution.profile.threads import read_trial
from nnapi_prof.graph.plan import AUTO, CPU, REFERENCE, Engine, Preference, Target
from nnapi_prof.options import into, moved

if TYPE_CHECKING:
    from torch import Tensor

    from nnapi_prof.bisection.locate import Located
    from nnapi_prof.bisection.probe import RegionProbe
    from nnapi_prof.graph.program import Program

WRONG = "computes something else than PyTorch, as `nnapi-prof bisect` found"
"""Message of the rows that keep later profiles from a pair of operation and driver."""


@dataclass(frozen=True)
class Avoidance:
    """Ways to avoid faults: other plans and rewrites."""

    planned: ModelPlan | None
    model: Model
    client: AgentClient
    conditions: Conditions
    costs: str | os.PathLike[str] | None
    listener: Listener

    def cures(self, culprit: Culprit, probe: RegionProbe) -> Iterator[Cure]:
        """Yield the cures of a fault, with their plans' latencies where costs were measured."""
        if culprit.target.engine is Engine.NNAPI:
            before = self.replanned(())
            after = self.replanned((culprit,)) if before is not None else None
            yield Cure(
                "another target",
                _runs_on(after, culprit),
                None if before is None else before.plan.predicted_ns,
                None if after is None else after.plan.predicted_ns,
            )
        for check in culprit.ways:
            if not check.differs:
                yield Cure(check.way.name, culprit.target.key)
        if probe.precision in (Precision.RELAXED, Precision.FLOAT16):
            exact = replace(self.conditions, precision=Precision.FLOAT32)
            if _agrees_in(probe, culprit, exact):
                yield Cure("float32", culprit.target.base.key)
        yield from self._rewrites(culprit, probe)

    def _rewrites(self, culprit: Culprit, probe: RegionProbe) -> Iterator[Cure]:
        """Yield the rewrites that the culprit's own target computes correctly, planned."""
        from nnapi_prof.bisection.locate import agreeing_rewrites

        for rewrite, program in agreeing_rewrites(probe, culprit):
            before = self.replanned(())
            after = None if before is None else self._planned_anew(program)
            yield Cure(
                rewrite.name,
                culprit.target.base.key,
                None if before is None else before.plan.predicted_ns,
                None if after is None else after.plan.predicted_ns,
                code=rewrite.code,
            )

    def _planned_anew(self, program: Program) -> ModelPlan:
        """Return the plan of a rewritten model, after measuring its new units."""
        from nnapi_prof.api.planning import partition
        from nnapi_prof.api.profiling import profile

        model = load(program.module, list(program.example_inputs), name=self.model.name)
        measured = profile(
            model,
            self.client,
            costs=self.costs,
            conditions=replace(self.conditions, sustained_s=0),
            options=MeasureOptions(refine=False),
            listener=self.listener,
        )
        return partition(model, measured, verify=False, listener=self.listener)

    def replanned(self, culprits: Sequence[Culprit]) -> ModelPlan | None:
        """Return the exact plan without these pairs of unit and accelerator; None without costs."""
        from nnapi_prof.api.cost_tables import read_costs
        from nnapi_prof.api.planning import partition

        forbidden = {
            name: f"nnapi:{culprit.target.accelerator}/*"
            for culprit in culprits
            for name in culprit.names
        }
        try:
            measured = read_costs(self.model, self.costs, self.client, conditions=self.conditions)
        except (CostError, UsageError):
            return None  # there are no measured costs to plan with
        return partition(
            self.model,
            measured,
            Latency(forbid=forbidden),
            verify=False,
            listener=self.listener,
        )

    def fix(self, culprits: Sequence[Culprit], folder: Path) -> str:
        """Write the plan without the faults, and mark them in the cost table as failures."""
        planned = self.replanned(culprits)
        if planned is None:
            raise UsageError(
                "a plan without the fault is made from measured costs: run `nnapi-prof profile`"
                f" with the same device first, or name its table with {option_name('costs')}"
            )
        what = ", ".join(f"{each.label} on {each.target.accelerator}" for each in culprits)
        note = f"planned without {what}: {WRONG}"
        planned = replace(planned, plans=(planned.plan.with_note(note), *planned.baselines))
        planned.save(folder)
        self._remember(culprits)
        return f"{folder}: {note}"

    def _remember(self, culprits: Sequence[Culprit]) -> None:
        """Store that these units fail on these accelerators, under every preference."""
        from nnapi_prof.costs.model.fit import RegionMatcher
        from nnapi_prof.execution.profile.jobs import Job, row_of

        info, graph = self.client.info(), self.model.graph
        matcher = RegionMatcher(graph)
        rows: list[Measurement] = []
        for culprit in culprits:
            for spec in device_targets(info):
                if spec.target.accelerator != culprit.target.accelerator:
                    continue
                for unit in culprit.units:
                    job = Job.of(
                        matcher, (unit,), Kind.UNIT, spec, self.conditions, info.cost_version
                    )
                    rows.append(
                        row_of(job, graph, device_fingerprint(info), info.simulated,
                               status=Status.FAILED, message=WRONG)
                    )  # fmt: skip
        with open_table(self.costs) as store:
            store.add(*rows)


def _runs_on(planned: ModelPlan | None, culprit: Culprit) -> str | None:
    """Return the target on which a plan runs a culprit's first unit; the CPU without a plan."""
    if planned is None:
        return CPU.key
    return next(
        segment.target.key for segment in planned.plan.segments if culprit.units[0] in segment.units
    )


def _agrees_in(probe: RegionProbe, culprit: Culprit, conditions: Conditions) -> bool:
    """Return whether a culprit agrees with PyTorch on its own target under other conditions."""
    other = probe.variant(culprit.way, conditions=conditions)
    if isinstance(other.convert(culprit.units), str):
        return False
    return not other((culprit.units,), 1)[0].differs


PHASE = "looking for what differs"


@moved(**into("conditions", ConditionOptions))
def bisect(
    plan: ModelPlan | Model | str | os.PathLike[str],
    device: str | AgentClient | None = None,
    *,
    target: str | None = None,
    budget: float | None = None,
    find_all: bool = False,
    samples: int = BisectOptions().samples,
    inputs: Sequence[str] | Sequence[Tensor] = (),
    conditions: ConditionOptions | Conditions | None = None,
    costs: str | os.PathLike[str] | None = None,
    reproducer: str | os.PathLike[str] | None = None,
    fix: str | os.PathLike[str] | None = None,
    through: Callable[..., RegionProbe] | None = None,
    progress: Callable[[Progress], None] | None = None,
    listener: Listener | None = None,
) -> Bisection:
    """Find the first unit whose results on a device differ from PyTorch's, and ways to avoid it.

    Each region gets reference inputs, eager PyTorch's in float32 or the integer reference's in 8
    bits, so that errors do not add up. The model is halved until one differing unit remains.

    ``plan`` is a plan or its folder, of which every segment on the ``device`` is searched, or a
    model: then ``target`` names the target, as ``"nnapi:NAME/fast"`` or ``"cpu"`` (None: every
    accelerator in turn). ``budget`` is the largest allowed error of a value with reference inputs,
    relative to its largest element (None: 1e-4; below float32 2e-2; in 8 bits as much as different
    rounding of ties explains). ``find_all`` continues with further units. ``samples`` is how many
    inputs are tried: the model's example inputs, then random ones; ``inputs`` are shapes as
    :func:`nnapi_prof.load` takes them, or tensors, which are then the only sample. The
    ``conditions`` are those of :func:`nnapi_prof.profile`; a plan has its own. ``through`` makes
    the probe that runs regions (``nnapi_prof.executorch.bisect`` has one). ``progress`` is called
    with a :class:`nnapi_prof.Progress`; a ``listener`` hears notes.

    Where the cost table ``costs`` has the model, each cure is planned and its latency predicted.
    ``reproducer`` is a folder for the smallest case that shows the first fault. ``fix`` is the
    folder of a new plan without the faults; later profiles then avoid them by the cost table.

    Raises DeviceError where the device fails, UsageError.
    """
    from nnapi_prof.bisection.locate import locate

    BisectOptions(budget=budget, samples=samples)
    listener = listener or to_log(progress)
    asked = ConditionOptions.of(conditions)
    if asked.sustained:
        raise UsageError(
            f"{option_name('sustained')} heats a device for timing; bisect times nothing",
            "leave it out",
        )
    planned, model, own = _subject(plan, inputs, listener)
    conditions = own or asked.conditions
    with listener.working("running the reference"):
        program = model.program
        references = _references(program, samples, inputs)
    with open_client(device or (planned.device_spec if planned else None), listener) as client:
        if own is None and asked.by_trial:
            conditions = _as_measured(model, client, costs, conditions)
        places = _places(planned, program, client.info(), target)
        results: list[tuple[Located, RegionProbe]] = []
        for spec, regions in places:
            probe = _probe(through, (program, client, spec.target, spec.level, references,
                                     conditions, budget), listener)  # fmt: skip
            if planned is not None and planned.converted is not None:
                probe.forms = planned.converted.forms
            located = locate(
                probe, regions, spec.driver_version, find_all=find_all,
                every_way=planned is None and through is None,
            )  # fmt: skip
            results.append((located, probe))
            if results[-1][0].culprits and not find_all:
                break
        culprits, notes = [], list(model.notes)
        for located, probe in results:
            notes += [
                f"{label} differs no more than rounding explains" for label in located.unsteady
            ]
            for culprit in located.culprits:
                avoid = Avoidance(planned, model, client, conditions, costs, listener)
                culprits.append(replace(culprit, cures=tuple(avoid.cures(culprit, probe))))
        if culprits and reproducer is not None:
            _reproduce(Path(reproducer), program, culprits[0], results, conditions, plan, client)
        if culprits and fix is not None:
            avoid = Avoidance(planned, model, client, conditions, costs, listener)
            notes.append(avoid.fix(culprits, Path(fix)))
        info = client.info()
    if not isinstance(plan, ModelPlan | Model) and Path(plan).is_dir():
        keep_faults(Path(plan), [_fault(culprit) for culprit in culprits])
    return Bisection(
        model=model.name,
        device=describe(info),
        fingerprint=device_fingerprint(info),
        simulated=info.simulated,
        targets=tuple(dict.fromkeys(spec.target.key for spec, _ in places)),
        n_units=len(program.units.units),
        n_samples=len(references),
        budget=budget,
        culprits=tuple(culprits),
        unchecked=tuple(
            Unchecked(unit, program.units.label((unit,)), probe.target.key, reason)
            for located, probe in results
            for unit, reason in sorted(located.unchecked.items())
        ),
        runs=sum(located.runs for located, _ in results),
        executions=sum(probe.executions for _, probe in results),
        notes=tuple(notes),
    )


def _fault(culprit: Culprit) -> Fault:
    cures = [
        cure.name
        + ("" if cure.target is None else f" ({cure.target})")
        + ("" if cure.costs_ns is None else f", {cure.costs_ns / 1e6:+.3g} ms")
        for cure in culprit.cures
    ]
    return Fault(
        label=culprit.label,
        target=culprit.target.key,
        kind=culprit.kind.value,
        line=culprit.source.line,
        error=f"{culprit.worst.relative:.2g}",
        cure="; ".join(cures),
    )


def _subject(
    plan: ModelPlan | Model | str | os.PathLike[str],
    inputs: Sequence[str] | Sequence[Tensor],
    listener: Listener,
) -> tuple[ModelPlan | None, Model, Conditions | None]:
    """Return the plan, its model and its conditions; None and None for a model alone."""
    if isinstance(plan, ModelPlan):
        return plan, plan.model, plan.conditions
    if isinstance(plan, Model):
        return None, plan, None
    path = Path(plan)
    with listener.working(f"reading {path.name}"):
        if path.is_dir():
            planned = read_plan(path)
            return planned, planned.model, planned.conditions
        specs = tuple(each for each in inputs if isinstance(each, str))
        return None, load(path, specs, listener=listener), None


def _as_measured(
    model: Model, client: AgentClient, costs: str | os.PathLike[str] | None, conditions: Conditions
) -> Conditions:
    """Return the conditions with the number of threads that the model was measured with; with one
    thread where it was not measured, or was measured with several numbers."""
    try:
        with open_table(costs, to_read=True) as store:
            fingerprint = device_fingerprint(client.info())
            trial = read_trial(model.graph, store, fingerprint, conditions)
            threads = measured_threads(model, store, fingerprint, conditions, trial)
    except (CostError, UsageError):
        return conditions
    return replace(conditions, threads=threads)


def _references(
    program: Program, samples: int, inputs: Sequence[str] | Sequence[Tensor]
) -> list[dict[str, Tensor]]:
    from nnapi_prof.bisection.probe import reference_values
    from nnapi_prof.execution.judgement import choose_inputs

    tensors = tuple(each for each in inputs if not isinstance(each, str))
    if tensors:
        return [reference_values(program, tensors)]
    seeds = (None, *range(1, samples))
    return [reference_values(program, choose_inputs(program, seed)) for seed in seeds]


def _places(
    planned: ModelPlan | None, program: Program, info: AgentInfo, target: str | None
) -> list[tuple[TargetSpec, list[Region]]]:
    """Return the targets to search, each with the regions that it runs."""
    specs = {spec.target: spec for spec in device_targets(info, one_thread=True)}
    everything = [tuple(range(len(program.units.units)))]
    if target is not None:
        chosen = _named(target, specs)
        return [(specs[chosen], everything)]
    if planned is None:
        return [
            (spec, everything)
            for place, spec in specs.items()
            if place.preference is Preference.FAST_SINGLE_ANSWER
            and place.accelerator not in (AUTO, REFERENCE)
        ]
    regions: dict[Target, list[Region]] = {}
    for segment in planned.plan.segments:
        if segment.target.engine in (Engine.CPU, Engine.NNAPI):
            regions.setdefault(segment.target, []).append(segment.units)
    missing = [place for place in regions if place.base not in specs]
    if missing:
        raise UsageError(
            f"the plan runs on {missing[0]}, which {describe(info)} does not offer: choose its own"
            f" device with {option_name('device')}"
        )
    return [(replace(specs[place.base], target=place), units) for place, units in regions.items()]


def _named(target: str, specs: Mapping[Target, TargetSpec]) -> Target:
    for key in (target, f"nnapi:{target}", f"nnapi:{target}/fast", f"{target}/fast"):
        for place in specs:
            if place.key == key:
                return place
    there = ", ".join(place.key for place in specs)
    raise UsageError(f"no target {target!r} on this device: there are {there}")


def _probe(
    through: Callable[..., RegionProbe] | None, arguments: tuple[Any, ...], listener: Listener
) -> RegionProbe:
    """Return a probe that reports its runs to the listener."""
    from nnapi_prof.bisection.probe import RegionProbe

    n_probes = 0

    def tell(label: str) -> None:
        nonlocal n_probes
        n_probes += 1
        listener.progress(Progress(f"{PHASE} on {probe.target.key}", n_probes, 0, label))

    make: Callable[..., RegionProbe] = through or RegionProbe
    probe = make(*arguments, tell)
    return probe


def _reproduce(
    folder: Path,
    program: Program,
    culprit: Culprit,
    results: Sequence[tuple[Located, RegionProbe]],
    conditions: Conditions,
    plan: ModelPlan | Model | str | os.PathLike[str],
    client: AgentClient,
) -> None:
    """Write the reproducer. Raises UsageError where that fails."""
    from nnapi_prof.bisection.reproducer import write_reproducer

    probe = next(probe for _, probe in results if probe.target == culprit.target)
    region = probe.convert(culprit.units)
    assert not isinstance(region, str), region
    command = [
        "nnapi-prof", "bisect", "--device", client.serial, "--target", culprit.target.base.key,
        *(["--executorch"] if culprit.way.delegate else []), *conditions.stated.split(),
        "region.pt2",
    ]  # fmt: skip
    try:
        write_reproducer(
            folder, program, culprit, region, probe.references[culprit.sample], conditions,
            probe.budget, shlex.join(command),
        )  # fmt: skip
    except OSError as error:
        raise UsageError(f"cannot write {folder}: {error.strerror or error}") from error
