"""From what the user says (or does not say) to a device."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass

from nnapi_prof.device.adb_server import AdbServer
from nnapi_prof.device.agent import AgentClient
from nnapi_prof.device.emulator import (
    DEFAULT_PHONE,
    LOCAL,
    SIMULATED,
    list_phones,
    open_local,
    open_simulated,
    phone_description,
)
from nnapi_prof.device.transport import Transport
from nnapi_prof.errors import DeviceError, DeviceNotFound, spelled
from nnapi_prof.toolchain import Progress

_HOST_PORT = re.compile(r"(?P<host>\[[0-9a-fA-F:]+\]|[^:\[\]/]+):(?P<port>\d{1,5})")
_IPV4 = re.compile(r"\d{1,3}(\.\d{1,3}){3}")


@dataclass(frozen=True, slots=True)
class OpenDevice:
    """A device that answers. ``note`` is a line for the user where the choice was ours."""

    client: AgentClient
    note: str | None = None

    @property
    def transport(self) -> Transport:
        return self.client.transport

    @property
    def serial(self) -> str:
        return self.client.serial

    def close(self) -> None:
        self.client.close()

    def __enter__(self) -> OpenDevice:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


@dataclass(frozen=True, slots=True)
class ListedDevice:
    """A line of ``nnapi-prof devices``. ``serial`` is what ``--device`` takes.

    ``kind`` is ``adb server``, ``usb``, ``local`` or ``simulated``; ``state`` is ``device`` where
    it can be used, else what adb calls it (``unauthorized``, ``offline``, ...).
    """

    serial: str
    kind: str
    state: str
    description: str


def open_device(spec: str | None = None, progress: Progress | None = None) -> OpenDevice:
    """Opens what ``--device`` names: a serial, HOST:PORT, ``local``, ``sim:NAME``.

    With None: $ANDROID_SERIAL, else the only connected phone, else the default simulated phone.
    ``progress`` hears what takes time: building, pushing, a phone that asks its owner.

    Raises DeviceNotFound, DeviceUnauthorized, DeviceOffline, BuildError; DeviceError where several
    phones are connected and none is named.
    """
    if spec is None:
        spec = os.environ.get("ANDROID_SERIAL") or None
    if spec is not None:
        return OpenDevice(_open(spec, progress))
    phones = connected()
    if len(phones) > 1:
        listed = ", ".join(f"{p.serial} ({p.state})" for p in phones)
        raise DeviceError(
            f"more than one device is connected: {listed}: choose one with "
            + spelled("--device SERIAL", "device='SERIAL'")
        )
    if phones:
        phone = phones[0]
        return OpenDevice(_open(phone.serial, progress), f"device {phone.serial}, the only one")
    serial = f"{SIMULATED}{DEFAULT_PHONE}"
    return OpenDevice(
        _open(serial, progress),
        f"no phone is connected: using the simulated phone {serial} "
        "(its latencies are computed, not measured)",
    )


def list_devices() -> list[ListedDevice]:
    """Everything ``--device`` could name now; devices that cannot be used are listed as such."""
    here = [ListedDevice(LOCAL, "local", "device", "this host")]
    here += [
        ListedDevice(f"{SIMULATED}{name}", "simulated", "device", phone_description(name))
        for name in list_phones()
    ]
    return connected() + here


def connected() -> list[ListedDevice]:
    """Phones on a running adb server and on USB, each once."""
    phones = [
        ListedDevice(d.serial, "adb server", d.state, d.description) for d in AdbServer().devices()
    ]
    known = {phone.serial for phone in phones}
    # adb-shell brings cryptography and libusb: too slow for commands that need no device.
    from nnapi_prof.device.adb import list_usb

    for serial, description in list_usb():
        if serial not in known:
            state = "no permissions" if serial == "?" else "device"
            phones.append(ListedDevice(serial, "usb", state, description))
    return phones


def _open(spec: str, progress: Progress | None) -> AgentClient:
    if spec == LOCAL:
        return open_local(progress)
    if spec.startswith(SIMULATED):
        return open_simulated(spec.removeprefix(SIMULATED), progress)
    return AgentClient(_open_adb(spec, progress), progress=progress)


def _open_adb(spec: str, progress: Progress | None) -> Transport:
    server = AdbServer()
    if server.find(spec) is not None:
        return server.open(spec)
    from nnapi_prof.device import adb

    if address := _HOST_PORT.fullmatch(spec):
        return adb.connect_tcp(address["host"].strip("[]"), int(address["port"]), notify=progress)
    if _IPV4.fullmatch(spec):
        return adb.connect_tcp(spec, notify=progress)
    if spec not in {serial for serial, _ in adb.list_usb()}:
        listed = ", ".join(d.serial for d in list_devices())
        raise DeviceNotFound(
            f"no device {spec}: there are {listed}; HOST:PORT reaches a phone over the network",
            spec,
        )
    return adb.connect_usb(spec, notify=progress)
