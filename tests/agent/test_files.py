"""The agent's files: what it cleans up, and what others do to them."""

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
from tests.agent.packer import (
    CPU,
    NNAPI,
    RANDOM,
    SEGMENT,
    Agent,
    Model,
    Request,
    Segment,
    relus,
    tensor,
)


def of_a_blob(values: np.ndarray) -> Request:
    """A relu of a blob."""
    request = Request()
    request.unary(CPU, 4, source=packer.BLOB, value=request.blob(values))
    return request


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
    request = of_a_blob(np.ones(4))
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
    request.action([tensor(RANDOM, n), tensor(SEGMENT, n)], [Segment(CPU, large, [0], [1])])
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
    request = of_a_blob(np.arange(4))
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


# ---- cleaning up ---------------------------------------------------------------------------------


def put_blob(agent: Agent, content: bytes, age_days: float) -> Path:
    """A blob of the store, used that long ago."""
    path = agent.store / hashlib.sha256(content).hexdigest()
    path.write_bytes(content)
    make_old(path, age_days)
    return path


def make_old(path: Path, days: float) -> None:
    then = time.time() - days * 86400
    os.utime(path, (then, then), follow_symlinks=False)


def cleaned(agent: Agent, *limits: str) -> tuple[int, int, int]:
    """Files and bytes that go, and bytes that stay."""
    answer = agent.call("clean", "--store", agent.store, "--work", agent.work, *limits)
    assert answer.exit_code == 0
    (line,) = answer.of_type("cleaned")
    return line["files"], line["bytes"], line["kept_bytes"]


def test_blobs_go_by_age(agent):
    old = put_blob(agent, b"old", 8)
    young = put_blob(agent, b"young", 6)
    put_blob(agent, b"from before the clock was set back", -8)
    assert cleaned(agent, "--older-than-days", "7") == (2, 37, 5)
    assert not old.exists() and young.exists()
    assert cleaned(agent) == (1, 5, 0)  # without a limit: all
    assert not young.exists()


def test_the_least_recently_used_blobs_go_first(agent):
    blobs = [put_blob(agent, bytes([age]) * size, age) for age, size in ((4, 10), (1, 40), (2, 60))]
    assert cleaned(agent, "--max-bytes", "100") == (1, 10, 100)
    assert [path.exists() for path in blobs] == [False, True, True]
    # What does not fit goes, and so does what is older, however small it is.
    blobs[0] = put_blob(agent, bytes([4]) * 10, 4)
    assert cleaned(agent, "--max-bytes", "60") == (2, 70, 40)
    assert [path.exists() for path in blobs] == [False, True, False]


def test_only_what_is_ours_is_touched(agent, tmp_path):
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "precious").write_text("x")
    strangers = [agent.store / "notes.txt", agent.store / ("a" * 63), agent.work / "7-x.bin"]
    strangers += [agent.work / "readme", agent.store / ("A" * 64)]
    for path in strangers:
        path.write_text("x")
        make_old(path, 50)
    (agent.store / ("b" * 64)).symlink_to(outside / "precious")
    (agent.work / ("c" * 12)).symlink_to(outside)
    (agent.work / "3-4.bin").symlink_to(outside / "precious")
    (agent.store / ("d" * 64)).mkdir()
    assert cleaned(agent) == (0, 0, 0)
    assert all(path.exists() for path in strangers) and (outside / "precious").exists()


def test_stale_work_goes(agent, tmp_path):
    precious = tmp_path / "precious"
    precious.write_text("x")
    for name, days in (("0123456789ab", 3.0), ("0123456789ac", 3.0), ("0123456789ad", 0.0)):
        out = agent.work / name / "out"
        out.mkdir(parents=True)
        (out / "0-1.bin").write_bytes(b"12345")
        (agent.work / name / "request").write_bytes(b"123")
        (out / "link").symlink_to(precious)
        for path in (out / "0-1.bin", agent.work / name / "request", out / "link", out, out.parent):
            make_old(path, days)
    make_old(agent.work / "0123456789ac" / "out" / "0-1.bin", 0)  # somebody is at work there
    (agent.work / "0-1.bin").write_bytes(b"1")
    make_old(agent.work / "0-1.bin", 3)

    assert cleaned(agent, "--older-than-days", "5")[0] == 0
    assert cleaned(agent)[0] == 4
    assert sorted(os.listdir(agent.work)) == ["0123456789ac", "0123456789ad"]
    assert precious.exists()


def test_a_folder_that_is_not_there(agent):
    answer = agent.call("clean", "--store", agent.store / "x", "--work", agent.work)
    assert answer.exit_code == 1
    assert "No such file" in answer.error


def test_a_run_renews_its_blobs_and_drops_unused_ones(agent):
    request = of_a_blob(np.ones(4))
    agent.push(request)
    (used,) = agent.store.iterdir()
    make_old(used, 40)
    unused = put_blob(agent, b"unused", 31)
    recent = put_blob(agent, b"recent", 29)
    assert agent.run_bytes(request.pack()).results[0]["status"] == "ok"
    assert time.time() - used.stat().st_mtime < 60
    assert not unused.exists() and recent.exists()


def test_a_disk_without_room_is_told_before_anything_is_run(agent):
    request = Request()
    request.unary(CPU, 1 << 20, 1 << 20, 1 << 20)
    answer = agent.run(request)
    assert (answer.exit_code, answer.results) == (1, [])
    assert "No space left on device: the outputs need 4611686018427392000 bytes" in answer.error


def test_files_are_for_their_owner_only(agent):
    old = os.umask(0)
    try:
        answer = agent.run(of_a_blob(np.ones(4)))
    finally:
        os.umask(old)
    assert answer.exit_code == 0
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in agent.work.iterdir()}
    assert modes == {"0-1.bin": 0o600}
