"""The session against a scripted device: what it measures, keeps, resumes and concludes."""

from dataclasses import replace

import pytest

from nnapi_prof.costs import Conditions, Precision
from nnapi_prof.costs.measurement import Kind, Status
from nnapi_prof.costs.store import CostStore
from nnapi_prof.costs.store.files import frame as table_frame
from nnapi_prof.errors import AgentError, DeviceError
from nnapi_prof.execution.profile import ProfileOptions
from nnapi_prof.execution.profile import measurer as requests_module
from nnapi_prof.execution.profile.session import profile
from nnapi_prof.execution.profile.unit_graph_cache import UnitGraphCache
from nnapi_prof.graph.plan import CPU, HOST, Preference, Target
from tests.measure.exhaustive import profile_exhaustively
from tests.measure.programs import chain
from tests.measure.scripted import (
    CPU_OPERATION_NS,
    NPU,
    NPU_INVOCATION_NS,
    NPU_OPERATION_NS,
    ScriptedClient,
    info,
)

FAST = ProfileOptions(preferences=("fast",), accelerators=("npu",))
EVERY = ProfileOptions(accelerators=("npu",))
ON_NPU = Target.nnapi("npu", Preference.FAST_SINGLE_ANSWER)
NINE = ("relu", "sigmoid", "tanh", "floor", "relu", "tanh", "sigmoid", "relu", "floor")


@pytest.fixture
def profiled(store):
    """Profiles a chain of these operations, on the scripted device unless another is named."""

    def run(names, client=None, options=FAST, progress=None):
        program = chain(*names.split())
        return profile(program, client or ScriptedClient(), store, options, progress)

    return run


def test_measures_then_partitions_then_measures_the_plan(store, profiled):
    client = ScriptedClient()
    outcome = profiled("relu sigmoid tanh relu tanh", client)
    assert outcome.stable and not outcome.interrupted and outcome.rounds == 0
    (segment,) = outcome.plan.segments
    assert outcome.plan.simulated and segment.target == ON_NPU and segment.measured
    assert segment.predicted_ns == NPU_INVOCATION_NS + 5 * NPU_OPERATION_NS
    whole_cpu = [b for b in outcome.baselines if {s.target for s in b.segments} == {CPU}]
    assert whole_cpu[0].predicted_ns == 5 * CPU_OPERATION_NS
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
    told = info(NPU)
    broken = replace(told, nnapi=replace(told.nnapi, error=words, accelerators=()))
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
    assert all("erf" in str(row.message) for row in refused)
    assert all(len(row.members) == 1 for row in refused)
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

    def interrupt(progress):
        if progress.phase == "units" and progress.done == 4:
            raise KeyboardInterrupt

    outcome = profiled(names, client, progress=interrupt)
    assert outcome.interrupted and outcome.plan is None and outcome.n_measured == 4
    assert client.closed_early == 1
    assert len(store.rows()) == 4
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


def test_requests_are_cut_between_regions(profiled, monkeypatch):
    monkeypatch.setattr(requests_module, "MAX_ACTIONS", 5)
    client = ScriptedClient()
    profiled("relu sigmoid tanh floor", client)
    assert max(client.requests) <= 5
    assert client.requests[:2] == [4, 4]  # two units on two targets each


def test_alternatives_of_a_region_take_turns(profiled):
    client = ScriptedClient()
    profiled("relu sigmoid", client, EVERY)
    assert client.groups[0] == [1] * 4 + [2] * 4  # CPU, and the NPU under three preferences


def test_what_was_measured_hot_is_left_out_and_told(store, profiled):
    outcome = profiled("relu tanh", ScriptedClient(throttled=(True, False)))
    assert outcome.doubts == {"1 of 2 rounds throttled and left out": outcome.n_measured}
    signature = chain("relu").units.units[0].signature
    relu = store.measurements(outcome.fingerprint, [signature])[0]
    assert relu.summary.median_ns == CPU_OPERATION_NS and len(relu.samples_ns) == 6
    assert outcome.plan.predicted_ns == NPU_INVOCATION_NS + 2 * NPU_OPERATION_NS
    hot = profiled("floor sigmoid", ScriptedClient(throttled=(True, True)))
    assert hot.doubts == {"throttled in every round": hot.n_measured}
    assert all(row.flags for row in store.measurements(hot.fingerprint) if row.usable)


def test_a_sample_of_units_stands_for_preferences_without_a_gain(store, profiled):
    outcome = profiled(" ".join(NINE), options=EVERY)
    low = Target.nnapi("npu", Preference.LOW_POWER)
    alone = [r for r in store.measurements(outcome.fingerprint) if r.n_units == 1]
    assert {r.signature for r in alone if r.target == ON_NPU} == {
        u.signature for u in chain(*NINE).units.units
    }
    assert low in outcome.costs.targets
    assert all(outcome.costs.unit_cost(u, low) is not None for u in range(9))
    assert outcome.n_exhaustive == 4 * 45 and outcome.n_rows == outcome.n_measured < 45
    assert outcome.stable and outcome.potential <= 0.01


def test_without_refinement_no_region_of_a_plan_is_measured(profiled):
    options = ProfileOptions(warmup_min=FAST.warmup_min, preferences=FAST.preferences, refine=False)
    outcome = profiled(" ".join(NINE), options=options)
    assert outcome.rounds == 0 and outcome.n_regions == 0 and not outcome.stable
    assert outcome.plan.segments[0].interval_ns is not None


def test_refinement_finds_the_plan_of_measuring_everything(profiled):
    refined = profiled(" ".join(NINE))
    with CostStore("sqlite://") as everything:
        costs, plan, count = profile_exhaustively(
            UnitGraphCache.of(chain(*NINE)), ScriptedClient(), everything, FAST
        )
    assert refined.n_rows < count
    assert [(s.units, s.target) for s in refined.plan.segments] == [
        (s.units, s.target) for s in plan.segments
    ]
    assert all(s.measured for s in plan.segments)
    assert costs.table.region_ns.keys() > refined.costs.table.region_ns.keys()


def test_models_share_what_is_equal_in_them(store, profiled):
    first, client = profiled("relu tanh floor"), ScriptedClient()
    second = profiled("sigmoid tanh floor relu", client)
    rows = store.measurements(first.fingerprint)
    assert len({(r.signature, r.target) for r in rows}) == len(rows)
    assert second.n_reused >= 3 * 2 and client.n_results == second.n_measured
