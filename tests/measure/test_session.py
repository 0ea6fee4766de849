"""The session against scripted devices: what it measures, keeps, resumes and concludes; noise,
where a second profile measures nothing and luck is not chased; units without a model."""

import random
from collections.abc import Generator
from dataclasses import dataclass, field, replace

import pytest

from nnapi_prof.costs import Conditions, Precision
from nnapi_prof.costs.measurement import Kind, Round, Status
from nnapi_prof.costs.model.views import with_intervals
from nnapi_prof.costs.store import CostStore
from nnapi_prof.costs.store.files import frame as table_frame
from nnapi_prof.costs.table import drop_dominated_targets
from nnapi_prof.device.protocol import ActionResult, AgentInfo, Event
from nnapi_prof.device.protocol.request import Request
from nnapi_prof.errors import AgentError, DeviceError, FrontendError, ModelFileError
from nnapi_prof.execution.profile import ProfileOptions
from nnapi_prof.execution.profile import measurer as requests_module
from nnapi_prof.execution.profile.regions import choose, rivals, unknown, unmeasured
from nnapi_prof.execution.profile.session import profile
from nnapi_prof.execution.profile.unit_graph_cache import UnitGraphCache, cached_units
from nnapi_prof.graph.plan import CPU, HOST, Engine, Plan, Preference, Target
from nnapi_prof.partition import TOLERANCE
from tests.measure import scripted
from tests.measure.exhaustive import profile_exhaustively
from tests.measure.programs import chain
from tests.measure.scripted import NPU, ScriptedClient, info, interrupt_at, read_actions
from tests.partition.cases import solve

FAST = ProfileOptions(preferences=("fast",), accelerators=("npu",))
EVERY = ProfileOptions(accelerators=("npu",))
ON_NPU = Target.nnapi("npu", Preference.FAST_SINGLE_ANSWER)
NINE = "relu sigmoid tanh floor relu tanh sigmoid relu floor"


@pytest.fixture
def profiled(store):
    """Profiles a chain of these operations, on the scripted device unless another is named."""

    def run(names, client=None, options=FAST, progress=None):
        return profile(chain(*names.split()), client or ScriptedClient(), store, options, progress)

    return run


def test_measures_then_partitions_then_measures_the_plan(store, profiled):
    client = ScriptedClient()
    outcome = profiled("relu sigmoid tanh relu tanh", client)
    assert outcome.stable and not outcome.interrupted and outcome.rounds == 0
    (segment,) = outcome.plan.segments
    assert outcome.plan.simulated and segment.target == ON_NPU and segment.measured
    assert segment.predicted_ns == scripted.NPU_INVOCATION_NS + 5 * scripted.NPU_OPERATION_NS
    whole_cpu = [b for b in outcome.baselines if {s.target for s in b.segments} == {CPU}]
    assert whole_cpu[0].predicted_ns == 5 * scripted.CPU_OPERATION_NS
    rows = store.measurements(outcome.fingerprint)
    assert {row.kind for row in rows} == {Kind.UNIT, Kind.CHAIN, Kind.REGION}
    assert outcome.n_measured == len(rows) == client.n_results
    assert outcome.n_reused == 0  # the table was empty
    (device,) = store.devices()
    assert device.fingerprint == outcome.fingerprint and device.simulated
    assert {"convert", "send", "measure", "store", "plan"} <= outcome.spent_s.keys()
    assert 0 <= sum(outcome.spent_s.values()) <= outcome.seconds


def test_a_phone_whose_listing_crashes_is_none_with_a_cpu_alone(store, profiled):
    words = "libneuralnetworks.so crashed when asked for its accelerators: SIGSEGV"
    broken = info()
    broken = replace(broken, nnapi=replace(broken.nnapi, error=words))
    with pytest.raises(DeviceError, match=f"{words}; .*restart the phone"):
        profiled("relu sigmoid", ScriptedClient(broken), ProfileOptions())
    assert store.rows() == []


def test_a_second_profile_measures_and_converts_nothing(profiled, monkeypatch):
    names, client = "relu sigmoid erf tanh", ScriptedClient()
    first = profiled(names)
    monkeypatch.delattr("nnapi_prof.convert.lower.convert_region")
    again = profiled(names, client)
    assert client.requests == [] and again.n_measured == again.n_refused == 0
    assert again.n_reused == first.n_measured + first.n_refused
    assert again.plan == first.plan and again.stable


@pytest.mark.parametrize(
    ("device", "options"),
    [
        (info(NPU), replace(FAST, fresh=True)),
        (info(NPU, agent="test-2"), FAST),
        (info(NPU), replace(FAST, conditions=Conditions(Precision.RELAXED))),
    ],
    ids=["fresh", "another agent", "other conditions"],
)
def test_what_is_measured_anew(store, profiled, device, options):
    first = profiled("relu sigmoid")
    again = profiled("relu sigmoid", ScriptedClient(device), options)
    assert again.n_measured == first.n_measured
    assert len(store.rows()) == 2 * first.n_measured
    rows = store.measurements(again.fingerprint, conditions=options.conditions)
    relaxed = options.conditions.precision is Precision.RELAXED
    assert {row.relaxed for row in rows if row.target == ON_NPU} == {relaxed}


def test_what_is_refused_is_stored_with_its_sentence(store, profiled):
    outcome = profiled("relu erf tanh")
    assert outcome.n_refused == 2
    refused = [r for r in store.measurements(outcome.fingerprint) if r.status is Status.REFUSED]
    assert {row.target for row in refused} == {CPU, ON_NPU}
    assert all("erf" in row.message and len(row.members) == 1 for row in refused)
    assert "erf" in outcome.costs.refusals[1, ON_NPU]
    (host,) = (s for s in outcome.plan.segments if s.target == HOST)
    assert host.units == (1,) and host.estimated


@pytest.mark.parametrize("after", [0, 1, 5, 9])
def test_the_death_of_the_agent_keeps_what_was_measured(store, profiled, after):
    names, client = "relu sigmoid tanh floor", ScriptedClient()
    hint = rf"; the {after} measurements.*goes on where this one stopped$" if after else "$"
    with pytest.raises(AgentError, match=rf"killed by signal 9{hint}"):
        profiled(names, ScriptedClient(dies_after=after))
    assert len(store.rows()) == after
    assert profiled(names, client).stable
    frame = table_frame(store)
    assert len(frame) == after + client.n_results
    assert not frame.duplicated(["signature", "target"]).any()


def test_an_interrupt_keeps_what_was_measured_and_stops_the_agent(store, profiled):
    names, client = "relu sigmoid tanh", ScriptedClient()
    outcome = profiled(names, client, progress=interrupt_at(4, "units"))
    assert outcome.interrupted and outcome.plan is None and client.closed_early == 1
    assert outcome.n_measured == len(store.rows()) == 4
    resumed = profiled(names)
    assert not resumed.interrupted and resumed.stable


def test_progress_counts_up_to_the_total(profiled):
    seen = []
    profiled("relu sigmoid tanh", progress=seen.append)
    phases = list(dict.fromkeys(p.phase for p in seen))
    assert phases[:2] == ["units", "chains"]
    for phase in phases:
        steps = [p for p in seen if p.phase == phase]
        assert [p.done for p in steps] == list(range(steps[-1].total + 1))


def test_alternatives_of_a_region_take_turns(profiled):
    client = ScriptedClient()
    profiled("relu sigmoid", client, EVERY)
    assert client.groups[0] == [1] * 4 + [2] * 4  # CPU, and the NPU under three preferences


def test_requests_are_cut_between_regions(profiled, monkeypatch):
    monkeypatch.setattr(requests_module, "MAX_ACTIONS", 5)
    client = ScriptedClient()
    profiled("relu sigmoid tanh floor", client)
    assert max(client.requests) <= 5
    assert client.requests[:2] == [4, 4]  # two units on two targets each


def test_what_was_measured_hot_is_left_out_and_told(store, profiled):
    outcome = profiled("relu tanh", ScriptedClient(throttled=(True, False)))
    assert outcome.doubts == {"1 of 2 rounds throttled and left out": outcome.n_measured}
    signature = chain("relu").units.units[0].signature
    relu = store.measurements(outcome.fingerprint, [signature])[0]
    assert relu.summary.median_ns == scripted.CPU_OPERATION_NS and len(relu.samples_ns) == 6
    assert outcome.plan.predicted_ns == scripted.NPU_INVOCATION_NS + 2 * scripted.NPU_OPERATION_NS
    hot = profiled("floor sigmoid", ScriptedClient(throttled=(True, True)))
    assert hot.doubts == {"throttled in every round": hot.n_measured}
    assert all(row.flags for row in store.measurements(hot.fingerprint) if row.usable)


def test_a_sample_of_units_stands_for_preferences_without_a_gain(store, profiled):
    outcome = profiled(NINE, options=EVERY)
    low = Target.nnapi("npu", Preference.LOW_POWER)
    alone = [r for r in store.measurements(outcome.fingerprint) if r.n_units == 1]
    signatures = {unit.signature for unit in chain(*NINE.split()).units.units}
    assert {r.signature for r in alone if r.target == ON_NPU} == signatures
    assert low in outcome.costs.targets
    assert all(outcome.costs.unit_cost(u, low) is not None for u in range(9))
    assert outcome.n_exhaustive == 4 * 45 and outcome.n_rows == outcome.n_measured < 45
    assert outcome.stable and outcome.potential <= 0.01


def test_without_refinement_no_region_of_a_plan_is_measured(profiled):
    outcome = profiled(NINE, options=ProfileOptions(preferences=("fast",), refine=False))
    assert outcome.rounds == 0 and outcome.n_regions == 0 and not outcome.stable
    assert outcome.plan.segments[0].interval_ns is not None


def test_refinement_finds_the_plan_of_measuring_everything(profiled):
    refined, units = profiled(NINE), UnitGraphCache.of(chain(*NINE.split()))
    with CostStore("sqlite://") as everything:
        costs, plan, count = profile_exhaustively(units, ScriptedClient(), everything, FAST)
    assert refined.n_rows < count
    placed, expected = ([(s.units, s.target) for s in p.segments] for p in (refined.plan, plan))
    assert placed == expected and all(s.measured for s in plan.segments)
    assert costs.table.region_ns.keys() > refined.costs.table.region_ns.keys()


def test_models_share_what_is_equal_in_them(store, profiled):
    first, client = profiled("relu tanh floor"), ScriptedClient()
    second = profiled("sigmoid tanh floor relu", client)
    rows = store.measurements(first.fingerprint)
    assert len({(r.signature, r.target) for r in rows}) == len(rows)
    assert second.n_reused >= 3 * 2 and client.n_results == second.n_measured


# ---- a noisy device ------------------------------------------------------------------------------

ROUNDS = 5
PROGRAM = chain(*NINE.split() * 3)


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
        ns = scripted.CPU_OPERATION_NS * n_operations * self.noise.gauss(1, 0.02)
        of_rounds = [ns * self.noise.gauss(1, 0.01) for _ in range(ROUNDS)]
        samples = tuple(round(ns) for ns in of_rounds for _ in range(2))
        segments = (replace(result.segments[0], samples_ns=samples),)
        rounds = (Round(2),) * ROUNDS
        return replace(
            result, clock="monotonic", segments=segments, total_ns=samples, rounds=rounds
        )


@pytest.mark.parametrize("seed", range(4))
def test_a_second_profile_measures_nothing(store, seed):
    first = profile(PROGRAM, NoisyClient(noise=random.Random(seed)), store, EVERY)
    assert first.stable and first.n_measured > 0
    assert first.rounds < 10, "refinement chases noise"
    client = NoisyClient(noise=random.Random(seed + 100))
    second = profile(PROGRAM, client, store, EVERY)
    assert second.n_measured == client.n_results == second.rounds == 0 and second.stable
    assert second.plan.segments == first.plan.segments


def test_preferences_that_only_luck_tells_apart_are_one(store):
    result = profile(PROGRAM, NoisyClient(), store, replace(EVERY, every_preference=True))
    preferences = {t.preference for t in result.costs.targets if t.engine is Engine.NNAPI}
    assert preferences == set(Preference)
    narrow = drop_dominated_targets(result.costs.table)
    left = [t for t in narrow.targets if t.engine is Engine.NNAPI]
    assert [t.preference for t in left] == [Preference.FAST_SINGLE_ANSWER]
    assert narrow.targets[0] == CPU and narrow.noise == result.costs.noise


def test_baselines_are_measured_while_they_are_uncertain(store):
    costs = profile(PROGRAM, NoisyClient(), store, replace(EVERY, refine=False)).costs
    for plan in rivals(PROGRAM.units, costs, EVERY.copies):
        expected, open_ = unknown(plan, costs), list(unmeasured(plan))
        half = sum((s.interval_ns[1] - s.interval_ns[0]) / 2 for s in open_ if s.interval_ns)
        assert expected == (open_ if half > TOLERANCE * plan.predicted_ns else [])
    first = solve(PROGRAM.units, costs).segments[0]
    sums = replace(first, units=tuple(range(2, 9)), measured=False, interval_ns=None)
    uncertain = with_intervals(Plan("some", (sums,), False), costs)
    assert unknown(uncertain, costs) == list(uncertain.segments)


def test_hope_is_followed_only_beyond_noise(store):
    result = profile(PROGRAM, NoisyClient(), store, EVERY)
    chosen = choose(PROGRAM.units, result.costs)
    assert chosen.potential == result.potential <= result.costs.noise
    assert chosen.to_measure == []


# ---- a model's units without the model -----------------------------------------------------------


@pytest.fixture
def model(tmp_path):
    path = tmp_path / "model.pt"
    path.write_bytes(b"some model")
    return path


class Loader:
    """Gives a program and counts how often."""

    def __init__(self, names: str) -> None:
        self.program = chain(*names.split())
        self.calls = 0

    def __call__(self):
        self.calls += 1
        return self.program


def test_a_known_model_is_not_loaded_and_one_that_is_needed_once(model, tmp_path):
    first, second = Loader("relu tanh"), Loader("relu tanh")
    fresh = cached_units(model, ["1x64"], first, tmp_path)
    cached = cached_units(model, ["1x64"], second, tmp_path)
    assert (first.calls, second.calls) == (1, 0)
    assert (cached.units, cached.name) == (fresh.units, fresh.name)
    assert cached.load() is cached.load() is second.program and second.calls == 1


def test_other_bytes_or_inputs_are_another_model_and_a_damaged_memory_is_made_again(
    model, tmp_path
):
    loader = Loader("relu")
    cached_units(model, [], loader, tmp_path)
    (entry,) = (tmp_path / "graphs").iterdir()
    entry.write_text(entry.read_text()[:50])
    for n_calls, shapes in ((2, []), (2, []), (3, ["1x64"]), (3, ["1x64"])):
        cached_units(model, shapes, loader, tmp_path)
        assert loader.calls == n_calls
    model.write_bytes(b"another model")
    cached_units(model, [], loader, tmp_path)
    assert loader.calls == 4


def test_a_model_with_other_units_than_remembered_is_refused(model, tmp_path):
    cached_units(model, [], Loader("relu"), tmp_path)
    stale = cached_units(model, [], Loader("tanh"), tmp_path)
    with pytest.raises(FrontendError, match="run the same command again"):
        stale.load()
    assert list((tmp_path / "graphs").iterdir()) == []


def test_a_missing_model_is_the_loaders_to_refuse_and_a_cache_costs_only_time(tmp_path, model):
    def load():
        raise ModelFileError("no.pt does not exist")

    with pytest.raises(ModelFileError, match="does not exist"):
        cached_units(tmp_path / "no.pt", [], load, tmp_path)
    (tmp_path / "file").write_text("")
    loader = Loader("relu")
    for _ in range(2):
        assert len(cached_units(model, [], loader, tmp_path / "file").units.units) == 1
    assert loader.calls == 2


def test_a_second_profile_does_not_load_the_model(model, tmp_path, store):
    loader = Loader("relu erf tanh")
    for _ in range(2):
        outcome = profile(cached_units(model, [], loader, tmp_path), ScriptedClient(), store, FAST)
        assert loader.calls == 1
    assert outcome.stable and outcome.n_measured == 0
