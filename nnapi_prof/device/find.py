"""Find the device that the user names, or a default: a phone, this host, a simulated phone.

``local`` measures this machine: through its own libneuralnetworks.so where it has one, else through
our emulator in real time. A simulated phone ``sim:NAME`` is the emulator with the latencies of a
description (device_agent/emulator/PHONES.md). Both run the agent as a child process.
"""

from __future__ import annotations

import ctypes
import json
import os
import re
from dataclasses import dataclass
from pathlib import Path

from nnapi_prof.device.agent import THROUGH, AgentClient
from nnapi_prof.device.build import build_host
from nnapi_prof.device.install import InstalledAgent
from nnapi_prof.device.transport import LocalTransport, Transport
from nnapi_prof.device.transport.adb_server import AdbServer
from nnapi_prof.device_agent import SOURCE_DIR
from nnapi_prof.errors import (
    DeviceError,
    DeviceNotFound,
    UsageError,
    did_you_mean,
    for_caller,
    option_name,
)
from nnapi_prof.progress import Notify

_HOST_PORT = re.compile(r"(?P<host>\[[0-9a-fA-F:]+\]|[^:\[\]/]+):(?P<port>\d{1,5})")
_IPV4 = re.compile(r"\d{1,3}(\.\d{1,3}){3}")


@dataclass(frozen=True, slots=True)
class OpenDevice:
    """A device that answers. ``note`` tells the user which device was chosen by default."""

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


def open_device(spec: str | None = None, progress: Notify | None = None) -> OpenDevice:
    """Opens the device that ``--device`` names: a serial, HOST:PORT, ``local`` or ``sim:NAME``.
    With ``,library=PATH`` behind it, its accelerators are those of that library on it, an NNAPI
    support library or NeuronAdapter.

    With None: $ANDROID_SERIAL, else the only connected phone, else the default simulated phone.
    ``progress`` is called at slow steps: building, pushing, a phone that asks its owner.

    Raises DeviceNotFound, DeviceUnauthorized, DeviceOffline, BuildError; DeviceError where several
    phones are connected and none is named; UsageError where the library's path is empty.
    """
    spec, library = split_spec(spec)
    if spec is None:
        spec = os.environ.get("ANDROID_SERIAL") or None
    if spec is not None:
        return OpenDevice(_open(spec, library, progress))
    phones = connected()
    if len(phones) > 1:
        listed = ", ".join(f"{p.serial} ({p.state})" for p in phones)
        raise DeviceError(
            f"more than one device is connected: {listed}: choose one with "
            + for_caller("--device SERIAL", "device='SERIAL'")
        )
    if phones:
        phone = phones[0]
        return OpenDevice(
            _open(phone.serial, library, progress), f"device {phone.serial}, the only one"
        )
    serial = f"{SIMULATED}{DEFAULT_PHONE}"
    return OpenDevice(
        _open(serial, library, progress),
        f"no phone is connected: using the simulated phone {serial} "
        "(its latencies are computed, not measured)",
    )


def split_spec(spec: str | None) -> tuple[str | None, str | None]:
    """Splits a value of ``--device`` into device and path behind ``,library=``; None where missing.

    Raises UsageError where that path is empty.
    """
    device, through, library = (spec or "").partition(THROUGH)
    if through and not library:
        raise UsageError(f"{spec!r} names no library", f"write {device}{THROUGH}PATH")
    return device or None, library or None


def named_with(device: str | None, library: str) -> str:
    """Joins ``--device`` and ``--nnapi-library`` into one text that :func:`open_device` takes.

    Raises UsageError where the device is named with a library already.
    """
    if split_spec(device)[1] is not None:
        raise UsageError(
            f"{device!r} names a library, and so does {option_name('nnapi-library')}",
            "leave one out",
        )
    return f"{device or ''}{THROUGH}{library}"


def list_devices() -> list[ListedDevice]:
    """Lists everything that ``--device`` could name now, also devices that cannot be used."""
    here = [ListedDevice(LOCAL, "local", "device", "this host")]
    here += [
        ListedDevice(f"{SIMULATED}{name}", "simulated", "device", phone_description(name))
        for name in list_phones()
    ]
    return connected() + here


def connected() -> list[ListedDevice]:
    """Lists phones on a running adb server and on USB, each once."""
    phones = [
        ListedDevice(d.serial, "adb server", d.state, d.description) for d in AdbServer().devices()
    ]
    serials = {phone.serial for phone in phones}
    # adb-shell imports cryptography and libusb: too slow for commands that need no device.
    from nnapi_prof.device.transport.adb import list_usb

    for serial, description in list_usb():
        if serial not in serials:
            state = "no permissions" if serial == "?" else "device"
            phones.append(ListedDevice(serial, "usb", state, description))
    return phones


def _open(spec: str, library: str | None, progress: Notify | None) -> AgentClient:
    client = _connected(spec, library, progress)
    if library is None:
        return client
    try:
        info = client.info()
        if info.nnapi.error is not None or not info.nnapi.accelerators:
            raise DeviceError(
                f"{client.serial}: no accelerator is reached through {library}: "
                f"{info.nnapi.error or 'it has none'}",
                "name a file on the device that its linker may open",
                serial=client.serial,
            )
    except BaseException:
        client.close()
        raise
    return client


def _connected(spec: str, library: str | None, progress: Notify | None) -> AgentClient:
    if spec == LOCAL:
        return open_local(progress, library)
    if spec.startswith(SIMULATED):
        return open_simulated(spec.removeprefix(SIMULATED), progress, library)
    refuse_fleet(spec)
    return AgentClient(_open_adb(spec, progress), nnapi_library=library, progress=progress)


def _open_adb(spec: str, progress: Notify | None) -> Transport:
    server = AdbServer()
    if server.find(spec) is not None:
        return server.open(spec)
    from nnapi_prof.device.transport import adb

    if address := _HOST_PORT.fullmatch(spec):
        return adb.connect_tcp(address["host"].strip("[]"), int(address["port"]), notify=progress)
    if _IPV4.fullmatch(spec):
        return adb.connect_tcp(spec, notify=progress)
    if spec not in {serial for serial, _ in adb.list_usb()}:
        listed = ", ".join(d.serial for d in list_devices())
        raise DeviceNotFound(
            f"no device {spec}",
            f"there are {listed}; HOST:PORT reaches a phone over the network",
            serial=spec,
        )
    return adb.connect_usb(spec, notify=progress)


LOCAL = "local"
SIMULATED = "sim:"
DEFAULT_PHONE = "npu-phone"
PHONES_DIR = SOURCE_DIR / "emulator" / "phones"
LIBRARY = "libneuralnetworks.so"


def refuse_fleet(device: str) -> None:
    """Raises UsageError for the name of a phone of a simulated fleet, as in earlier versions."""
    if device.startswith("sim-fleet:"):
        raise UsageError(
            "`sim-fleet:` was removed: sim:PATH.json takes any description of a phone, and"
            " benchmarks/draw_phones.py writes drawn ones"
        )


def list_phones() -> list[str]:
    """Lists the names of the bundled simulated phones, for ``sim:NAME``."""
    return sorted(path.stem for path in PHONES_DIR.glob("*.json"))


def phone_description(name: str) -> str:
    """Returns the sentence that describes a bundled phone."""
    described = json.loads((PHONES_DIR / f"{name}.json").read_text(encoding="utf-8"))
    return str(described["description"])


def phone_file(name: str) -> Path:
    """Returns the description of a simulated phone, by a bundled name or the path of a JSON file.

    Raises DeviceNotFound, listing the names.
    """
    own = Path(name)
    if own.suffix == ".json" and own.is_file():
        return own.absolute()
    path = PHONES_DIR / f"{name}.json"
    if name not in list_phones():
        raise DeviceNotFound(
            f"no simulated phone {name!r}{did_you_mean(name, list_phones())}: "
            f"there are {', '.join(list_phones()) or 'none'}; "
            "sim:PATH.json takes a description of your own",
            serial=f"{SIMULATED}{name}",
        )
    return path


def open_simulated(
    name: str, progress: Notify | None = None, library: str | None = None
) -> AgentClient:
    """Opens the simulated phone ``sim:name``; ``library`` is the emulator with other entry points.

    Raises DeviceNotFound, BuildError, and DeviceError where a description is damaged.
    """
    description = phone_file(name)
    built = build_host(progress=progress)
    transport = LocalTransport(
        f"{SIMULATED}{name}",
        "simulated phone on this host",
        {"NNAPI_EMULATOR_PHONE": str(description)},
    )
    client = _client(transport, built.agent, built.library, library)
    try:
        info = client.info()  # kept for the next call
        wrong = None if info.nnapi.stalled else info.nnapi.error
        if wrong is not None and library is None:  # else _open reports it
            words = wrong.removeprefix("NNAPI_EMULATOR_PHONE ")
            raise DeviceError(
                f"no phone can be simulated by {words}",
                "fix the description (device_agent/emulator/PHONES.md)",
                serial=client.serial,
            )
    except BaseException:
        client.close()
        raise
    return client


def open_local(progress: Notify | None = None, library: str | None = None) -> AgentClient:
    """Opens this machine, in real time; its first use builds XNNPACK. ``library`` replaces its
    NNAPI. Raises BuildError."""
    built = build_host(progress=progress, fast=True)
    own = has_system_nnapi()
    words = f"this host, {'its own NNAPI' if own else 'emulated NNAPI in real time'}"
    # Removed, so that the user's variables do not turn this host into a simulated phone, or ask
    # for faults, which only those have.
    without = {"NNAPI_EMULATOR_PHONE": None, "NNAPI_EMULATOR_FAULTS": None}
    transport = LocalTransport(LOCAL, words, without)
    return _client(transport, built.agent, None if own else built.library, library)


def has_system_nnapi() -> bool:
    """Returns whether the dynamic linker finds this machine's own libneuralnetworks.so."""
    try:
        library = ctypes.CDLL(LIBRARY)
    except OSError:
        return False
    return not hasattr(library, "np_emulator_phone")


def _client(
    transport: LocalTransport, agent: Path, library: Path | None, named: str | None
) -> AgentClient:
    folder = transport.folder
    installed = InstalledAgent(
        path=str(agent),
        store=str(folder / "store"),
        work=str(folder / "work"),
        nnapi_library=None if library is None else str(library),
    )
    for folders in (installed.store, installed.work):
        Path(folders).mkdir(mode=0o700)
    if named is not None and Path(named).exists():
        named = str(Path(named).absolute())  # the linker takes a bare name for one of the system's
    return AgentClient(transport, installed, nnapi_library=named)
