"""`nnapi-prof partition`: latency by number of segments, and the fastest plan."""

import io
from pathlib import Path

import pytest
from rich.console import Console

from nnapi_prof.bundle.storage import read_bundle
from nnapi_prof.cli.partition import MOST_ROWS, proven, show_curve, worth_showing
from nnapi_prof.partition import CurvePoint
from nnapi_prof.partition.solver import find_plans
from tests.api.test_found import BEST, GRAPH, costs_of
from tests.cli.common import INPUT, Cli, Profiled


def points(*latencies: float) -> list[CurvePoint]:
    return [CurvePoint(count + 1, ns, ns, ()) for count, ns in enumerate(latencies)]


def shown(best: bool, baseline: bool = False) -> str:
    console = Console(file=io.StringIO(), width=200)
    plan_set = find_plans(GRAPH, costs_of(), best=best)
    plan = plan_set.baselines[0] if baseline else plan_set.plan
    show_curve(console, plan_set, plan, best, "ms, simulated")
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_a_baseline_that_ran_faster_saves_nothing() -> None:
    """``--best`` asked for the fastest, and running them whole chose another."""
    text = shown(best=True, baseline=True)
    assert "would save" in text and "all-cpu was faster when both ran whole)" in text
    assert "--best" not in text


def test_the_fastest_against_the_default() -> None:
    text = shown(best=False)
    assert text.count("optimal for its number") == 2, "the ends only: less than 1 % is between"
    assert "353.000 │   364.920 │" in text, "compiling and the first run of the fastest"
    assert text.rstrip().endswith(
        f"({BEST} segments instead of 1 would save 0.7%: 11.920 instead of 12.000 ms, simulated;"
        " --best chooses them)"
    )
    assert f"({BEST} segments instead of 1 save 0.7%" in shown(best=True)


def test_rows_are_the_ends_the_default_and_the_falls() -> None:
    def counts(*latencies: float, default: int = 1) -> list[int]:
        return [point.n_segments for point in worth_showing(points(*latencies), default)]

    assert counts(100, 99.5, 98, 97.9, 97.8) == [1, 3, 5]
    assert counts(100, 99.5, 98, 97.9, 97.8, default=4) == [1, 3, 4, 5]
    assert counts(7) == [1]
    many = counts(*(1000 * 0.9**n for n in range(30)), default=3)
    assert len(many) == MOST_ROWS and {1, 3, 30} <= set(many)


def test_a_point_without_proof_says_its_gap() -> None:
    assert proven(CurvePoint(2, 103.0, 100.0, ())) == "at most 3.0% above the optimum"
    assert proven(CurvePoint(2, 103.0, 0.0, ())) == "no bound known"


def test_the_options(cli: Cli, profiled: Profiled, tmp_path: Path) -> None:
    output = tmp_path / "best.nnprof"
    named = ("--device", "sim:npu-phone", "--input", INPUT, "--costs", profiled.costs)
    asked = ("--output", output, "--best", "--seconds", "5", "--no-verify", "--json")
    result = cli("partition", *named, *asked, profiled.model).document("partition")
    plan, curve = result["plan"], result["curve"]
    assert curve[-1]["ns"] == pytest.approx(plan["predicted_ns"])
    assert len(plan["segments"]) <= curve[-1]["segments"] and curve[-1]["exact"]
    proof = plan["proof"]
    assert proof["kind"] in ("exact", "bound_met") and proof["gap"] == 0
    assert not proof["constrained"] and proof["objective"] is None
    assert read_bundle(output).plan.proof is not None
    assert result["baselines"][0]["proof"] is None
