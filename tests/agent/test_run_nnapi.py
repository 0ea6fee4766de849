"""``agent run`` on NNAPI: the emulator in real time, and as a simulated phone."""

from pathlib import Path

import numpy as np
import pytest

from tests.agent import packer
from tests.agent.packer import CPU, NNAPI, RANDOM, SEGMENT, TANH, Model, Request, Segment, tensor

DIMS = (1, 16, 16, 8)


def on_nnapi(*actions):
    """A relu on NNAPI with each of these options."""
    request = Request()
    for options in actions:
        request.unary(NNAPI, *DIMS, value=5, **options)
    return request


def check_values(answer, results):
    for result in results:
        assert np.allclose(answer.output(result, 0, *DIMS), packer.positive(5, *DIMS), atol=1e-3)


def test_real_time(agent):
    named = {"accelerator": "nnapi-reference"}
    answer = agent.run(
        on_nnapi(named | {"preference": 1}, {}, named | {"flags": packer.BURST, "relaxed": True})
    )
    assert [r["status"] for r in answer.results] == ["ok"] * 3, answer.results
    check_values(answer, answer.results)
    for result in answer.results:
        (segment,) = result["segments"]
        assert result["clock"] == "monotonic"
        assert (segment["kernels"], len(segment["samples_ns"])) == (None, 3)
        assert segment["compile_ns"] > 0
    # Durations are asked for where one accelerator is named, and nowhere else.
    assert answer.results[1]["segments"][0]["hardware_ns"] == []


@pytest.mark.parametrize("said", [0, 10**15, 2**64 - 2, 2**64 - 1])
def test_durations_that_cannot_be(faulty, said):
    """A driver's own are left out then: none, longer than the run, or beyond what a host reads."""
    faulty.env["NP_DURATION"] = str(said)
    (result,) = faulty.run(on_nnapi(dict(accelerator="nnapi-reference", preference=1))).results
    (segment,) = result["segments"]
    assert (result["status"], len(segment["samples_ns"])) == ("ok", 3)
    assert segment["hardware_ns"] == segment["driver_ns"] == []


def test_simulated_time(npu_phone):
    on_npu = [{"accelerator": "sim-npu", "preference": preference} for preference in (0, 1, 2)]
    request = on_nnapi(*on_npu, on_npu[1] | {"flags": packer.BURST}, {"preference": 1})
    answer = npu_phone.run(request)
    assert answer.lines[0]["phone"] == "npu-phone"
    assert [r["status"] for r in answer.results] == ["ok"] * 5, answer.results
    check_values(answer, answer.results[:4])
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
        hardware_medians.append(hardware)
    # Low power takes longer than a fast single answer; invocation does not depend on it.
    assert hardware_medians[0] > hardware_medians[1]
    assert medians[3] < medians[1]  # a burst saves invocation
    # The simulated clock is the phone's: the same request takes the same time again.
    again = npu_phone.run(request)
    assert [r["total_ns"] for r in again.results] == [r["total_ns"] for r in answer.results]


def test_unsupported_operation_is_refused_by_name(npu_phone):
    request, model = Request(), Model()
    x = model.tensor(*DIMS)
    y = model.add(packer.RELU, [model.add(TANH, [x], *DIMS)], *DIMS)
    m = request.model(model.pack([x], [y]))
    for accelerator in ("sim-npu", None):
        request.action(
            [tensor(RANDOM, *DIMS), tensor(SEGMENT, *DIMS)],
            [Segment(NNAPI, m, [0], [1], accelerator)],
        )
    refused, auto = npu_phone.run(request).results
    assert (refused["status"], refused["stage"]) == ("refused", "compile")
    assert "sim-npu does not support TANH" in refused["message"]
    assert "RELU" not in refused["message"]
    assert auto["status"] == "ok"  # left to itself, NNAPI runs it elsewhere


def test_threads_matter_to_the_simulated_cpu(npu_phone):
    request, model = Request(), Model()
    big = (1, 32, 32, 32)
    x = model.tensor(*big)
    buffers = [request.blob(np.ones((32, 3, 3, 32))), request.blob(np.zeros(32))]
    inputs = [x, model.buffered(0, 32, 3, 3, 32), model.buffered(1, 32)]
    inputs += [model.scalar(v) for v in (1, 1, 1, 1, 1, 1, 0)]
    m = request.model(model.pack([x], [model.add(packer.CONV_2D, inputs, *big)]), buffers)
    for threads in (1, 2):
        tensors = [tensor(RANDOM, *big), tensor(SEGMENT, *big)]
        request.action(tensors, [Segment(CPU, m, [0], [1])], threads=threads)
    one, two = npu_phone.run(request).results
    assert one["clock"] == two["clock"] == "simulated"
    assert two["total_ns"][0] < 0.8 * one["total_ns"][0]


def test_unknown_accelerator(agent):
    (result,) = agent.run(on_nnapi(dict(accelerator='no "such"', timeout_ms=1000))).results
    assert (result["status"], result["stage"]) == ("failed", "compile")
    assert 'no accelerator is called "no "such""; there are: nnapi-' in result["message"]


def test_nnapi_refuses_a_bad_model(agent):
    request, model = Request(), Model()
    x, y = model.tensor(4), model.tensor(4)
    # ADD without its fuse code.
    m = request.model(model.pack([x, y], [model.add(packer.ADD, [x, y], 4)]))
    tensors = [tensor(RANDOM, 4), tensor(RANDOM, 4), tensor(SEGMENT, 4)]
    request.action(tensors, [Segment(NNAPI, m, [0, 1], [2])])
    (result,) = agent.run(request).results
    assert (result["status"], result["stage"], result["code"]) == ("failed", "compile", 4)
    assert "BAD_DATA (4)" in result["message"]


def test_own_operation_codes_are_refused(agent):
    (result,) = agent.run(on_nnapi({"code": 0x10001})).results
    assert (result["status"], result["code"]) == ("refused", None)
    assert "has code 65537, which NNAPI does not know" in result["message"]


def test_no_library(agent):
    agent.library = "/nowhere/libneuralnetworks.so"
    nnapi = agent.info()["nnapi"]
    absent, cpu = agent.run(packer.relus(NNAPI, CPU)).results
    assert (nnapi["library"], nnapi["accelerators"], cpu["status"]) == (None, [], "ok")
    assert (absent["status"], absent["stage"]) == ("failed", "setup")
    assert all(agent.library in words for words in (nnapi["error"], absent["message"]))


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


def test_android_9_cannot_name_accelerators(agent, tmp_path):
    of_api_29 = ["_getDeviceCount", "_getDevice", "Compilation_createForDevices", "Burst_create"]
    of_api_29 += ["Execution_compute", "Execution_getDuration"]
    absent = [f"ANeuralNetworks{name}" for name in of_api_29]
    agent.library = without(agent.library, tmp_path, *absent)
    nnapi = agent.info()["nnapi"]
    assert set(absent) < set(nnapi["missing"])
    assert nnapi["accelerators"] == []
    request = on_nnapi({"accelerator": "nnapi-reference"}, {}, {"flags": packer.BURST})
    named, auto, burst = agent.run(request).results
    assert (named["status"], named["stage"]) == ("refused", "compile")
    assert "cannot name an accelerator (that needs API 29)" in named["message"]
    assert auto["status"] == "ok", auto  # through startCompute and an event
    assert burst["status"] == "refused"
    assert "this NNAPI has no Burst_create, which came with API 29" in burst["message"]


def test_unreadable_phone_is_an_error(agent):
    agent.simulate({"format": "nnapi-emulator-phone"})
    info, answer = agent.info(), agent.run(on_nnapi({}))
    assert info["simulated"] is False and "phone.json" in info["nnapi"]["error"]
    assert (answer.exit_code, answer.results) == (1, [])
    assert "no phone can be simulated" in answer.error


@pytest.mark.parametrize("engine", [CPU, NNAPI])
def test_slow_actions_meet_the_watchdog(agent, engine):
    request, n_runs = Request(), 100_000
    request.unary(engine, 1, 64, 64, 64, code=TANH, runs=(n_runs, n_runs), timeout_ms=700)
    answer = agent.run(request)
    (result,) = answer.results
    assert answer.exit_code == 0
    assert (result["status"], result["stage"]) == ("timeout", "execute")
    assert "not done after 700 ms, in run of segment 0" in result["message"]
    n = len(result["total_ns"])
    assert 0 < n < n_runs  # what was recorded before is kept
    assert n == len(result["segments"][0]["samples_ns"])


@pytest.mark.parametrize(
    "level, stubborn, created", [(31, False, 2), (31, True, 4), (30, False, 4)]
)
def test_an_execution_is_run_again_where_it_can_be(
    agent, compile_library, tmp_path, level, stubborn, created
):
    agent.library = compile_library("reusable")
    log = tmp_path / "log"
    agent.env |= {"NP_LOG": str(log), "NNAPI_EMULATOR_FEATURE_LEVEL": str(level)}
    agent.env |= {"NP_STUBBORN": "1"} if stubborn else {}
    answer = agent.run(on_nnapi({"accelerator": "nnapi-reference"}))
    (result,) = answer.results
    assert (result["status"], len(result["total_ns"])) == ("ok", 3)
    check_values(answer, [result])
    calls = log.read_text().split()
    # One run warms up, one is not recorded, or two are, and three are; then the driver is asked how
    # long its runs take, for which an execution is made anew.
    assert calls.count("create") == created + (calls.count("compute") - 4) * (created > 2)


def test_the_library_of_shared_memory_is_loaded_once(agent, compile_library, tmp_path):
    agent.env["LD_LIBRARY_PATH"] = str(compile_library("android").parent)
    agent.env["LOADS"] = str(tmp_path / "loads")
    answer = agent.run(on_nnapi(*[dict(accelerator="nnapi-reference", preference=1)] * 4))
    assert [r["status"] for r in answer.results] == ["ok"] * 4, answer.results
    assert [r["segments"][0]["memory"] for r in answer.results] == ["ashmem"] * 4
    # By a process that tries whether it can be loaded, and by the one that makes the others.
    assert (tmp_path / "loads").read_text() == ".."
