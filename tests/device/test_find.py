"""Which device is meant, and how adb-shell lets one in: keys, consent and refusals."""

import contextlib
import json
import re
import stat
from types import SimpleNamespace
from unittest.mock import Mock, PropertyMock

import pytest

from nnapi_prof import errors
from nnapi_prof.device.find import list_devices, list_phones, open_device, phone_file
from nnapi_prof.device.transport import adb
from nnapi_prof.device.transport.adb_server import AdbServer, ServerTransport, server_address
from nnapi_prof.errors import DeviceError, DeviceNotFound, DeviceOffline, DeviceUnauthorized
from tests.device.asking_phone import asking_phone as asking_phone
from tests.processes import wait_until


@pytest.fixture(autouse=True)
def nothing_on_usb(monkeypatch):
    """The developer's own phone takes no part in these tests."""
    monkeypatch.setattr("nnapi_prof.device.transport.adb.UsbTransport", None)


def test_no_device_is_the_default_simulated_phone(built_host):
    words = "no phone is connected: using the simulated phone sim:npu-phone.*"  # one line
    with open_device() as device:
        assert device.serial == "sim:npu-phone"
        assert re.fullmatch(words, device.note)
        assert device.client.info().simulated


def test_local_and_simulated_by_name(built_host, tmp_path, monkeypatch):
    monkeypatch.setenv("NNAPI_EMULATOR_PHONE", str(phone_file("npu-phone")))
    with open_device("local") as device:
        assert device.note is None
        assert device.transport.description.startswith("this host")
        assert not device.client.info().simulated
    with open_device("sim:gpu-phone") as device:
        assert device.client.info().phone == "gpu-phone"
    path = tmp_path / "mine.json"
    own = json.loads(phone_file("gpu-phone").read_text()) | {"name": "my-phone"}
    path.write_text(json.dumps(own))
    with open_device(f"sim:{path}") as device:
        assert device.client.info().phone == "my-phone"


def test_unknown_devices():
    words = "^no simulated phone 'stranger': there are dsp-phone, gpu-phone"
    with pytest.raises(DeviceNotFound, match=words) as caught:
        open_device("sim:stranger")
    assert caught.value.exit_code == 1
    with pytest.raises(DeviceNotFound, match="no device R5CT: there are local, sim:dsp-phone, sim"):
        open_device("R5CT")
    with pytest.raises(DeviceNotFound, match=r"no device at 127.0.0.1:1: nothing listens"):
        open_device("127.0.0.1:1")


def test_the_environment_names_a_device(monkeypatch, start_daemon):
    daemon = start_daemon()
    monkeypatch.setenv("ANDROID_SERIAL", daemon.serial)
    with open_device() as device:
        assert (device.serial, device.note) == (daemon.serial, None)
        assert device.transport.description == "adb over TCP"


def test_the_only_connected_phone(adb_server, start_daemon):
    daemon = start_daemon()
    adb_server.connect(daemon.serial)
    with open_device() as device:
        assert device.serial == daemon.serial
        assert device.note == f"device {daemon.serial}, the only one"
    # The server owns it, so the server is asked also where the address is given.
    with open_device(daemon.serial) as device:
        assert isinstance(device.transport, ServerTransport)


def test_several_phones_need_a_name(adb_server, start_daemon):
    serials = [start_daemon().serial for _ in range(2)]
    for serial in serials:
        adb_server.connect(serial)
    with pytest.raises(DeviceError, match="more than one device is connected") as caught:
        open_device()
    assert all(f"{serial} (device)" in str(caught.value) for serial in serials)
    with open_device(serials[1]) as device:
        assert device.serial == serials[1]
    assert {d.serial for d in AdbServer().devices()} == set(serials)


def test_everything_listed(adb_server, start_daemon):
    daemon = start_daemon()
    adb_server.connect(daemon.serial)
    listed = list_devices()
    assert [(d.serial, d.kind, d.state) for d in listed] == [
        (daemon.serial, "adb server", "device"),
        ("local", "local", "device"),
        *((f"sim:{name}", "simulated", "device") for name in list_phones()),
    ]
    assert set(list_phones()) >= {"npu-phone", "gpu-phone"}


# ---- keys, consent and refusals ------------------------------------------------------------------


def test_a_known_key_is_let_in(asking_phone):
    key = adb.key_path()
    phone = asking_phone(accepts=((key.parent / "adbkey.pub").read_bytes(),))
    transport = adb.connect_tcp("127.0.0.1", phone.port)
    assert transport.serial == phone.serial
    assert phone.offered == []
    transport.close()


def test_a_stranger_is_told_to_ask_the_owner(asking_phone, monkeypatch):
    monkeypatch.setattr(adb, "CONSENT_TIMEOUT_S", 0.2)
    monkeypatch.setattr(adb, "LINK_TIMEOUT_S", 0.5)
    phone = asking_phone()
    heard: list[str] = []
    with pytest.raises(DeviceUnauthorized) as caught:
        adb.connect_tcp("127.0.0.1", phone.port, notify=heard.append)
    assert str(caught.value) == (
        f"{phone.serial} does not know this computer yet: confirm 'Allow USB debugging' on the "
        "phone's screen, then run again"
    )
    assert caught.value.serial == phone.serial
    assert len(heard) == 1 and phone.serial in heard[0]
    public = (adb.key_path().parent / "adbkey.pub").read_bytes()
    assert phone.offered == [public + b"\0"]


def test_a_server_tells_that_a_phone_waits_for_consent(asking_phone, adb_server):
    phone = asking_phone()
    adb_server.adb("connect", phone.serial)
    with pytest.raises(DeviceUnauthorized, match="confirm 'Allow USB debugging'"):
        AdbServer().open(phone.serial)


def test_a_server_tells_that_a_phone_is_offline(asking_phone, adb_server):
    phone = asking_phone(silent=True)
    connecting = adb_server.begin_connect(phone.serial)
    try:
        wait_until(lambda: AdbServer().find(phone.serial) is not None, timeout_s=10)
        result = AdbServer().find(phone.serial)
        assert result.state in ("offline", "connecting")
        with pytest.raises(DeviceOffline, match=f"{phone.serial} is {result.state}"):
            AdbServer().open(phone.serial)
    finally:
        connecting.kill()
        connecting.wait()


def test_keys_are_made_once_and_private(tmp_path, monkeypatch):
    monkeypatch.delenv("ANDROID_USER_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    key = adb.key_path()
    assert key == tmp_path / ".android" / "adbkey"
    assert stat.S_IMODE(key.stat().st_mode) == 0o600
    assert b"PRIVATE KEY" in key.read_bytes()
    before = key.read_bytes()
    assert adb.key_path() == key
    assert key.read_bytes() == before
    # A private key whose public half was lost gets it back, and stays.
    public = key.with_name("adbkey.pub")
    remainder = public.read_bytes().split()[0]
    public.unlink()
    adb.key_path()
    assert public.read_bytes().split()[0] == remainder
    assert key.read_bytes() == before
    assert sorted(p.name for p in key.parent.iterdir()) == ["adbkey", "adbkey.pub"]

    monkeypatch.setenv("ANDROID_SDK_HOME", str(tmp_path / "sdk"))
    assert adb.key_path() == tmp_path / "sdk" / ".android" / "adbkey"
    monkeypatch.setenv("ADB_VENDOR_KEYS", f"{tmp_path}/absent:{key}")
    assert adb.key_path() == key


def test_a_key_that_cannot_be_made_or_read(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("ANDROID_USER_HOME", str(tmp_path / "file"))
    with pytest.raises(DeviceError, match=r"the adb key .*/file/adbkey cannot be made"):
        adb.key_path()
    broken = tmp_path / "adbkey"
    broken.write_text("no key")
    (tmp_path / "adbkey.pub").write_text("no key")
    with pytest.raises(DeviceError, match=r"the adb key .*adbkey cannot be read"):
        adb.connect_tcp("127.0.0.1", 1, key=broken)


def test_usb_without_libusb_or_without_a_phone(monkeypatch):
    monkeypatch.setattr(adb, "UsbTransport", None)
    assert adb.list_usb() == []
    with pytest.raises(DeviceError, match=r"libusb-1.0 is missing.*adb start-server"):
        adb.connect_usb("SERIAL")
    monkeypatch.undo()
    if adb.UsbTransport is not None:
        with pytest.raises(DeviceError, match=r"no phone NO-SUCH-SERIAL on USB|cannot be opened"):
            adb.connect_usb("NO-SUCH-SERIAL")


def test_phones_on_usb(start_daemon, monkeypatch):
    """No phone is plugged in here: the bytes of this one take a way over TCP."""
    usb1 = pytest.importorskip("usb1")

    daemon = start_daemon()
    links = [Mock(adb.TcpLink, wraps=adb.TcpLink("127.0.0.1", daemon.port)) for _ in range(3)]
    for link in links[:2]:
        link.serial_number = "on usb"
    links[1].connect.side_effect = usb1.USBErrorBusy
    type(links[2]).serial_number = PropertyMock(side_effect=usb1.USBErrorAccess)
    usb = SimpleNamespace(
        find_adb=lambda serial, default_transport_timeout_s: links[int(serial)],
        find_all_adb_devices=lambda: links,
    )
    monkeypatch.setattr(adb, "UsbTransport", usb)
    closed = "USB, cannot be opened: LIBUSB_ERROR_ACCESS [-3]"
    assert adb.list_usb() == [("on usb", "USB")] * 2 + [("?", closed)]
    for number, name, why in (("1", "on usb", "BUSY"), ("2", "2", "ACCESS")):
        with pytest.raises(DeviceError, match=rf"phone {name} on USB cannot be opened \(.*_{why} "):
            adb.connect_usb(number)
    with contextlib.closing(adb.connect_usb("0")) as phone:
        assert (phone.serial, phone.description) == ("on usb", "adb over USB")
        assert phone.shell(["echo", "here"]) == (0, "here\n")
        monkeypatch.setattr(adb, "_PATIENCE_S", 0.0)  # as on a slow link
        monkeypatch.setattr(adb, "_HURRY_S", 0.0)
        path, content = f"{daemon.remote_dir}-large", bytes(range(256)) * 8192
        phone.push(content, path)
        assert phone.pull(path) == content
        monkeypatch.setattr(adb, "MAX_FILE_BYTES", 1 << 20)
        with pytest.raises(DeviceError, match="on usb sends a file of more than 1 MiB, which no"):
            phone.pull(path)


@pytest.mark.parametrize(
    ("name", "value", "address"),
    [
        ("ADB_SERVER_SOCKET", "tcp:5038", ("127.0.0.1", 5038)),
        ("ADB_SERVER_SOCKET", "tcp:host:5038", ("host", 5038)),
        ("ADB_SERVER_SOCKET", "tcp:[::1]:5038", ("::1", 5038)),
        ("ADB_SERVER_SOCKET", "localfilesystem:/tmp/adb", "/tmp/adb"),
        ("ANDROID_ADB_SERVER_PORT", "5040", ("127.0.0.1", 5040)),
        ("ANDROID_ADB_SERVER_ADDRESS", "host", ("host", 5037)),
        ("UNRELATED", "", ("127.0.0.1", 5037)),
    ],
)
def test_the_servers_address(monkeypatch, name, value, address):
    monkeypatch.delenv("ADB_SERVER_SOCKET")
    monkeypatch.setenv(name, value)
    assert server_address() == address


@pytest.mark.parametrize(
    ("name", "value"), [("ADB_SERVER_SOCKET", "vsock:3"), ("ANDROID_ADB_SERVER_PORT", "many")]
)
def test_a_wrong_address_is_refused(monkeypatch, name, value):
    monkeypatch.delenv("ADB_SERVER_SOCKET")
    monkeypatch.setenv(name, value)
    with pytest.raises(errors.UsageError, match=name):
        server_address()
