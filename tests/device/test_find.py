"""Which device is meant: said by --device, by the environment, or by what is connected."""

import json

import pytest

from nnapi_prof.device.find import list_devices, list_phones, open_device, phone_file
from nnapi_prof.device.transport.adb_server import AdbServer, ServerTransport
from nnapi_prof.errors import DeviceError, DeviceNotFound


@pytest.fixture(autouse=True)
def nothing_on_usb(monkeypatch):
    """The developer's own phone takes no part in these tests."""
    monkeypatch.setattr("nnapi_prof.device.transport.adb.UsbTransport", None)


def test_no_device_is_the_default_simulated_phone(built_host):
    with open_device() as device:
        assert device.serial == "sim:npu-phone"
        assert device.note is not None
        assert device.note.startswith("no phone is connected: using the simulated phone sim:npu")
        assert "\n" not in device.note
        assert device.client.info().simulated


def test_local_and_simulated_by_name(built_host, tmp_path):
    with open_device("local") as device:
        assert device.note is None
        assert device.transport.description.startswith("this host")
        assert not device.client.info().simulated
    with open_device("sim:gpu-phone") as device:
        assert device.client.info().phone == "gpu-phone"
    own = json.loads(phone_file("gpu-phone").read_text())
    own["name"] = "my-phone"
    path = tmp_path / "mine.json"
    path.write_text(json.dumps(own))
    with open_device(f"sim:{path}") as device:
        assert device.client.info().phone == "my-phone"


def test_local_is_never_simulated(built_host, monkeypatch):
    monkeypatch.setenv("NNAPI_EMULATOR_PHONE", str(phone_file("npu-phone")))
    with open_device("local") as device:
        assert not device.client.info().simulated


def test_unknown_simulated_phone():
    with pytest.raises(DeviceNotFound) as caught:
        open_device("sim:stranger")
    assert str(caught.value).startswith("no simulated phone 'stranger': there are dsp-phone, gpu-p")
    assert caught.value.exit_code == 1


def test_unknown_serial_lists_what_there_is():
    with pytest.raises(DeviceNotFound, match="no device R5CT: there are local, sim:dsp-phone, sim"):
        open_device("R5CT")
    with pytest.raises(DeviceNotFound, match="nothing listens"):
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


def test_no_server_lists_no_phone():
    assert AdbServer().devices() == []
    assert {d.kind for d in list_devices()} == {"local", "simulated"}
