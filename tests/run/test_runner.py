"""Bundles run on the real agent over the emulator: host segments, failures, results as data."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from nnapi_prof.bundle import Bundle
from nnapi_prof.device import describe, device_fingerprint
from nnapi_prof.device.agent import AgentClient
from nnapi_prof.device.find import open_device
from nnapi_prof.errors import AgentError
from nnapi_prof.execution import RunOptions
from nnapi_prof.execution.actions import stages_of
from nnapi_prof.execution.report import RunReport
from nnapi_prof.execution.run import run_bundle
from nnapi_prof.execution.timing import choose_measured
from nnapi_prof.frontend import InputSpec, prepare
from nnapi_prof.graph.plan import CPU, HOST, Engine, Plan, Preference, Segment, Target
from nnapi_prof.graph.program import Program
from nnapi_prof.reports.frames import baseline_frame
from tests.cli.common import SIM, call, trace
from tests.library.embedding import make_bundle
from tests.models import Function

NPU = Target.nnapi("sim-npu", Preference.FAST_SINGLE_ANSWER)
ABSENT = Target.nnapi("no-such-device", Preference.FAST_SINGLE_ANSWER)


@pytest.fixture(scope="module")
def program():
    """Two convolutions around an operation that neither engine of the agent has."""
    torch.manual_seed(0)
    layers = {"first": nn.Conv2d(3, 4, 3, padding=1), "last": nn.Conv2d(4, 2, 3)}
    model = Function(lambda x, first, last: last(torch.cumsum(first(x).relu(), 3)), **layers)
    return prepare(model, (torch.randn(1, 3, 8, 8),), "cumsum")


@pytest.fixture
def client():
    with open_device("sim:npu-phone") as opened:
        yield opened.client


def plan_of(program: Program, name: str, target: Target) -> Plan:
    """Units on ``target``, but for cumsum, which only the host runs; neighbours share a segment."""
    segments: list[Segment] = []
    for unit in program.units.units:
        place = HOST if "cumsum" in unit.label else target
        if segments and segments[-1].target == place and place.engine is not Engine.HOST:
            units = (*segments[-1].units, unit.index)
            segments[-1] = Segment(units, place, 1e6, "a test")
        else:
            segments.append(Segment((unit.index,), place, 1e6, "a test"))
    return Plan(name, tuple(segments), True)


def bundle_of(program: Program, client: AgentClient, *plans: Plan) -> Bundle:
    info = client.info()
    named = {"device": describe(info), "fingerprint": device_fingerprint(info)}
    return replace(make_bundle(program, plans), simulated=info.simulated, **named)


def run(bundle: Bundle, program: Program, client: AgentClient, **options: Any) -> RunReport:
    inputs = program.example_inputs
    with torch.inference_mode():
        expected = program.module(*inputs)
    return run_bundle(bundle, program, inputs, expected, client, RunOptions(runs=6, **options))


@pytest.fixture
def run_plans(program, client):
    """Runs plans as those of one bundle."""

    def run_all(*plans: Plan, **options: Any) -> RunReport:
        return run(bundle_of(program, client, *plans), program, client, **options)

    return run_all


def test_a_host_segment_cuts_the_plan_and_outputs_agree(program, run_plans):
    plan = plan_of(program, "dp", NPU)
    cut = stages_of(plan)
    assert [stage.on_host for stage in cut].count(True) == 1
    assert not cut[0].on_host and not cut[-1].on_host
    report = run_plans(plan, plan_of(program, "all-cpu", CPU))
    assert all(check.ok for check in report.checks)
    assert any("host" in note for note in report.notes)
    for timed in report.runs:
        assert timed.error is None and len(timed.total_ns) == 6
        lengths = [len(s.samples_ns) for s in timed.segments]
        assert lengths == [0 if s.target == "host" else 6 for s in timed.segments]
        assert lengths.count(0) == 1
        assert timed.first_ns is not None and timed.first_ns > 0
        cold = [s.first_ns is not None for s in timed.segments]
        assert cold == [timed is report.runs[0] and s.target != "host" for s in timed.segments]
        assert sum(timed.total_ns) >= sum(sum(s.samples_ns) for s in timed.segments) > 0


def test_equal_plans_are_timed_once_and_share_their_samples(program, run_plans):
    plan, rival = run_plans(*(plan_of(program, name, NPU) for name in ("dp", "largest"))).runs
    assert plan.total_ns == rival.total_ns


def test_a_baseline_that_fails_is_reported_and_the_rest_kept(program, run_plans):
    plans = plan_of(program, "dp", CPU), plan_of(program, "absent", ABSENT)
    report = run_plans(*plans, timeout_s=1)
    plan, absent = report.runs
    assert plan.error is None and plan.median_ns is not None
    assert absent.error is not None and "no-such-device" in absent.error
    assert absent.total_ns == () and absent.median_ns is None
    assert RunReport.from_json(report.to_json()) == report


def test_a_plan_that_fails_is_an_error(program, run_plans):
    with pytest.raises(AgentError, match=r"the plan failed: .*no-such-device"):
        run_plans(plan_of(program, "dp", ABSENT), timeout_s=1)


def test_a_bundle_of_another_device_is_noted(program, client):
    with open_device("sim:gpu-phone") as other:
        bundle = bundle_of(program, other.client, plan_of(program, "dp", CPU))
    report = run(bundle, program, client, baselines=False)
    assert any("predictions are for that device" in note for note in report.notes)


def test_a_rival_that_beats_the_plan_is_named(program, run_plans):
    """Between two convolutions too small for the NPU, invocations decide."""
    slow, fast = plan_of(program, "dp", NPU), plan_of(program, "all-cpu", CPU)
    report = run_plans(slow, fast)
    (note,) = (note for note in report.notes if "all-cpu ran" in note)
    plan, rival = (
        rf"{each.median_ns / 1e6:.4g} ms where {each.predicted_ns / 1e6:.4g} ms were predicted"
        for each in report.runs
    )
    assert f"faster than the plan: the plan took {plan}, all-cpu {rival}" in note
    assert "segments" not in note  # each of these has one
    assert not any("faster than the plan" in note for note in run_plans(fast, slow).notes)


def test_a_baseline_that_is_faster_whole_becomes_the_plan(program, client):
    slow, fast = plan_of(program, "dp", NPU), plan_of(program, "all-cpu", CPU)
    absent = plan_of(program, "absent", ABSENT)
    options = RunOptions(runs=6, timeout_s=1)

    bundle = bundle_of(program, client, slow, fast, absent)
    chosen = choose_measured(bundle, program, client, options)
    assert chosen.plan.segments == fast.segments
    assert chosen.plan.name == "dp"
    assert "this plan is all-cpu" in chosen.plan.notes[-1]
    assert chosen.plans[1:] == (fast, absent)

    bundle = bundle_of(program, client, fast, slow, absent)
    assert choose_measured(bundle, program, client, options) is bundle
    failing = bundle_of(program, client, absent, slow)
    saved = choose_measured(failing, program, client, options)
    assert saved.plan.segments == slow.segments and "failed" in saved.plan.notes[-1]


# ---- by the command line -------------------------------------------------------------------------


def run_all(tmp_path: Path, model: nn.Module, example: torch.Tensor) -> RunReport:
    """Profile, partition and run on a simulated phone; what ``run`` kept."""
    path, bundle = tmp_path / "model.pt", tmp_path / "model.nnprof"
    trace(model, path, example)
    described = ("--costs", tmp_path / "costs.db", "--input", InputSpec.of(example), path)
    call("profile", *SIM, *described)
    call("partition", *SIM, "--output", bundle, *described)
    call("run", *SIM, bundle)
    return RunReport.from_json((bundle / "run.json").read_text())


EMBEDDING = nn.Sequential(nn.Embedding(50, 16), nn.Linear(16, 8), nn.ReLU())
ON_THE_DEVICE = {
    # indices of 64 bits, which a device holds in 32
    "indices": (EMBEDDING, torch.zeros(1, 12, dtype=torch.int64), [(1, 12, 8)]),
    "five dimensions": (
        Function(lambda x: (torch.relu(x - 0.5), torch.relu(x - 0.5).flatten(1))),
        torch.ones(2, 3, 2, 4, 5),
        [(2, 3, 2, 4, 5), (2, 120)],
    ),
    # an output that depends on no input, and one input returned as it is
    "outputs that no unit makes": (
        Function(lambda x, layer: (layer(x), torch.arange(4.0) * 2, x), layer=nn.Linear(6, 4)),
        torch.ones(1, 6),
        [(1, 4), (4,), (1, 6)],
    ),
}


@pytest.mark.parametrize(("model", "example", "shapes"), ON_THE_DEVICE.values(), ids=ON_THE_DEVICE)
def test_what_the_host_adds_is_no_segment(tmp_path, model, example, shapes):
    report = run_all(tmp_path, model, example)
    assert [check.shape for check in report.checks] == shapes
    assert all(check.relative <= 1e-6 for check in report.checks)
    assert "host" not in {segment.target for segment in report.runs[0].segments}


def test_a_host_segment_comes_first(tmp_path: Path) -> None:
    """An operation for the host alone: no device value precedes."""
    model = Function(lambda x, layer: torch.relu(layer(torch.lgamma(x))), layer=nn.Linear(16, 8))
    report = run_all(tmp_path, model, torch.ones(1, 16))
    assert [check.relative <= 1e-4 for check in report.checks] == [True]
    ran = report.runs[0]
    assert [segment.target == "host" for segment in ran.segments] == [True, False]
    assert ran.segments[0].samples_ns == () and len(ran.total_ns) == 30
    # What was not timed is no part of the prediction that stands beside what was.
    assert ran.predicted_ns == ran.segments[1].predicted_ns < ran.plan.predicted_ns
    row = baseline_frame([ran.plan], report).iloc[0]
    assert row["predicted_ms"] * 1e6 == pytest.approx(ran.predicted_ns)
    assert row["predicted_ms"] == pytest.approx(row["measured_ms"], rel=0.1)


def test_nothing_runs_on_the_device(tmp_path: Path) -> None:
    model = Function(lambda x: torch.lgamma(torch.logcumsumexp(x, 1)))
    report = run_all(tmp_path, model, torch.ones(2, 3))
    assert [check.relative for check in report.checks] == [0.0]
    assert report.runs[0].total_ns == () and any("host" in note for note in report.notes)
