"""Costs without a device: by the description of a phone, which can be fitted to measurements."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nnapi_prof.api import notebook
from nnapi_prof.api.cost_tables import cpu_rows, open_table
from nnapi_prof.api.costs import Costs
from nnapi_prof.api.model import Model, as_model
from nnapi_prof.api.program_costs import described_device, estimated_costs, read_phone
from nnapi_prof.costs.conditions import BY_TRIAL, ConditionOptions, Conditions
from nnapi_prof.costs.estimate.calibration import TargetReport
from nnapi_prof.costs.estimate.calibration import calibrate as fit_description
from nnapi_prof.costs.estimate.phones import SIMULATED_FORMAT as SIMULATED
from nnapi_prof.costs.estimate.phones import Description, parse_description, shipped
from nnapi_prof.costs.store import CostStore
from nnapi_prof.costs.store.devices import find_one, named
from nnapi_prof.errors import UsageError
from nnapi_prof.options import into, moved

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class Phone:
    """A phone's description, from which :func:`nnapi_prof.estimate` estimates costs."""

    description: Mapping[str, Any] = field(repr=False)
    """As its JSON file has it."""
    reports: tuple[TargetReport, ...] = field(default=(), repr=False)
    """How far predictions are off in cross-validation, for each target; empty where it was read."""

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
        """It was fitted to a simulated phone's latencies."""
        return bool(self.description.get("simulated", False))

    @classmethod
    def load(cls, name: str | os.PathLike[str]) -> Phone:
        """A phone that comes along, by its name, or a JSON file. Raises UsageError."""
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
        """One row for each target: ``target``, ``rows`` (measurements fitted to), ``median`` and
        ``nine_of_ten`` (relative errors that half and nine of ten predictions stay below, in
        cross-validation), ``within_10_percent`` (the share of predictions that are)."""
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
    """Estimates a model's costs on a phone that is not there: no device, no network.

    ``phone`` is a name that comes along (``pixel4``, ``s10``, ``mi8se``, ``a03s``, simulated ones),
    a JSON file that :meth:`nnapi_prof.Phone.save` wrote, or a :class:`nnapi_prof.Phone`.
    ``threads`` (None: as many as a real phone was measured with, the number with which a simulated
    one's CPU runs the model fastest), ``burst`` (NNAPI asked to compute in bursts) and ``relaxed``
    (float32 as float16) are simulated phones'; of a real one, what it was not measured with is
    refused.

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
    """Fits a phone's description to all that a cost table has of a device, of whatever model.

    ``costs`` and ``device`` are those of :func:`nnapi_prof.read_costs`, as are the ``conditions``
    that it was measured under (``threads="auto"``: the number that most rows of its CPU have). Each
    of ``folds`` parts of the table is predicted from the others; ``seed`` decides which rows are in
    which. ``name`` is that of the phone. With a ``sister``, a phone like it that is known well (as
    ``phone`` of :func:`estimate`), 10 to 30 rows do.

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
    """Raises UsageError where no measurements were fitted to it."""
    data = phone.description if isinstance(phone, Phone) else read_phone(phone)
    if data.get("format") == SIMULATED:
        raise UsageError(
            f"{data.get('name')} is a simulated phone, which no measurements were fitted to",
            f"give a real one ({', '.join(shipped())}) or a file that `nnapi-prof calibrate` wrote",
        )
    return parse_description(data)
