"""A report's data frames as a folder of CSV files, with a README.txt that explains every column.

Units stand in the columns' names. Numbers are written so that they read back as they were; an empty
cell is an unknown number or no text. Lists (units, targets) are separated by spaces. Latencies have
a column beside them that says whether they are ``simulated``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

import pandas as pd

from nnapi_prof.graph.plan import Plan
from nnapi_prof.reports import frames
from nnapi_prof.reports.data import ReportData
from nnapi_prof.reports.device_frames import history_frame, preference_frame
from nnapi_prof.reports.facts import transfer_frame
from nnapi_prof.reports.words import TEMPLATES


def columns_of(file: str) -> dict[str, str]:
    """Column -> meaning, with its unit, of one of our files; a name means the same in every table
    of a folder."""
    lines = TEMPLATES.joinpath(file).read_text(encoding="utf-8").splitlines()
    return dict(line.split(": ", 1) for line in lines)


COLUMNS = columns_of("columns.txt")
README = "README.txt"
READ = 'pandas.read_csv(path, keep_default_na=False, na_values=[""])'
"""The call that gives back what was written: ``NA`` may be an operation's name."""


class Table(NamedTuple):
    """One file: ``name``.csv."""

    name: str
    about: str
    frame: Callable[[ReportData], pd.DataFrame]


def write(folder: Path, data: ReportData) -> list[Path]:
    """:func:`write_csv` with all tables of a report."""
    remarks = []
    if data.simulated:
        remarks.append(
            f"{data.what_is_simulated} come from the description of a simulated phone, not from"
            " hardware."
        )
    remarks += filter(None, (data.ran_elsewhere, data.what_is_estimated))
    filled = ((each.name, each.about, each.frame(data).map(_cell)) for each in TABLES)
    return write_csv(folder, f"{data.model} on {data.device_name}", remarks, filled, COLUMNS)


def write_csv(
    folder: Path,
    of: str,
    remarks: Iterable[str],
    tables: Iterable[tuple[str, str, pd.DataFrame]],
    columns: Mapping[str, str],
) -> list[Path]:
    """Writes tables, each with its name and a sentence, and a README that explains every column
    into ``folder``, which is made where there is none; files of these names are replaced. Gives
    their paths. Raises OSError where it cannot."""
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    explained = [
        f"Tables of a report of nnapi-prof: {of}.",
        "",
        "UTF-8, comma-separated, one line of names; an empty cell is unknown or none.",
        "Numbers read back as they were written with",
        f"  {READ}",
        *remarks,
    ]
    for name, about, frame in tables:
        path = folder / f"{name}.csv"
        # RFC 4180's line ends: a lone carriage return in a cell is quoted only then.
        frame.to_csv(path, index=False, lineterminator="\r\n", encoding="utf-8")
        written.append(path)
        explained += ["", f"{path.name}: {about}"]
        explained += [f"  {column}: {columns[column]}" for column in frame.columns]
    readme = folder / README
    readme.write_text("\n".join(explained) + "\n", encoding="utf-8")
    return [*written, readme]


def _cell(value: object) -> object:
    """Lists as words; everything else as it is."""
    if isinstance(value, tuple | list):
        return " ".join(map(str, value))
    return value


def _plans(data: ReportData) -> pd.DataFrame:
    frame = frames.baseline_frame(data.plans, data.run, data.permutes)
    measured = data.run.simulated if data.run else None
    return frame.assign(
        predicted_simulated=[plan.simulated for plan in data.plans],
        predicted_estimated=[plan.estimated for plan in data.plans],
        measured_simulated=pd.Series([measured] * len(frame), dtype=object),
    )


def _segments(data: ReportData) -> pd.DataFrame:
    def of(plan: Plan) -> pd.DataFrame:
        return frames.plan_frame(plan, data.graph).assign(simulated=plan.simulated)

    return pd.concat([of(plan) for plan in data.plans], ignore_index=True)


def _timings(data: ReportData) -> pd.DataFrame:
    runs = data.run.runs if data.run else ()
    planned = {plan.name: plan.simulated for plan in data.plans}
    frame = frames.segment_frame(runs)
    return frame.assign(
        predicted_simulated=frame["plan"].map(planned).astype(object),
        measured_simulated=data.run_simulated,
    )


def _samples(data: ReportData) -> pd.DataFrame:
    rows = [
        {"plan": run.plan.name, "run": number, "measured_ms": ns / frames.NS_PER_MS,
         "simulated": data.run_simulated}
        for run in (data.run.runs if data.run else ())
        for number, ns in enumerate(run.total_ns)
    ]  # fmt: skip
    return pd.DataFrame(rows, columns=["plan", "run", "measured_ms", "simulated"])


def _outputs(data: ReportData) -> pd.DataFrame:
    rows = [
        {"output": check.name, "shape": check.shape, "max_abs": check.max_abs,
         "relative": check.relative, "tolerance": check.tolerance, "ok": check.ok,
         "evidence": check.evidence.value}
        for check in (data.run.checks if data.run else ())
    ]  # fmt: skip
    columns = ["output", "shape", "max_abs", "relative", "tolerance", "ok", "evidence"]
    return pd.DataFrame(rows, columns=columns)


def _measurements(data: ReportData) -> pd.DataFrame:
    rows = data.own_measurements
    frame = frames.measurement_frame(rows)
    return frame.assign(simulated=[row.simulated for row in rows])


def _rounds(data: ReportData) -> pd.DataFrame:
    frame = history_frame(data.own_measurements)
    ordered = sorted(data.own_measurements, key=lambda row: row.measured_at)
    return frame.assign(simulated=[ordered[n - 1].simulated for n in frame["measurement"]])


def _costs(data: ReportData, frame: pd.DataFrame) -> pd.DataFrame:
    return frame.assign(simulated=data.cost_model.simulated)


TABLES = (
    Table("plans", "one row a plan, the plan itself first, then its baselines", _plans),
    Table("segments", "one row for each segment of each plan, as predicted", _segments),
    Table("timings", "one row for each segment of each plan that ran", _timings),
    Table("samples", "one row for each recorded run of each plan, end to end", _samples),
    Table("outputs", "one row for each output of the plan, against eager PyTorch", _outputs),
    Table("units", "one row for each unit on each target",
          lambda data: _costs(data, frames.unit_frame(data.cost_model))),
    Table("refusals", "one row for each unit and reason, with the targets that gave it",
          lambda data: frames.refusal_frame(data.cost_model)),
    Table("transfers", "one row for each segment of the plan: what crosses its border",
          lambda data: _costs(
              data, transfer_frame(data.plan, data.cost_model, data.segment_permutes))),
    Table("preferences", "one row for each accelerator under each preference",
          lambda data: _costs(data, preference_frame(data.cost_model))),
    Table("cost_model", "one row for each target: the fit that predictions rest on",
          lambda data: _costs(data, frames.fit_frame(data.cost_model))),
    Table("residuals", "one row for each measurement that the cost model was fitted to",
          lambda data: frames.residual_frame(data.cost_model)),
    Table("measurements", "one row for each measurement of a unit or region of this model",
          _measurements),
    Table("rounds", "one row for each round of a measurement: the device before and after it",
          _rounds),
)  # fmt: skip
