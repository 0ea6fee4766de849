"""The data that every form of a report is made from, and where and how it was written."""

from __future__ import annotations

import datetime
import os
import platform
import re
import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path
from typing import Any

from nnapi_prof import __version__
from nnapi_prof.advice import Advice
from nnapi_prof.bundle import MixedPrecision
from nnapi_prof.bundle.deployment import DeployStep
from nnapi_prof.bundle.storage import Fault
from nnapi_prof.convert.region import Permutes
from nnapi_prof.costs.measurement import Measurement
from nnapi_prof.costs.model import CostModel
from nnapi_prof.costs.model.views import shown_targets
from nnapi_prof.execution.report import PlanRun, RunReport
from nnapi_prof.graph.plan import Plan, Target
from nnapi_prof.graph.unit import UnitGraph
from nnapi_prof.qnn.calibration import ChipOrigin
from nnapi_prof.reports.frames import all_targets
from nnapi_prof.reports.words import LatencySource, calibration_words, ms_unit


@dataclass(frozen=True)
class ReportData:
    """Everything a report shows. ``run`` is None where the plan has not been run yet."""

    model: str
    graph: UnitGraph
    cost_model: CostModel
    measurements: tuple[Measurement, ...]
    """Rows of the device; those of other models are left out."""
    plan: Plan
    baselines: tuple[Plan, ...]
    run: RunReport | None = None
    device_info: Mapping[str, Any] = field(default_factory=dict)
    """What the agent's info said; may nest."""
    notes: tuple[str, ...] = ()
    permutes: Mapping[str, Permutes] = field(default_factory=dict)
    """Plan name -> what it permutes."""
    segment_permutes: tuple[Permutes | None, ...] = ()
    """What each segment of the plan permutes, where that is known; None on the host."""
    planned_for: str = ""
    """The device that the plan and its costs are of, where it ran on another one."""
    environment: Environment | None = None
    """Where and how the report was written."""
    mixed: MixedPrecision | None = None
    """Where regions differ in precision: what the plan was chosen from."""
    advice: tuple[Advice, ...] = ()
    """What would make the plan faster, the most first."""
    faults: tuple[Fault, ...] = ()
    """What a bisection found, in topological order."""
    ship: tuple[DeployStep, ...] = ()
    """The next command for each way into an app; empty where the plan stands in no folder."""
    origin: ChipOrigin | None = None
    """Of costs that Qualcomm's simulator estimated; None of others."""
    every_preference: bool = False
    """Shows accelerators under each preference, in place of the one that the plan uses or, of
    those that it does not use, the one under which most was measured."""

    @property
    def simulated(self) -> bool:
        return self.run_simulated or self.costs_simulated

    @property
    def costs_simulated(self) -> bool:
        """Whether costs and predictions are simulated; those of the plans as they ran may be of
        another device."""
        return self.cost_model.simulated or self.plan.simulated

    @property
    def planned_unit(self) -> str:
        """The unit behind costs and predictions, with what they are where they rest on no
        hardware."""
        return ms_unit(self.planned_source)

    @property
    def planned_source(self) -> LatencySource:
        """The source of costs and predictions."""
        if self.origin is not None:
            return LatencySource.ESTIMATED
        return LatencySource.of(self.costs_simulated)

    @property
    def run_source(self) -> LatencySource:
        """The source of the latencies of plans as they ran."""
        return LatencySource.of(self.run_simulated)

    @property
    def run_simulated(self) -> bool:
        return self.run is not None and self.run.simulated

    @property
    def what_is_simulated(self) -> str:
        """Names the simulated latencies: a plan may have been run on another device than it was
        made for."""
        planned = self.costs_simulated
        if self.run is None or self.run.simulated == planned:
            return "Latencies in this report"
        if planned:
            return "Predictions and costs (but not the latencies of the plans as they ran)"
        return "The latencies of the plans as they ran (but neither predictions nor costs)"

    @property
    def ran_elsewhere(self) -> str:
        """A sentence for a plan that ran on another device than it was made for; else empty."""
        if not self.planned_for:
            return ""
        return (
            f"ModelPlan for another device, {self.planned_for}: predictions, costs and facts of the"
            " device are of that one, what was measured of the plans as they ran is not."
        )

    @property
    def what_is_estimated(self) -> str:
        """A sentence that says which of the plan's segments have no measurement behind them; empty
        where all have."""
        if self.origin is not None:
            return (
                f"Nothing in this report was measured. The NPU's times are"
                f" {calibration_words(self.origin.calibration)}; those of the CPU are estimated for"
                f" {self.origin.cpu}."
            )
        n, every = sum(s.estimated for s in self.plan.segments), len(self.plan.segments)
        if not n:
            return ""
        which = "The plan's only segment" if every == 1 else f"{n} of the plan's {every} segments"
        return (
            f"{which} {'was' if n == 1 else 'were'} not measured: what is predicted of "
            f"{'it' if n == 1 else 'them'} is estimated."
        )

    @property
    def plans(self) -> tuple[Plan, ...]:
        """The plan, then its baselines."""
        return (self.plan, *self.baselines)

    @property
    def run_of_plan(self) -> PlanRun | None:
        """The plan itself as it ran; None where it did not."""
        runs = self.run.runs if self.run else ()
        return next((run for run in runs if run.plan.name == self.plan.name), None)

    @property
    def shown_targets(self) -> tuple[Target, ...]:
        """Those of which costs are shown."""
        every = all_targets(self.cost_model)
        if self.every_preference:
            return every
        used = {segment.target for segment in self.plan.segments}
        usual = set(shown_targets(self.cost_model, self.graph).values())
        alike: dict[tuple[object, ...], list[Target]] = {}
        for target in every:
            key = target.engine, target.accelerator, target.precision
            alike.setdefault(key, []).append(target)
        shown = {
            target
            for own in alike.values()
            for target in (
                [t for t in own if t in used] or [t for t in own if t in usual] or own[:1]
            )
        }
        return tuple(target for target in every if target in shown)

    @property
    def own_measurements(self) -> tuple[Measurement, ...]:
        """Without what the cost table knows from other models on the same device."""
        own = {unit.signature for unit in self.graph.units}
        return tuple(row for row in self.measurements if own.issuperset(row.members))

    @property
    def device_name(self) -> str:
        """The device for people: as the run named it, else from its description."""
        if self.run is not None:
            return self.run.device
        properties = self.device_info.get("properties")
        facts = properties if isinstance(properties, Mapping) else {}
        parts = [facts.get("ro.product.manufacturer"), facts.get("ro.product.model")]
        name = " ".join(str(part) for part in parts if part)
        info = self.device_info
        return name or str(info.get("phone") or info.get("os") or "unnamed device")

    @property
    def all_notes(self) -> tuple[str, ...]:
        """Each note once: the model's, the plan's, the run's."""
        ran = self.run.notes if self.run else ()
        return tuple(dict.fromkeys((*self.notes, *self.plan.notes, *ran)))


# ---- the environment: program, packages, host, command -------------------------------------------


PROGRAM = "nnapi-prof"
PACKAGES = ("torch", "numpy", "scipy", "pandas", "sqlalchemy", "matplotlib", "jinja2", "adb-shell")
"""What measured numbers, plans and figures rest on."""

_SECRET = re.compile(r"(?<=://)([^:/@\s]+:)\S*(?=@)|(?<=[?&]password=)[^&\s']+")
"""A password of a URL, behind its user's name or as an argument."""


@dataclass(frozen=True)
class Environment:
    """The environment at the time of the report."""

    written_at: str
    """UTC, ISO 8601."""
    command: str
    """As typed, without passwords; empty where a program asked for the report."""
    host: str
    """``Linux 6.1, x86_64, 8 CPUs``."""
    python: str
    nnapi_prof: str
    packages: Mapping[str, str]
    """Name -> version."""


def this_environment(command: Sequence[str] | None = None) -> Environment:
    """The environment now. ``command`` is what was typed; None is this process's own command line
    where it is nnapi-prof's."""
    if command is None:
        command = sys.argv if is_ours(sys.argv) else ()
    cpus = os.cpu_count()
    cores = "" if cpus is None else f", {cpus} CPU{'' if cpus == 1 else 's'}"
    return Environment(
        written_at=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        command=typed(command),
        host=f"{platform.system()} {platform.release()}, {platform.machine()}{cores}",
        python=platform.python_version(),
        nnapi_prof=__version__,
        packages={name: version for name in PACKAGES if (version := _package_version(name))},
    )


def is_ours(command: Sequence[str]) -> bool:
    """Whether a command line is nnapi-prof's, not that of a program that imports it."""
    program = Path(command[0]) if command else Path()
    return program.stem == PROGRAM or program.parts[-2:] == ("nnapi_prof", "__main__.py")


def typed(command: Sequence[str]) -> str:
    """A command line as one would type it: the program by its name, URLs without passwords."""
    if not command:
        return ""
    words = [PROGRAM if is_ours(command) else Path(command[0]).name, *command[1:]]
    return _SECRET.sub(lambda match: (match[1] or "") + "***", shlex.join(words))


def _package_version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None
