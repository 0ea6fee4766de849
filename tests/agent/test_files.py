"""What others do to the agent's files: closed, blocked, cut off, or not files at all."""

import fcntl
import hashlib
import json
import os
import stat
import subprocess
import time
from pathlib import Path

import numpy as np
import pytest

from tests.agent import packer
from tests.agent.packer import CPU, NNAPI, Model, Request, Segment, relus, tensor


def close_output() -> None:
    os.close(1)


def open_null_for_both() -> None:
    """What bionic does from Android 11 on where it finds standard output closed."""
    os.dup2(os.open("/dev/null", os.O_RDWR), 1)


@pytest.mark.parametrize("before", [close_output, open_null_for_both])
def test_closed_standard_output(agent, before):
    for arguments in (agent.command(relus(CPU).pack())[1:], ["version"]):
        answer = agent.call(*arguments, stdout=None, preexec_fn=before)
        words = "agent: standard output is closed, so nobody would read the answers\n"
        assert (answer.exit_code, answer.stderr) == (1, words)


def test_prints_get_into_no_output(faulty):
    """Without standard input and error, files that the agent opens must not get their numbers."""
    faulty.fault("noise", "finish")

    def close_files() -> None:
        os.close(0)
        os.close(2)

    answer = faulty.run(relus(NNAPI), stderr=None, preexec_fn=close_files)
    assert answer.types == ["hello", "start", "result", "end"]
    assert answer.output(answer.results[0], 0, 4).size == 4


def test_version_into_a_full_disk(agent):
    with Path("/dev/full").open("w") as full:
        assert agent.call("version", stdout=full).exit_code == 1


def test_non_blocking_output_with_a_slow_reader(agent):
    command = agent.command(relus(CPU, runs=(20000, 20000)).pack())
    reader, writer = os.pipe()
    fcntl.fcntl(writer, fcntl.F_SETFL, os.O_WRONLY | os.O_NONBLOCK)
    process = subprocess.Popen(command, env=agent.env, stdout=writer)
    os.close(writer)
    time.sleep(0.3)  # the line is longer than the pipe, which is full by now
    with os.fdopen(reader, "rb") as stream:
        lines = [json.loads(line) for line in stream]
    assert process.wait(60) == 0
    assert len(lines[2]["total_ns"]) == 20000


def test_pipes_are_no_files(agent):
    """Nobody ever writes to them, so to open them must not wait."""
    request = packer.of_a_blob()
    name = hashlib.sha256(request.blobs[0]).hexdigest()
    os.mkfifo(agent.store / name)
    arguments = agent.command(request.pack())[1:]
    answer = agent.call(*arguments, timeout=20)
    message = f"blob 0: cannot read {name} in the store: Invalid argument"
    assert (answer.exit_code, answer.error) == (1, message)

    agent.request_path.unlink()
    os.mkfifo(agent.request_path)
    answer = agent.call(*arguments, timeout=20)
    assert answer.exit_code == 1 and "cannot read the request" in answer.error


def test_files_cut_off_midway(faulty):
    """A lost blob costs the actions that read it; a lost request costs nothing."""
    faulty.fault("hang", "finish")
    n = 1 << 16  # floats: many pages
    request, model = Request(), Model()
    x = model.tensor(n)
    y = model.add(packer.ADD, [x, model.buffered(0, n), model.scalar(0)], n)
    large = request.model(model.pack([x], [y]), [request.blob(np.ones(n))])
    request.unary(NNAPI, 4, timeout_ms=1500)  # hangs while the files are cut off
    request.action(
        [tensor(packer.RANDOM, n), tensor(packer.SEGMENT, n)], [Segment(CPU, large, [0], [1])]
    )
    request.unary(CPU, 4)
    faulty.push(request)
    command = faulty.command(request.pack())
    with subprocess.Popen(command, env=faulty.env, stdout=subprocess.PIPE, text=True) as process:
        seen = [json.loads(process.stdout.readline())["type"] for _ in range(2)]
        assert seen == ["hello", "start"]
        os.truncate(faulty.store / hashlib.sha256(request.blobs[0]).hexdigest(), 0)
        os.truncate(faulty.request_path, 0)
        lines = [json.loads(line) for line in process.stdout]
    assert process.returncode == 0
    hung, lost, fine = (line for line in lines if line["type"] == "result")
    assert hung["status"] == "timeout"
    assert (lost["status"], lost["signal"]) == ("crashed", "SIGBUS")
    assert fine["status"] == "ok"


def test_output_that_cannot_be_written(agent):
    (agent.work / "0-1.bin").mkdir()
    answer = agent.run(relus(CPU, runs=(5, 5)))
    (result,) = answer.results
    assert answer.exit_code == 0
    assert (result["status"], result["stage"]) == ("failed", "execute")
    assert result["message"] == "cannot write 0-1.bin, 16 bytes: Is a directory"
    assert len(result["total_ns"]) == 5  # what was measured is told


@pytest.mark.parametrize("engine", [CPU, NNAPI])
def test_many_runs_take_no_more_memory(agent, engine):
    """Ten thousand executions: nothing is kept from one to the next."""
    peaks = []
    for runs in (100, 10000):
        (result,) = agent.run(relus(engine, runs=(runs, runs))).results
        assert result["status"] == "ok" and len(result["total_ns"]) == runs
        peaks.append(result["rss_peak_kb"])
    assert peaks[1] - peaks[0] < 5000  # kB: less than half a kB a run, the samples included


PLACES = {
    "file": lambda output, _: output.write_bytes(b"of a past run"),  # which others may read
    "pipe": lambda output, _: os.mkfifo(output),
    "link": lambda output, others: output.symlink_to(others),
    "second name": lambda output, others: output.hardlink_to(others),
}


@pytest.mark.parametrize("before", PLACES.values(), ids=PLACES)
def test_outputs_replace_what_has_their_name(agent, before):
    """Nothing is written through it, nothing waits for it, and the new file is the owner's only."""
    others = agent.work.parent / "others"
    others.write_bytes(b"theirs")
    output = agent.work / "0-1.bin"
    before(output, others)
    (result,) = agent.run(relus(CPU)).results
    assert result["status"] == "ok"
    assert output.is_file() and not output.is_symlink()
    assert (stat.S_IMODE(output.stat().st_mode), output.stat().st_size) == (0o600, 16)
    assert others.read_bytes() == b"theirs"


def test_a_blob_is_hashed_once(agent):
    """A mark in its time says that it was; what is written into it later takes the mark away."""
    request = packer.of_a_blob()
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
