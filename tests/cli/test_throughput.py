"""Several plans in a bundle: for frames per second, and ``fleet``, for several phones."""

import itertools
from dataclasses import replace

import pytest
import torch
from torch import nn

import nnapi_prof as np_
from nnapi_prof.bundle.plan_set import FramePlan, FrameSchedule, PlanChoice
from nnapi_prof.bundle.storage import read_bundle
from nnapi_prof.device.find import open_device
from nnapi_prof.device.protocol import FrameSample, Outcome
from nnapi_prof.errors import SerializationError, UsageError
from nnapi_prof.execution import RunOptions
from nnapi_prof.execution.frames import (
    all_cores,
    choose_way,
    conditions_of,
    fastest,
    frame_notes,
    time_frames,
    ways_of,
)
from nnapi_prof.execution.report import FrameScheduleRun, RunReport
from nnapi_prof.graph.plan import HOST
from tests.cli.common import INPUT, SIM, Profiled, call, hurry, trace


def known(profiled: Profiled) -> np_.Costs:
    model = np_.load(profiled.model, inputs=[INPUT])
    return np_.read_costs(model, str(profiled.costs), "simulated npu*")


@pytest.fixture(scope="module")
def planned(_profiled: Profiled) -> np_.ModelPlan:
    costs = known(_profiled)
    contention = {("cpu", "sim-npu"): 1.2, ("sim-npu", "cpu"): 1.01}
    objective = np_.Throughput(contention=contention, frames_in_flight=6)
    return np_.partition(costs.model, costs, objective, device=SIM[1], verify=True)


def test_a_bundle_of_frames_and_its_run(cli, profiled, tmp_path):
    folder = tmp_path / "frames.nnprof"
    frames = ("--objective", "throughput", "--contention", 1.05, "--frames-in-flight", 4)
    document = cli.document("partition", *profiled.named, *frames, "-o", folder, profiled.model)
    predicted, ways = document["throughput"], document["frames"]["ways"]
    contention = predicted["contention"]
    assert contention["basis"] == "given"
    assert {pair["factor"]["value"] for pair in contention["pairs"]} == {1.05}
    rates = {row["how"]: row["frames_per_second"] for row in predicted["baselines"]}
    least, most = rates["best single device"] * (1 - 1e-9), predicted["most_per_second"]
    assert least <= predicted["frames_per_second"] <= most * (1 + 1e-9)
    assert predicted["proof"]["objective"] == "time a frame in ms"
    assert predicted["lanes"][0]["name"] == "cpu"
    assert [row["frames_in_flight"] for row in predicted["curve"]][:3] == [1, 2, 3]
    assert ways[0]["in_flight"] <= 4
    assert sum(plan["share"] for plan in ways[0]["plans"]) == pytest.approx(1.0)

    ran = cli.document("run", *SIM, folder, "--frames", 30)["frames"]
    assert [row["how"] for row in ran] == [way["how"] for way in ways]
    first = ran[0]["frames_per_second"]
    assert first["predicted"] == pytest.approx(ways[0]["frames_per_second"])
    for row in ran:
        assert row["frames_per_second"]["measured"] <= first["measured"] * 1.01
        assert (row["frames"], row["same"]) == (30, 30) and row["latency_95_ns"] > 0
        assert row["differing"] == row["failed"] == 0 and row["error"] is None
    assert read_bundle(folder).frames is not None


def test_frames_per_second_for_people(cli, profiled, tmp_path):
    folder, file = tmp_path / "frames.nnprof", tmp_path / "net.nnprt"
    frames = (*profiled.named, "--objective", "throughput")
    out = cli("partition", *frames, "-o", folder, profiled.model).out
    assert "slow each other down 1.1 times is assumed" in " ".join(out.split())
    assert "Frames per second, predicted, simulated" in out and "% of frames" in out
    assert "best single device" in out and "measured one at a time" in out
    out = cli("run", *SIM, folder, "--frames", 20, "--no-baselines").out
    assert "gave, bit by bit, what their plan gives alone" in out
    cli.ok("convert", folder, "--format", "runtime", "-o", file)
    assert file.exists()
    asked = (*frames, "--contention", 1.05, "--max-latency-ms", 0.001, profiled.model)
    assert "one alone takes" in cli.error("partition", *asked, code=1)


def test_from_python(planned):
    predicted = planned.throughput
    assert predicted is not None and planned.frames is not None
    assert predicted.frames_per_second >= predicted.baselines["best single device"] * (1 - 1e-9)
    assert predicted.curve().frames_in_flight.tolist()[:3] == [1, 2, 3]
    assert "frames/s by" in repr(predicted) and "no plans do more than" in predicted._repr_html_()
    result = np_.run(planned, frames=24)
    frame, first = result.frames(), result.run.frames[0]
    assert frame.way.tolist() == [way.name for way in planned.frames.ways]
    assert (frame.same == 24).all() and frame.against_plan[0] == 1.0
    assert {span.lane for span in first.spans} == set(first.lanes) <= {"cpu", "sim-npu", "sim-gpu"}
    assert RunReport.from_json(result.run.to_json()) == result.run
    # One lane does one thing after the other.
    for lane in first.lanes:
        times = sorted((s.begin_ns, s.end_ns) for s in first.spans if s.lane == lane)
        assert all(a[1] <= b[0] for a, b in itertools.pairwise(times))


def test_frames_are_of_latencies(planned):
    weighted = planned.costs.adjusted(weight={"*": 2.0})
    with pytest.raises(UsageError, match="frames per second are of latencies"):
        np_.partition(planned.model, weighted, np_.Throughput())


def test_any_bundle_runs_frames_on_this_machine_too(profiled, monkeypatch):
    hurry(monkeypatch)
    costs = known(profiled)
    plan = np_.partition(costs.model, costs)
    result = np_.run(plan, SIM[1], frames=12)
    ways = result.frames().way.tolist()
    assert ways[0] == "dp" and "largest-supported nnapi:sim-npu/fast" in ways
    assert (result.frames().same == 12).all()
    only_cpu = tuple(each for each in plan.plans if each.name == "all-cpu")
    result = np_.run(replace(plan, plans=only_cpu), "local", frames=16, runs=3)
    assert (result.frames().same == 16).all() and not result.run.frames[0].error


def run_of(way: FrameSchedule, ns: int, n: int = 20) -> FrameScheduleRun:
    samples = (
        FrameSample(0, Outcome.SAME, begin_ns=ns * max(0, i - 1), end_ns=ns * (i + 1))
        for i in range(n)
    )
    return FrameScheduleRun(way, tuple(samples), (), (n,))


def test_the_fastest_as_it_ran_is_taken(planned):
    first, second = PlanChoice(0, share=0.7), PlanChoice(1, share=0.3)
    ways = _, turns, alone = (
        FrameSchedule("mixture", (first, second), 8),
        FrameSchedule("in turn", (PlanChoice(1, share=0.5), PlanChoice(2, share=0.5)), 8),
        FrameSchedule("alone", (PlanChoice(1),), 1),
    )
    frames = FramePlan(ways)
    bundle = replace(planned.bundle, frames=frames, plan_set=frames.plan_set)
    runs = [run_of(way, 1_000_000 + 100_000 * n) for n, way in enumerate(ways)]
    assert runs[0].frames_per_second == pytest.approx(1000)
    assert fastest(runs) == 0 and choose_way(bundle, frames, runs) == bundle
    runs[0] = replace(runs[0], error="OP_FAILED")
    chosen = choose_way(bundle, frames, runs)
    assert chosen.frames.ways[0].name == turns.name
    assert "failed (OP_FAILED)" in chosen.notes[-1]
    assert len(chosen.plan_set.choices) == 2
    # Plans may have changed places, the ways still take the same ones.
    by_name = {each.name: each for each in chosen.frames.ways}
    for way in ways:
        for before, after in zip(way.choices, by_name[way.name].choices, strict=True):
            assert bundle.plans[before.plan] == chosen.plans[after.plan]
    assert chosen.frames.ways[0].choices[0].plan == 0
    # As fast but for noise: fewer plans.
    runs = [run_of(way, 1_000_000 + 5_000 * (way is alone)) for way in ways]
    assert ways[fastest(runs)] is alone


def test_frames_of_plans_with_parts_on_the_host(planned):
    device = planned.bundle.plans[1]
    on_host = (replace(segment, target=HOST) for segment in device.segments)
    host = replace(device, segments=tuple(on_host))
    alone = replace(planned.bundle, plans=(host,), frames=None, plan_set=None)
    with pytest.raises(UsageError, match="every plan of this bundle has segments that only eager"):
        ways_of(alone)
    assert all_cores(alone, 64) is None
    ways = [FrameSchedule(name, (PlanChoice(n),), 1) for n, name in enumerate(("host", "device"))]
    inputs = planned.model.program.example_inputs
    both, told = replace(alone, plans=(host, device)), []
    with open_device(SIM[1]) as opened:
        client, options = opened.client, RunOptions()
        runs = time_frames(
            both, FramePlan(tuple(ways)), inputs, client, options, 4, lambda *s: told.append(s)
        )
    assert [run.error for run in runs] == ["segments that only eager PyTorch runs", None]
    assert [run.outcomes[Outcome.SAME] for run in runs] == [0, 4] and told == [("device", 1, 2)]


def test_what_frames_at_once_did_on_a_phone(planned):
    """Their rates replace what was predicted from costs measured one at a time."""
    ways = [FrameSchedule(str(n), (PlanChoice(n),), 1, 50.0 + n) for n in range(2)]
    frames, bundle = FramePlan(tuple(ways)), replace(planned.bundle, simulated=False)
    runs = [run_of(ways[0], 2_000_000), run_of(ways[1], 1_000_000)]
    chosen = choose_way(bundle, frames, runs)
    assert chosen.notes[-2:] == (
        "run whole, 0 did 500 frames/s, 1 1000 frames/s: frames run as 1",
        "predicted by a run of frames at once: 1000 frames/s, from costs measured one at a time 51",
    )
    assert [way.predicted_per_second for way in chosen.frames.ways] == pytest.approx([1000, 500])
    outcomes = (Outcome.SAME, Outcome.DIFFERS, Outcome.FAILED)
    samples = tuple(FrameSample(0, outcome, 0, 1) for outcome in outcomes)
    assert frame_notes([runs[0], replace(runs[1], frames=samples, error="OP_FAILED")]) == [
        "1: 1 of 3 frames at once gave other bits than their plan gives alone",
        "1: 1 of 3 frames failed, the first with OP_FAILED",
    ]


def test_every_core_is_a_rule_of_its_own(planned):
    bundle, threads = planned.bundle, planned.bundle.conditions.threads
    rule = all_cores(bundle, threads + 2)
    assert rule.threads == threads + 2 and all_cores(bundle, threads) is None
    frames = FramePlan((*planned.frames.ways, rule))
    runs = [run_of(way, 1_000_000 if way is rule else 2_000_000) for way in frames.ways]
    chosen = choose_way(bundle, frames, runs)
    assert chosen.conditions.threads == rule.threads
    assert {segment.target.key for segment in chosen.plan.segments} == {"cpu"}
    assert chosen.plan_set is None
    # The others keep the threads that they had, and their cores.
    for way in chosen.frames.ways[1:]:
        assert conditions_of(way, chosen.conditions) == bundle.conditions
    assert FramePlan.from_json(chosen.frames.to_json(), len(bundle.plans)) == chosen.frames


def test_what_a_stranger_wrote(planned):
    data, n = planned.frames.to_json(), len(planned.plans)
    assert FramePlan.from_json(data, n) == planned.frames
    first, *rest = data["ways"]
    for change in ({"in_flight": 64}, {"in_flight": 1.5}, {"plans": [[n, 1.0]]}, {"threads": 0},
                   {"plans": [[0, 0.5]]}, {"predicted_per_second": "many"}):  # fmt: skip
        with pytest.raises(SerializationError):
            FramePlan.from_json(data | {"ways": [first | change, *rest]}, n)
    with pytest.raises(SerializationError):
        FramePlan.from_json({"ways": []}, n)


WIDE = ("--input", "1x16x48x48")
THREADS = {"npu": 4, "gpu": 2}


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Profiled:
    """Convolutions that an NPU is worth asking for, around an operation that it lacks."""
    torch.manual_seed(0)
    folder = tmp_path_factory.mktemp("fleet")
    first = (nn.Conv2d(16, 96, 3, padding=1), nn.ReLU())
    last = (nn.Conv2d(96, 96, 3, padding=1), nn.Conv2d(96, 8, 1))
    wide = nn.Sequential(*first, nn.Sigmoid(), *last)
    model = trace(wide, folder / "wide.pt", (1, 16, 48, 48))
    costs = ("--preference", "fast", "--costs", folder / "costs.sqlite")
    for phone in THREADS:
        call("profile", "--device", f"sim:{phone}-phone", *WIDE, *costs, model)
    return Profiled(model, folder / "costs.sqlite", folder / "wide.nnprof")


def of_fleet(measured: Profiled) -> tuple[object, ...]:
    return (*WIDE, "--costs", measured.costs, "-o", measured.bundle, measured.model)


def test_each_phone_runs_its_own_plan(cli, measured, tmp_path):
    document = cli.document("fleet", *of_fleet(measured), "-k", 2)
    assert document["simulated"] and not document["estimated"]
    assert document["mean_regret"] == pytest.approx(0, abs=1e-9)
    assert document["mean_half"] > 0
    assert [row["k"] for row in document["curve"]] == [1, 2]
    assert document["curve"][0]["mean"] >= document["least_mean_of_one"] - 1e-9
    by_name = {row["name"]: row for row in document["phones"]}
    assert {row["plan"] for row in by_name.values()} == {0, 1}
    for phone, threads in THREADS.items():
        row = by_name[f"simulated {phone}-phone"]
        assert row["predicted_ns"] == row["least_ns"] < row["all_cpu_ns"]
        done = cli("run", "--device", f"sim:{phone}-phone", "--json", measured.bundle)
        run, name = done.document("run"), document["plans"][row["plan"]]["name"]
        assert f"this phone's plan is {name} (by its build)" in done.err
        assert run["plans"][0]["plan"]["name"] == name
        assert run["conditions"] == f"--threads {threads}"
        assert run["plans"][0]["median_ns"] == pytest.approx(row["predicted_ns"], rel=0.1)
        assert "predictions are for that device" not in " ".join(run["notes"])
        page = tmp_path / f"{phone}.md"
        cli.ok("report", "--costs", measured.costs, "-o", page, measured.bundle)
        assert f"simulated {phone}-phone" in page.read_text()
    done = cli.ok("run", "--device", "sim:slow-nnapi-phone", measured.bundle)
    assert "this phone's plan is all-cpu (it has no name that the bundle knows)" in done.err


def test_words_for_people_and_threads_that_nobody_measured(cli, measured):
    weighed = ("-k", 1, "--objective", "worst", "--weight", "*gpu*=2")
    out = cli.ok("fleet", *of_fleet(measured), *weighed).out
    assert "Regret by the number of plans" in out and "ms, simulated" in out
    assert len(read_bundle(measured.bundle).plans) in (1, 2)  # the plan, and the CPU for others
    result = cli("fleet", *of_fleet(measured), "--threads", "3")
    assert "measured on none of 2 phones" in result.error


def test_a_fleet_from_python(measured, tmp_path):
    model = np_.load(measured.model, inputs=[WIDE[1]])
    costs = {
        "flagship": np_.read_costs(model, str(measured.costs), "*npu-phone"),
        "described": np_.estimate(model, "gpu-phone"),
        "table": np_.estimate(model, "pixel4"),
    }
    fleet = np_.fleet(model, costs, k=2, weights={"flagship": 3, "described": 1, "table": 1})
    assert fleet.frame().phone.tolist() == list(costs)
    assert fleet.frame().weight.tolist() == [0.6, 0.2, 0.2]
    assert fleet.curve()["mean"].tolist()[1] == fleet.mean_regret <= fleet.curve()["mean"][0]
    assert fleet.estimated and "plans for 3 phones" in repr(fleet)
    assert "Regret by the number of plans" in fleet._repr_html_()
    with pytest.raises(UsageError, match="has only latencies"):
        fleet.save(tmp_path / "few.nnprof")
    of_phones = np_.fleet(model, {name: costs[name] for name in ("flagship", "described")})
    bundle = read_bundle(of_phones.save(tmp_path / "few.nnprof"))
    assert bundle.plan_set is not None and bundle.plan_set == of_phones.bundle.plan_set
    for words, arguments in {
        "cost": {"costs": ["pixel4"]},
        "least": {"costs": []},
        "weights are 3 numbers": {"costs": costs, "weights": [1.0]},
        "a weight is for 'x'": {"costs": costs, "weights": {"x": 1.0}},
        "different conditions": {
            "costs": [*costs.values(), np_.estimate(model, "npu-phone", relaxed=True)]
        },
        "objective": {"costs": costs, "objective": "best"},
    }.items():
        with pytest.raises(UsageError, match=words):
            np_.fleet(model, **arguments)
