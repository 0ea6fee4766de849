"""The report of a fleet: rows as they are computed, as tables, and as a page in a real browser."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pandas as pd
import pytest

from nnapi_prof.api.fleet_report import _days, _faults
from nnapi_prof.costs.measurement import Status
from nnapi_prof.errors import UsageError
from nnapi_prof.reports.files import check_fleet_format
from nnapi_prof.reports.fleet_data import (
    TABLES,
    Choice,
    FleetReport,
    Group,
    ModelOnPhone,
    SlowAccelerator,
    write_tables,
)
from nnapi_prof.reports.fleet_page import render
from tests.reports.browser import WIDTHS, visit
from tests.reports.sample import NPU, cnn, measure

if TYPE_CHECKING:
    from playwright.sync_api import Browser

PHONES = ("Pixel <6>", "Pixel 7", "old")
MODELS = ("net.pt", "other.pt")


def report() -> FleetReport:
    """Two models on three phones: NNAPI helps on two of them, a driver crashed on one."""
    cells = tuple(
        ModelOnPhone(
            model=model,
            phone=phone,
            weight=1 / 3,
            best_ns=cpu_ms * 1e6 / worth,
            places=(NPU[1].key, "cpu") if worth > 1 else ("cpu",),
            rule=f"largest-supported {NPU[1].key}" if worth > 1 else "all-cpu",
            rule_ns=cpu_ms * 1e6 / worth * 1.1 if worth > 1 else cpu_ms * 1e6,
            all_cpu_ns=cpu_ms * 1e6,
            plan="plan-1" if worth > 1 else "all-cpu",
            plan_ns=cpu_ms * 1e6 / worth,
            simulated=True,
            estimated=phone == "old",
        )
        for model, cpu_ms in zip(MODELS, (20.0, 5.0), strict=True)
        for phone, worth in zip(PHONES, (2.0, 3.0, 1.0), strict=True)
    )
    rows = measure(cnn(3), ())
    broken = [
        replace(rows[1], status=Status.CRASHED, samples_ns=(), message="signal 11"),
        replace(rows[1], status=Status.TIMEOUT, samples_ns=()),
    ]
    later = [
        replace(m, measured_at="2024-05-03T09:00:00", samples_ns=tuple(2 * n for n in m.samples_ns))
        for m in rows[:4]
    ]
    return FleetReport(
        models=MODELS,
        phones=PHONES,
        objective="mean",
        cells=cells,
        groups=tuple(
            Group(m, p, own, 0.5, 1, (NPU[1].key,), 0.01, 0.02)
            for m in MODELS
            for p, own in (("plan-1", PHONES[:2]), ("all-cpu", PHONES[2:]))
        ),
        choices=tuple(Choice(m, k, 0.5 / k**3, 1.0 / k) for m in MODELS for k in (1, 2, 3)),
        slow=(SlowAccelerator("old", NPU[0].key, "net.pt", 9e6, 3e6),),
        faults=tuple(_faults(PHONES[0], [*rows, *broken])),
        days=tuple(_days(PHONES[0], [*rows, *later])),
        notes=("a note & more",),
    )


def test_faults_and_days_of_measurements() -> None:
    data = report()
    (fault,) = data.faults
    assert (fault.accelerator, fault.crashed, fault.late, fault.failed) == ("sim-npu", 1, 1, 0)
    assert fault.measured > 2 and fault.example.endswith(": signal 11")
    first, second = data.days
    assert (first.date, first.again) == ("2024-05-01", 0) and math.isnan(first.ratio)
    assert (second.measurements, second.again, second.ratio) == (4, 4, pytest.approx(2))
    assert second.drivers == "sim-npu 1.0"


def test_tables_read_back(tmp_path: Path) -> None:
    data = report()
    paths = write_tables(tmp_path / "fleet.csv", data)
    assert [path.stem for path in paths] == [*TABLES, "README"]
    phones = pd.read_csv(paths[0])
    assert phones["worth"].tolist() == pytest.approx([2, 3, 1, 2, 3, 1])
    assert phones["best_ms"][0] == 10 and phones["places"][0] == f"{NPU[1].key}; cpu"
    with pytest.raises(UsageError, match=r"ends in one of \.html, \.csv, \.json"):
        check_fleet_format(Path("fleet.md"))


def test_in_a_browser(browser: Browser, tmp_path: Path) -> None:
    page = tmp_path / "fleet.html"
    page.write_text(render(report()), encoding="utf-8")
    for width in WIDTHS:
        with visit(browser, page, width) as seen:
            assert seen.text == [] and seen.asked == [] and not seen.overflows
            assert seen.violations() == []
            text = seen.page.inner_text("main").replace("\N{NO-BREAK SPACE}", " ")
    for words in (
        "NNAPI helps on 4 of 6 pairs of a phone and a model",
        "2.50 × as fast",
        "Pixel <6> fails",
        "largest supported +10.0 %",
        "signal 11",
        "+100.0 %",
        "a note & more",
    ):
        assert words in text, words
