"""Costs of one's own: the plan follows them, and says what it is the optimum of."""

import math
from dataclasses import replace

import numpy as np
import pytest

import nnapi_prof as np_
from nnapi_prof.errors import UsageError
from nnapi_prof.graph.plan import CPU, Target
from nnapi_prof.partition import CostTable

WATTS = {"cpu": 2.5, "nnapi:sim-npu/*": 0.4, "nnapi:sim-gpu/*": 1.5}
FEW = (CPU, Target("nnapi:sim-gpu/fast"), Target("nnapi:nnapi-reference/fast"))


def fewer(costs: np_.Costs) -> CostTable:
    """Costs on some targets only, so that every plan can be tried, by which nothing is known of
    compiling."""
    return replace(costs.base_table.on(FEW), compiling=None, noise=None)


def test_weights_move_the_plan(way):
    """What the CPU is charged decides whether it is used."""
    dear = np_.partition(way.model, way.costs.adjusted(weight={"cpu": 1e6}))
    assert "cpu" not in set(dear.segments()["target"])
    free = np_.partition(way.model, way.costs.adjusted(weight={"nnapi:*": 1e6}))
    assert set(free.segments()["target"]) == {"cpu"}
    same = np_.partition(way.model, way.costs.adjusted(weight=lambda target: 3.0))
    plain = np_.partition(way.model, way.costs, verify=False)
    assert [s.target for s in same.plan.segments] == [s.target for s in plain.plan.segments]
    assert same.latency_ms == pytest.approx(plain.latency_ms)
    assert same.objective_values[0] == pytest.approx(3 * plain.latency_ms)


def test_a_plan_for_energy_tells_energy_and_latency(way):
    asked = way.costs.adjusted(weight=WATTS, name="energy", unit="mJ")
    planned = np_.partition(way.model, asked)
    table = planned.frame().set_index("plan")
    cpu = way.planned.frame().set_index("plan").loc["all-cpu", "predicted_ms"]
    assert table.loc["all-cpu", "predicted_ms"] == pytest.approx(cpu, rel=0.05)
    assert table.loc["all-cpu", "objective"] == pytest.approx(2.5 * cpu, rel=0.05)
    assert (table["objective"] >= table["objective"].iloc[0] * 0.98).all()
    assert any("least energy in mJ" in note for note in planned.plan.notes)
    causes = " ".join(planned.segments()["cause"])
    assert "mJ" in causes and " ms" not in causes
    assert "energy in mJ" in planned._repr_html_() and "energy in mJ" in asked._repr_html_()
    assert asked.frame()["objective"].notna().any()


def test_a_plan_for_another_objective_runs_and_is_kept(way, tmp_path):
    planned = np_.partition(way.model, way.costs.adjusted(weight={"cpu": 1e6}))
    ran = np_.run(planned, runs=2)
    assert ran.agrees and abs(ran.error) < 0.2
    assert ran.report(tmp_path / "out.html").exists()
    assert np_.read_plan(planned.save(tmp_path / "p.nnprof")).plan == planned.plan


def test_none_keeps_a_unit_off(way):
    off = way.costs.adjusted(lambda unit, target, ns: ns if target != CPU else None)
    planned = np_.partition(way.model, off)
    assert "cpu" not in set(planned.segments()["target"])
    reasons = off.refusals().set_index("target").loc["cpu", "reason"]
    assert set(reasons) == {"kept off by the cost function"}


def test_everything_of_ones_own(way):
    """A table of arrays is all that the partitioner takes."""
    planned = np_.partition(way.model, fewer(way.costs))
    assert planned.costs is None and planned.objective is None
    assert {s.target for s in planned.plan.segments} <= set(FEW)
    with pytest.raises(UsageError, match="without a device"):
        _ = planned.bundle
    short = replace(fewer(way.costs), unit_ns=np.ones((1, 3)), estimated=None)
    for costs, words in ((short, "are of 1 units"), (object(), "costs are a object")):
        with pytest.raises(UsageError, match=words):
            np_.partition(way.model, costs)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("cost", "weight", "words"),
    [
        (lambda unit, target, ns: -1.0, None, "-1.0 for"),
        (lambda unit, target, ns: math.nan, None, "nan for"),
        (None, {"cpu": -2.0}, "weight of cpu is -2.0"),
        (None, lambda target: math.inf, "is inf"),
        (None, {"nnapi:tpu/*": 1.0}, "no target fits it; there are cpu"),
    ],
)
def test_costs_that_are_none(way, cost, weight, words):
    with pytest.raises(UsageError, match=words):
        way.costs.adjusted(cost, weight=weight)  # type: ignore[arg-type]


def test_costs_are_adjusted_once(way):
    once = way.costs.adjusted(weight={"cpu": 2.0}, name="money", unit="cents")
    with pytest.raises(UsageError, match="adjusted to money in cents already"):
        once.adjusted(weight={"cpu": 2.0})


def test_a_limit_of_compile_time_holds_for_adjusted_costs(way):
    dear = way.costs.adjusted(weight={"cpu": 1e3})
    free = np_.partition(way.model, dear)
    assert any(t != "cpu" for t in free.segments()["target"])
    tight = np_.partition(way.model, dear, np_.Latency(max_compile_ms=0.0))
    assert set(tight.segments()["target"]) == {"cpu"}
    mine = np_.Costs(way.model, "few", way.costs.conditions, fewer(way.costs))
    with pytest.raises(UsageError, match="what compiling takes"):
        np_.partition(
            way.model, mine.adjusted(weight={"cpu": 1e3}), np_.Latency(max_compile_ms=1.0)
        )
