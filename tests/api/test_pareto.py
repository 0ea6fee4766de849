"""A float model on a phone whose DSP takes 8 bits only: the front, and a plan of it that runs."""

import json
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch

import nnapi_prof as np_
from nnapi_prof.bundle.storage import read_bundle
from nnapi_prof.documents.plans import of_pareto
from nnapi_prof.errors import PartitionError, UsageError
from nnapi_prof.graph.plan import Precision
from nnapi_prof.precision.metrics import ErrorEstimate
from nnapi_prof.precision.sensitivity import PlanError
from tests.documents.common import check

PHONE = "sim:dsp-phone"
PRECISIONS = ("float32", "relaxed", "int8")
IMAGES = (
    torch.randn(16, 3, 52, 52, generator=torch.Generator().manual_seed(1))
    * torch.linspace(0.2, 2, 16)[:, None, None, None]
)


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> SimpleNamespace:
    """One small network in three precisions."""
    table = tmp_path_factory.mktemp("pareto") / "costs.sqlite"
    torch.manual_seed(0)
    net = torch.nn.Sequential(
        *(torch.nn.Conv2d(3, 32, 3, padding=1), torch.nn.ReLU()),
        *(torch.nn.Conv2d(32, 96, 3, stride=2, padding=1), torch.nn.ReLU6()),
        *(torch.nn.Conv2d(96, 96, 3, padding=1), torch.nn.ReLU(), torch.nn.AdaptiveAvgPool2d(1)),
        *(torch.nn.Flatten(), torch.nn.Linear(96, 10)),
    ).eval()
    model = np_.load(net, [(1, 3, 52, 52)], name="small")
    costs = np_.profile(model, PHONE, costs=table, precisions=PRECISIONS, calibration=IMAGES)
    front = np_.pareto(model, costs, budgets=[0.004])
    return SimpleNamespace(table=table, model=model, costs=costs, front=front)


def test_costs_know_each_precision(measured):
    costs, calibration = measured.costs, measured.costs.calibration
    assert set(costs.precisions) >= {Precision.FLOAT32, Precision.INT8}
    assert calibration.recipe.dtype == "uint8", "the phone's level is 29"
    samples = calibration.samples
    assert (len(samples.calibration), len(samples.held_out)) == (12, 4)
    assert {"nnapi:sim-dsp/fast@int8", "cpu@int8", "cpu@relaxed"} <= set(costs.targets)


def test_only_faster_plans_are_passed_over(measured):
    def point(name: str, *errors: float) -> Any:
        error = PlanError(*(ErrorEstimate(each, each, each, 8) for each in errors), relative=())
        return replace(measured.front.points[0], name=name, measured=error)

    # By the error on samples of the calibration, and on others.
    fast, chosen, slow = point("a", 0.01, 0.03), point("b", 0.01, 0.01), point("c", 0.005, 0.03)
    front = replace(measured.front, points=(fast, chosen, slow))
    assert front.within(0.02) is chosen
    assert front.passed_over(0.02) == (fast,) and front.passed_over(0.03) == ()


def test_no_point_of_the_front_is_bettered(measured):
    front = measured.front
    latencies = [point.latency_ns for point in front.points]
    errors = [point.error for point in front.points]
    assert latencies == sorted(latencies) and errors == sorted(errors, reverse=True)
    assert errors[-1] == 0, "float32 loses nothing"
    for rule in front.baselines:
        assert any(
            point.latency_ns <= rule.latency_ns * (1 + 1e-9) and point.error <= rule.error
            for point in front.points
        ), rule.name
    names = {rule.name.partition(",")[0] for rule in front.baselines}
    assert names == {"uniform float32", "uniform relaxed", "uniform int8"}


def test_the_cpu_in_float16_is_a_choice_with_an_error(measured):
    """The phone's CPU adds up in float16; its DSP has no floats."""
    rules = {rule.name: rule for rule in measured.front.baselines}
    whole, exact = rules["uniform relaxed"], rules["uniform float32"]
    assert {segment.target.key for segment in whole.plan.segments} == {"cpu@relaxed"}
    assert whole.float_precision is Precision.RELAXED and exact.error == 0
    assert whole.latency_ns < 0.8 * exact.latency_ns and 2.0**-11 < whole.error < 0.02
    costs = np_.profile(
        measured.model, PHONE, costs=measured.table, precisions=PRECISIONS[:2], calibration=IMAGES
    )
    assert costs.outcome is not None and costs.outcome.n_measured == 0
    planned = np_.partition(measured.model, costs, np_.Within(0.05), verify=False)
    assert planned.conditions.precision is Precision.RELAXED
    assert np_.run(planned, runs=2, baselines=False).agrees


def test_the_front_as_document_and_table(measured):
    document = of_pareto(measured.front)
    check(json.loads(json.dumps(document)), "pareto")
    assert len(document["points"]) == len(measured.front.points)
    table = measured.front.frame()
    assert list(table["is_baseline"]).count(False) == len(measured.front.points)
    assert table["int8"].max() > 0 and "front 1" in measured.front._repr_html_()


def test_a_plan_within_a_budget_runs(measured, tmp_path):
    first = measured.front.points[0]
    budget = max(first.error, first.held_out.error) * 1.01
    planned = np_.partition(measured.model, measured.costs, np_.Within(budget), verify=False)
    mixed = planned.model.mixed
    assert mixed is not None and mixed.int8_units and mixed.budget == budget
    assert any("sim-dsp" in segment.target.key for segment in planned.plan.segments)
    floats = next(rule for rule in measured.front.baselines if rule.name == "uniform float32")
    assert planned.latency_ms * 1e6 < floats.latency_ns
    folder = planned.save(tmp_path / "small.nnprof")
    assert read_bundle(folder).mixed == mixed
    assert np_.read_plan(folder).model.graph == planned.model.graph
    result = np_.run(folder, PHONE, runs=2, baselines=False)
    assert result.agrees
    assert any("the float model they are off by" in note for note in result.run.notes)
    page = result.report(tmp_path / "report.html", costs=measured.table).read_text()
    assert "Latency against accuracy" in page and "What each unit loses" in page
    # A budget of nothing leaves float32 alone.
    planned = np_.partition(measured.model, measured.costs, np_.Within(0.0), verify=False)
    assert not planned.model.mixed.int8_units and planned.model.graph == measured.model.graph


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda m: np_.partition(m.model, m.costs), UsageError, "want the objective Within"),
        (lambda m: np_.pareto(m.model, m.costs, metric="relativ"), UsageError, "no metric 'relati"),
        (lambda m: np_.profile(m.model, PHONE, precisions=["int4"]), UsageError, "'int4' is not o"),
        (
            lambda m: np_.pareto(m.model, np_.read_costs(m.model, m.table)),
            UsageError,
            "one precisi",
        ),
        (lambda m: m.front.within(-0.1), PartitionError, "no plan keeps an error"),
    ],
)
def test_what_is_missing_is_said(measured, call, error, words):
    with pytest.raises(error, match=words):
        call(measured)
