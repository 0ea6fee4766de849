"""``agent run`` on NNAPI: the emulator in real time, and as a simulated phone."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from agent_packer import (
    ADD,
    BURST,
    CONV_2D,
    CPU,
    MUL,
    NNAPI,
    RANDOM,
    RELU,
    SEGMENT,
    TANH,
    Agent,
    Model,
    Request,
    pseudo_random,
    tensor,
    unary,
)

DIMS = (1, 16, 16, 8)


def one_segment(request: Request, code: int = RELU, **options: object) -> None:
    words = {name: options.pop(name) for name in ("flags", "timeout_ms") if name in options}
    m = request.model(unary(code, *DIMS))
    request.action(
        [tensor(RANDOM, *DIMS, value=5), tensor(SEGMENT, *DIMS, keep=True)],
        [request.segment(NNAPI, m, [0], [1], **options)],  # type: ignore[arg-type]
        **words,  # type: ignore[arg-type]
    )


def test_real_time(agent: Agent) -> None:
    request = Request()
    one_segment(request, accelerator="nnapi-reference", preference=1)
    one_segment(request)
    one_segment(request, accelerator="nnapi-reference", flags=BURST, relaxed=True)
    answer = agent.run(request)
    assert [r["status"] for r in answer.results] == ["ok"] * 3, answer.results
    expected = np.maximum(pseudo_random(5, *DIMS), 0)
    for result in answer.results:
        assert np.allclose(answer.output(result, 0, *DIMS), expected, atol=1e-3)
        (segment,) = result["segments"]
        assert result["clock"] == "monotonic"
        assert (segment["kernels"], len(segment["samples_ns"])) == (None, 3)
        assert segment["compile_ns"] > 0
    # Durations are asked for where one accelerator is named, and nowhere else.
    assert answer.results[1]["segments"][0]["hardware_ns"] == []


@pytest.mark.parametrize("said", [0, 10**15, 2**64 - 2, 2**64 - 1])
def test_durations_that_cannot_be(
    agent: Agent, compile_library: Callable[[str], Path], said: int
) -> None:
    """A driver's own are left out then: none, longer than the run, or beyond what a host reads."""
    agent.library = compile_library("faulty")
    agent.env["NP_DURATION"] = str(said)
    request = Request()
    one_segment(request, accelerator="nnapi-reference", preference=1)
    (result,) = agent.run(request).results
    (segment,) = result["segments"]
    assert (result["status"], len(segment["samples_ns"])) == ("ok", 3)
    assert segment["hardware_ns"] == segment["driver_ns"] == []


def test_simulated_time(npu_phone: Agent) -> None:
    request = Request()
    for preference in (0, 1, 2):
        one_segment(request, accelerator="sim-npu", preference=preference)
    one_segment(request, accelerator="sim-npu", preference=1, flags=BURST)
    one_segment(request, preference=1)
    answer = npu_phone.run(request)
    assert answer.lines[0]["phone"] == "npu-phone"
    assert [r["status"] for r in answer.results] == ["ok"] * 5, answer.results
    medians, hardware_medians = [], []
    for result in answer.results[:4]:
        (segment,) = result["segments"]
        assert (result["clock"], result["cpu_khz"]) == ("simulated", [2_840_000] * 2)
        before, after = result["thermal_mc"]  # every action begins with a cold phone
        assert before == 28_000 < after < 29_000
        assert result["total_ns"] == segment["samples_ns"]
        (hardware,), (driver,) = segment["hardware_ns"], segment["driver_ns"]  # of one run more
        assert 0 < hardware <= driver <= max(segment["samples_ns"])
        medians.append(float(np.median(segment["samples_ns"])))
        hardware_medians.append(float(np.median(segment["hardware_ns"])))
        expected = np.maximum(pseudo_random(5, *DIMS), 0)
        assert np.allclose(answer.output(result, 0, *DIMS), expected, atol=1e-3)
    # Low power takes longer than a fast single answer; invocation does not depend on it.
    assert hardware_medians[0] > hardware_medians[1]
    assert medians[3] < medians[1]  # a burst saves invocation
    # The simulated clock is the phone's: the same request takes the same time again.
    again = npu_phone.run(request)
    assert [r["total_ns"] for r in again.results] == [r["total_ns"] for r in answer.results]


def test_unsupported_operation_is_refused_by_name(npu_phone: Agent) -> None:
    request = Request()
    model = Model()
    x = model.tensor(*DIMS)
    y = model.add(RELU, [model.add(TANH, [x], *DIMS)], *DIMS)
    m = request.model(model.pack([x], [y]))
    tensors = [tensor(RANDOM, *DIMS), tensor(SEGMENT, *DIMS)]
    request.action(tensors, [request.segment(NNAPI, m, [0], [1], "sim-npu")])
    request.action(tensors, [request.segment(NNAPI, m, [0], [1])])
    refused, auto = npu_phone.run(request).results
    assert (refused["status"], refused["stage"]) == ("refused", "compile")
    assert "sim-npu does not support TANH" in refused["message"]
    assert "RELU" not in refused["message"]
    assert auto["status"] == "ok"  # left to itself, NNAPI runs it elsewhere


def test_pipeline_of_two_engines(npu_phone: Agent) -> None:
    """relu on the NPU, tanh on the CPU, twice the result on the NPU again."""
    request = Request()
    relu, tanh = request.model(unary(RELU, *DIMS)), request.model(unary(TANH, *DIMS))
    model = Model()
    x = model.tensor(*DIMS)
    two = model.constant(np.array([2], np.float32))
    double = request.model(model.pack([x], [model.add(MUL, [x, two, model.scalar(0)], *DIMS)]))
    request.action(
        [
            tensor(RANDOM, *DIMS, value=9),
            tensor(SEGMENT, *DIMS),
            tensor(SEGMENT, *DIMS),
            tensor(SEGMENT, *DIMS, keep=True),
        ],
        [
            request.segment(NNAPI, relu, [0], [1], "sim-npu", 1),
            request.segment(CPU, tanh, [1], [2]),
            request.segment(NNAPI, double, [2], [3], "sim-npu", 1),
        ],
        runs=(5, 5),
    )
    answer = npu_phone.run(request)
    (result,) = answer.results
    assert result["status"] == "ok", result
    expected = 2 * np.tanh(np.maximum(pseudo_random(9, *DIMS), 0))
    assert np.allclose(answer.output(result, 0, *DIMS), expected, atol=2e-3)
    assert [s["kernels"] is None for s in result["segments"]] == [True, False, True]
    samples = np.array([s["samples_ns"] for s in result["segments"]])
    assert (samples > 0).all()
    assert (samples.sum(axis=0) == result["total_ns"]).all()  # the clock stands between segments


def test_threads_matter_to_the_simulated_cpu(npu_phone: Agent) -> None:
    request = Request()
    model = Model()
    big = (1, 32, 32, 32)
    x = model.tensor(*big)
    weights = request.blob(np.ones((32, 3, 3, 32), np.float32))
    bias = request.blob(np.zeros(32, np.float32))
    inputs = [x, model.buffered(0, 32, 3, 3, 32), model.buffered(1, 32)]
    inputs += [model.scalar(v) for v in (1, 1, 1, 1, 1, 1, 0)]
    m = request.model(model.pack([x], [model.add(CONV_2D, inputs, *big)]), [weights, bias])
    for threads in (1, 2):
        request.action(
            [tensor(RANDOM, *big), tensor(SEGMENT, *big)],
            [request.segment(CPU, m, [0], [1])],
            threads=threads,
        )
    one, two = npu_phone.run(request).results
    assert one["clock"] == two["clock"] == "simulated"
    assert two["total_ns"][0] < 0.8 * one["total_ns"][0]


def test_unknown_accelerator(agent: Agent) -> None:
    request = Request()
    one_segment(request, accelerator='no "such"', timeout_ms=1000)
    (result,) = agent.run(request).results
    assert (result["status"], result["stage"]) == ("failed", "compile")
    assert 'no accelerator is called "no "such""; there are: nnapi-' in result["message"]


def test_nnapi_refuses_a_bad_model(agent: Agent) -> None:
    request = Request()
    model = Model()
    x, y = model.tensor(4), model.tensor(4)
    # ADD without its fuse code.
    m = request.model(model.pack([x, y], [model.add(ADD, [x, y], 4)]))
    request.action(
        [tensor(RANDOM, 4), tensor(RANDOM, 4), tensor(SEGMENT, 4)],
        [request.segment(NNAPI, m, [0, 1], [2])],
    )
    (result,) = agent.run(request).results
    assert (result["status"], result["stage"], result["code"]) == ("failed", "compile", 4)
    assert "BAD_DATA (4)" in result["message"]


def test_own_operation_codes_are_refused(agent: Agent) -> None:
    request = Request()
    one_segment(request, code=0x10001)
    (result,) = agent.run(request).results
    assert (result["status"], result["code"]) == ("refused", None)
    assert "has code 65537, which NNAPI does not know" in result["message"]


def test_no_library(agent: Agent) -> None:
    agent.library = "/nowhere/libneuralnetworks.so"
    request = Request()
    one_segment(request)
    m = request.model(unary(RELU, 4))
    request.action([tensor(RANDOM, 4), tensor(SEGMENT, 4)], [request.segment(CPU, m, [0], [1])])
    answer = agent.run(request)
    absent, cpu = answer.results
    assert (absent["status"], absent["stage"]) == ("failed", "setup")
    assert "/nowhere/libneuralnetworks.so" in absent["message"]
    assert cpu["status"] == "ok"


def without(library: Path, folder: Path, *functions: str) -> Path:
    """A copy of a library that lacks some functions, as that of an older Android does."""
    raw = library.read_bytes()
    for name in functions:
        old = b"\0" + name.encode() + b"\0"
        assert old in raw
        raw = raw.replace(old, b"\0X" + old[2:])
    copy = folder / "libneuralnetworks.so"
    copy.write_bytes(raw)
    return copy


def test_android_9_cannot_name_accelerators(agent: Agent, tmp_path: Path) -> None:
    absent = (
        "ANeuralNetworks_getDeviceCount",
        "ANeuralNetworks_getDevice",
        "ANeuralNetworksCompilation_createForDevices",
        "ANeuralNetworksExecution_compute",
        "ANeuralNetworksExecution_getDuration",
        "ANeuralNetworksBurst_create",
    )
    agent.library = without(Path(agent.library), tmp_path, *absent)
    (info,) = agent.call("info", "--nnapi-library", str(agent.library)).lines
    assert set(absent) < set(info["nnapi"]["missing"])
    assert info["nnapi"]["accelerators"] == []
    request = Request()
    one_segment(request, accelerator="nnapi-reference")
    one_segment(request)
    one_segment(request, flags=BURST)
    named, auto, burst = agent.run(request).results
    assert (named["status"], named["stage"]) == ("refused", "compile")
    assert "cannot name an accelerator (that needs API 29)" in named["message"]
    assert auto["status"] == "ok", auto  # through startCompute and an event
    assert burst["status"] == "refused"
    assert "this NNAPI has no Burst_create, which came with API 29" in burst["message"]


def test_unreadable_phone_is_an_error(agent: Agent, tmp_path: Path) -> None:
    phone = tmp_path / "phone.json"
    phone.write_text('{"format": "nnapi-emulator-phone"}')
    agent.simulate(phone)
    request = Request()
    one_segment(request)
    answer = agent.run(request)
    assert answer.exit_code == 1
    assert "no phone can be simulated" in answer.error
    assert answer.results == []


@pytest.mark.parametrize("engine", [CPU, NNAPI])
def test_slow_actions_meet_the_watchdog(agent: Agent, engine: int) -> None:
    request = Request()
    big = (1, 64, 64, 64)
    m = request.model(unary(TANH, *big))
    request.action(
        [tensor(RANDOM, *big), tensor(SEGMENT, *big)],
        [request.segment(engine, m, [0], [1])],
        runs=(100_000, 100_000),
        timeout_ms=700,
    )
    answer = agent.run(request)
    (result,) = answer.results
    assert answer.exit_code == 0
    assert (result["status"], result["stage"]) == ("timeout", "execute")
    assert "not done after 700 ms, in run of segment 0" in result["message"]
    n = len(result["total_ns"])
    assert 0 < n < 100_000  # what was recorded before is kept
    assert n == len(result["segments"][0]["samples_ns"])


@pytest.mark.parametrize(
    ("level", "stubborn", "created"), [(31, False, 2), (31, True, 4), (30, False, 4)]
)
def test_an_execution_is_run_again_where_it_can_be(
    agent: Agent,
    compile_library: Callable[[str], Path],
    tmp_path: Path,
    level: int,
    stubborn: bool,
    created: int,
) -> None:
    agent.library = compile_library("reusable")
    log = tmp_path / "log"
    agent.env |= {"NP_LOG": str(log), "NNAPI_EMULATOR_FEATURE_LEVEL": str(level)}
    agent.env |= {"NP_STUBBORN": "1"} if stubborn else {}
    request = Request()
    one_segment(request, accelerator="nnapi-reference")
    answer = agent.run(request)
    (result,) = answer.results
    assert (result["status"], len(result["total_ns"])) == ("ok", 3)
    expected = np.maximum(pseudo_random(5, *DIMS), 0)
    assert np.allclose(answer.output(result, 0, *DIMS), expected, atol=1e-3)
    calls = log.read_text().split()
    # One run warms up, one is not recorded, or two are, and three are; then the driver is asked how
    # long its runs take, for which an execution is made anew.
    assert calls.count("create") == created + (calls.count("compute") - 4) * (created > 2)


def test_the_library_of_shared_memory_is_loaded_once_for_all_processes(
    agent: Agent, compile_library: Callable[[str], Path], tmp_path: Path
) -> None:
    agent.env["LD_LIBRARY_PATH"] = str(compile_library("android").parent)
    agent.env["LOADS"] = str(tmp_path / "loads")
    request = Request()
    for _ in range(4):
        one_segment(request, accelerator="nnapi-reference", preference=1)
    answer = agent.run(request)
    assert [r["status"] for r in answer.results] == ["ok"] * 4, answer.results
    assert [r["segments"][0]["memory"] for r in answer.results] == ["ashmem"] * 4
    # By a process that tries whether it can be loaded, and by the one that makes the others.
    assert (tmp_path / "loads").read_text() == ".."
