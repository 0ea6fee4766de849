"""adb's key and server, and phones on USB."""

import contextlib
import socket
import threading
from pathlib import Path

import pytest
from adb_shell.auth.keygen import keygen

from nnapi_prof.device.transport.adb import key_path
from nnapi_prof.doctor import Host, adb, run
from nnapi_prof.doctor.adb import adb_key
from tests.doctor.common import problem, script, warning, well, without_rights
from tests.processes import wait_until

# ---- the key -----------------------------------------------------------------------------------


@pytest.fixture
def key(open_folder, monkeypatch):
    """A key pair of this host."""
    monkeypatch.setenv("ANDROID_USER_HOME", str(open_folder))
    return key_path()


def test_no_key_is_made(open_folder, monkeypatch):
    monkeypatch.setenv("ANDROID_USER_HOME", str(open_folder))
    assert well(adb_key(Host())).startswith(f"{open_folder / 'adbkey'} is not there yet")
    assert list(open_folder.iterdir()) == []


def test_a_key_of_another_user(key):
    told = f"{key} cannot be read: Permission denied", f"sudo chown $USER '{key}'"
    assert problem(without_rights(adb_key, Host())) == told  # mode 600, as it was made
    key.chmod(0o644)
    Path(f"{key}.pub").chmod(0)
    words, _ = problem(without_rights(adb_key, Host()))
    assert words == f"{key}.pub cannot be read: Permission denied"


def test_a_key_and_one_that_others_may_read(key):
    assert well(adb_key(Host())) == f"{key} is readable, and its public half matches"
    key.chmod(0o644)
    words = f"{key} may be used by other users of this host (mode 644)"
    assert warning(adb_key(Host())) == (words, f"chmod 600 '{key}'")


@pytest.mark.parametrize("content", ["hello", "", "-----BEGIN PRIVATE KEY-----\nAAAA\n"])
def test_a_damaged_key(key, content):
    key.write_text(content)
    words, fix = problem(adb_key(Host()))
    assert words == f"{key} holds no RSA key of 2048 bits"
    assert fix.startswith(f"mv '{key}' '{key}.old'")


def test_halves_of_two_keys(key, tmp_path):
    keygen(str(tmp_path / "other"))
    (tmp_path / "other.pub").replace(f"{key}.pub")
    words, fix = problem(adb_key(Host()))
    assert words.startswith(f"{key}.pub is the public half of another key")
    Path(f"{key}.pub").rename(f"{key}.pub.old")  # the fix
    assert "its public half is made" in well(adb_key(Host())) and fix.startswith("mv ")
    assert key_path() == key and "matches" in well(adb_key(Host()))


# ---- the server --------------------------------------------------------------------------------


@pytest.fixture
def peer(monkeypatch):
    """Listens where the adb server is expected; ``peer(ANSWER)`` is what it says to anything."""
    with contextlib.ExitStack() as open_ones:

        def serve(listener: socket.socket, answer: bytes | None) -> None:
            with contextlib.suppress(OSError):
                while True:
                    link, _ = listener.accept()
                    open_ones.callback(link.close)
                    if answer is not None:
                        link.recv(100)
                        link.sendall(answer)
                        link.close()

        def start(answer: bytes | None) -> str:
            listener = socket.create_server(("127.0.0.1", 0))
            open_ones.callback(listener.close)
            open_ones.callback(listener.shutdown, socket.SHUT_RDWR)
            threading.Thread(target=serve, args=(listener, answer), daemon=True).start()
            where = f"127.0.0.1:{listener.getsockname()[1]}"
            monkeypatch.setenv("ADB_SERVER_SOCKET", f"tcp:{where}")
            return where

        yield start


def test_no_server(host):
    assert well(adb.adb_server(host)).startswith("none runs at ")


def test_a_real_server_and_its_phones(host, adb_server, asking_phone, start_daemon):
    stranger, friend = asking_phone(), start_daemon()
    adb_server.adb("connect", stranger.serial)
    adb_server.connect(friend.serial)
    assert f"at 127.0.0.1:{adb_server.port}: it owns the phones" in well(adb.adb_server(host))
    words, fix = problem(adb.served_phones(host))
    assert words == f"{stranger.serial} is unauthorized"
    assert fix.startswith("confirm 'Allow USB debugging' on the phone's screen")
    adb_server.adb("disconnect", stranger.serial)
    assert well(adb.served_phones(host)).endswith("is ready, by the adb server")


def test_an_offline_phone(host, adb_server, asking_phone):
    phone = asking_phone(silent=True)
    connecting = adb_server.begin_connect(phone.serial)
    try:
        wait_until(lambda: adb.served_phones(host) is not None)
        words, fix = problem(adb.served_phones(host))
        assert words.split(" is ")[1] in ("offline", "connecting")
        assert "adb reconnect" in fix
    finally:
        connecting.kill()
        connecting.wait()


def test_a_server_of_another_version(host, peer, tmp_path, monkeypatch):
    script(tmp_path / "adb", "echo Android Debug Bridge version 1.0.41")
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    where = peer(b"OKAY0004001f")
    words, fix = warning(adb.adb_server(host))
    differs = f"the server at {where} has version 31, the `adb` on the PATH 41"
    assert words.startswith(f"{differs}: that one ends the server")
    assert fix.startswith("adb kill-server && adb start-server")
    peer(b"OKAY00040029")
    assert well(adb.adb_server(host)).startswith("version 41, at ")
    (tmp_path / "adb").write_text("no program")
    peer(b"OKAY00040028")
    assert well(adb.adb_server(host)).startswith("version 40, at ")
    monkeypatch.setenv("PATH", str(tmp_path / "none"))
    peer(b"OKAY00040028")
    assert well(adb.adb_server(host)).startswith("version 40, at ")


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "unknown answer b'HTTP'"),
        (b"", "the adb server closed the connection"),
        (b"OKAY0004", "the adb server closed the connection"),
        (b"OKAY0004none", "invalid literal"),
        (b"FAIL0005never", "never"),
        (None, "timed out"),
    ],
)
def test_something_else_on_the_port(host, peer, answer, words):
    where = peer(answer)
    finding, fix = problem(adb.adb_server(host))
    assert finding.startswith(f"what listens at {where} is not an adb server: ")
    assert words in finding
    assert "ADB_SERVER_SOCKET" in fix


def test_a_server_named_wrongly(host, monkeypatch):
    monkeypatch.setenv("ADB_SERVER_SOCKET", "carrier-pigeon")
    words, fix = problem(run([adb.ADB], host), "adb server")
    assert words == "ADB_SERVER_SOCKET is 'carrier-pigeon'"
    assert fix.startswith("write tcp:PORT") and fix.endswith("or unset it")


# ---- USB ---------------------------------------------------------------------------------------


@pytest.fixture
def plugged(open_folder):
    """What the kernel shows of a phone with USB debugging on, and of a keyboard."""
    interfaces = {"1-1:1.0": "06 01 01", "1-1:1.1": "ff 42 01", "1-2:1.0": "03 01 01"}
    parts = ("bInterfaceClass", "bInterfaceSubClass", "bInterfaceProtocol")
    files = {name: zip(parts, kind.split(), strict=True) for name, kind in interfaces.items()}
    facts = {"busnum": "1", "devnum": "7", "serial": "R5CT12", "product": "Galaxy", "extra": ""}
    for name, texts in {**files, "1-1": facts.items()}.items():
        (open_folder / "sys" / name).mkdir(parents=True)
        for file, text in texts:
            (open_folder / "sys" / name / file).write_text(f"{text}\n")
    node = open_folder / "dev" / "001" / "007"
    node.parent.mkdir(parents=True)
    node.touch(0o600)
    return Host(open_folder / "sys", open_folder / "dev")


def test_no_usb(host):
    assert well(adb.phones(host)) == "none is on USB"
    host.usb_devices.rmdir()
    words, fix = warning(adb.phones(host))
    assert "shows no USB" in words and "ADB_SERVER_SOCKET" in fix


def test_a_phone_that_can_or_may_not_be_opened_or_is_gone(plugged):
    assert well(adb.phones(plugged)) == "Galaxy R5CT12 can be opened"
    assert problem(without_rights(adb.phones, plugged)) == (
        f"Galaxy R5CT12: this user may not open {plugged.usb_nodes}/001/007",
        "sudo apt install android-sdk-platform-tools-common && sudo usermod -aG plugdev $USER, "
        "then log in again and replug the phone",
    )
    (plugged.usb_nodes / "001" / "007").unlink()
    words, fix = problem(adb.phones(plugged))
    assert words.endswith("007 cannot be opened: No such file or directory") and "replug" in fix


def test_a_phone_that_somebody_or_the_adb_server_has(plugged, peer):
    (plugged.usb_devices / "1-1:1.1" / "driver").mkdir()
    words, fix = problem(adb.phones(plugged))
    assert words.startswith("Galaxy R5CT12: a process has it open, and no adb server")
    assert f"sudo fuser -v {plugged.usb_nodes / '001' / '007'}" in fix
    line = b"R5CT12 device product:x model:Galaxy\n"
    peer(b"OKAY%04x" % len(line) + line)
    assert well(adb.phones(plugged)) == "Galaxy R5CT12: the adb server owns it and is used"


def test_libusb(monkeypatch):
    monkeypatch.setattr("nnapi_prof.device.transport.adb.UsbTransport", object)  # as with libusb
    assert well(adb.libusb(Host())) == "found"
    monkeypatch.setattr("nnapi_prof.device.transport.adb.UsbTransport", None)
    words, fix = warning(adb.libusb(Host()))
    assert words.startswith("libusb-1.0 is missing") and "libusb-1.0-0" in fix
