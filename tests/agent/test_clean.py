"""``agent clean``, and what ``agent run`` itself does about the disk."""

import hashlib
import os
import time
from pathlib import Path

from tests.agent.packer import CPU, Agent, Request, of_a_blob


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
    request = of_a_blob()
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
