"""Segments side by side and frames at once: each processor has a lane of its own."""

import itertools
import os

import numpy as np
import pytest

from tests.agent import packer
from tests.agent.packer import CPU, NNAPI, RANDOM, SEGMENT, Request, Segment, tensor
from tests.emulator.phones.descriptions import quiet

REFERENCE, NPU, GPU = "nnapi-reference", "sim-npu", "sim-gpu"
SHARE = 0.3
each_way = pytest.mark.parametrize("flags", [0, packer.BURST])


def sharing(name, share):
    """A phone without noise and heat; its first driver takes a share of the CPU."""
    description = quiet(name)
    description["accelerators"][0]["driver_share"]["value"] = share
    description.pop("thermal", None)
    return description


# ---- segments side by side -----------------------------------------------------------------------

WIDTH = 4096
N_RUNS = 6


def add(request, *engines, flags=0, **options):
    """A segment on each engine: the CPU, or an accelerator's name, or None for NNAPI's choice."""
    tensors, segments = [], []
    model = request.model(packer.unary(packer.RELU, WIDTH))
    for index, name in enumerate(engines):
        tensors += [tensor(RANDOM, WIDTH, value=index), tensor(SEGMENT, WIDTH, keep=True)]
        engine, accelerator = (CPU, None) if name == CPU else (NNAPI, name)
        segments.append(Segment(engine, model, [2 * index], [2 * index + 1], accelerator))
    timing = {"runs": (N_RUNS, N_RUNS), "rounds": 2, **options}
    request.action(tensors, segments, flags=packer.CORUN | flags, **timing)


def side_by_side(*engines, **options):
    request = Request()
    add(request, *engines, **options)
    return request


def by_turns(*engines, **options):
    """Frames by turns: one on the CPU, one on an accelerator."""
    request = Request()
    model = request.model(packer.unary(packer.RELU, WIDTH))
    tensors = [tensor(RANDOM, WIDTH), tensor(SEGMENT, WIDTH, keep=True)]
    segments = [Segment(CPU, model, [0], [1]), Segment(NNAPI, model, [0], [1], engines[1])]
    frames = packer.Frames(4, 1, ((1, 0.5), (1, 0.5)))
    request.action(tensors, segments, flags=packer.FRAMES, frames=frames, runs=(20, 20), **options)
    return request


@pytest.fixture
def phone(agent):
    """The agent on a phone whose NPU's driver takes much of the CPU."""
    agent.simulate(sharing("npu-phone", SHARE))
    return agent


def check(result, n_segments):
    assert result["status"] == "ok", result
    assert [each["runs"] for each in result["rounds"]] == [N_RUNS // 2] * 2
    assert len(result["total_ns"]) == N_RUNS
    assert len(result["segments"]) == n_segments
    for segment in result["segments"]:
        for key in ("samples_ns", "alone_ns", "cpu_ns"):
            assert len(segment[key]) == N_RUNS, key
        assert min(segment["samples_ns"]) > 0 < min(segment["alone_ns"])
    columns = [segment["samples_ns"] for segment in result["segments"]]
    assert result["total_ns"] == [max(runs) for runs in zip(*columns, strict=True)]


@each_way
def test_side_by_side_in_real_time(agent, flags):
    answer = agent.run(side_by_side(CPU, REFERENCE, flags=flags))
    (result,) = answer.results
    check(result, 2)
    assert result["clock"] == "monotonic"
    for index in range(2):
        assert np.array_equal(answer.output(result, index, WIDTH), packer.positive(index, WIDTH))
    assert sum(sum(segment["cpu_ns"]) for segment in result["segments"]) > 0


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="one CPU cannot be shared out")
@pytest.mark.parametrize("make", [side_by_side, by_turns], ids=["corun", "frames"])
def test_each_lane_has_cpus_of_its_own(faulty, make, tmp_path):
    """Where the CPU's threads may use all big cores, each lane gets some of them."""
    usable = sum(1 << cpu for cpu in os.sched_getaffinity(0))
    first, other = usable & -usable, usable & (usable - 1)

    def masks(log, mask, threads=1):
        """Of each computation: what its thread keeps to, and what the other threads do."""
        faulty.env["NP_LOG"] = str(tmp_path / log)
        (result,) = faulty.run(make(CPU, REFERENCE, mask=mask, threads=threads)).results
        assert result["status"] == "ok", result
        lines = [line.split()[1:] for line in (tmp_path / log).read_text().splitlines()]
        return [(int(own, 16), {int(mask, 16) for mask in others}) for own, *others in lines]

    apart = masks("apart", usable)
    assert all(own == other for own, _ in apart[-4:])
    # A lane goes on past its own runs, and may begin one more when the other has ended.
    assert sum(first in others for _, others in apart) >= N_RUNS
    assert masks("all", packer.ALL_CPUS)[-4:] == [(usable, {usable})] * 4
    assert masks("no rest", usable, threads=usable.bit_count())[-4:] == [(usable, {usable})] * 4


def test_one_slows_the_other_down(phone):
    (result,) = phone.run(side_by_side(CPU, NPU)).results
    check(result, 2)
    cpu, npu = result["segments"]
    assert result["clock"] == "simulated"
    assert len(set(cpu["alone_ns"])) <= 2 and len(set(npu["alone_ns"])) <= 2  # rounding
    for alone, corun in zip(cpu["alone_ns"], cpu["samples_ns"], strict=True):
        assert corun == pytest.approx(alone / (1 - SHARE), abs=3)
    assert npu["samples_ns"] == pytest.approx(npu["alone_ns"], abs=3)
    # What the simulated driver takes of the CPU, and the CPU engine itself.
    for alone, cpu_ns in zip(npu["alone_ns"], npu["cpu_ns"], strict=True):
        assert cpu_ns == pytest.approx(SHARE * alone, abs=3)
    assert cpu["cpu_ns"] == cpu["alone_ns"]
    assert not npu["hardware_ns"] and not cpu["hardware_ns"]  # nobody asked the driver


def test_the_same_again(phone):
    first, second = (phone.run(side_by_side(CPU, NPU, GPU)).results[0] for _ in range(2))
    check(first, 3)
    for key in ("segments", "total_ns", "rounds"):
        assert first[key] == second[key]


def test_accelerators_alone_and_beside_others_in_a_group(phone):
    request = side_by_side(NPU, GPU, group=1)
    add(request, CPU, NPU, group=1, id=5)
    alone, beside = phone.run(request).results
    check(alone, 2)
    check(beside, 2)


@pytest.mark.parametrize("run", [1, 2, 4, 9, 14])
def test_a_failure_ends_it(phone, run):
    phone.env["NNAPI_EMULATOR_FAULTS"] = f"fail:execute:RELU:1:{run}@{NPU}"
    (result,) = phone.run(side_by_side(CPU, NPU)).results
    assert (result["status"], result["stage"], result["code"]) == ("failed", "execute", 5)
    assert result["message"].startswith("run of segment 1 (nnapi, sim-npu): ")
    kept = result["segments"][0]["samples_ns"]
    assert len(kept) == (0 if run <= 9 else 3)  # whole rounds


@pytest.mark.parametrize("fault", ["crash", "hang"])
def test_a_crash_or_hang_is_one_result(phone, fault):
    phone.env["NNAPI_EMULATOR_FAULTS"] = f"{fault}:execute:RELU:1:6@{NPU}"
    (result,) = phone.run(side_by_side(CPU, NPU, timeout_ms=300)).results
    expected = ("crashed", "SIGSEGV") if fault == "crash" else ("timeout", None)
    assert (result["status"], result["signal"]) == expected


def two_in_a_row():
    request = Request()
    model = request.model(packer.unary(packer.RELU, 4))
    segments = [Segment(CPU, model, [0], [1]), Segment(NNAPI, model, [1], [2], REFERENCE)]
    request.action([tensor(RANDOM, 4), *[tensor(SEGMENT, 4)] * 2], segments, flags=packer.CORUN)
    return request


# ---- frames at once ------------------------------------------------------------------------------

N_FLOATS = 1 << 16
N = 40
FAULT = "fail:execute:RELU:1:5/7@sim-gpu"


def frames_on(accelerator, *, share=0.5, in_flight=4, flags=0, **options):
    """Half of the frames by a relu on the CPU, half by one there and one on an accelerator: both
    give the relu."""
    request = Request()
    model = request.model(packer.unary(packer.RELU, N_FLOATS))
    tensors = [tensor(RANDOM, N_FLOATS, value=3), tensor(SEGMENT, N_FLOATS, keep=True)]
    tensors.append(tensor(SEGMENT, N_FLOATS))
    segments = [
        Segment(CPU, model, [0], [1]),
        Segment(CPU, model, [0], [2]),
        Segment(NNAPI, model, [2], [1], accelerator),
    ]
    frames = packer.Frames(in_flight, 3, ((1, share), (2, 1 - share)))
    timing = {"runs": (N, N), "rounds": 2, **options}
    request.action(tensors, segments, flags=packer.FRAMES | flags, frames=frames, **timing)
    return request


@pytest.fixture
def apart(agent):
    """A phone whose processors slow each other down by nothing but what a test writes."""
    description = sharing("gpu-phone", 0)
    del description["memory_bandwidth"]
    agent.simulate(description)
    return description


def frames_of(result):
    """Returns the answer on a request's frames, after checking that it fits together."""
    assert result["status"] == "ok", result
    assert [each["runs"] for each in result["rounds"]] == [N // 2] * 2
    assert result["total_ns"] == [] and all(s["samples_ns"] == [] for s in result["segments"])
    frames = result["frames"]
    assert all(len(frames[key]) == N for key in ("plan", "outcome", "begin_ns", "end_ns"))
    for segment, spans in enumerate(frames["spans"]):
        own = [n for n in range(N) if frames["plan"][n] == (segment > 0)]
        assert spans[::3] == own
        for n, begin, end in zip(own, spans[1::3], spans[2::3], strict=True):
            assert frames["begin_ns"][n] <= begin < end <= frames["end_ns"][n]
    return frames


@each_way
def test_frames_in_real_time(agent, flags):
    (result,) = agent.run(frames_on(REFERENCE, flags=flags)).results
    assert result["clock"] == "monotonic"
    frames = frames_of(result)
    assert frames["outcome"] == ["same"] * N and frames["failure"] is None
    assert 0.4 * N <= sum(frames["plan"]) <= 0.6 * N


def test_processors_overlap_in_simulated_time_and_always_alike(agent, apart):
    first, second = (agent.run(frames_on(GPU)).results[0] for _ in range(2))
    assert first["clock"] == "simulated" and first["frames"] == second["frames"]
    frames = frames_of(first)
    assert frames["outcome"] == ["same"] * N
    cpu = [*frames["spans"][0], *frames["spans"][1]]
    busy = sorted(zip(cpu[1::3], cpu[2::3], strict=True))
    # One lane never does two things at once, and the two lanes together do more than one could.
    assert all(end <= begin for (_, end), (begin, _) in itertools.pairwise(busy))
    gpu = frames["spans"][2]
    busy += zip(gpu[1::3], gpu[2::3], strict=True)
    total = sum(end - begin for begin, end in busy)
    assert total > 1.02 * (max(frames["end_ns"]) - min(frames["begin_ns"]))


def test_contention_is_felt(agent, apart):
    def took() -> int:
        frames = frames_of(agent.run(frames_on(GPU)).results[0])
        return max(frames["end_ns"]) - min(frames["begin_ns"])

    before = took()
    contention = {"value": 1.5, "unit": "ratio", "origin": "a test"}
    agent.simulate(apart | {"contention": contention})
    assert 1.01 * before < took() < 1.5 * before


def test_branches_of_one_frame_overlap_where_it_is_said(agent, apart):
    """Two segments of which none reads what the other writes, and one that reads what both do."""

    def frames(overlaps, faults=""):
        agent.env["NNAPI_EMULATOR_FAULTS"] = faults
        request, both = Request(), packer.Model()
        relu = request.model(packer.unary(packer.RELU, N_FLOATS))
        ends = [both.tensor(N_FLOATS), both.tensor(N_FLOATS)]
        added = both.add(packer.ADD, [*ends, both.scalar(0)], N_FLOATS)
        segments = [
            Segment(CPU, relu, [0], [1]),
            Segment(NNAPI, relu, [0], [2], GPU),
            Segment(CPU, request.model(both.pack(ends, [added])), [1, 2], [3]),
        ]
        tensors = [tensor(RANDOM, N_FLOATS, value=3), *[tensor(SEGMENT, N_FLOATS)] * 2]
        tensors.append(tensor(SEGMENT, N_FLOATS, keep=True))
        plans = packer.Frames(1, 2, ((3, 1.0),), overlaps)
        request.action(tensors, segments, flags=packer.FRAMES, frames=plans, runs=(N, N))
        (result,) = agent.run(request).results
        assert result["status"] == "ok", result
        return result["frames"]

    cpu, gpu, after = (
        {n: (begin, end) for n, begin, end in zip(s[::3], s[1::3], s[2::3], strict=True)}
        for s in frames(True)["spans"]
    )
    assert len(cpu) == len(gpu) == len(after) == N
    assert all(cpu[n][0] < gpu[n][1] and gpu[n][0] < cpu[n][1] for n in range(N))
    assert all(max(cpu[n][1], gpu[n][1]) <= after[n][0] for n in range(N))
    serial = frames(False)["spans"]
    assert all(a <= b for a, b in zip(serial[0][2::3], serial[1][1::3], strict=True))
    outcomes = frames(True, FAULT)["outcome"]
    n_failed = outcomes.count("failed")
    assert 1 <= n_failed < N and outcomes.count("same") == N - n_failed


def test_one_at_a_time(agent, apart):
    frames = frames_of(agent.run(frames_on(GPU, in_flight=1)).results[0])
    assert all(a <= b for a, b in zip(frames["end_ns"], frames["begin_ns"][1:], strict=False))


def test_a_lane_that_fails_ends_its_frame_alone(agent, apart):
    agent.env["NNAPI_EMULATOR_FAULTS"] = FAULT
    (result,) = agent.run(frames_on(GPU)).results
    assert result["status"] == "ok"
    outcomes = result["frames"]["outcome"]
    assert 1 <= outcomes.count("failed") <= 5
    assert outcomes.count("same") == N - outcomes.count("failed")
    assert "RELU" in result["frames"]["failure"] or "OP_FAILED" in result["frames"]["failure"]


def test_a_plan_that_is_refused(agent):
    (result,) = agent.run(frames_on("no-such-accelerator", timeout_ms=1000)).results
    assert result["status"] in ("failed", "refused") and result["stage"] == "compile"
    assert "no-such-accelerator" in result["message"] and result["frames"]["plan"] == []


# ---- rules ---------------------------------------------------------------------------------------


REFUSED = {  # what test_request.c and test_library.c do not break
    "1 segments, want 2 to 8 side by side": side_by_side(CPU),
    "segment 2: it runs side by side with segment 1": side_by_side(CPU, NPU, NPU),
    "NNAPI's own choice is not a processor": side_by_side(NPU, None),
    "segment 1: it reads tensor 1 of a segment": two_in_a_row(),
    "64 frames in flight and 3 variants, want 1 to 63": frames_on(NPU, in_flight=64),
    "MIXT: ": frames_on(NPU, share=1.0),
}


@pytest.mark.parametrize("rule", REFUSED)
def test_rules(phone, rule):
    answer = phone.run(REFUSED[rule])
    assert answer.exit_code == 1 and rule in answer.error
