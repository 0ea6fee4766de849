"""Frames at once: plans that take turns, each processor on a frame of its own."""

import itertools
import json

import pytest

from tests.agent import packer
from tests.agent.packer import CPU, FRAMES, NNAPI, RANDOM, SEGMENT, Frames, Segment, tensor, unary
from tests.conftest import PHONES

REFERENCE, GPU = "nnapi-reference", "sim-gpu"
WIDTH = 1 << 16
N = 40
FAULT = "fail:execute:RELU:1:5/7@sim-gpu"


def request_of(accelerator, *, share=0.5, in_flight=4, flags=0, **options):
    """Half of the frames by a relu on the CPU, half by one there and one on an accelerator: both
    give the relu."""
    request = packer.Request()
    model = request.model(unary(packer.RELU, WIDTH))
    tensors = [tensor(RANDOM, WIDTH, value=3), tensor(SEGMENT, WIDTH, keep=True)]
    tensors.append(tensor(SEGMENT, WIDTH))
    segments = [
        Segment(CPU, model, [0], [1]),
        Segment(CPU, model, [0], [2]),
        Segment(NNAPI, model, [2], [1], accelerator),
    ]
    frames = Frames(in_flight, 3, ((1, share), (2, 1 - share)))
    timing = {"runs": (N, N), "rounds": 2, **options}
    request.action(tensors, segments, flags=FRAMES | flags, frames=frames, **timing)
    return request


@pytest.fixture
def phone(agent):
    """gpu-phone, whose processors slow each other down by nothing but what a test writes."""
    description = json.loads((PHONES / "gpu-phone.json").read_text())
    description["noise"]["spread"]["value"] = 0
    description["accelerators"][0]["driver_share"]["value"] = 0
    del description["memory_bandwidth"]
    description.pop("thermal", None)
    return agent.simulate(description)


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


@pytest.mark.parametrize("flags", [0, packer.BURST])
def test_in_real_time(agent, flags):
    (result,) = agent.run(request_of(REFERENCE, flags=flags)).results
    assert result["clock"] == "monotonic"
    frames = frames_of(result)
    assert frames["outcome"] == ["same"] * N and frames["failure"] is None
    assert 0.4 * N <= sum(frames["plan"]) <= 0.6 * N


def test_processors_overlap_in_simulated_time_and_always_alike(agent, phone):
    first, second = (agent.run(request_of(GPU)).results[0] for _ in range(2))
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


def test_contention_is_felt(agent, phone):
    def took() -> int:
        frames = frames_of(agent.run(request_of(GPU)).results[0])
        return max(frames["end_ns"]) - min(frames["begin_ns"])

    before = took()
    description = json.loads(phone.read_text())
    description["contention"] = {"value": 1.5, "unit": "ratio", "origin": "a test"}
    agent.simulate(description)
    assert 1.01 * before < took() < 1.5 * before


def test_branches_of_one_frame_overlap_where_it_is_said(agent, phone):
    """Two segments of which none reads what the other writes, and one that reads what both do."""

    def frames(overlaps, faults=""):
        agent.env["NNAPI_EMULATOR_FAULTS"] = faults
        request, both = packer.Request(), packer.Model()
        relu = request.model(unary(packer.RELU, WIDTH))
        ends = [both.tensor(WIDTH), both.tensor(WIDTH)]
        added = both.add(packer.ADD, [*ends, both.scalar(0)], WIDTH)
        segments = [
            Segment(CPU, relu, [0], [1]),
            Segment(NNAPI, relu, [0], [2], GPU),
            Segment(CPU, request.model(both.pack(ends, [added])), [1, 2], [3]),
        ]
        tensors = [tensor(RANDOM, WIDTH, value=3), *[tensor(SEGMENT, WIDTH)] * 2]
        tensors.append(tensor(SEGMENT, WIDTH, keep=True))
        plans = Frames(1, 2, ((3, 1.0),), overlaps)
        request.action(tensors, segments, flags=FRAMES, frames=plans, runs=(N, N))
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


def test_one_at_a_time(agent, phone):
    frames = frames_of(agent.run(request_of(GPU, in_flight=1)).results[0])
    assert all(a <= b for a, b in zip(frames["end_ns"], frames["begin_ns"][1:], strict=False))


def test_a_lane_that_fails_ends_its_frame_alone(agent, phone):
    agent.env["NNAPI_EMULATOR_FAULTS"] = FAULT
    (result,) = agent.run(request_of(GPU)).results
    assert result["status"] == "ok"
    outcomes = result["frames"]["outcome"]
    assert 1 <= outcomes.count("failed") <= 5
    assert outcomes.count("same") == N - outcomes.count("failed")
    assert "RELU" in result["frames"]["failure"] or "OP_FAILED" in result["frames"]["failure"]


def test_a_plan_that_is_refused(agent):
    (result,) = agent.run(request_of("no-such-accelerator", timeout_ms=1000)).results
    assert result["status"] in ("failed", "refused") and result["stage"] == "compile"
    assert "no-such-accelerator" in result["message"] and result["frames"]["plan"] == []


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"in_flight": 64}, "64 frames in flight and 3 variants, want 1 to 63 and 1 to 64"),
        ({"share": 1.0}, "MIXT: "),
        ({"flags": packer.UNTIMED, "runs": (1, 1), "rounds": 1}, "one of bits 0 to 2 at most"),
    ],
)
def test_refused(agent, options, reason):
    answer = agent.run(request_of(REFERENCE, **options))
    assert answer.exit_code == 1 and reason in answer.error


@pytest.mark.parametrize(
    "plans, reason",
    [(((1, 0.5), (1, 0.5)), "PLAN: plan 1: it is cut off"), (((1, 0.5),), "MIXT: ")],
)
def test_plans_that_do_not_fit(agent, plans, reason):
    request = packer.relus(CPU, flags=FRAMES, frames=Frames(2, 1, plans))
    assert reason in agent.run(request).error
