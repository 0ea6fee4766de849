"""Profiles in several precisions, on the real agent and simulated phones."""

import functools
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from nnapi_prof.costs import Conditions
from nnapi_prof.costs.measurement import Kind
from nnapi_prof.costs.store import CostStore
from nnapi_prof.costs.table import drop_dominated_targets
from nnapi_prof.device.find import open_device
from nnapi_prof.errors import CostError
from nnapi_prof.execution.profile import ProfileOptions
from nnapi_prof.execution.profile import precisions as module
from nnapi_prof.execution.profile.precision_sessions import read_precision_costs
from nnapi_prof.execution.profile.precisions import PrecisionOutcome, profile_precisions
from nnapi_prof.execution.profile.regions import SETTLED
from nnapi_prof.execution.profile.session import profile
from nnapi_prof.frontend import prepare
from nnapi_prof.graph.plan import CPU, Engine, Precision
from nnapi_prof.graph.program import Program
from nnapi_prof.partition import make_problem
from nnapi_prof.partition.blocks import convex_sets, members
from nnapi_prof.partition.front import front
from nnapi_prof.precision import Recipe
from nnapi_prof.precision.calibrate import calibrate
from nnapi_prof.precision.sensitivity import UnitNoise
from tests.measure.scripted import interrupt_at
from tests.partition.cases import solve
from tests.parts import again_but

pytestmark = pytest.mark.slow("measures a network in three precisions, some regions in each")
ALL = (Precision.FLOAT32, Precision.RELAXED, Precision.INT8)
LEVELS = {"dsp-phone": 29, "npu-phone": 30, "gpu-phone": 30, "slow-nnapi-phone": 28}
FASTEST = ProfileOptions(runs=5)
NEAR = 0.01
"""Relative: so near is a plan to that of measuring everything."""


class Net(nn.Module):
    """Two blocks with equal layers between a stem and a head, and a function without 8 bits.
    [1, 3, 64, 64] -> [1, 10]"""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 32, 3, 2, 1)
        self.first, self.second = (nn.Conv2d(32, 32, 3, padding=1) for _ in range(2))
        self.last = nn.Linear(32, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.relu(self.stem(x))
        x = torch.relu(self.second(torch.relu(self.first(x))))
        x = torch.exp(x) + x
        return self.last(x.mean((2, 3)))


@pytest.fixture(scope="module")
def program():
    torch.manual_seed(0)
    return prepare(Net().eval(), (torch.randn(1, 3, 64, 64),), "net")


@pytest.fixture(scope="module")
def recipes(program):
    random = torch.Generator().manual_seed(1)
    samples = [(torch.randn(1, 3, 64, 64, generator=random),) for _ in range(2)]
    by_level = functools.cache(lambda level: calibrate(program, samples, level))
    return lambda phone: by_level(LEVELS[phone])


@pytest.fixture
def profiled(program, recipes, store):
    """Profiles on a phone."""

    def run(phone, precisions=ALL, progress=None, **more):
        more["recipe"] = recipes(phone) if Precision.INT8 in precisions else None
        with open_device(f"sim:{phone}") as opened:
            session = program, opened.client, store, FASTEST, progress
            return profile_precisions(*session, precisions=precisions, **more)

    return run


def check(outcome: PrecisionOutcome, program: Program, recipe: Recipe) -> None:
    """What holds of every finished profile."""
    assert outcome.total.stable and not outcome.total.interrupted
    assert outcome.costs.conversions.to_int8_ns["x"] > 0
    assert set(outcome.plans) == {"fastest", "floats", "int8"}
    for plan in outcome.plans.values():
        placed = sorted(unit for segment in plan.segments for unit in segment.units)
        assert placed == list(range(len(program.units.units)))
    fastest, floats, in_8_bits = (outcome.plans[name] for name in ("fastest", "floats", "int8"))
    for plan in (fastest, floats):
        assert all(s.measured for s in plan.segments if s.target.engine is not Engine.HOST)
    assert fastest.predicted_ns <= 1.01 * min(floats.predicted_ns, in_8_bits.predicted_ns)
    assert all(s.target.precision is not Precision.INT8 for s in floats.segments)
    for segment in in_8_bits.segments:
        if segment.target.precision is Precision.INT8:
            assert set(segment.units) <= recipe.units


@pytest.mark.parametrize("phone", again_but(LEVELS, "dsp-phone", "gpu-phone", why="another phone"))
def test_three_precisions_cost_little_more_than_two_profiles(
    program, recipes, profiled, store, phone
):
    recipe, outcome = recipes(phone), profiled(phone)
    check(outcome, program, recipe)
    assert outcome.total.n_measured <= 2.5 * outcome.floats.n_measured
    again = profiled(phone)
    assert again.total.n_measured == again.total.n_refused == 0
    for name, plan in outcome.plans.items():  # of plans as fast, the first profile keeps its first
        assert again.plans[name].predicted_ns == pytest.approx(plan.predicted_ns, rel=SETTLED)
    check_costs_in_the_table(program, recipe, outcome, store)
    if phone == "dsp-phone":
        assert outcome.plans["fastest"].predicted_ns < 0.7 * outcome.floats.plan.predicted_ns
        targets = {segment.target.key for segment in outcome.plans["floats"].segments}
        assert "cpu@relaxed" in targets, "the DSP has no floats"


def check_costs_in_the_table(
    program: Program, recipe: Recipe, outcome: PrecisionOutcome, store: CostStore
) -> None:
    measured = functools.partial(store.measurements, outcome.total.fingerprint)
    rows = {p: measured(conditions=Conditions(p)) for p in (Precision.FLOAT32, Precision.RELAXED)}
    costs = read_precision_costs(program, recipe, rows)
    assert costs.targets == outcome.costs.targets
    plan = solve(program.units, costs)
    assert plan.predicted_ns == pytest.approx(outcome.plans["fastest"].predicted_ns, rel=0.01)
    floats = read_precision_costs(program, None, rows)
    assert Precision.INT8 not in floats.precisions and floats.conversions is None
    with pytest.raises(CostError, match="never measured"):
        read_precision_costs(program, recipe, {Precision.FLOAT32: []})


@pytest.mark.parametrize(
    "phone", again_but(["dsp-phone", "npu-phone"], "dsp-phone", why="another phone")
)
def test_its_plans_are_those_of_measuring_everything(program, recipes, profiled, phone):
    sampled, forms = profiled(phone), module.EightBitForms.of(program, recipes(phone))
    graph = program.units
    sets = convex_sets([graph.predecessors(u) for u in range(len(graph.units))], 10_000)
    regions = sorted(members(region) for region in sets)
    in_8_bits = filter(None, map(forms.eight_bits.region, regions))
    with open_device(f"sim:{phone}") as opened, CostStore("sqlite://") as everything:
        whole = replace(FASTEST, every_preference=True)
        session = module._Session(program, forms, opened.client, everything, whole, None)
        session.run(ALL)
        session.sessions.named.update(regions)
        own = {Precision.INT8: [tuple(sorted(region)) for region in in_8_bits]}
        for precision, lane in session.sessions.by_precision.items():
            several = [(Kind.REGION, region) for region in own.get(precision, regions)]
            jobs = [job for job in lane.jobs(several) if lane.all_units_run(job)]
            lane.measurer.measure("regions", jobs)
        costs = session.sessions.fit()
    assert sampled.total.n_measured < 0.5 * session.n_measured
    floats = tuple(t for t in costs.targets if t.precision is not Precision.INT8)
    for name, targets in (("fastest", costs.targets), ("floats", floats)):
        best = solve(graph, replace(costs, targets=targets), tolerance=0.0)
        assert sampled.plans[name].predicted_ns <= (1 + NEAR) * best.predicted_ns


def test_with_noise_plans_between_are_measured_too(program, recipes, profiled):
    n, in_8_bits = len(program.units.units), recipes("dsp-phone").units
    power = np.zeros((n, 2, 1))
    power[:, 1, 0] = np.random.default_rng(3).uniform(1e-4, 1e-3, n)
    power[[unit for unit in range(n) if unit not in in_8_bits], 1] = np.inf
    noise = UnitNoise((Precision.RELAXED, Precision.INT8), power, {}, 32)
    exact = (Precision.FLOAT32, Precision.INT8)  # in float16 the CPU is as fast as the DSP
    outcome = profiled("dsp-phone", exact, noise=noise)
    problem = make_problem(program.units, drop_dominated_targets(outcome.costs.table))
    units, targets = range(problem.n), problem.targets
    array = np.array([[noise.of(u, t.precision)[0] for t in targets] for u in units])
    problem = problem.without(~np.isfinite(array))
    points = front(problem, array, most=module.FRONT_POINTS)
    assert len(points) > 2
    assert points[0].ns == pytest.approx(outcome.plans["fastest"].predicted_ns, rel=NEAR)
    for point in points:
        whole = [(frozenset(units), k) in problem.region_ns for units, k in point.placements]
        assert sum(whole) >= len(whole) - 1  # the last round's plan may differ in one


def test_floats_alone_are_profiled_as_ever(program, profiled):
    outcome = profiled("gpu-phone", (Precision.FLOAT32,))
    with open_device("sim:gpu-phone") as opened, CostStore("sqlite://") as other:
        alone = profile(program, opened.client, other, FASTEST)
    assert outcome.total.n_measured == outcome.floats.n_measured == alone.n_measured
    (plan,) = outcome.plans.values()
    places, expected = ([(s.units, s.target) for s in p.segments] for p in (plan, alone.plan))
    assert set(outcome.plans) == {"fastest"} and places == expected


def test_an_interrupt_keeps_what_there_is(program, recipes, profiled):
    outcome = profiled("dsp-phone", progress=interrupt_at(3, "units, int8"))
    assert outcome.total.interrupted and outcome.costs is None
    assert outcome.floats.stable and outcome.total.n_measured > outcome.floats.n_measured
    again = profiled("dsp-phone")
    assert again.floats.n_measured == 0
    check(again, program, recipes("dsp-phone"))


def test_float16_has_its_level(profiled):
    floats = (Precision.FLOAT32, Precision.RELAXED, Precision.FLOAT16)
    costs = profiled("slow-nnapi-phone", floats).costs
    assert Precision.FLOAT16 not in costs.precisions  # its API is 28
    assert CPU in costs.targets
