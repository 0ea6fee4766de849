"""The result of a plan on a device: measured latency, and outputs compared with eager PyTorch's."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from nnapi_prof.api import notebook
from nnapi_prof.api.plan import ModelPlan
from nnapi_prof.costs.conditions import Conditions
from nnapi_prof.device.protocol.description import device_name
from nnapi_prof.errors import MismatchError, option_name
from nnapi_prof.execution.report import RunReport
from nnapi_prof.reports.data import ReportData
from nnapi_prof.reports.words import ms

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class Result:
    """A plan as it ran: its latency and that of its baselines, and every output compared."""

    planned: ModelPlan
    """The plan, with its regions converted for the device it ran on."""
    run: RunReport = field(repr=False)
    """All that was measured, in ns."""

    @property
    def simulated(self) -> bool:
        """It ran on a simulated phone: its latencies are computed, not measured on hardware."""
        return self.run.simulated

    @property
    def device(self) -> str:
        """The device that it ran on, for people."""
        return self.run.device

    @property
    def conditions(self) -> Conditions:
        """Under which it was planned."""
        return self.planned.conditions

    @property
    def latency_ms(self) -> float:
        """Median measured latency of the plan, end to end, in ms; NaN where all of it runs on the
        host, whose time is not measured."""
        median = self.run.runs[0].median_ns
        return float("nan") if median is None else median / 1e6

    @property
    def predicted_ms(self) -> float:
        """The prediction for that, in ms."""
        return self.run.runs[0].predicted_ns / 1e6

    @property
    def error(self) -> float:
        """(predicted - measured) / measured."""
        return (self.predicted_ms - self.latency_ms) / self.latency_ms

    @property
    def agrees(self) -> bool:
        """Every output is as close to eager PyTorch's as is allowed."""
        return mismatch(self.run) is None

    def raise_for_mismatch(self) -> None:
        """Raises MismatchError, naming the worst output, unless all agree."""
        wrong = mismatch(self.run)
        if wrong is not None:
            raise wrong

    def frame(self) -> pd.DataFrame:
        """One row for the plan and each baseline: ``plan``, ``predicted_ms``, ``measured_ms``
        (median), ``p10_ms``, ``p90_ms`` and ``p95_ms`` (percentiles), ``first_ms`` (the cold run),
        ``error`` (relative, of the prediction), ``against_plan`` (measured, as a multiple of the
        plan's), ``runs``, ``failure``."""
        import numpy as np
        import pandas as pd

        rows = []
        for run in self.run.runs:
            samples = np.array(run.total_ns, dtype=np.float64) / 1e6
            low, middle, high, p95 = (
                np.percentile(samples, [10, 50, 90, 95]) if len(samples) else (float("nan"),) * 4
            )
            predicted = run.predicted_ns / 1e6
            rows.append(
                {
                    "plan": run.plan.name,
                    "predicted_ms": predicted,
                    "measured_ms": middle,
                    "p10_ms": low,
                    "p90_ms": high,
                    "p95_ms": p95,
                    "first_ms": float("nan") if run.first_ns is None else run.first_ns / 1e6,
                    "error": (predicted - middle) / middle,
                    "against_plan": middle / self.latency_ms,
                    "runs": len(samples),
                    "failure": run.error or "",
                }
            )
        return pd.DataFrame(rows)

    def frames(self) -> pd.DataFrame:
        """One row for each way of running many frames at once: ``way``, ``plans`` (how many),
        ``predicted_per_second`` and ``frames_per_second`` (NaN where unknown), ``error`` (relative,
        of the prediction), ``against_plan`` (as a multiple of the first one's), ``latency_ms``
        (median) and ``latency_95_ms`` of a frame, ``frames``, ``same`` (how many gave, bit by bit,
        what their plan gives alone), ``failure``. Empty where :func:`nnapi_prof.run` was not asked
        for ``frames``; ``run.frames`` has each frame's times, and the spans of each lane."""
        from nnapi_prof.reports.frames import rate_frame

        return rate_frame(self.run.frames)

    def segments(self) -> pd.DataFrame:
        """One row for each segment of each plan that ran, predicted beside measured (median)."""
        from nnapi_prof.reports.frames import segment_frame

        return segment_frame(self.run.runs)

    def outputs(self) -> pd.DataFrame:
        """One row for each output: ``output``, ``shape``, ``max_abs`` (largest difference),
        ``relative`` (to its largest value), ``tolerance`` (what is allowed), ``agrees``,
        ``evidence`` (what it is made of: all but ``values`` leaves little to compare)."""
        import pandas as pd

        return pd.DataFrame(
            [
                {
                    "output": check.name,
                    "shape": check.shape,
                    "max_abs": check.max_abs,
                    "relative": check.relative,
                    "tolerance": check.tolerance,
                    "agrees": check.ok,
                    "evidence": check.evidence.value,
                }
                for check in self.run.checks
            ]
        )

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Writes the plan as :meth:`ModelPlan.save` does, and this run into it, where ``nnapi-prof
        report`` finds it; returns the folder. Raises UsageError where it cannot be written."""
        folder = self.planned.save(path)
        keep_result(folder, self.run)
        return folder

    def report(
        self,
        path: str | os.PathLike[str],
        *,
        costs: str | os.PathLike[str] | None = None,
    ) -> Path:
        """Writes a report; returns its path.

        The ending says which: ``.html`` (one self-contained file), ``.md``, ``.trace.json`` (for
        ui.perfetto.dev). ``costs`` is the cost table, asked where the plan was read from a folder.

        Raises UsageError where it cannot be written or nothing was measured, CostError where the
        table lacks the model.
        """
        from nnapi_prof.api.report import write

        return write(Path(path), self.report_data(costs=costs))

    def headline(self, *, costs: str | os.PathLike[str] | None = None) -> str:
        """The first sentences of a report: what runs where, how long that takes, and what it gains
        over the fastest rule that needs no partitioner. ``costs`` and errors as of
        :meth:`report`."""
        from nnapi_prof.reports.frames import baseline_frame
        from nnapi_prof.reports.headline import headline

        data = self.report_data(costs=costs)
        return headline(data, baseline_frame(data.plans, data.run, data.permutes)).sentence

    def report_data(self, *, costs: str | os.PathLike[str] | None = None) -> ReportData:
        """All that a report of it shows, for reports of one's own."""
        return self.planned.report_data(self.run, costs=costs)

    def __repr__(self) -> str:
        kind = notebook.kind_of(self.simulated)
        agrees = "outputs agree" if self.agrees else "outputs DIFFER"
        if self.agrees and not any(check.tells for check in self.run.checks):
            agrees = "outputs agree, with little to compare"
        return (
            f"Result({self.run.model!r} on {device_name(self.device)!r},"
            f" {self.latency_ms:.3f} {kind}, predicted {self.predicted_ms:.3f}, {agrees})"
        )

    def _repr_html_(self) -> str:
        measured = notebook.kind_of(self.run.simulated)
        predicted = notebook.kind_of(self.planned.simulated, self.planned.estimated)
        plans = [cells[:-1] for cells in plan_cells(self.run)]
        from nnapi_prof.execution.compare import verdict

        checks = [
            [
                check.name,
                "x".join(map(str, check.shape)),
                *check.texts(),
                verdict(check),
            ]
            for check in self.run.checks
        ]
        heads = ["plan", f"predicted, {predicted}", f"measured, {measured}", "95 % within", "error"]
        return (
            notebook.table(
                f"{self.run.model} on {self.device}: plan and baselines",
                [*heads, "against the plan"],
                plans,
                numbers=(1, 2, 3, 4, 5),
            )
            + notebook.table(
                "Outputs beside eager PyTorch's, relative to the largest value",
                ["output", "shape", "difference", "allowed", "verdict"],
                checks,
                numbers=(2, 3),
            )
            + notebook.notes(self.run.notes)
        )


def plan_cells(report: RunReport) -> list[list[str]]:
    """Format plan and baselines as a table: name, predicted and measured median, what 95 % of the
    runs keep to, error of the prediction, latency against the plan's, first run."""
    rows = []
    fastest = report.runs[0].median_ns
    for run in report.runs:
        median, error, ratio = run.median_ns, "–", "–"
        if median:
            error = f"{(run.predicted_ns - median) / median:+.1%}"
            ratio = f"{median / fastest:.2f}x" if fastest else "–"
        cells = [run.plan.name, ms(run.predicted_ns), run.error or ms(median), ms(run.p95_ns)]
        rows.append([*cells, error, ratio, ms(run.first_ns)])
    return rows


def keep_result(bundle: Path, report: RunReport) -> Path:
    """Writes a run's report into its bundle, which keeps earlier ones, too; the file."""
    from nnapi_prof.execution.report import keep

    return keep(bundle, report)


def mismatch(report: RunReport) -> MismatchError | None:
    """The output that is off by more than is allowed, the worst; None where all agree."""
    wrong = [check for check in report.checks if not check.ok]
    if not wrong:
        return None
    worst = max(wrong, key=lambda check: check.relative)
    if worst.tolerance == 0:
        return MismatchError(
            f"output {worst.name} differs from eager PyTorch by up to {worst.max_abs:.4g}; integers"
            " must be equal",
            f"`nnapi-prof bisect` finds the operation, {option_name('tolerance')}"
            " allows them as much of the largest",
        )
    difference, allowed = worst.texts(2)
    return MismatchError(
        f"output {worst.name} differs from eager PyTorch by {difference} of its largest value,"
        f" {allowed} is allowed",
        "`nnapi-prof bisect` finds the operation"
        f" at fault; give a larger {option_name('tolerance')} if that is accurate enough",
    )
