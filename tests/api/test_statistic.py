"""Plans and gates by the 95th percentile of the runs in place of their median."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import nnapi_prof as nnp
from nnapi_prof.api.gate import RunSide, compare_sides
from nnapi_prof.costs.diff import Verdict
from nnapi_prof.costs.measurement import Statistic, summarise
from nnapi_prof.errors import UsageError


def test_percentiles_are_numpys() -> None:
    random = np.random.default_rng(1)
    for n in (1, 2, 3, 20, 31):
        samples = [int(x) for x in random.integers(1, 1000, n)]
        assert Statistic.P95.of(samples) == pytest.approx(np.quantile(samples, 0.95))
        summary = summarise(samples)
        assert summary.of(Statistic.P95) == Statistic.P95.of(samples)
        assert summary.of(Statistic.MEDIAN) == np.median(samples)


def side(name: str, samples: tuple[int, ...]) -> RunSide:
    return RunSide(name, "model", "phone", "f", "", False, (("dp", samples),))


def test_the_gate_sees_a_heavier_tail() -> None:
    """Every tenth run takes twice as long: the median says nothing of it."""
    random = np.random.default_rng(2)
    calm = tuple(int(x) for x in 1e6 * (1 + 0.01 * random.standard_normal(200)))
    uneasy = tuple(ns * (2 if n % 10 == 3 else 1) for n, ns in enumerate(calm))
    base, new = side("base", calm), side("new", uneasy)
    assert not compare_sides(base, new, 0.05).failed
    gate = compare_sides(base, new, 0.05, Statistic.P95)
    assert [row.verdict for row in gate.failed] == [Verdict.SLOWER]
    assert gate.rows[0].new_ns == Statistic.P95.of(uneasy)


def test_a_plan_by_the_95th_percentile(tmp_path: Path) -> None:
    module = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Conv2d(8, 4, 1)).eval()
    model = nnp.load(torch.export.export(module, (torch.zeros(1, 3, 16, 16),)))
    table = tmp_path / "costs.sqlite"
    nnp.profile(model, "sim:npu-phone", costs=table, preferences=["fast"])
    plans = {}
    for statistic in ("median", "p95"):
        costs = nnp.read_costs(model, table, statistic=statistic)
        assert costs.statistic.value == statistic
        plans[statistic] = nnp.partition(model, costs).plans[0]
    assert plans["median"].predicted_ns < plans["p95"].predicted_ns
    assert "planned by the 95th percentile of each measurement's runs" in plans["p95"].notes
    assert not any("percentile" in note for note in plans["median"].notes)
    with pytest.raises(UsageError, match="statistic is 'mean': one of median, p95 is wanted"):
        nnp.read_costs(model, table, statistic="mean")
