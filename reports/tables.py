"""A report's data frames as a folder of CSV files, with a README.txt that explains every column.

Units stand in the columns' names. Numbers are written so that they read back as they were; an empty
cell is an unknown number or no text. Lists (units, targets) are separated by spaces. Latencies have
a column beside them that says whether they are ``simulated``.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pandas as pd

from nnapi_prof.graph.plan import Plan
from nnapi_prof.reports import frames
from nnapi_prof.reports.data import ReportData
from nnapi_prof.reports.device_frames import history_frame, preference_frame
from nnapi_prof.reports.facts import transfer_frame

COLUMNS = {
    "accelerator": "NNAPI device, or auto for NNAPI's own choice; empty off NNAPI",
    "alone_ms": "median latency of the unit run alone, invocation and transfer included, ms",
    "basis": "what the prediction rests on: measured whole, sum of measured parts, or estimated",
    "cause": "why the segment stands where it does",
    "celsius_after": "temperature after the round, degrees Celsius",
    "celsius_before": "temperature before the round, degrees Celsius",
    "compile_ms": "time to compile, ms",
    "driver_ms": "median time in the driver, as it told, ms",
    "engine": "cpu, nnapi, or host (eager PyTorch on the computer)",
    "error": "why the plan did not run to its end",
    "first_ms": "latency of the first, cold run, ms",
    "flags": "what to know before trusting the latency",
    "hardware_ms": "median time on the hardware, as the driver told, ms",
    "high_ms": "90th percentile of the recorded runs, ms",
    "in_bytes": "bytes that enter the segment",
    "in_ms": "time of what enters, by the cost model, ms",
    "in_ns_per_byte": "cost of an input, ns per byte",
    "in_values": "how many values enter the segment",
    "input_bytes": "bytes that enter what was measured",
    "invocation_ms": "time of one invocation, by the cost model, ms",
    "inferred": "the unit ran under another preference only",
    "kind": "what was measured: unit, chain, region, plan",
    "label": "operations, sizes and shapes",
    "low_ms": "10th percentile of the recorded runs, ms",
    "macs": "multiply-accumulates",
    "marginal_ms": "latency that the unit adds to a segment, without invocation and transfer, ms",
    "max_abs": "largest absolute difference",
    "measured_at": "when, UTC",
    "measured_ms": "measured latency (of several runs the median), ms",
    "measured_simulated": "whether the measured latency is a simulated phone's",
    "measurement": "number of the measurement, in the order in which they were made",
    "median_error": "median of the relative errors, without sign",
    "median_ms": "median latency, ms",
    "mhz_after": "clock of the CPU after the round, MHz",
    "mhz_before": "clock of the CPU before the round, MHz",
    "minimum_ms": "least latency, ms",
    "mode": "how NNAPI was asked to compute: sync, async, burst",
    "n_inferred": "units whose cost is inferred from another preference",
    "n_measured": "units that were measured alone",
    "n_segments": "segments of the plan",
    "n_targets": "different targets of the plan",
    "n_units": "how many units",
    "name": "name of the unit's last operation in the graph",
    "evidence": "what the output is made of: all but values leaves little to compare",
    "ok": "whether the output agrees",
    "out_bytes": "bytes that leave the segment",
    "out_ms": "time of what leaves, by the cost model, ms",
    "out_ns_per_byte": "cost of an output, ns per byte",
    "out_values": "how many values leave the segment",
    "output": "name of the output",
    "output_bytes": "bytes that leave what was measured",
    "overhead_ms": "time of one invocation, by the fit, ms",
    "p90_error": "90th percentile of the relative errors, without sign",
    "permuted_bytes": "bytes that permutes write",
    "permutes": "transpositions between layouts of images",
    "plan": "dp is the plan itself; the others are its baselines",
    "precision": "float32, relaxed or float16",
    "predicted_ms": "predicted latency, ms",
    "predicted_estimated": "whether the prediction of a segment is an estimate, not measured",
    "predicted_simulated": "whether the prediction rests on a simulated phone",
    "preference": "NNAPI's preference: low_power, fast, sustained; empty off NNAPI",
    "reason": "why there is no latency",
    "relative": "difference relative to the least or largest value: 0.01 is 1 %",
    "relative_error": "(predicted - measured) / measured",
    "repeats": "the round that this one was measured again for, from 0",
    "round": "number of the round, from 0",
    "rows": "measurements that were fitted",
    "run": "number of the recorded run, from 0",
    "runs": "how many runs were recorded",
    "segment": "number of the segment in its plan, from 0",
    "sigma_ms": "standard error of the fit, 0 where none is known, ms",
    "shape": "sizes of the output",
    "share": "invocation and transfer as a part of the predicted latency",
    "simulated": "whether latencies of the row are a simulated phone's",
    "spread": "1.4826 times the median absolute deviation, as a part of the median",
    "start_ms": "predicted time from the plan's begin to the segment's, ms",
    "status": "how it ended; of a unit: measured, fitted, estimated, refused or unknown",
    "target": "cpu, host, or nnapi:ACCELERATOR/PREFERENCE",
    "targets": "the targets that gave this reason",
    "throttled": "whether the device was held back by heat; empty where it does not tell",
    "tolerance": "allowed relative difference",
    "unit": "number of the unit in the model, from 0",
    "units": "numbers of the units in the model, from 0",
    "units_ms": "sum of the marginal latencies of the units that run under all preferences, ms",
    "whole_measured": "whether whole_ms was measured",
    "whole_ms": "latency of the whole model as one region, ms",
}
"""Column -> meaning, with its unit."""


# ---- the folder ----------------------------------------------------------------------------------


README = "README.txt"
READ = 'pandas.read_csv(path, keep_default_na=False, na_values=[""])'
"""The call that gives back what was written: ``NA`` may be an operation's name."""


class Table(NamedTuple):
    """One file: ``name``.csv."""

    name: str
    about: str
    frame: Callable[[ReportData], pd.DataFrame]


def write(folder: Path, data: ReportData) -> list[Path]:
    """Writes every table and the README into ``folder``, which is made where there is none; files
    of these names are replaced. Gives their paths. Raises OSError where it cannot."""
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    explained = [f"Tables of a report of nnapi-prof: {data.model} on {data.device_name}.", ""]
    explained += _preface(data)
    for table in TABLES:
        frame = table.frame(data).map(_cell)
        path = folder / f"{table.name}.csv"
        # RFC 4180's line ends: a lone carriage return in a cell is quoted only then.
        frame.to_csv(path, index=False, lineterminator="\r\n", encoding="utf-8")
        written.append(path)
        explained += ["", f"{path.name}: {table.about}"]
        explained += [f"  {name}: {COLUMNS[name]}" for name in frame.columns]
    readme = folder / README
    readme.write_text("\n".join(explained) + "\n", encoding="utf-8")
    return [*written, readme]


def _preface(data: ReportData) -> list[str]:
    lines = ["UTF-8, comma-separated, one line of names; an empty cell is unknown or none."]
    lines += ["Numbers read back as they were written with", f"  {READ}"]
    if data.simulated:
        lines.append(
            f"{data.what_is_simulated} come from the description of a simulated phone, not from"
            " hardware."
        )
    lines += [remarks for remarks in (data.ran_elsewhere, data.what_is_estimated) if remarks]
    return lines


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
        predicted_estimated=[any(s.estimated for s in plan.segments) for plan in data.plans],
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
        measured_simulated=data.run is not None and data.run.simulated,
    )


def _samples(data: ReportData) -> pd.DataFrame:
    rows = [
        {"plan": run.plan.name, "run": number, "measured_ms": ns / frames.NS_PER_MS,
         "simulated": data.run is not None and data.run.simulated}
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
