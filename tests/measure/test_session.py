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
ON_NPU = Target.nnapi("npu", Preference.FAST_SINGLE_ANSWER)


@pytest.fixture
def store(tmp_path):
    with CostStore(tmp_path / "costs.sqlite") as opened:
        yield opened


def test_measures_then_partitions_then_measures_the_plan(store):
    program = chain("relu", "sigmoid", "tanh", "relu", "tanh")
    client = ScriptedClient()
    outcome = profile(program, client, store, FAST)
    assert outcome.stable and not outcome.interrupted and outcome.rounds == 0
    plan = outcome.plan
    assert plan.simulated
    (segment,) = plan.segments
    assert segment.target == ON_NPU and segment.measured
    assert segment.predicted_ns == NPU_INVOCATION_NS + 5 * NPU_OPERATION_NS
    whole_cpu = [b for b in outcome.baselines if {s.target for s in b.segments} == {CPU}]
    assert whole_cpu[0].predicted_ns == 5 * CPU_OPERATION_NS
    rows = store.measurements(outcome.fingerprint)
    assert {row.kind for row in rows} == {Kind.UNIT, Kind.CHAIN, Kind.REGION}
    assert outcome.n_measured == len(rows) == client.n_results
    assert outcome.n_reused == 0  # the table was empty
    (device,) = store.devices()
    assert device.fingerprint == outcome.fingerprint and device.simulated


def test_a_phone_whose_listing_crashes_is_none_with_a_cpu_alone(store):
    client = ScriptedClient()
    told = client.info()
    words = "libneuralnetworks.so crashed when asked for its accelerators: SIGSEGV"
    broken = replace(told.nnapi, error=words, accelerators=())
    client.info = lambda: replace(told, nnapi=broken)
    with pytest.raises(DeviceError, match=f"{words}; .*restart the phone"):
        profile(chain("relu", "sigmoid"), client, store, ProfileOptions())
    assert len(table_frame(store)) == 0


def test_a_second_profile_measures_and_converts_nothing(store, monkeypatch):
    program = chain("relu", "sigmoid", "erf", "tanh")
    first = profile(program, ScriptedClient(), store, FAST)

    def no_conversion(*_):
        raise AssertionError("converted again")

    monkeypatch.setattr("nnapi_prof.convert.lower.convert_region", no_conversion)
    client = ScriptedClient()
    again = profile(program, client, store, FAST)
    assert client.requests == [] and again.n_measured == again.n_refused == 0
    assert again.n_reused == first.n_measured + first.n_refused
    assert again.plan == first.plan and again.stable


def test_fresh_measures_again(store):
    program = chain("relu", "sigmoid")
    first = profile(program, ScriptedClient(), store, FAST)
    fresh = ProfileOptions(preferences=FAST.preferences, accelerators=FAST.accelerators, fresh=True)
    again = profile(program, ScriptedClient(), store, fresh)
    assert again.n_measured == first.n_measured
    assert len(table_frame(store)) == 2 * first.n_measured


def test_a_new_driver_or_agent_is_measured_anew(store):
    program = chain("relu", "sigmoid")
    first = profile(program, ScriptedClient(), store, FAST)
    other = ScriptedClient(info(NPU, agent="test-2"))
    assert profile(program, other, store, FAST).n_measured == first.n_measured


def test_what_is_refused_is_stored_with_its_sentence(store):
    outcome = profile(chain("relu", "erf", "tanh"), ScriptedClient(), store, FAST)
    assert outcome.n_refused == 2
    refused = [r for r in store.measurements(outcome.fingerprint) if r.status is Status.REFUSED]
    assert {row.target for row in refused} == {CPU, ON_NPU}
    assert all("erf" in str(row.message) for row in refused)
    assert all(len(row.members) == 1 for row in refused)
    assert outcome.costs is not None and outcome.plan is not None
    assert "erf" in outcome.costs.refusals[1, ON_NPU]
    host = [s for s in outcome.plan.segments if s.target == HOST]
    assert [s.units for s in host] == [(1,)] and host[0].estimated


@pytest.mark.parametrize("after", [0, 1, 5, 9])
def test_the_death_of_the_agent_keeps_what_was_measured(store, after):
    program = chain("relu", "sigmoid", "tanh", "floor")
    hint = rf"; the {after} measurements.*goes on where this one stopped$" if after else "$"
    with pytest.raises(AgentError, match=rf"killed by signal 9{hint}"):
        profile(program, ScriptedClient(dies_after=after), store, FAST)
    assert len(table_frame(store)) == after
    client = ScriptedClient()
    outcome = profile(program, client, store, FAST)
    assert outcome.stable
    frame = table_frame(store)
    assert len(frame) == after + client.n_results
    assert not frame.duplicated(["signature", "target"]).any()


def test_an_interrupt_keeps_what_was_measured_and_stops_the_agent(store):
    program = chain("relu", "sigmoid", "tanh")

    def interrupt(progress):
        if progress.phase == "units" and progress.done == 4:
            raise KeyboardInterrupt

    client = ScriptedClient()
    outcome = profile(program, client, store, FAST, interrupt)
    assert outcome.interrupted and outcome.plan is None and outcome.n_measured == 4
    assert client.closed_early == 1
    assert len(table_frame(store)) == 4
    resumed = profile(program, ScriptedClient(), store, FAST)
    assert not resumed.interrupted and resumed.stable


def test_progress_counts_up_to_the_total(store):
    seen = []
    profile(chain("relu", "sigmoid", "tanh"), ScriptedClient(), store, FAST, seen.append)
    phases = list(dict.fromkeys(p.phase for p in seen))
    assert phases[:2] == ["units", "chains"]
    for phase in phases:
        steps = [p for p in seen if p.phase == phase]
        assert [p.done for p in steps] == list(range(steps[-1].total + 1))


def test_requests_are_cut_between_regions(store, monkeypatch):
    monkeypatch.setattr(requests_module, "MAX_ACTIONS", 5)
    client = ScriptedClient()
    profile(chain("relu", "sigmoid", "tanh", "floor"), client, store, FAST)
    assert max(client.requests) <= 5
    assert client.requests[:2] == [4, 4]  # two units on two targets each


def test_conditions_are_stored_and_kept_apart(store):
    program = chain("relu", "tanh")
    plain = profile(program, ScriptedClient(), store, FAST)
    relaxed = ProfileOptions(
        preferences=FAST.preferences,
        accelerators=FAST.accelerators,
        conditions=Conditions(Precision.RELAXED),
    )
    outcome = profile(program, ScriptedClient(), store, relaxed)
    rows = store.measurements(outcome.fingerprint, conditions=relaxed.conditions)
    assert {row.relaxed for row in rows if row.target == ON_NPU} == {True}
    assert outcome.n_measured == plain.n_measured  # no row of the other precision serves


def test_alternatives_of_a_region_take_turns(store):
    client = ScriptedClient()
    both = ProfileOptions(accelerators=("npu",))
    profile(chain("relu", "sigmoid"), client, store, both)
    assert client.groups[0] == [1] * 4 + [2] * 4  # CPU, and the NPU under three preferences


def test_what_was_measured_hot_is_left_out_and_told(store):
    program = chain("relu", "tanh")
    outcome = profile(program, ScriptedClient(throttled=(True, False)), store, FAST)
    assert outcome.doubts == {"1 of 2 rounds throttled and left out": outcome.n_measured}
    (relu,) = store.measurements(outcome.fingerprint, [program.units.units[0].signature])[:1]
    assert relu.summary.median_ns == CPU_OPERATION_NS and len(relu.samples_ns) == 6
    assert outcome.plan.predicted_ns == NPU_INVOCATION_NS + 2 * NPU_OPERATION_NS


def test_rows_that_are_hot_altogether_are_flagged(store):
    program = chain("relu", "tanh")
    outcome = profile(program, ScriptedClient(throttled=(True, True)), store, FAST)
    assert outcome.doubts == {"throttled in every round": outcome.n_measured}
    assert all(r.flags for r in store.measurements(outcome.fingerprint) if r.usable)


def test_a_profile_says_where_its_time_went(store):
    outcome = profile(chain("relu", "tanh"), ScriptedClient(), store, FAST)
    assert {"convert", "send", "measure", "store", "plan"} <= outcome.spent_s.keys()
    assert 0 <= sum(outcome.spent_s.values()) <= outcome.seconds


NINE = ("relu", "sigmoid", "tanh", "floor", "relu", "tanh", "sigmoid", "relu", "floor")


def test_a_sample_of_units_stands_for_preferences_without_a_gain(store):
    program = chain(*NINE)
    all_of_them = ProfileOptions(accelerators=("npu",))
    outcome = profile(program, ScriptedClient(), store, all_of_them)
    low = Target.nnapi("npu", Preference.LOW_POWER)
    alone = [r for r in store.measurements(outcome.fingerprint) if r.n_units == 1]
    assert {r.signature for r in alone if r.target == ON_NPU} == {
        u.signature for u in program.units.units
    }
    assert low in outcome.costs.targets
    assert all(outcome.costs.unit_cost(u, low) is not None for u in range(9))
    assert outcome.n_exhaustive == 4 * 45 and outcome.n_rows == outcome.n_measured < 45
    assert outcome.stable and outcome.potential <= 0.01


def test_without_refinement_no_region_of_a_plan_is_measured(store):
    options = ProfileOptions(warmup_min=FAST.warmup_min, preferences=FAST.preferences, refine=False)
    outcome = profile(chain(*NINE), ScriptedClient(), store, options)
    assert outcome.rounds == 0 and outcome.n_regions == 0 and not outcome.stable
    assert outcome.plan.segments[0].interval_ns is not None


def test_refinement_finds_the_plan_of_measuring_everything(store, tmp_path):
    program = chain(*NINE)
    refined = profile(program, ScriptedClient(), store, FAST)
    with CostStore(tmp_path / "everything.sqlite") as everything:
        costs, plan, count = profile_exhaustively(
            UnitGraphCache.of(program), ScriptedClient(), everything, FAST
        )
    assert refined.plan is not None and refined.n_rows < count
    assert [(s.units, s.target) for s in refined.plan.segments] == [
        (s.units, s.target) for s in plan.segments
    ]
    assert all(s.measured for s in plan.segments)
    assert costs.table.region_ns.keys() > refined.costs.table.region_ns.keys()


def test_models_share_what_is_equal_in_them(store):
    first = profile(chain("relu", "tanh", "floor"), ScriptedClient(), store, FAST)
    client = ScriptedClient()
    second = profile(chain("sigmoid", "tanh", "floor", "relu"), client, store, FAST)
    rows = store.measurements(first.fingerprint)
    assert len({(r.signature, r.target) for r in rows}) == len(rows)
    assert second.n_reused >= 3 * 2 and client.n_results == second.n_measured
