"""Every transport against its real peer: a child process, adbd over TCP, adbd behind a server."""

import contextlib
import os
import select
import struct
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nnapi_prof.device import transport as transports
from nnapi_prof.device.transport import LineStream, LocalTransport, storage_error, until_exit
from nnapi_prof.device.transport.adb import connect_tcp
from nnapi_prof.device.transport.adb_server import AdbServer
from nnapi_prof.errors import DeviceError, DeviceOffline, DeviceStorageError
from tests.processes import is_running, wait_until

TCP, SERVER = (pytest.param(way, marks=pytest.mark.adbd) for way in ("tcp", "server"))


@pytest.fixture
def reach(request):
    """A device behind one of the ways to it: ``reach("tcp") -> (transport, daemon)``."""
    with contextlib.ExitStack() as open_ones:

        def start(way, **options):
            daemon = request.getfixturevalue("start_daemon")(**options)
            if way == "tcp":
                transport = connect_tcp("127.0.0.1", daemon.port)
            else:
                request.getfixturevalue("adb_server").connect(daemon.serial)
                transport = AdbServer().open(daemon.serial)
            open_ones.callback(transport.close)
            assert transport.serial == daemon.serial
            return transport, daemon

        yield start


@pytest.fixture(params=["local", TCP, SERVER])
def reached(request):
    """A transport of each kind, and a folder that exists on its device."""
    if request.param == "local":
        transport = LocalTransport("local", "test", {})
        yield transport, str(transport.folder)
        transport.close()
    else:
        transport, daemon = request.getfixturevalue("reach")(request.param)
        folder = f"{daemon.remote_dir}-test"
        assert transport.shell(["mkdir", "-p", folder]).exit_code == 0
        yield transport, folder


def test_files_commands_and_lines(reached, tmp_path):
    transport, folder = reached
    big = os.urandom(9_000_001)
    transport.push(big, f"{folder}/big")
    assert transport.pull(f"{folder}/big") == big

    source = tmp_path / "script"
    source.write_text('#!/bin/sh\necho "got $#: $1"\nexit 42\n')
    transport.push(source, f"{folder}/a script", 0o755)
    assert transport.shell([f"{folder}/a script", "x  y"]) == (42, "got 1: x  y\n")
    transport.push(b"", f"{folder}/empty")
    assert transport.pull(f"{folder}/empty") == b""

    for code in (0, 1, 127, 255):
        assert transport.shell(["sh", "-c", f"exit {code}"]).exit_code == code
    assert transport.shell(["no-such-command"] if transport.serial != "local" else ["false"])[0]
    awkward = ["a b", "$HOME", "`id`", "'", '"', "\\", "*", "#", ";exit 3", "é", ""]
    assert transport.shell(["printf", "%s\\n", *awkward]).output.split("\n") == [*awkward, ""]
    assert transport.shell(["sh", "-c", "kill -9 $$"]).exit_code == 137
    assert transport.shell(["sh", "-c", "echo out; printf end"]) == (0, "out\nend\n")
    # The two outputs come on two ways behind a server: their order is not kept.
    text = transport.shell(["sh", "-c", "echo out; echo err >&2"]).output
    assert sorted(text.splitlines()) == ["err", "out"]
    where = "readlink /proc/$$/fd/1; readlink /proc/$$/fd/2"
    output, errors = transport.shell(["sh", "-c", where]).output.split()
    assert output != errors or transport.serial == "local", "a driver's words are told apart"

    stream = transport.stream(["sh", "-c", "echo first; echo second; exit 5"])
    with pytest.raises(DeviceError, match="has not ended yet"):
        print(stream.exit_code)
    assert list(stream) == ["first", "second"]
    assert stream.exit_code == 5

    with pytest.raises(DeviceError, match=f"cannot read {folder}/absent: .*No such file"):
        transport.pull(f"{folder}/absent")
    # The connection is still good after a refusal.
    assert transport.pull(f"{folder}/empty") == b""
    assert transport.description


def test_lines_come_when_they_are_said(reached):
    transport, folder = reached
    fifo = f"{folder}/fifo"
    assert transport.shell(["mkfifo", fifo]).exit_code == 0
    # The command waits for the fifo: a second line exists only after the first was read.
    stream = transport.stream(["sh", "-c", 'echo ready; read word <"$0"; echo "$word"', fifo])
    assert next(stream) == "ready"
    transport.shell(["sh", "-c", 'echo go >"$0"', fifo])
    assert list(stream) == ["go"]
    assert stream.exit_code == 0


def test_a_silent_command_runs_into_its_timeout(reached):
    transport, _ = reached
    before = time.monotonic()
    with pytest.raises(DeviceOffline):
        transport.shell(["sleep", "20"], timeout_s=0.4)
    assert time.monotonic() - before < 8


def test_a_command_left_early_ends(reached):
    transport, folder = reached
    pid_file = f"{folder}/pid"
    script = 'echo $$ >"$0"; while :; do echo word; sleep 0.05; done'
    stream = transport.stream(["sh", "-c", script, pid_file])
    assert next(stream) == "word"
    pid = int(transport.pull(pid_file))  # the device is a process of this machine
    assert is_running(pid)
    stream.close()
    wait_until(lambda: not is_running(pid))


@pytest.mark.parametrize("way", [TCP, SERVER])
def test_a_lost_device_is_offline(reach, way):
    transport, daemon = reach(way)
    stream = transport.stream(["sh", "-c", "echo one; sleep 30"])
    assert next(stream) == "one"
    daemon.kill()
    before = time.monotonic()
    with pytest.raises(DeviceOffline, match=daemon.serial):
        list(stream)
    with pytest.raises(DeviceOffline):
        transport.push(b"x", "/data/local/tmp/x")
    assert time.monotonic() - before < 5


@pytest.mark.parametrize("way", [TCP, SERVER])
@pytest.mark.parametrize(("storage", "state"), [("2m", "is full"), ("ro", "is read-only")])
def test_full_and_read_only_storage(reach, way, storage, state):
    transport, daemon = reach(way, storage=storage)
    with pytest.raises(DeviceStorageError) as caught:
        transport.push(bytes(7_000_000), "/data/local/tmp/large")
    assert state in str(caught.value)
    assert "/data/local/tmp/large" in str(caught.value)
    assert caught.value.serial == daemon.serial
    # The device itself is well.
    assert transport.shell(["echo", "still here"]).output == "still here\n"


@pytest.mark.adbd
def test_two_devices_at_once(reach):
    one, first = reach("tcp")
    other, second = reach("tcp", properties={"ro.product.model": "Second"})
    command = ["sh", "-c", "for i in 1 2 3; do echo $i; done; getprop ro.product.model"]
    streams = one.stream(command), other.stream(command)
    lines = list(zip(*streams, strict=True))
    assert lines == [("1", "1"), ("2", "2"), ("3", "3"), ("Test Phone", "Second")]
    if first.private and second.private:
        one.push(b"one", "/data/local/tmp/same")
        other.push(b"two", "/data/local/tmp/same")
        assert [each.pull("/data/local/tmp/same") for each in (one, other)] == [b"one", b"two"]
    for each, stream in zip((one, other), streams, strict=True):
        each.close()
        stream.close()  # without its connection


def test_local_errors_name_the_file(tmp_path):
    transport = LocalTransport("local", "test", {"NNAPI_PROF_TEST": "1", "HOME": None})
    with pytest.raises(DeviceError, match="cannot write /proc/no-such/x"):
        transport.push(b"x", "/proc/no-such/x")
    with pytest.raises(DeviceError, match="cannot run no-such-command"):
        transport.shell(["no-such-command"])
    text = transport.shell(["sh", "-c", 'echo "$NNAPI_PROF_TEST ${HOME-none}"']).output
    assert text == "1 none\n"
    folder = transport.folder
    transport.close()
    transport.close()
    assert not folder.exists()


def test_local_words_between_a_look_and_the_end_are_heard(monkeypatch):
    """On a busy machine a command may speak and end after its pipe was found empty."""
    transport, look = LocalTransport("local", "test", {}), select.select

    def slow(*arguments):
        found = look(*arguments)
        if not found[0]:
            time.sleep(1)
        return found

    monkeypatch.setattr(transports.select, "select", slow)
    command = ["sh", "-c", f"sleep {transports.POLL_S + 0.3}; echo last words"]
    assert transport.shell(command).output == "last words\n"
    transport.close()


@given(st.binary(max_size=300), st.integers(0, 255), st.lists(st.integers(1, 60), max_size=20))
@settings(max_examples=200)
def test_the_marker_is_found_however_the_bytes_arrive(output, code, cuts):
    _, marker = transports.marked_command(["true"])
    whole = output + marker + b"%d\r\n" % code
    chunks = []
    for cut in cuts:
        chunks.append(whole[:cut])
        whole = whole[cut:]
    result = list(transports.until_marker(iter([*chunks, whole]), marker))
    assert result[-1] == code
    assert b"".join(result[:-1]) == output
    # Cut off before the marker is whole, no exit code is made up.
    joined = b"".join([*chunks, whole])
    cut_off = list(transports.until_marker(iter([joined[: len(output) + 10]]), marker))
    assert all(isinstance(chunk, bytes) for chunk in cut_off)


@given(
    st.lists(st.tuples(st.sampled_from([0, 1, 2, 4]), st.binary(max_size=60)), max_size=5),
    st.integers(0, 255),
    st.integers(1, 20),
)
def test_packets_of_a_shell_are_read_however_the_bytes_arrive(said, code, size):
    """0 and 4 are for a command's input and its terminal, and mean nothing here."""
    packets = [*said, (3, bytes([code])), (1, b"of another command")]
    whole = b"".join(struct.pack("<BI", kind, len(body)) + body for kind, body in packets)
    chunks = [whole[at : at + size] for at in range(0, len(whole), size)]
    result = list(until_exit(chunks))
    assert result[-1] == code
    assert b"".join(result[:-1]) == b"".join(body for kind, body in said if kind in (1, 2))
    with pytest.raises(ConnectionResetError):
        list(until_exit([whole[: whole.index(struct.pack("<BI", 3, 1)) + 5]]))
    with pytest.raises(ConnectionResetError):
        list(until_exit([b"\1\xff\xff\xff\x7f"]))


def test_lines_of_old_terminals_and_a_stream_that_breaks():
    assert transports.run_to_end(LineStream(iter([b"a\r\nb\xff\n", b"c", 3]), "x")) == (
        3,
        "a\nb\ufffd\nc\n",
    )
    broken = LineStream(iter([b"a\nhalf"]), "phone")
    assert next(broken) == "a"
    assert next(broken) == "half"
    with pytest.raises(DeviceOffline, match="phone: the connection closed"):
        next(broken)


def test_words_that_mean_full_or_read_only():
    full = storage_error("couldn't write: No space left on device", "/data/x", "phone")
    assert full is not None
    assert str(full).startswith("phone: the storage that holds /data/x is full (couldn't write")
    assert "free some space" in str(full)
    read_only = storage_error("mkdir: Read-only file system\n", "/data/x", "phone")
    assert read_only is not None and "NNAPI_PROF_REMOTE_DIR" in str(read_only)
    assert storage_error("permission denied", "/data/x", "phone") is None


def test_a_line_without_an_end(monkeypatch):
    monkeypatch.setattr(transports, "MAX_LINE_BYTES", 1 << 20)
    pieces = iter([b"x" * 1000] * 5000)
    with pytest.raises(DeviceError, match="phone sends a line of more than 1 MiB without an end"):
        list(LineStream(pieces, "phone"))
    assert len(list(pieces)) > 3000  # it was not read to its end


def test_a_line_in_many_pieces_takes_no_longer_than_its_length():
    began = time.monotonic()
    stream = LineStream(iter([*[b"0123456789" * 10] * 100_000, b"\n", 0]), "phone")
    assert len(next(stream)) == 10_000_000
    assert time.monotonic() - began < 5


def test_a_command_that_does_not_stop_talking(monkeypatch):
    monkeypatch.setattr(transports, "MAX_OUTPUT_BYTES", 1 << 20)
    with pytest.raises(DeviceError, match="phone says more than 1 MiB"):
        transports.run_to_end(LineStream(iter([b"word\n" * 1000] * 1000), "phone"))


def test_a_marker_that_does_not_end():
    chunks = iter([b"@exit-x:", *[b"1" * 1000] * 1000])
    passed = list(transports.until_marker(chunks, b"@exit-x:"))
    assert max(map(len, passed)) < 2100 and sum(map(len, passed)) == 1_000_008
