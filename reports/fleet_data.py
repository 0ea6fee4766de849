"""What a report of many phones and models shows, as rows: a model on a phone, a plan of several
phones, a number of plans, an accelerator slower than the CPU, a driver that fails, a day."""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from nnapi_prof.reports.data import Environment
from nnapi_prof.reports.tables import columns_of, write_csv

WORTH = 1.02
"""A plan that is less than so many times as fast as the CPU alone is as fast: noise."""


@dataclass(frozen=True)
class ModelOnPhone:
    """A model on a phone. Times in ns, of the whole model, as predicted from the cost table."""

    model: str
    phone: str
    weight: float
    """The phone's share of the fleet; 1 in all."""
    best_ns: float
    """With the best plan known for this phone alone."""
    places: tuple[str, ...]
    """Keys of the targets that this plan uses, the one with most units first."""
    rule: str
    """The fastest simple strategy, by its plan's name."""
    rule_ns: float
    all_cpu_ns: float
    plan: str
    """The one of the few plans that the phone uses."""
    plan_ns: float
    simulated: bool
    estimated: bool

    @property
    def worth(self) -> float:
        """How many times as fast as the CPU alone: what NNAPI is worth there."""
        return self.all_cpu_ns / self.best_ns

    @property
    def is_worth(self) -> bool:
        """Whether NNAPI is of use there."""
        return self.worth > WORTH

    @property
    def rule_gain(self) -> float:
        """How much longer the fastest simple strategy takes."""
        return self.rule_ns / self.best_ns - 1

    @property
    def regret(self) -> float:
        """How much longer the plan of the fleet takes than the best for this phone alone."""
        return self.plan_ns / self.best_ns - 1


@dataclass(frozen=True)
class Group:
    """The phones that share one plan of a model."""

    model: str
    plan: str
    phones: tuple[str, ...]
    """Those with the largest regret first."""
    share: float
    """Of the fleet, by weight."""
    n_segments: int
    places: tuple[str, ...]
    mean_regret: float
    worst_regret: float


@dataclass(frozen=True)
class Choice:
    """What so many plans of a model come to at best."""

    model: str
    k: int
    mean_regret: float
    worst_regret: float


@dataclass(frozen=True)
class SlowAccelerator:
    """An accelerator that takes longer than the CPU for all that it supports of a model."""

    phone: str
    target: str
    """With the preference that is best for it."""
    model: str
    target_ns: float
    """With the rest on the CPU."""
    all_cpu_ns: float

    @property
    def slower(self) -> float:
        """How many times as long as the CPU alone."""
        return self.target_ns / self.all_cpu_ns


@dataclass(frozen=True)
class Faults:
    """Measurements that a driver ended otherwise than with a latency or a refusal."""

    phone: str
    accelerator: str
    driver: str
    """Its version."""
    crashed: int
    late: int
    failed: int
    measured: int
    """All measurements of this accelerator with this driver, refusals left out."""
    example: str
    """What was measured when it happened, and the message."""


@dataclass(frozen=True)
class Day:
    """What was measured on a phone in a day, UTC."""

    phone: str
    date: str
    measurements: int
    again: int
    """Of these: measured before, on the same target under the same conditions."""
    ratio: float
    """Median of the latency then over the one before; nan where nothing was measured again."""
    drivers: str
    """Accelerators with their driver versions."""


@dataclass(frozen=True)
class FleetReport:
    """All of it. Rows are in the order of models, then phones."""

    models: tuple[str, ...]
    phones: tuple[str, ...]
    objective: str
    """Which regret the plans make least: ``mean`` or ``worst``."""
    cells: tuple[ModelOnPhone, ...]
    groups: tuple[Group, ...]
    choices: tuple[Choice, ...]
    slow: tuple[SlowAccelerator, ...]
    faults: tuple[Faults, ...]
    days: tuple[Day, ...]
    notes: tuple[str, ...] = ()
    environment: Environment | None = None

    @property
    def simulated(self) -> bool:
        """Some latencies are those of simulated phones."""
        return any(cell.simulated for cell in self.cells)

    @property
    def estimated(self) -> bool:
        return any(cell.estimated for cell in self.cells)

    @property
    def useful(self) -> list[ModelOnPhone]:
        """Where NNAPI is worth something."""
        return [cell for cell in self.cells if cell.is_worth]

    @property
    def worth(self) -> float:
        """The median of what NNAPI is worth, over phones and models."""
        return statistics.median(cell.worth for cell in self.cells)

    @property
    def all_cells(self) -> dict[tuple[str, str], ModelOnPhone]:
        """(phone, model) -> cell; a model need not be measured on every phone."""
        return {(cell.phone, cell.model): cell for cell in self.cells}


# ---- as tables -----------------------------------------------------------------------------------

COLUMNS = columns_of("fleet_columns.txt")


def _frame(rows: Iterable[Any], row: type, *computed: str) -> pd.DataFrame:
    """A column for each field and each of the ``computed``; ns become ms, lists words."""
    names = [field.name for field in dataclasses.fields(row)] + list(computed)
    values = [{name: _cell(name, getattr(each, name)) for name in names} for each in rows]
    frame = pd.DataFrame(values, columns=names)
    return frame.rename(columns={name: name.replace("_ns", "_ms") for name in names})


def _cell(name: str, value: Any) -> Any:
    if name.endswith("_ns"):
        return value / 1e6
    return "; ".join(value) if isinstance(value, tuple) else value


TABLES: dict[str, tuple[str, Callable[[FleetReport], pd.DataFrame]]] = {
    "phones": (
        "one row for each model on each phone",
        lambda data: _frame(data.cells, ModelOnPhone, "worth", "regret"),
    ),
    "groups": (
        "one row for each plan: the phones that share it",
        lambda data: _frame(data.groups, Group),
    ),
    "choices": ("one row for each number of plans", lambda data: _frame(data.choices, Choice)),
    "slow": (
        "one row for each accelerator that is slower than the CPU for a model",
        lambda data: _frame(data.slow, SlowAccelerator, "slower"),
    ),
    "faults": (
        "one row for each driver that crashed, was late or failed",
        lambda data: _frame(data.faults, Faults),
    ),
    "days": ("one row for each day of each phone", lambda data: _frame(data.days, Day)),
}
"""Name of the file -> what it is about, and its rows."""


def write_tables(folder: Path, data: FleetReport) -> list[Path]:
    """:func:`nnapi_prof.reports.tables.write_csv` with all tables of the report."""
    remarks = []
    if data.simulated:
        remarks.append("Rows marked simulated rest on simulated phones, not on hardware.")
    filled = ((name, about, rows(data)) for name, (about, rows) in TABLES.items())
    of = f"{', '.join(data.models)} on {len(data.phones)} phones"
    return write_csv(folder, of, remarks, filled, COLUMNS)


def median_ratio(ratios: Sequence[float]) -> float:
    """nan of none."""
    return statistics.median(ratios) if ratios else float("nan")
