"""How many threads the CPU engine gets: what is tried, and what a trial concludes."""

import json
from collections.abc import Generator
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import nn

import nnapi_prof as np_
from nnapi_prof.api import open_client
from nnapi_prof.api.costs import Interrupted
from nnapi_prof.costs import Conditions
from nnapi_prof.costs.measurement import Kind
from nnapi_prof.costs.store import CostStore
from nnapi_prof.costs.store.selection import Selection
from nnapi_prof.device.find import phone_file
from nnapi_prof.device.protocol import ActionResult, Event
from nnapi_prof.device.protocol.request import Request
from nnapi_prof.errors import CostError
from nnapi_prof.execution.profile import ProfileOptions
from nnapi_prof.execution.profile.threads import (
    N_CALLS,
    WHOLE,
    ThreadTrial,
    choose,
    run_trial,
    thread_counts,
    thread_units,
)
from nnapi_prof.graph.plan import CPU, CPU_ALONE
from nnapi_prof.graph.unit import UnitGraph
from tests.cli.common import TinyNet, trace
from tests.costs.graphs import chain_graph, row
from tests.measure import scripted
from tests.measure.scripted import ScriptedClient, info, interrupt_at, read_actions
from tests.models import Function
from tests.parts import again_but

PIXEL_8 = (1704, 1704, 1704, 1704, 2367, 2367, 2367, 2367, 2914)  # MHz: 4 + 4 + 1


def chosen(graph: UnitGraph, ns: dict[int, dict[int, float]]) -> ThreadTrial | None:
    """Returns the choice that follows from latencies by unit, or WHOLE, and threads."""
    rows = {}
    for unit, own in ns.items():
        for n, each in own.items():
            measured = row(graph, (max(unit, 0),), CPU, each)
            rows[unit, n] = replace(measured, conditions=Conditions(threads=n))
    return choose(graph, rows)


def test_numbers_to_try():
    phone = replace(info(), simulated=False, cpus=9, threads_max=9, cpu_max_khz=PIXEL_8)
    assert thread_counts(phone) == (1, 2, 4, 5, 9)
    assert thread_counts(phone, "0x1f0") == (1, 2, 4, 5)
    assert thread_counts(phone, "0x3") == (1, 2)
    alike = replace(phone, cpus=2, threads_max=2, cpu_max_khz=(2000, 2000))
    assert thread_counts(alike) == (1, 2)
    assert thread_counts(replace(alike, cpus=1, threads_max=1, cpu_max_khz=(None,))) == (1,)
    undescribed = replace(info(), cpus=64, threads_max=None)
    assert thread_counts(undescribed) == (1, 2, 4), "this host's cores say nothing of the phone"


def test_units_stand_for_those_like_them():
    graph = chain_graph([1 << 10, 1 << 10, 1 << 20, 1 << 20, 1 << 20])
    units = [replace(unit, operation="a" if unit.index < 1 else "b") for unit in graph.units]
    graph = replace(graph, units=tuple(units))
    small = {1: 100.0, 2: 150.0}
    trial = chosen(graph, {0: small, 3: {1: 1000.0, 2: 990.0}})
    assert trial.n_units == 2 and set(trial.ns) == {1, 2}
    assert trial.ns[1] > 2500, "three large units, of which one ran"
    assert trial.threads == 1, "two threads save less than a percent"
    split = {0: small, 3: {1: 1000.0, 2: 600.0}}
    trial = chosen(graph, split)
    assert trial.threads == 2 and not trial.whole
    trial = chosen(graph, {**split, WHOLE: {1: 901, 2: 902}})
    assert trial.whole and trial.ns == {1: 901, 2: 902}
    assert trial.threads == 1 and trial.n_units == 2, "the whole model decides where it ran"


def test_numbers_far_behind_on_the_heaviest_unit_are_judged_by_it():
    graph = chain_graph([1 << 10, 1 << 20, 1 << 20])
    heaviest = {1: 1000.0, 2: 520.0, 4: 500.0, 8: 499.0}
    alone = chosen(graph, {1: heaviest})
    assert alone.threads == 4 and alone.n_units == 1
    assert alone.ns[1] == pytest.approx(2 * alone.ns[4])
    trial = chosen(graph, {0: {2: 100.0, 4: 200.0}, 1: heaviest})
    assert trial.n_units == 2 and trial.threads == 2
    assert trial.ns[2] == pytest.approx(520 + 100)
    assert trial.ns[1] / trial.ns[2] == pytest.approx(1000 / 520), "of the heaviest"


@pytest.mark.parametrize(("ns_of_two", "one_thread"), [(112.0, True), (108.0, False)])
def test_a_call_that_gains_by_one_thread(ns_of_two, one_thread):
    small = {1: 100.0, 2: ns_of_two}
    trial = chosen(chain_graph([1 << 10, 1 << 20, 1 << 20]), {0: small, 1: {1: 1000.0, 2: 520.0}})
    assert trial.threads == 2 and trial.one_thread is one_thread
    assert trial.call_ns == small


def test_units_of_a_trial_and_no_choice_without_one_that_ran_under_two_numbers():
    graph = chain_graph([8, 8, 8])
    assert chosen(graph, {}) is chosen(graph, {0: {1: 100.0}, 1: {2: 50.0}}) is None
    assert thread_units(graph) == (0, 1)
    assert 6 <= len(thread_units(chain_graph([8 << i for i in range(40)]))) <= 9


PHONES = "npu-phone gpu-phone dsp-phone slow-nnapi-phone".split()


def tiny(folder: Path, side: int = 64) -> np_.Model:
    return np_.load(trace(TinyNet(), folder / "tiny.pt"), inputs=[f"1x3x{side}x{side}"])


def profiled(
    model: np_.Model, table: Path, threads: int | str = "auto", phone: str = "sim:npu-phone", **more
) -> np_.Costs:
    conditions = np_.ConditionOptions(threads=threads)
    return np_.profile(model, phone, costs=table, conditions=conditions, **more)


def test_the_choice_is_kept_in_table_costs_and_bundle(tmp_path):
    model, table = tiny(tmp_path), tmp_path / "costs.sqlite"
    costs = np_.profile(model, "sim:npu-phone", costs=table)
    trial = costs.thread_trial
    assert list(trial.ns) == [1, 2, 4, 8]
    assert costs.conditions.threads == trial.threads == 4 and trial.n_measured > 0
    assert not trial.one_thread and CPU_ALONE.key not in costs.targets, "waking takes nothing"
    again = np_.profile(model, "sim:npu-phone", costs=table)
    assert again.thread_trial.n_measured == again.outcome.n_measured == 0
    read = np_.read_costs(model, table)
    assert read.conditions == costs.conditions and read.thread_trial.ns == trial.ns
    assert np_.partition(model, again, verify=False).bundle.conditions.threads == trial.threads
    with CostStore(table) as store:
        tried = store.select(Selection(kinds=(Kind.THREADS,)))
        units = store.select(Selection(kinds=(Kind.UNIT,), targets=("cpu",)))
    assert len(tried) == trial.n_measured == 4 * trial.n_units + N_CALLS
    own = {each.samples_ns for each in units}
    shared = [each for each in tried if each.threads == 4 and each.samples_ns in own]
    assert trial.n_kept == trial.n_units + 1, "measured once for trial and profile"
    assert len(shared) == trial.n_kept, "the shortest call is the profile's, too"
    with pytest.raises(CostError, match="were never measured"):
        np_.read_costs(model, table, conditions=np_.ConditionOptions(cpus="all"))


def test_without_a_trial_the_number_is_that_of_the_rows(tmp_path):
    model, table = tiny(tmp_path, 16), tmp_path / "costs.sqlite"
    on_npu = np_.MeasureOptions(accelerators=["sim-npu"], refine=False)
    profiled(model, table, 2, options=on_npu)
    read = np_.read_costs(model, table)
    assert read.conditions.threads == 2 and read.thread_trial is None
    assert np_.calibrate(table).description["threads"] == 2
    profiled(model, table, 1, options=on_npu)
    with pytest.raises(CostError, match="measured with 1 and 2 threads"):
        np_.read_costs(model, table)
    one = np_.ConditionOptions(threads=1)
    assert np_.read_costs(model, table, conditions=one).conditions == one.conditions


def test_ctrl_c_in_a_trial_keeps_what_it_measured(tmp_path):
    model, table = tiny(tmp_path, 16), tmp_path / "costs.sqlite"
    with pytest.raises(Interrupted) as raised:
        profiled(model, table, progress=interrupt_at(3))
    assert raised.value.outcome.interrupted and raised.value.outcome.n_measured == 3
    trial = profiled(model, table).thread_trial
    assert trial.n_measured == 4 * trial.n_units + N_CALLS - 3


class TwoCores(ScriptedClient):
    """Two threads halve what one takes; until the whole model ran once with two, something else
    has one of the cores, while it runs."""

    def __init__(self) -> None:
        super().__init__(replace(info(), simulated=False, cpu_max_khz=(None, None)))
        self.ran: list[tuple[int, int]] = []
        """(operations, threads) of each action."""

    def run(self, request: Request) -> Generator[Event, None, None]:
        actions = {action.id: action for action in read_actions(request.content)}
        for event in super().run(request):
            if not isinstance(event, ActionResult):
                yield event
                continue
            n, threads = actions[event.action].n_operations, 1 + event.action % 2
            self.ran.append((n, threads))
            disturbed = threads == 2 and n > 1 and self.ran.count((n, 2)) == 1
            ns = scripted.CPU_OPERATION_NS * n * (3 if disturbed else 1) // threads
            timing = replace(event.segments[0], samples_ns=(ns,) * 3)
            yield replace(event, segments=(timing,), total_ns=(ns,) * 3, first_ns=ns)


def test_a_core_taken_while_the_whole_model_ran(tmp_path, store):
    client, units = TwoCores(), tiny(tmp_path).unit_cache
    trial = run_trial(units, client, store, ProfileOptions())
    assert trial.whole and trial.threads == 2
    n_all = max(n for n, _ in client.ran)
    assert client.ran.count((n_all, 2)) == 2, "once more after units and model disagreed"
    assert trial.ns[1] == pytest.approx(2 * trial.ns[2])
    assert trial.n_units == len(thread_units(units.units))
    again = run_trial(units, client, store, ProfileOptions())
    assert again.n_measured == 0 and again.ns == trial.ns


@pytest.mark.slow
def test_a_trial_on_this_machine(tmp_path, store):
    units = tiny(tmp_path).unit_cache
    with open_client("local") as client:
        counts = thread_counts(client.info())
        trial = run_trial(units, client, store, ProfileOptions())
        if len(counts) == 1:
            assert trial is None
            return
        assert trial.threads in counts and tuple(trial.ns) == counts
        n_calls = N_CALLS if trial.threads > 1 else 0
        n_runs = len(counts) * (1 if trial.n_units == 1 else trial.n_units + 1)
        assert trial.whole and trial.n_measured == len(counts) + n_runs + n_calls
        assert trial.ns[trial.threads] <= 1.01 * min(trial.ns.values())
        measured = store.select(Selection(kinds=(Kind.THREADS,)))
        ran = {(row.clock, row.threads) for row in measured}
        assert ran == {("monotonic", n) for n in counts}
        again = run_trial(units, client, store, ProfileOptions())
        assert again.n_measured == 0 and again.ns == trial.ns


@pytest.mark.slow
@pytest.mark.parametrize("phone", again_but(PHONES, PHONES[0], PHONES[-1], why="another phone"))
def test_no_fixed_number_has_a_faster_plan(phone, tmp_path):
    model = tiny(tmp_path, 96)

    def plan_ns(threads):
        costs = profiled(model, tmp_path / f"{threads}.sqlite", threads, f"sim:{phone}")
        if (trial := costs.thread_trial) is not None:
            beside = trial.n_measured - trial.n_kept
            assert beside <= 0.1 * (beside + costs.outcome.n_measured)
        return costs.outcome.plan.predicted_ns

    assert plan_ns("auto") <= 1.01 * min(plan_ns(n) for n in (1, 2, 4, 8))


def gated(x, first, **others):
    """Convolutions that the NPU runs, and between them activations that it refuses."""
    x = first(x)
    for conv in others.values():
        x = conv(x * torch.sigmoid(x.mean((2, 3), keepdim=True)))
    return x


@pytest.mark.slow
def test_short_segments_get_one_thread_where_waking_takes_long(tmp_path):
    others = {f"conv{i}": nn.Conv2d(128, 128, 3, 1, 1) for i in range(3)}
    net = Function(gated, first=nn.Conv2d(3, 128, 3, 4, 1), **others)
    model = np_.load(trace(net, tmp_path / "gated.pt", (1, 3, 96, 96)), inputs=["1x3x96x96"])
    description = json.loads(phone_file("npu-phone").read_text())
    description["cpu"]["thread_wake"] = {"value": 60, "unit": "us", "origin": "assumed: a test"}
    waking = tmp_path / "waking.json"
    waking.write_text(json.dumps(description))

    def planned(threads):
        costs = profiled(model, tmp_path / f"{threads}.sqlite", threads, f"sim:{waking}")
        return np_.partition(model, costs, verify=False)

    auto, fixed = planned("auto"), planned(4)
    trial = auto.costs.thread_trial
    assert trial.threads == 4 and trial.one_thread
    assert trial.call_ns[4] - trial.call_ns[1] == pytest.approx(60_000, rel=0.05)
    targets = [segment.target for segment in auto.plan.segments]
    assert targets.count(CPU_ALONE) >= 2 and CPU in targets, "a long segment keeps four"
    assert CPU_ALONE not in [segment.target for segment in fixed.plan.segments]
    gain = fixed.plan.predicted_ns - auto.plan.predicted_ns
    assert gain == pytest.approx(60_000 * targets.count(CPU_ALONE), rel=0.1)
    whole, *_ = np_.run(auto).run.runs
    assert whole.median_ns == pytest.approx(auto.plan.predicted_ns, rel=0.01)
    table, four = tmp_path / "auto.sqlite", np_.ConditionOptions(threads=4)
    read = np_.read_costs(model, table)
    assert np_.partition(model, read, verify=False).plan.segments == auto.plan.segments
    stated = np_.read_costs(model, table, conditions=four)
    assert CPU_ALONE.key in read.targets and CPU_ALONE.key not in stated.targets
