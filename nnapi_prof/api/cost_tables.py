"""Reads a model's units from a cost table."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nnapi_prof.api import SILENT, Listener, precisions_of, table_location
from nnapi_prof.api.costs import Calibration, CalibrationOptions, Costs, calibrate_model
from nnapi_prof.api.model import Model, as_model
from nnapi_prof.costs import BY_TRIAL, ConditionOptions, Conditions, existing
from nnapi_prof.costs.contention import corun_rows
from nnapi_prof.costs.estimate.calibration import TargetReport
from nnapi_prof.costs.estimate.calibration import calibrate as fit_description
from nnapi_prof.costs.estimate.phones import SIMULATED_FORMAT as SIMULATED
from nnapi_prof.costs.estimate.phones import Description, parse_description, shipped
from nnapi_prof.costs.measurement import Kind, Measurement
from nnapi_prof.costs.model import CostModel
from nnapi_prof.costs.model.fit import fitted_costs
from nnapi_prof.costs.model.precision import PrecisionCosts
from nnapi_prof.costs.store import CostStore, find_one, named
from nnapi_prof.costs.store.selection import Selection, stated_instant
from nnapi_prof.device import describe, description_of, device_fingerprint
from nnapi_prof.device.agent import AgentClient
from nnapi_prof.errors import CostError, UsageError, option_name
from nnapi_prof.execution.estimation import (
    described_device,
    estimated_costs,
    filled_costs,
    read_phone,
)
from nnapi_prof.execution.profile.threads import ThreadTrial, read_trial
from nnapi_prof.graph.plan import CPU, Precision
from nnapi_prof.options import into, moved
from nnapi_prof.reports import notebook

if TYPE_CHECKING:
    import pandas as pd

    from nnapi_prof.device.protocol import AgentInfo
    from nnapi_prof.precision.samples import Source


USUAL = Conditions()


@contextmanager
def open_table(
    costs: str | os.PathLike[str] | CostStore | None, *, to_read: bool = False
) -> Iterator[CostStore]:
    """Opens the cost table ``costs`` for the time of a block; a table that is open already stays
    open. With ``to_read`` a missing table is not created.

    Raises UsageError where there is none, CostError where it cannot be opened.
    """
    if isinstance(costs, CostStore):
        yield costs
        return
    where = table_location(costs)
    with CostStore(existing(where) if to_read else where) as store:
        yield store


def note_other_agent(store: CostStore, info: AgentInfo, listener: Listener) -> None:
    """Reports where the table has this device's costs only from another version of the agent.

    They are stored separately from the current agent's (:attr:`.AgentInfo.cost_version`). With
    XNNPACK, a host's emulator has one more accelerator and therefore another fingerprint, so
    accelerators are not compared.
    """

    def comparable(description: Mapping[str, Any]) -> dict[str, Any]:
        return {name: fact for name, fact in description.items() if name != "accelerators"}

    device = comparable(description_of(info))
    same = [
        row.fingerprint
        for row in store.devices()
        if row.simulated == info.simulated and comparable(row.description) == device
    ]
    agents = set[str]().union(*(store.agent_versions(each, CPU.key) for each in same))
    if agents and info.cost_version not in agents:
        listener.note(
            f"the agent is {info.cost_version}: what {', '.join(sorted(agents))} measured on this "
            "device stays in the table and is measured again"
        )


@moved(**into("conditions", ConditionOptions))
def read_costs(
    model: Model | str | os.PathLike[str],
    costs: str | os.PathLike[str] | CostStore | None = None,
    device: str | AgentClient | None = None,
    *,
    conditions: ConditionOptions | Conditions | None = None,
    fill: bool = False,
    until: str | None = None,
    precisions: Sequence[str] | None = None,
    calibration: Source | None = None,
    samples: int | None = None,
    listener: Listener = SILENT,
) -> Costs:
    """Reads the measured costs of a model's units from a cost table, without a device.

    ``costs`` is that of :func:`.profile`, or a table that is open already. ``device`` is a device
    of the table: its fingerprint, the beginning of it, or its name as `nnapi-prof costs list` shows
    it, with * and ?; None where there is only one; or a device that is open. The ``conditions`` are
    those of the measurements; ``threads="auto"`` is the number that :func:`.profile` chose by a
    trial, or without a trial the only number that the model was measured with. ``fill`` estimates
    units that were never measured from other measurements on the device. ``until``, a date or time
    in UTC, leaves out later measurements. ``precisions``, ``calibration`` and ``samples`` are those
    of :func:`.profile`, and need a device that is open. A ``listener`` hears notes.

    Raises CostError where the model was not measured there, UsageError where the table or the
    device is not found.
    """
    chosen = as_model(model)
    asked = ConditionOptions.of(conditions)
    conditions = asked.conditions
    chosen_precisions = precisions_of(precisions, conditions)
    until = None if until is None else stated_instant("until", until, end=True)
    with open_table(costs, to_read=True) as store:
        if isinstance(device, AgentClient):
            fingerprint, name = device_fingerprint(device.info()), describe(device.info())
        else:
            row = find_one(named(store), "*" if device is None else device)
            fingerprint, name = row.fingerprint, row.name
        trial = None
        if asked.by_trial:
            trial = read_trial(chosen.graph, store, fingerprint, conditions)
            n = measured_threads(chosen, store, fingerprint, conditions, trial, fill=fill)
            conditions = replace(conditions, threads=n)
        rows = store.select(
            Selection((fingerprint,), conditions=conditions, until=until, newest=True)
        )
        if not asked.by_trial or chosen_precisions is not None:
            rows = [row for row in rows if not row.target.has_one_thread]
        notes: tuple[str, ...] = chosen.notes
        priced: CostModel | PrecisionCosts
        calibrated = None
        if chosen_precisions is not None:
            if not isinstance(device, AgentClient):
                raise UsageError(
                    "costs in several precisions are calibrated for a device",
                    "pass one that is open",
                )
            data = CalibrationOptions(calibration, samples)
            calibrated = calibrate_model(chosen, device.info(), chosen_precisions, data, listener)
            priced = _read_precisions(
                chosen, calibrated, store, fingerprint, conditions, chosen_precisions
            )
        elif fill:
            priced, note = filled_costs(chosen.program, rows, fingerprint)
            notes = (*notes, note) if note else notes
        else:
            priced = fitted_costs(chosen.graph, rows, conditions, asked.by_trial)
        return Costs(
            model=chosen,
            device=name,
            conditions=conditions,
            priced=priced,
            device_spec=device.serial if isinstance(device, AgentClient) else None,
            fingerprint=fingerprint,
            location=str(store.location),
            measurements=tuple(rows),
            corun_rows=corun_rows(store, fingerprint, conditions),
            device_info=device_info(store, fingerprint),
            agent_info=device.info() if isinstance(device, AgentClient) else None,
            thread_trial=trial,
            notes=notes,
            calibration=calibrated,
        )


def measured_threads(
    model: Model,
    store: CostStore,
    fingerprint: str,
    conditions: Conditions,
    trial: ThreadTrial | None,
    *,
    fill: bool = False,
) -> int:
    """Returns the number of threads that a model was measured with on a device.

    That is the number of its ``trial``; without one, the only number that all its units were
    measured with, else the number with most rows. With ``fill``, a model that was not measured gets
    the number with most rows of other models. Where there are no rows, it is that of the
    ``conditions``. Raises CostError where all units were measured with several numbers.
    """
    if trial is not None:
        return trial.threads
    signatures = {unit.signature for unit in model.graph.units}
    units, others = Counter[int](), Counter[int]()
    for row in cpu_rows(store, fingerprint, conditions):
        (units if row.signature in signatures else others)[row.threads] += 1
    complete = sorted(n for n in units if units[n] == len(signatures))
    if len(complete) > 1:
        raise CostError(
            f"the model was measured with {' and '.join(map(str, complete))} threads and no trial"
            f" chose between them: state one of them ({option_name('threads')})"
        )
    rows_of = units if units or not fill else others
    return max(rows_of, key=lambda n: (rows_of[n], -n), default=conditions.threads)


def cpu_rows(store: CostStore, fingerprint: str, conditions: Conditions) -> list[Measurement]:
    """Returns the newest rows of the CPU under these conditions, with any number of threads,
    without those of trials."""
    own = replace(conditions.on(CPU), threads=0)
    rows = store.select(Selection((fingerprint,), targets=(CPU.key,), newest=True))
    return [
        row
        for row in rows
        if row.kind is not Kind.THREADS and replace(row.conditions, threads=0) == own
    ]


def _read_precisions(
    model: Model,
    calibration: Calibration,
    store: CostStore,
    fingerprint: str,
    conditions: Conditions,
    precisions: Sequence[Precision],
) -> PrecisionCosts:
    from nnapi_prof.execution.profile.precision_sessions import read_precision_costs

    rows: dict[Precision, Sequence[Measurement]] = {
        precision: store.select(
            Selection(
                (fingerprint,), conditions=replace(conditions, precision=precision), newest=True
            )
        )
        for precision in precisions
        if precision is not Precision.INT8
    }
    return read_precision_costs(model.program, calibration.recipe, rows)


def device_info(store: CostStore, fingerprint: str) -> Mapping[str, Any]:
    """Returns a table's description of a device."""
    descriptions = {row.fingerprint: row.description for row in store.devices()}
    return descriptions.get(fingerprint, {})


# Costs without a device, from a phone's description, which can be fitted to measurements.


@dataclass(frozen=True)
class Phone:
    """A phone's description, from which :func:`nnapi_prof.estimate` estimates costs."""

    description: Mapping[str, Any] = field(repr=False)
    """The content of its JSON file."""
    reports: tuple[TargetReport, ...] = field(default=(), repr=False)
    """Errors of predictions in cross-validation, for each target; empty where it was read."""

    @property
    def name(self) -> str:
        """The phone's name, for people."""
        return str(self.description["name"])

    @property
    def origin(self) -> str:
        """The description's origin: a table of measurements, or ``simulated``."""
        return str(self.description.get("origin") or "simulated")

    @property
    def simulated(self) -> bool:
        """Whether it was fitted to a simulated phone's latencies."""
        return bool(self.description.get("simulated", False))

    @classmethod
    def load(cls, name: str | os.PathLike[str]) -> Phone:
        """Reads a phone that ships with nnapi-prof, by name, or a JSON file. Raises UsageError."""
        return cls(read_phone(str(name)))

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Writes the description as JSON, for ``nnapi-prof estimate --phone``; returns the path.

        Raises UsageError where it cannot be written.
        """
        file = Path(path)
        try:
            file.write_text(json.dumps(self.description, indent=1) + "\n", encoding="utf-8")
        except OSError as error:
            raise UsageError(f"cannot write {file}: {error.strerror or error}") from error
        return file

    def frame(self) -> pd.DataFrame:
        """Returns one row for each target: ``target``, ``rows`` (measurements in the fit),
        ``median`` and ``nine_of_ten`` (relative errors that half and nine of ten predictions stay
        below, in cross-validation), ``within_10_percent`` (share of predictions within 10 %)."""
        import pandas as pd

        rows = []
        for report in self.reports:
            half, nine, within = report.summary(report.errors)
            rows.append(
                {
                    "target": report.target.key,
                    "rows": report.rows,
                    "median": half,
                    "nine_of_ten": nine,
                    "within_10_percent": within,
                }
            )
        columns = ["target", "rows", "median", "nine_of_ten", "within_10_percent"]
        return pd.DataFrame(rows, columns=columns)

    def __repr__(self) -> str:
        return f"Phone({self.name!r}{', simulated' if self.simulated else ''})"

    def _repr_html_(self) -> str:
        kind = ", simulated" if self.simulated else ""
        rows = []
        for report in self.reports:
            shares = (f"{value:.1%}" for value in report.summary(report.errors))
            rows.append([report.target.key, str(report.rows), *shares])
        if not rows:
            return notebook.facts(f"Phone {self.name}{kind}", [("origin", self.origin)])
        heads = ("target", "measurements", "median error", "9 of 10 below", "within 10 %")
        return notebook.table(
            f"Phone {self.name}{kind}: cross-validated errors", heads, rows, numbers=(1, 2, 3, 4)
        )


def estimate(
    model: Model | str | os.PathLike[str],
    phone: str | os.PathLike[str] | Phone,
    *,
    threads: int | None = None,
    burst: bool = False,
    relaxed: bool = False,
) -> Costs:
    """Estimates a model's costs on a phone from its description, without a device or a network.

    ``phone`` is the name of a phone that ships with nnapi-prof (``pixel4``, ``s10``, ``mi8se``,
    ``a03s``, simulated ones), a JSON file that :meth:`nnapi_prof.Phone.save` wrote, or a
    :class:`nnapi_prof.Phone`. ``threads`` (None: the number that a real phone was measured with, or
    the one with which a simulated CPU runs the model fastest), ``burst`` (NNAPI in burst mode) and
    ``relaxed`` (float32 as float16) are for simulated phones; for a real one, they are refused
    unless it was measured with them.

    Raises UsageError where there is no such phone or it was not measured so, CostError where a
    description is damaged.
    """
    description = phone.description if isinstance(phone, Phone) else read_phone(str(phone))
    chosen = as_model(model)
    mode = "burst" if burst else "sync"
    asked = ConditionOptions(threads=threads or BY_TRIAL, mode=mode, relaxed=relaxed)
    priced = estimated_costs(
        chosen.program, description, threads=threads, burst=burst, relaxed=relaxed
    )
    conditions = replace(asked.conditions, threads=priced.threads)
    return Costs(
        model=chosen,
        device=str(description["name"]),
        conditions=conditions,
        priced=priced,
        device_info=described_device(description),
        estimated=True,
        notes=chosen.notes,
    )


@moved(**into("conditions", ConditionOptions))
def calibrate(
    costs: str | os.PathLike[str] | CostStore | None = None,
    device: str | None = None,
    *,
    name: str | None = None,
    conditions: ConditionOptions | Conditions | None = None,
    folds: int = 5,
    seed: int = 0,
    sister: Phone | str | None = None,
) -> Phone:
    """Fits a phone's description to all rows of a device in a cost table, whatever their model.

    ``costs`` and ``device`` are those of :func:`nnapi_prof.read_costs`, and so are the
    ``conditions`` of the measurements (``threads="auto"``: the number that most rows of its CPU
    have). Each of ``folds`` parts of the table is predicted from the others; ``seed`` decides which
    rows are in which part. ``name`` is the phone's. With a ``sister``, a similar phone that is
    known well (as ``phone`` of :func:`estimate`), 10 to 30 rows suffice.

    Raises CostError where there is too little to fit, UsageError where the device is not found.
    """
    asked = ConditionOptions.of(conditions)
    conditions = asked.conditions
    with open_table(costs, to_read=True) as store:
        phone = find_one(named(store), device if device is not None else "*")
        if asked.by_trial:
            numbers = Counter(row.threads for row in cpu_rows(store, phone.fingerprint, conditions))
            most = max(numbers, key=lambda n: (numbers[n], -n), default=conditions.threads)
            conditions = replace(conditions, threads=most)
        rows = store.measurements(phone.fingerprint, conditions=conditions)
    described, reports = fit_description(
        rows,
        name or phone.name,
        f"cost table, device {phone.fingerprint}",
        folds=folds,
        seed=seed,
        sister=None if sister is None else fitted_phone(sister),
    )
    return Phone(json.loads(described.to_json()), tuple(reports))


def fitted_phone(phone: Phone | str) -> Description:
    """Returns the description of a phone. Raises UsageError where it is a simulated one, not fitted
    to measurements."""
    data = phone.description if isinstance(phone, Phone) else read_phone(phone)
    if data.get("format") == SIMULATED:
        raise UsageError(
            f"{data.get('name')} is a simulated phone, which no measurements were fitted to",
            f"give a real one ({', '.join(shipped())}) or a file that `nnapi-prof calibrate` wrote",
        )
    return parse_description(data)
