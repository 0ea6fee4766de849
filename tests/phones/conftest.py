"""Phones with one trouble each, and the same phones without: profile and plan are to be the same.

A phone is a change of ``npu-phone``'s description; its drivers' services keep their state in the
test's folder.
"""

from __future__ import annotations

import copy
import json
import math
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import nnapi_prof as np_
from nnapi_prof.costs.store import CostStore
from nnapi_prof.costs.store.selection import Selection
from tests.cli.common import trace
from tests.emulator.phones.descriptions import constant, load, ratio

Description = dict[str, Any]
CLEAN = load("npu-phone")


class TenUnits(nn.Module):
    """Convolutions, an addition, poolings: ten units, some faster on the NPU than on the CPU."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, 16, 3, 2, 1)
        self.second = nn.Conv2d(16, 32, 3, 1, 1)
        self.third = nn.Conv2d(32, 32, 3, 1, 1, groups=32)
        self.fourth = nn.Conv2d(32, 64, 1)
        self.fifth = nn.Conv2d(64, 64, 3, 1, 1)
        self.last = nn.Linear(64, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.relu(self.second(torch.relu(self.first(x))))
        x = torch.tanh(self.third(x))
        x = torch.relu(self.fourth(x))
        x = x + self.fifth(x)
        x = torch.max_pool2d(x, 2)
        return self.last(x.mean((2, 3)))


@dataclass(frozen=True)
class Profile:
    """What a profile and the plan of its costs came to."""

    costs: np_.Costs
    plan: np_.Plan
    rows: list[Any]
    """Of the cost table."""
    seconds: float
    """That a user waits at most: by the phone's clock, for drivers that hang, and as if nothing
    were measured until a driver that died is back."""

    @property
    def segments(self) -> list[tuple[tuple[int, ...], str]]:
        return [(s.units, s.target.accelerator or s.target.key) for s in self.plan.plan.segments]

    @property
    def failures(self) -> dict[tuple[str, str], str]:
        """(Label, accelerator) -> the message of its last row that is no success."""
        return {
            (row.label, row.target.accelerator): row.message
            for row in self.rows
            if not row.usable and row.status.value != "refused"
        }

    def unlike(self, clean: Profile, share: float = 0.05) -> list[str]:
        """Unit costs of the clean phone that differ here by more than this share."""
        own, others = (
            {(row.label, row.target): row.alone_ms for row in each.costs.frame().itertuples()}
            for each in (self, clean)
        )
        return [
            f"{label} on {target}: {own.get((label, target))} for {wanted}"
            for (label, target), wanted in others.items()
            if not math.isnan(wanted)
            and not abs(own.get((label, target), math.inf) - wanted) <= share * wanted
        ]


GOVERNOR = {"lowest": ratio(0.3), "ramp": constant(60, "ms"), "drop": constant(20, "ms")}


def service(description: Description, accelerator: str = "sim-npu", **members: Any) -> Description:
    """A description whose accelerator's driver is such a service; numbers become constants."""
    changed = copy.deepcopy(description)
    units = {"returns": "s", "stops": "s", "lingers": "s", "rests": "s"}
    units |= {"load": "us", "lingers_factor": "ratio"}
    (entry,) = (a for a in changed["accelerators"] if a["name"] == accelerator)
    entry["service"] = entry.get("service", {}) | {
        name: value if isinstance(value, (list, str)) else constant(value, units.get(name, "none"))
        for name, value in members.items()
    }
    return changed


def fault(description: Description, accelerator: str = "sim-npu", **members: Any) -> Description:
    """A description with one more fault of an accelerator."""
    changed = copy.deepcopy(description)
    (entry,) = (a for a in changed["accelerators"] if a["name"] == accelerator)
    entry.setdefault("faults", []).append({"nth": 1, "origin": "assumed: a test", **members})
    return changed


def die(description: Description, operation: str, stage: str = "execute", **members: Any) -> Any:
    """A description whose NPU's service dies at calls for an operation."""
    return fault(description, kind="die", stage=stage, operation=operation, **members)


def refuse(description: Description, operation: str, **members: Any) -> Description:
    """A description whose NPU refuses an operation."""
    members = {"kind": "refuse", "stage": "compile", "operation": operation, **members}
    return fault(description, **members)


def check_like(troubled: Profile, clean: Profile) -> None:
    """The plan, the costs of units, nothing that failed, and hardly more time."""
    assert (troubled.failures, troubled.segments) == ({}, clean.segments)
    assert troubled.unlike(clean) == []
    assert troubled.seconds <= 1.5 * clean.seconds


def deaths_of_the_npu(folder: Path) -> int:
    """By the files that the services of each phone share: they begin with the first one's."""
    states = [state.read_bytes() for state in folder.glob("nnapi-emulator-*")]
    return sum(int.from_bytes(state[:4], sys.byteorder) for state in states)


@pytest.fixture(scope="session")
def ten_units(tmp_path_factory):
    torch.manual_seed(0)
    path = tmp_path_factory.mktemp("model") / "ten.pt"
    trace(TenUnits(), path, (1, 3, 64, 64))
    yield np_.load(path, "1x3x64x64")


@pytest.fixture
def phone(tmp_path, monkeypatch):
    """Writes a description; what ``--device`` takes for it."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))  # for the services' state

    def write(description: Description, name: str = "phone") -> str:
        path = tmp_path / f"{name}.json"
        path.write_text(json.dumps(description))
        return f"sim:{path}"

    return write


@pytest.fixture(scope="session")
def twins():
    """Profiles of phones without a trouble by description and options: simulated, they repeat."""
    return {}


@pytest.fixture
def profiled(ten_units, tmp_path, phone, twins):
    """Profiles the model on a phone, into a table of the phone's own, and plans by it. That of a
    ``twin`` is taken from an earlier test's."""

    def run(description, name="phone", model=ten_units, **options) -> Profile:
        if name != "twin":
            return measure(description, name, model, **options)
        key = json.dumps([description, options])
        twins[key] = twins.get(key) or measure(description, name, ten_units, **options)
        return twins[key]

    def measure(description, name, model, progress=None, gates=None, **options) -> Profile:
        table = tmp_path / f"{name}.sqlite"
        device, deaths = phone(description, name), deaths_of_the_npu(tmp_path)
        how = {"options": np_.MeasureOptions(refine=False, **options), "gates": gates}
        costs = np_.profile(model, device, costs=table, progress=progress, **how)
        plan = np_.partition(model, costs, verify=False)
        with CostStore(table) as store:
            rows = store.select(Selection(newest=True))
        outcome = costs.outcome
        returns = description["accelerators"][0].get("service", {}).get("returns", {"value": 0})
        died_s = (deaths_of_the_npu(tmp_path) - deaths) * returns["value"]
        return Profile(costs, plan, rows, outcome.simulated_s + outcome.lost_s + died_s)

    return run
