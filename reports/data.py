"""The data of a report in every form, and the environment that wrote it."""

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
    """All data that a report shows. ``run`` is None if the plan has not run yet."""

    model: str
    graph: UnitGraph
    cost_model: CostModel
    measurements: tuple[Measurement, ...]
    """Rows of the device; :attr:`own_measurements` leaves out those of other models."""
    plan: Plan
    baselines: tuple[Plan, ...]
    run: RunReport | None = None
    device_info: Mapping[str, Any] = field(default_factory=dict)
    """The agent's info; may be nested."""
    notes: tuple[str, ...] = ()
    permutes: Mapping[str, Permutes] = field(default_factory=dict)
    """Plan name -> its permutes."""
    segment_permutes: tuple[Permutes | None, ...] = ()
    """Permutes of each segment of the plan; None on the host; empty if unknown."""
    planned_for: str = ""
    """The device that the plan was made for, if it ran on another one."""
    environment: Environment | None = None
    """The environment that wrote the report."""
    mixed: MixedPrecision | None = None
    """The front that the plan was chosen from, if regions differ in precision."""
    advice: tuple[Advice, ...] = ()
    """Changes that would make the plan faster, largest saving first."""
    faults: tuple[Fault, ...] = ()
    """Findings of a bisection, in topological order."""
    ship: tuple[DeployStep, ...] = ()
    """The next command for each way into an app; empty if the plan is not in a folder."""
    origin: ChipOrigin | None = None
    """Origin of costs that Qualcomm's simulator estimated; None for other costs."""
    every_preference: bool = False
    """Shows accelerators under each preference. By default only the preference that the plan uses
    is shown, and for unused accelerators the one with the most measurements."""

    @property
    def simulated(self) -> bool:
        return self.run_simulated or self.costs_simulated

    @property
    def costs_simulated(self) -> bool:
        """Whether costs and predictions are simulated; the plans may have run on another device."""
        return self.cost_model.simulated or self.plan.simulated

    @property
    def planned_unit(self) -> str:
        """The unit behind costs and predictions, with their source if that is not hardware."""
        return ms_unit(self.planned_source)

    @property
    def planned_source(self) -> LatencySource:
        """The source of costs and predictions."""
        if self.origin is not None:
            return LatencySource.ESTIMATED
        return LatencySource.of(self.costs_simulated)

    @property
    def run_source(self) -> LatencySource:
        """The source of the latencies of the plans' runs."""
        return LatencySource.of(self.run_simulated)

    @property
    def run_simulated(self) -> bool:
        return self.run is not None and self.run.simulated

    @property
    def what_is_simulated(self) -> str:
        """The simulated latencies in words: a plan may have run on another device than it was made
        for."""
        planned = self.costs_simulated
        if self.run is None or self.run.simulated == planned:
            return "Latencies in this report"
        if planned:
            return "Predictions and costs (but not the latencies of the plans as they ran)"
        return "The latencies of the plans as they ran (but neither predictions nor costs)"

    @property
    def ran_elsewhere(self) -> str:
        """Sentence for a plan that ran on another device than it was made for; else empty."""
        if not self.planned_for:
            return ""
        return (
            f"The plan was made for another device, {self.planned_for}: predictions, costs and"
            " facts of the device are that one's. Only the latencies of the runs are this one's."
        )

    @property
    def what_is_estimated(self) -> str:
        """Sentence that counts the plan's segments without a measurement; empty if all have one."""
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
        """The run of the plan itself; None if it did not run."""
        runs = self.run.runs if self.run else ()
        return next((run for run in runs if run.plan.name == self.plan.name), None)

    @property
    def shown_targets(self) -> tuple[Target, ...]:
        """Targets whose costs are shown."""
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
        """Measurements without those of other models on the same device."""
        own = {unit.signature for unit in self.graph.units}
        return tuple(row for row in self.measurements if own.issuperset(row.members))

    @property
    def device_name(self) -> str:
        """The device for people: the run's name for it, else from its description."""
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
"""Packages that affect measured numbers, plans and figures."""

_SECRET = re.compile(r"(?<=://)([^:/@\s]+:)\S*(?=@)|(?<=[?&]password=)[^&\s']+")
"""A password of a URL, behind its user's name or as an argument."""


@dataclass(frozen=True)
class Environment:
    """The environment at the time of the report."""

    written_at: str
    """UTC, ISO 8601."""
    command: str
    """Command line without passwords; empty if a program requested the report."""
    host: str
    """``Linux 6.1, x86_64, 8 CPUs``."""
    python: str
    nnapi_prof: str
    packages: Mapping[str, str]
    """Name -> version."""


def this_environment(command: Sequence[str] | None = None) -> Environment:
    """Returns the current environment. ``command`` defaults to this process's command line if that
    is nnapi-prof's."""
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
    """Returns whether a command line is nnapi-prof's, not that of a program that imports it."""
    program = Path(command[0]) if command else Path()
    return program.stem == PROGRAM or program.parts[-2:] == ("nnapi_prof", "__main__.py")


def typed(command: Sequence[str]) -> str:
    """Returns a command line to type: the program by its name, URLs without passwords."""
    if not command:
        return ""
    words = [PROGRAM if is_ours(command) else Path(command[0]).name, *command[1:]]
    return _SECRET.sub(lambda match: (match[1] or "") + "***", shlex.join(words))


def _package_version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None
