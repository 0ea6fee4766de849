"""Profiles of a noisy device come to rest: a second one measures nothing, luck is not chased."""

import random
from collections.abc import Generator
from dataclasses import dataclass, field, replace

import pytest

from nnapi_prof.costs.measurement import Round
from nnapi_prof.costs.model.views import with_intervals
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
    and each round some more: 2 % and 1 %."""

    device: AgentInfo = field(default_factory=lambda: replace(info(NPU), simulated=False))
    noise: random.Random = field(default_factory=lambda: random.Random(5))

    def run(self, request: Request) -> Generator[Event, None, None]:
        operations = {action.id: action.n_operations for action in read_actions(request.content)}
        for event in super().run(request):
            is_result = isinstance(event, ActionResult)
            yield self._noisy(event, operations[event.action]) if is_result else event

    def _noisy(self, result: ActionResult, n_operations: int) -> ActionResult:
        ns = CPU_OPERATION_NS * n_operations * self.noise.gauss(1, 0.02)
        of_rounds = [ns * self.noise.gauss(1, 0.01) for _ in range(ROUNDS)]
        samples = tuple(round(ns) for ns in of_rounds for _ in range(2))
        segments = (replace(result.segments[0], samples_ns=samples),)
        rounds = (Round(2),) * ROUNDS
        return replace(
            result, clock="monotonic", segments=segments, total_ns=samples, rounds=rounds
        )


PROGRAM = chain(*NAMES)
ON_NPU = ProfileOptions(accelerators=("npu",))


@pytest.mark.parametrize("seed", range(4))
def test_a_second_profile_measures_nothing(store, seed):
    first = profile(PROGRAM, NoisyClient(noise=random.Random(seed)), store, ON_NPU)
    assert first.stable and first.n_measured > 0
    assert first.rounds < 10, "refinement chases noise"
    client = NoisyClient(noise=random.Random(seed + 100))
    second = profile(PROGRAM, client, store, ON_NPU)
    assert second.n_measured == client.n_results == 0
    assert second.stable and second.rounds == 0
    assert second.plan.segments == first.plan.segments


def test_preferences_that_only_luck_tells_apart_are_one(store):
    result = profile(PROGRAM, NoisyClient(), store, replace(ON_NPU, every_preference=True))
    preferences = {t.preference for t in result.costs.targets if t.engine is Engine.NNAPI}
    assert preferences == set(Preference)
    narrow = drop_dominated_targets(result.costs.table)
    left = [t for t in narrow.targets if t.engine is Engine.NNAPI]
    assert [t.preference for t in left] == [Preference.FAST_SINGLE_ANSWER]
    assert narrow.targets[0] == CPU and narrow.noise == result.costs.noise


def test_baselines_are_measured_while_they_are_uncertain(store):
    options = replace(ON_NPU, refine=False)
    costs = profile(PROGRAM, NoisyClient(), store, options).costs
    for plan in rivals(PROGRAM.units, costs, options.copies):
        expected, open_ = unknown(plan, costs), list(unmeasured(plan))
        half = sum((s.interval_ns[1] - s.interval_ns[0]) / 2 for s in open_ if s.interval_ns)
        assert expected == (open_ if half > TOLERANCE * plan.predicted_ns else [])
    first = solve(PROGRAM.units, costs).segments[0]
    sums = replace(first, units=tuple(range(2, 9)), measured=False, interval_ns=None)
    uncertain = with_intervals(Plan("some", (sums,), False), costs)
    assert unknown(uncertain, costs) == list(uncertain.segments)


def test_hope_is_followed_only_beyond_noise(store):
    result = profile(PROGRAM, NoisyClient(), store, ON_NPU)
    chosen = choose(PROGRAM.units, result.costs)
    assert chosen.potential == result.potential <= result.costs.noise
    assert chosen.to_measure == []
