"""Finds where a device's results differ from PyTorch's, and what avoids it."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from nnapi_prof.api import options as arguments
from nnapi_prof.api.devices import reached
from nnapi_prof.api.events import Listener, Progress, to_log
from nnapi_prof.api.model import Model, load
from nnapi_prof.api.plan import Planned, read_plan
from nnapi_prof.bisection.result import Bisection, Culprit, Cure, Unchecked
from nnapi_prof.bisection.search import Region
from nnapi_prof.bundle.faults import Fault, keep_faults
from nnapi_prof.costs.conditions import Conditions, Precision
from nnapi_prof.costs.measurement import Kind, Measurement, Status
from nnapi_prof.device.agent import AgentClient
from nnapi_prof.device.protocol.description import describe, device_fingerprint
from nnapi_prof.device.protocol.results import AgentInfo
from nnapi_prof.errors import CostError, UsageError, option
from nnapi_prof.execution.profile.jobs import TargetSpec, device_targets
from nnapi_prof.graph.plan import AUTO, CPU, REFERENCE, Engine, Preference, Target

if TYPE_CHECKING:
    from torch import Tensor

    from nnapi_prof.bisection.locate import Located
    from nnapi_prof.bisection.probe import RegionProbe
    from nnapi_prof.graph.program import Program

SAMPLES, MOST_SAMPLES = 2, 64
PHASE = "looking for what differs"
WRONG = "computes something else than PyTorch, as `nnapi-prof bisect` found"
"""Message of the rows that keep later profiles from a pair of operation and driver."""


def bisect(
    plan: Planned | Model | str | os.PathLike[str],
    device: str | AgentClient | None = None,
    *,
    target: str | None = None,
    budget: float | None = None,
    find_all: bool = False,
    samples: int = SAMPLES,
    inputs: Sequence[str] | Sequence[Tensor] = (),
    threads: int | str = 1,
    cpus: str = "big",
    mode: str = "sync",
    relaxed: bool = False,
    float16: bool = False,
    costs: str | os.PathLike[str] | None = None,
    reproducer: str | os.PathLike[str] | None = None,
    fix: str | os.PathLike[str] | None = None,
    progress: Callable[[Progress], None] | None = None,
    listener: Listener | None = None,
) -> Bisection:
    """Find the first unit whose results on a device differ from PyTorch's, and what avoids it.

    Each region gets reference inputs, eager PyTorch's in float32 or the integer reference's in 8
    bits, so that errors do not add up. The model is halved until the unit that differs is alone.

    ``plan`` is a plan or the folder of one, of which every segment on the ``device`` is searched,
    or a model: then ``target`` says where, as ``"nnapi:NAME/fast"`` or ``"cpu"`` (None: every
    accelerator in turn). ``budget`` is the largest error of a value relative to its largest element
    that is allowed with reference inputs (None: 1e-4, in less than float32 2e-2, in 8 bits what
    roundings of ties explain). ``find_all`` goes on for the next units. ``samples`` are the model's
    own example inputs, then random ones; ``inputs`` are shapes as :func:`nnapi_prof.load` takes
    them, or tensors, which are then the only sample. The conditions ``threads``, ``cpus``,
    ``mode``, ``relaxed`` and ``float16`` are those of :func:`nnapi_prof.profile`; a plan has its
    own. ``progress`` is called with a :class:`nnapi_prof.Progress`; a ``listener`` hears notes.

    Where the cost table ``costs`` has the model, each cure is planned and its latency predicted.
    ``reproducer`` is a folder for the smallest case that shows the first fault. ``fix`` is the
    folder of a new plan without the faults; the cost table then keeps later profiles from them.

    Raises DeviceError where the device fails, UsageError.
    """
    arguments.number("budget", budget, 0)
    arguments.number("samples", samples, 1, MOST_SAMPLES)
    listener = listener or to_log(progress)
    planned, model, asked = _subject(plan, inputs, listener)
    conditions = asked or arguments.conditions_of(threads, cpus, mode, relaxed, float16, 0)
    with listener.working("running the reference"):
        program = model.program
        references = _references(program, samples, inputs)
    with reached(device or (planned.device_spec if planned else None), listener) as client:
        places = _places(planned, program, client.info(), target)
        results: list[tuple[Located, RegionProbe]] = []
        for spec, regions in places:
            results.append(
                _search(program, client, spec, regions, references, conditions, budget, listener,
                        find_all=find_all, every_way=planned is None)
            )  # fmt: skip
            if results[-1][0].culprits and not find_all:
                break
        culprits, notes = [], list(model.notes)
        for located, probe in results:
            notes += [
                f"{label} differs no more than rounding explains" for label in located.unsteady
            ]
            for culprit in located.culprits:
                avoid = _Avoidance(planned, model, client, conditions, costs, listener)
                culprits.append(replace(culprit, cures=tuple(avoid.cures(culprit, probe))))
        if culprits and reproducer is not None:
            _reproduce(Path(reproducer), program, culprits[0], results, conditions, plan, client)
        if culprits and fix is not None:
            avoid = _Avoidance(planned, model, client, conditions, costs, listener)
            notes.append(avoid.fix(culprits, Path(fix)))
        info = client.info()
    if not isinstance(plan, Planned | Model) and Path(plan).is_dir():
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
    plan: Planned | Model | str | os.PathLike[str],
    inputs: Sequence[str] | Sequence[Tensor],
    listener: Listener,
) -> tuple[Planned | None, Model, Conditions | None]:
    """Return the plan where there is one, the model, and the plan's conditions."""
    if isinstance(plan, Planned):
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
    planned: Planned | None, program: Program, info: AgentInfo, target: str | None
) -> list[tuple[TargetSpec, list[Region]]]:
    """Return the targets to search, each with the regions that it runs."""
    specs = {spec.target: spec for spec in device_targets(info)}
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
            f" device with {option('device')}"
        )
    return [(replace(specs[place.base], target=place), units) for place, units in regions.items()]


def _named(target: str, specs: Mapping[Target, TargetSpec]) -> Target:
    for key in (target, f"nnapi:{target}", f"nnapi:{target}/fast", f"{target}/fast"):
        for place in specs:
            if place.key == key:
                return place
    there = ", ".join(place.key for place in specs)
    raise UsageError(f"no target {target!r} on this device: there are {there}")


def _search(
    program: Program,
    client: AgentClient,
    spec: TargetSpec,
    regions: Sequence[Region],
    references: Sequence[Mapping[str, Tensor]],
    conditions: Conditions,
    budget: float | None,
    listener: Listener,
    *,
    find_all: bool,
    every_way: bool,
) -> tuple[Located, RegionProbe]:
    from nnapi_prof.bisection.locate import locate
    from nnapi_prof.bisection.probe import RegionProbe

    n_probes = 0

    def tell(label: str) -> None:
        nonlocal n_probes
        n_probes += 1
        listener.progress(Progress(f"{PHASE} on {spec.target.key}", n_probes, 0, label))

    probe = RegionProbe(
        program, client, spec.target, spec.level, references, conditions, budget, tell
    )
    located = locate(probe, regions, spec.driver_version, find_all=find_all, every_way=every_way)
    return located, probe


def _reproduce(
    folder: Path,
    program: Program,
    culprit: Culprit,
    results: Sequence[tuple[Located, RegionProbe]],
    conditions: Conditions,
    plan: Planned | Model | str | os.PathLike[str],
    client: AgentClient,
) -> None:
    """Write the reproducer. Raises UsageError where it cannot be."""
    from nnapi_prof.bisection.reproducer import write_reproducer

    probe = next(probe for _, probe in results if probe.target == culprit.target)
    region = probe.convert(culprit.units)
    assert not isinstance(region, str), region
    command = [
        "nnapi-prof", "bisect", "--device", client.serial, "--target", culprit.target.base.key,
        *conditions.options.split(), "region.pt2",
    ]  # fmt: skip
    try:
        write_reproducer(
            folder, program, culprit, region, probe.references[culprit.sample], conditions,
            probe.budget, shlex.join(command),
        )  # fmt: skip
    except OSError as error:
        raise UsageError(f"cannot write {folder}: {error.strerror or error}") from error


@dataclass(frozen=True)
class _Avoidance:
    """Plans without faults."""

    planned: Planned | None
    model: Model
    client: AgentClient
    conditions: Conditions
    costs: str | os.PathLike[str] | None
    listener: Listener

    def cures(self, culprit: Culprit, probe: RegionProbe) -> Iterator[Cure]:
        """Yield what avoids a fault, each with its plan's latency where costs were measured."""
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

    def replanned(self, culprits: Sequence[Culprit]) -> Planned | None:
        """Return the exact plan without these pairs of unit and accelerator; None without costs."""
        from nnapi_prof.api.cost_tables import read_costs
        from nnapi_prof.api.planning import partition

        forbidden = {
            name: f"nnapi:{culprit.target.accelerator}/*"
            for culprit in culprits
            for name in culprit.names
        }
        asked = self.conditions
        try:
            measured = read_costs(
                self.model, self.costs, self.client, threads=asked.threads, cpus=asked.cpus,
                mode=asked.mode.value, relaxed=asked.precision is Precision.RELAXED,
                float16=asked.precision is Precision.FLOAT16, sustained=asked.sustained_s,
            )  # fmt: skip
        except (CostError, UsageError):
            return None  # nothing was measured: there is nothing to plan with
        return partition(
            self.model, measured, forbid=forbidden, verify=False, listener=self.listener
        )

    def fix(self, culprits: Sequence[Culprit], folder: Path) -> str:
        """Write the plan without the faults, and keep later profiles from them."""
        planned = self.replanned(culprits)
        if planned is None:
            raise UsageError(
                "a plan without the fault is made from measured costs: run `nnapi-prof profile`"
                f" with the same device first, or name its table with {option('costs')}"
            )
        what = ", ".join(f"{each.label} on {each.target.accelerator}" for each in culprits)
        note = f"planned without {what}: {WRONG}"
        planned = replace(planned, plans=(planned.plan.with_note(note), *planned.baselines))
        planned.save(folder)
        self._remember(culprits)
        return f"{folder}: {note}"

    def _remember(self, culprits: Sequence[Culprit]) -> None:
        """Store that these units fail on these accelerators, under every preference."""
        from nnapi_prof.api.cost_tables import open_table
        from nnapi_prof.costs.model.fit import Locator
        from nnapi_prof.execution.profile.jobs import Job, row_of

        info, graph = self.client.info(), self.model.graph
        locator = Locator(graph)
        rows: list[Measurement] = []
        for culprit in culprits:
            for spec in device_targets(info):
                if spec.target.accelerator != culprit.target.accelerator:
                    continue
                for unit in culprit.units:
                    job = Job.of(
                        locator, (unit,), Kind.UNIT, spec, self.conditions, info.cost_version
                    )
                    rows.append(
                        row_of(job, graph, device_fingerprint(info), info.simulated,
                               status=Status.FAILED, message=WRONG)
                    )  # fmt: skip
        with open_table(self.costs) as store:
            store.add(*rows)


def _runs_on(planned: Planned | None, culprit: Culprit) -> str | None:
    """Return where a plan runs a culprit's first unit; without a plan the CPU, which has it."""
    if planned is None:
        return CPU.key
    return next(
        segment.target.key for segment in planned.plan.segments if culprit.units[0] in segment.units
    )


def _agrees_in(probe: RegionProbe, culprit: Culprit, conditions: Conditions) -> bool:
    """Whether a culprit agrees on its own target under other conditions."""
    from nnapi_prof.bisection.probe import RegionProbe

    other = RegionProbe(
        probe.program, probe.client, culprit.target.base, probe.level, probe.references,
        conditions, probe.budget, way=culprit.way,
    )  # fmt: skip
    if isinstance(other.convert(culprit.units), str):
        return False
    return not other((culprit.units,), 1)[0].differs
