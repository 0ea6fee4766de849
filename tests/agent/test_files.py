"""What others do to the agent's files: closed, blocked, cut off, or not files at all."""

import fcntl
import hashlib
import json
import os
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from agent_packer import (
    ADD,
    BLOB,
    CPU,
    NNAPI,
    RANDOM,
    RELU,
    SEGMENT,
    Agent,
    Model,
    Request,
    tensor,
    unary,
)

N_LARGE = 1 << 16  # floats: many pages


def relu_of(request: Request, model: int, engine: int, **options: object) -> None:
    request.action(
        [tensor(RANDOM, 4), tensor(SEGMENT, 4, keep=True)],
        [request.segment(engine, model, [0], [1])],
        **options,  # type: ignore[arg-type]
    )


def close_output() -> None:
    os.close(1)


def open_null_for_both() -> None:
    """What bionic does from Android 11 on where it finds standard output closed."""
    os.dup2(os.open("/dev/null", os.O_RDWR), 1)


@pytest.mark.parametrize("before", [close_output, open_null_for_both])
def test_closed_standard_output(agent: Agent, before: Callable[[], None]) -> None:
    request = Request()
    relu_of(request, request.model(unary(RELU, 4)), CPU)
    for command in (agent.command(request.pack()), [str(agent.binary), "version"]):
        done = subprocess.run(
            command,
            env=agent.env,
            stdout=None,
            stderr=subprocess.PIPE,
            timeout=60,
            preexec_fn=before,
            text=True,
        )
        assert done.returncode == 1
        assert done.stderr == (
            "agent: standard output is closed, so nobody would read the answers\n"
        )


def test_prints_get_into_no_output(agent: Agent, compile_library: Callable[[str], Path]) -> None:
    """Without standard input and error, files that the agent opens must not get their numbers."""
    agent.library = compile_library("faulty")
    agent.env |= {"NP_FAULT": "noise", "NP_FAULT_AT": "finish"}
    request = Request()
    relu_of(request, request.model(unary(RELU, 4)), NNAPI)

    def close_files() -> None:
        os.close(0)
        os.close(2)

    done = subprocess.run(
        agent.command(request.pack()),
        env=agent.env,
        stdout=subprocess.PIPE,
        timeout=60,
        preexec_fn=close_files,
    )
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert [line["type"] for line in lines] == ["hello", "start", "result", "end"]
    (output,) = lines[2]["outputs"]
    raw = (agent.work / output["file"]).read_bytes()
    assert len(raw) == 16 and hashlib.sha256(raw).hexdigest() == output["sha256"]


def test_version_into_a_full_disk(agent: Agent) -> None:
    with Path("/dev/full").open("w") as full:
        assert subprocess.run([str(agent.binary), "version"], stdout=full).returncode == 1


def test_non_blocking_output_with_a_slow_reader(agent: Agent) -> None:
    request = Request()
    relu_of(request, request.model(unary(RELU, 4)), CPU, runs=(20000, 20000))
    reader, writer = os.pipe()
    fcntl.fcntl(writer, fcntl.F_SETFL, os.O_WRONLY | os.O_NONBLOCK)
    process = subprocess.Popen(agent.command(request.pack()), env=agent.env, stdout=writer)
    os.close(writer)
    time.sleep(0.3)  # the line is longer than the pipe, which is full by now
    with os.fdopen(reader, "rb") as stream:
        lines = [json.loads(line) for line in stream]
    assert process.wait(60) == 0
    assert len(lines[2]["total_ns"]) == 20000


def test_pipes_are_no_files(agent: Agent) -> None:
    """Nobody ever writes to them, so to open them must not wait."""
    request = Request()
    blob = request.blob(np.ones(4))
    request.action(
        [tensor(BLOB, 4, value=blob), tensor(SEGMENT, 4)],
        [request.segment(CPU, request.model(unary(RELU, 4)), [0], [1])],
    )
    name = hashlib.sha256(request.blobs[0]).hexdigest()
    os.mkfifo(agent.store / name)
    command = agent.command(request.pack())
    done = subprocess.run(command, env=agent.env, stdout=subprocess.PIPE, timeout=20)
    assert done.returncode == 1
    message = json.loads(done.stdout.splitlines()[-1])["message"]
    assert message == f"blob 0: cannot read {name} in the store: Invalid argument"

    agent.request_path.unlink()
    os.mkfifo(agent.request_path)
    done = subprocess.run(command, env=agent.env, stdout=subprocess.PIPE, timeout=20)
    assert done.returncode == 1
    assert "cannot read the request" in json.loads(done.stdout)["message"]


def test_files_cut_off_midway(agent: Agent, compile_library: Callable[[str], Path]) -> None:
    """A lost blob costs the actions that read it; a lost request costs nothing."""
    agent.library = compile_library("faulty")
    agent.env |= {"NP_FAULT": "hang", "NP_FAULT_AT": "finish"}
    request = Request()
    small = request.model(unary(RELU, 4))
    model = Model()
    x = model.tensor(N_LARGE)
    weights = model.buffered(0, N_LARGE)
    y = model.add(ADD, [x, weights, model.scalar(0)], N_LARGE)
    large = request.model(model.pack([x], [y]), [request.blob(np.ones(N_LARGE))])
    relu_of(request, small, NNAPI, timeout_ms=1500)  # hangs while the files are cut off
    request.action(
        [tensor(RANDOM, N_LARGE), tensor(SEGMENT, N_LARGE)],
        [request.segment(CPU, large, [0], [1])],
    )
    relu_of(request, small, CPU)
    agent.push(request)
    command = agent.command(request.pack())
    with subprocess.Popen(command, env=agent.env, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        seen = [json.loads(process.stdout.readline())["type"] for _ in range(2)]
        assert seen == ["hello", "start"]
        os.truncate(agent.store / hashlib.sha256(request.blobs[0]).hexdigest(), 0)
        os.truncate(agent.request_path, 0)
        lines = [json.loads(line) for line in process.stdout]
    assert process.returncode == 0
    hung, lost, fine = (line for line in lines if line["type"] == "result")
    assert hung["status"] == "timeout"
    assert (lost["status"], lost["signal"]) == ("crashed", "SIGBUS")
    assert fine["status"] == "ok"


def test_output_that_cannot_be_written(agent: Agent) -> None:
    request = Request()
    relu_of(request, request.model(unary(RELU, 4)), CPU, runs=(5, 5))
    (agent.work / "0-1.bin").mkdir()
    answer = agent.run(request)
    (result,) = answer.results
    assert answer.exit_code == 0
    assert (result["status"], result["stage"]) == ("failed", "execute")
    assert result["message"] == "cannot write 0-1.bin, 16 bytes: Is a directory"
    assert len(result["total_ns"]) == 5  # what was measured is told


@pytest.mark.parametrize("engine", [CPU, NNAPI])
def test_many_runs_take_no_more_memory(agent: Agent, engine: int) -> None:
    """Ten thousand executions: nothing is kept from one to the next."""
    peaks = []
    for runs in (100, 10000):
        request = Request()
        relu_of(request, request.model(unary(RELU, 4)), engine, runs=(runs, runs))
        (result,) = agent.run(request).results
        assert result["status"] == "ok" and len(result["total_ns"]) == runs
        peaks.append(result["rss_peak_kb"])
    assert peaks[1] - peaks[0] < 5000  # kB: less than half a kB a run, the samples included


@pytest.mark.parametrize("before", ["file", "pipe", "link", "second name"])
def test_outputs_replace_what_has_their_name(agent: Agent, before: str) -> None:
    """Nothing is written through it, nothing waits for it, and the new file is the owner's only."""
    others = agent.work.parent / "others"
    others.write_bytes(b"theirs")
    output = agent.work / "0-1.bin"
    if before == "file":
        output.write_bytes(b"of a past run")
        output.chmod(0o644)
    elif before == "pipe":
        os.mkfifo(output)
    elif before == "link":
        output.symlink_to(others)
    else:
        output.hardlink_to(others)
    request = Request()
    relu_of(request, request.model(unary(RELU, 4)), CPU)
    (result,) = agent.run(request).results
    assert result["status"] == "ok"
    assert output.is_file() and not output.is_symlink()
    assert output.stat().st_mode & 0o777 == 0o600
    assert output.stat().st_size == 16
    assert others.read_bytes() == b"theirs"


def test_a_blob_is_hashed_once(agent: Agent) -> None:
    """A mark in its time says that it was; what is written into it later takes the mark away."""
    request = Request()
    weights = np.arange(4, dtype=np.float32)
    blob = request.blob(weights)
    model = request.model(unary(RELU, 4))
    request.action(
        [tensor(BLOB, 4, value=blob), tensor(SEGMENT, 4, keep=True)],
        [request.segment(CPU, model, [0], [1])],
    )
    assert agent.run(request).exit_code == 0
    (file,) = agent.store.iterdir()
    mark = file.stat().st_mtime_ns
    file.write_bytes(bytes(16))
    os.utime(file, ns=(mark, mark))
    (trusted,) = agent.run_bytes(request.pack()).results
    assert trusted["status"] == "ok", "it was not hashed again"
    file.write_bytes(bytes(16))
    answer = agent.run_bytes(request.pack())
    assert (answer.exit_code, answer.of_type("missing")[0]["blobs"]) == (3, [file.name])
    assert not file.exists()
