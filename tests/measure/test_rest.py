"""Profiles of a noisy device come to rest: a second one measures nothing, luck is not chased."""

import dataclasses
import random
from collections.abc import Generator
from dataclasses import dataclass, field

import pytest

from nnapi_prof.costs.measurement import Round
from nnapi_prof.costs.model.views import with_intervals
from nnapi_prof.costs.store import CostStore
from nnapi_prof.costs.table import drop_dominated_targets
from nnapi_prof.device.protocol import ActionResult, AgentInfo, Event
from nnapi_prof.device.protocol.request import Request
from nnapi_prof.execution.profile import ProfileOptions
from nnapi_prof.execution.profile.regions import choose, rivals, unknown, unmeasured
from nnapi_prof.execution.profile.session import profile
from nnapi_prof.graph.plan import CPU, Engine, Plan, Preference
from nnapi_prof.partition import TOLERANCE
from tests.measure.programs import chain
from tests.measure.scripted import CPU_OPERATION_NS, NPU, ScriptedClient, info, read_actions
from tests.partition.cases import solve

NAMES = ("relu", "sigmoid", "tanh", "floor", "relu", "tanh", "sigmoid", "relu", "floor") * 3
ROUNDS = 5


@dataclass
class NoisyClient(ScriptedClient):
    """An accelerator as fast as the CPU, under every preference; each process has luck of its own,
    and each round some more. ``swing``: relative standard deviations of the two."""

    device: AgentInfo = field(default_factory=lambda: real(NPU))
    noise: random.Random = field(default_factory=lambda: random.Random(5))
    swing: tuple[float, float] = (0.02, 0.01)

    def run(self, request: Request) -> Generator[Event, None, None]:
        operations = {action.id: action.n_operations for action in read_actions(request.content)}
        for event in super().run(request):
            is_result = isinstance(event, ActionResult)
            yield self._noisy(event, operations[event.action]) if is_result else event

    def _noisy(self, result: ActionResult, n_operations: int) -> ActionResult:
        (timing,) = result.segments
        ns = float(CPU_OPERATION_NS * n_operations)
        ns *= self.noise.gauss(1, self.swing[0])
        of_rounds = [ns * self.noise.gauss(1, self.swing[1]) for _ in range(ROUNDS)]
        samples = tuple(round(ns) for ns in of_rounds for _ in range(2))
        return dataclasses.replace(
            result,
            clock="monotonic",
            segments=(dataclasses.replace(timing, samples_ns=samples),),
            total_ns=samples,
            rounds=tuple(Round(2) for _ in range(ROUNDS)),
        )


def real(*accelerators: object) -> AgentInfo:
    return dataclasses.replace(info(*accelerators), simulated=False)


@pytest.fixture
def store(tmp_path):
    with CostStore(tmp_path / "costs.sqlite") as opened:
        yield opened


@pytest.mark.parametrize("seed", range(4))
def test_a_second_profile_measures_nothing(store, seed):
    program = chain(*NAMES)
    options = ProfileOptions(accelerators=("npu",))
    first = profile(program, NoisyClient(noise=random.Random(seed)), store, options)
    assert first.stable and first.n_measured > 0
    assert first.rounds < 10, "refinement chases noise"
    client = NoisyClient(noise=random.Random(seed + 100))
    second = profile(program, client, store, options)
    assert second.n_measured == client.n_results == 0
    assert second.stable and second.rounds == 0
    assert first.plan is not None and second.plan is not None
    assert second.plan.segments == first.plan.segments


def test_preferences_that_only_luck_tells_apart_are_one(store):
    options = ProfileOptions(accelerators=("npu",), every_preference=True)
    result = profile(chain(*NAMES), NoisyClient(), store, options)
    preferences = {t.preference for t in result.costs.targets if t.engine is Engine.NNAPI}
    assert preferences == set(Preference)
    narrow = drop_dominated_targets(result.costs.table)
    left = [t for t in narrow.targets if t.engine is Engine.NNAPI]
    assert [t.preference for t in left] == [Preference.FAST_SINGLE_ANSWER]
    assert narrow.targets[0] == CPU and narrow.noise == result.costs.noise


def test_baselines_are_measured_while_they_are_uncertain(store):
    program = chain(*NAMES)
    options = ProfileOptions(accelerators=("npu",), refine=False)
    result = profile(program, NoisyClient(), store, options)
    costs = result.costs
    for plan in rivals(program.units, costs, options.copies):
        expected, open_ = unknown(plan, costs), list(unmeasured(plan))
        half = sum((s.interval_ns[1] - s.interval_ns[0]) / 2 for s in open_ if s.interval_ns)
        assert expected == (open_ if half > TOLERANCE * plan.predicted_ns else [])
    whole = solve(program.units, costs)
    sums = dataclasses.replace(
        whole.segments[0], units=tuple(range(2, 9)), measured=False, interval_ns=None
    )
    uncertain = with_intervals(Plan("some", (sums,), False), costs)
    assert unknown(uncertain, costs) == list(uncertain.segments)


def test_hope_is_followed_only_beyond_noise(store):
    program = chain(*NAMES)
    options = ProfileOptions(accelerators=("npu",))
    result = profile(program, NoisyClient(), store, options)
    chosen = choose(program.units, result.costs)
    assert chosen.potential == result.potential <= result.costs.noise
    assert chosen.to_measure == []
