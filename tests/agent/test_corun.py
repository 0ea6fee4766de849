"""Segments side by side: alone, then all at once, each on a processor of its own."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from agent_packer import (
    ALL_CPUS,
    BURST,
    CORUN,
    CPU,
    FRAMES,
    NNAPI,
    RANDOM,
    RELU,
    SEGMENT,
    UNTIMED,
    Agent,
    Request,
    pseudo_random,
    tensor,
    unary,
)

PHONE = Path(__file__).parents[2] / "device_agent/emulator/phones/npu-phone.json"
REFERENCE, NPU, GPU = "nnapi-reference", "sim-npu", "sim-gpu"
SHARE = 0.3
WIDTH = 4096
N_RUNS = 6


def request_of(*accelerators: str | None, flags: int = 0, **options: Any) -> Request:
    """A segment on the CPU and one on each accelerator, or only those where the first is None."""
    request, tensors, segments = Request(), [], []
    model = request.model(unary(RELU, WIDTH))
    named = list(accelerators[1:] if accelerators[:1] == (None,) else (CPU, *accelerators))
    for index, name in enumerate(named):
        tensors += [tensor(RANDOM, WIDTH, value=index), tensor(SEGMENT, WIDTH, keep=True)]
        engine, accelerator = (CPU, None) if name == CPU else (NNAPI, name)
        ends = [2 * index], [2 * index + 1]
        segments.append(request.segment(engine, model, *ends, accelerator))
    timing = {"runs": (N_RUNS, N_RUNS), "rounds": 2, **options}
    request.action(tensors, segments, flags=CORUN | flags, **timing)
    return request


def frames_of(accelerator: str, **options: Any) -> Request:
    """Frames by turns: one on the CPU, one on an accelerator."""
    request = Request()
    model = request.model(unary(RELU, WIDTH))
    tensors = [tensor(RANDOM, WIDTH), tensor(SEGMENT, WIDTH, keep=True)]
    segments = [
        request.segment(CPU, model, [0], [1]),
        request.segment(NNAPI, model, [0], [1], accelerator),
    ]
    frames = request.frames(4, 1, (1, 0.5), (1, 0.5))
    request.action(tensors, segments, flags=FRAMES, frames=frames, runs=(20, 20), **options)
    return request


@pytest.fixture
def phone(agent: Agent, tmp_path: Path) -> Agent:
    """The agent on npu-phone without noise, whose NPU's driver takes much of the CPU."""
    description = json.loads(PHONE.read_text())
    description["noise"]["spread"]["value"] = 0
    description["accelerators"][0]["driver_share"]["value"] = SHARE
    del description["thermal"]
    (tmp_path / "phone.json").write_text(json.dumps(description))
    agent.simulate(tmp_path / "phone.json")
    return agent


def check(result: dict[str, Any], n_segments: int, runs: int) -> None:
    assert result["status"] == "ok", result
    assert [each["runs"] for each in result["rounds"]] == [runs // 2] * 2
    assert len(result["total_ns"]) == runs
    assert len(result["segments"]) == n_segments
    for segment in result["segments"]:
        for key in ("samples_ns", "alone_ns", "cpu_ns"):
            assert len(segment[key]) == runs, key
        assert min(segment["samples_ns"]) > 0 < min(segment["alone_ns"])
    columns = [segment["samples_ns"] for segment in result["segments"]]
    assert result["total_ns"] == [max(runs) for runs in zip(*columns, strict=True)]


@pytest.mark.parametrize("flags", [0, BURST])
def test_in_real_time(agent: Agent, flags: int) -> None:
    answer = agent.run(request_of(REFERENCE, flags=flags))
    (result,) = answer.results
    check(result, 2, N_RUNS)
    assert result["clock"] == "monotonic"
    for index in range(2):
        expected = np.maximum(pseudo_random(index, WIDTH), 0)
        assert (answer.output(result, index, WIDTH) == expected).all()
    assert sum(sum(segment["cpu_ns"]) for segment in result["segments"]) > 0


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="one CPU cannot be shared out")
@pytest.mark.parametrize("make", [request_of, frames_of], ids=["corun", "frames"])
def test_each_lane_has_cpus_of_its_own(
    agent: Agent,
    compile_library: Callable[[str], Path],
    make: Callable[..., Request],
    tmp_path: Path,
) -> None:
    """Where the CPU's threads may use all big cores, each lane gets some of them."""
    agent.library = compile_library("faulty")  # which logs what CPUs the threads keep to
    usable = sum(1 << cpu for cpu in os.sched_getaffinity(0))
    first, other = (usable & -usable, usable & (usable - 1))

    def masks(log: str, mask: int, threads: int = 1) -> list[tuple[int, set[int]]]:
        """Of each computation: what its thread keeps to, and what the other threads do."""
        agent.env["NP_LOG"] = str(tmp_path / log)
        (result,) = agent.run(make(REFERENCE, mask=mask, threads=threads)).results
        assert result["status"] == "ok", result
        lines = [line.split()[1:] for line in (tmp_path / log).read_text().splitlines()]
        return [(int(own, 16), {int(mask, 16) for mask in others}) for own, *others in lines]

    apart = masks("apart", usable)
    assert all(own == other for own, _ in apart[-4:])
    # A lane goes on past its own runs, and may begin one more when the other has ended.
    assert sum(first in others for _, others in apart) >= N_RUNS
    for own, others in masks("all", ALL_CPUS)[-4:]:
        assert own == usable and others == {usable}
    n_cpus = usable.bit_count()
    for own, others in masks("no rest", usable, threads=n_cpus)[-4:]:
        assert own == usable and others == {usable}


def test_one_slows_the_other_down(phone: Agent) -> None:
    (result,) = phone.run(request_of(NPU)).results
    check(result, 2, N_RUNS)
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


def test_the_same_again(phone: Agent) -> None:
    first, second = (phone.run(request_of(NPU, GPU)).results[0] for _ in range(2))
    check(first, 3, N_RUNS)
    for key in ("segments", "total_ns", "rounds"):
        assert first[key] == second[key]


def test_accelerators_alone(phone: Agent) -> None:
    (result,) = phone.run(request_of(None, NPU, GPU)).results
    check(result, 2, N_RUNS)


def test_beside_others_in_a_group(phone: Agent) -> None:
    request = request_of(NPU, group=1)
    request.add(request_of(NPU, group=1, id=5))
    for result in phone.run(request).results:
        check(result, 2, N_RUNS)


@pytest.mark.parametrize("run", [1, 2, 4, 9, 14])
def test_a_failure_ends_it(phone: Agent, run: int) -> None:
    phone.env["NNAPI_EMULATOR_FAULTS"] = f"fail:execute:RELU:1:{run}@{NPU}"
    (result,) = phone.run(request_of(NPU)).results
    assert (result["status"], result["stage"], result["code"]) == ("failed", "execute", 5)
    assert result["message"].startswith("run of segment 1 (nnapi, sim-npu): ")
    kept = result["segments"][0]["samples_ns"]
    assert len(kept) == (0 if run <= 9 else 3)  # whole rounds


def test_a_crash_is_one_result(phone: Agent) -> None:
    phone.env["NNAPI_EMULATOR_FAULTS"] = f"crash:execute:RELU:1:6@{NPU}"
    (result,) = phone.run(request_of(NPU)).results
    assert (result["status"], result["signal"]) == ("crashed", "SIGSEGV")


def test_a_hang_is_a_timeout(phone: Agent) -> None:
    phone.env["NNAPI_EMULATOR_FAULTS"] = f"hang:execute:RELU:1:6@{NPU}"
    (result,) = phone.run(request_of(NPU, timeout_ms=300)).results
    assert result["status"] == "timeout"


def two_in_a_row() -> Request:
    request = Request()
    model = request.model(unary(RELU, 4))
    request.action(
        [tensor(RANDOM, 4), tensor(SEGMENT, 4), tensor(SEGMENT, 4)],
        [
            request.segment(CPU, model, [0], [1]),
            request.segment(NNAPI, model, [1], [2], REFERENCE),
        ],
        flags=CORUN,
    )
    return request


REFUSED = {
    "1 segments, want 2 to 8 side by side": lambda: request_of(),
    "segment 2: it runs side by side with segment 1": lambda: request_of(NPU, NPU),
    "NNAPI's own choice is not a processor": lambda: request_of(None, NPU, None),
    "segment 1: it reads tensor 1 of a segment": two_in_a_row,
    "min_runs 2 and max_runs 3, want the same": lambda: request_of(NPU, runs=(2, 3)),
    "one of bits 0 to 2 at most": lambda: request_of(NPU, runs=(1, 1), rounds=1, flags=UNTIMED),
}


@pytest.mark.parametrize("rule", REFUSED)
def test_rules(phone: Agent, rule: str) -> None:
    answer = phone.run(REFUSED[rule]())
    assert answer.exit_code == 1 and rule in answer.error
