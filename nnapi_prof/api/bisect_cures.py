"""Finds what avoids the faults of a bisection, and its cost."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from nnapi_prof.api.events import Listener
from nnapi_prof.api.model import Model, load
from nnapi_prof.api.objectives import Latency
from nnapi_prof.api.plan import ModelPlan
from nnapi_prof.bisection.diagnosis import Culprit, Cure
from nnapi_prof.costs.conditions import Conditions, Precision
from nnapi_prof.costs.measurement import Kind, Measurement, Status
from nnapi_prof.device.agent import AgentClient
from nnapi_prof.device.protocol.description import device_fingerprint
from nnapi_prof.errors import CostError, UsageError, option_name
from nnapi_prof.execution.profile.jobs import device_targets
from nnapi_prof.execution.profile.options import MeasureOptions
from nnapi_prof.graph.plan import CPU, Engine

if TYPE_CHECKING:
    from nnapi_prof.bisection.probe import RegionProbe
    from nnapi_prof.graph.program import Program

WRONG = "computes something else than PyTorch, as `nnapi-prof bisect` found"
"""Message of the rows that keep later profiles from a pair of operation and driver."""


@dataclass(frozen=True)
class Avoidance:
    """Plans without faults."""

    planned: ModelPlan | None
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
        yield from self._rewrites(culprit, probe)

    def _rewrites(self, culprit: Culprit, probe: RegionProbe) -> Iterator[Cure]:
        """Yield the rewrites that the culprit's own target computes rightly, planned."""
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
        """Return the plan of a rewritten model, of which new units are measured first."""
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
            return None  # nothing was measured: there is nothing to plan with
        return partition(
            self.model,
            measured,
            Latency(forbid=forbidden),
            verify=False,
            listener=self.listener,
        )

    def fix(self, culprits: Sequence[Culprit], folder: Path) -> str:
        """Write the plan without the faults, and keep later profiles from them."""
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
        from nnapi_prof.api.cost_tables import open_table
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
    """Return where a plan runs a culprit's first unit; without a plan the CPU, which has it."""
    if planned is None:
        return CPU.key
    return next(
        segment.target.key for segment in planned.plan.segments if culprit.units[0] in segment.units
    )


def _agrees_in(probe: RegionProbe, culprit: Culprit, conditions: Conditions) -> bool:
    """Whether a culprit agrees on its own target under other conditions."""
    other = probe.variant(culprit.way, conditions=conditions)
    if isinstance(other.convert(culprit.units), str):
        return False
    return not other((culprit.units,), 1)[0].differs
