"""The adb server: whether one runs, whether it is one, its version, and the phones it owns."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterator

from nnapi_prof.device.adb_server import AdbServer, server_address
from nnapi_prof.doctor.adb_key import ADB
from nnapi_prof.doctor.findings import Finding
from nnapi_prof.doctor.registry import Host, host_checks
from nnapi_prof.errors import DeviceError, DeviceOffline, UsageError

TIMEOUT_S = 1.0
"""For a server on this host; one that takes longer hangs."""
_RESTART = "adb kill-server && adb start-server"
_STATES = {
    "unauthorized": "confirm 'Allow USB debugging' on the phone's screen (replug it if none shows)",
    "offline": "wake the phone, replug the cable, then: adb reconnect",
    "recovery": "start the phone normally: adb reboot",
    "sideload": "start the phone normally: adb reboot",
    "bootloader": "start the phone normally: fastboot reboot",
    "authorizing": "confirm 'Allow USB debugging' on the phone's screen",
    "connecting": "wait a moment; if it stays so, replug the cable, then: adb reconnect",
}
_NO_PERMISSIONS = (
    "sudo apt install android-sdk-platform-tools-common && sudo usermod -aG plugdev $USER, log in "
    f"again, then: {_RESTART}"
)


@host_checks(ADB.name)
def adb_server(host: Host) -> Iterator[Finding]:
    try:
        server = host.adb_server
    except UsageError as error:
        found, _, fix = str(error).partition(": ")
        yield ADB.problem("adb server", found, fix)
        return
    where = _words(server_address())
    try:
        version = server.version(TIMEOUT_S)
    except DeviceOffline:
        yield ADB.ok(
            "adb server", f"none runs at {where}: phones on USB are opened directly, without one"
        )
        return
    except DeviceError as error:
        yield ADB.problem(
            "adb server",
            f"what listens at {where} is {error}",
            "end it (`ss -ltnp` names it), or export ADB_SERVER_SOCKET=tcp:PORT of the right one",
        )
        return
    yield _judged(version, where)
    yield from _devices(server)


def _judged(version: int, where: str) -> Finding:
    """A client of another version ends the server when it starts, and with it what runs."""
    client = _client_version()
    owner = f"version {version}, at {where}: it owns the phones on USB, which are reached by it"
    if client is not None and client != version:
        return ADB.warning(
            "adb server",
            f"the server at {where} has version {version}, the `adb` on the PATH {client}: that "
            "one ends the server whenever it is called, and what is being measured",
            f"{_RESTART} (and keep one adb: `which -a adb`)",
        )
    return ADB.ok("adb server", owner)


def _client_version() -> int | None:
    """41 of ``Android Debug Bridge version 1.0.41``; None without adb. Starts no server."""
    adb = shutil.which("adb")
    if adb is None:
        return None
    try:
        done = subprocess.run(
            [adb, "version"], capture_output=True, text=True, timeout=5, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    said = re.search(r"version \d+\.\d+\.(\d+)", done.stdout)
    return int(said[1]) if said else None


def _devices(server: AdbServer) -> Iterator[Finding]:
    for device in server.devices():
        name = f"{device.serial} ({device.description})" if device.description else device.serial
        if device.state == "device":
            yield ADB.ok("phone", f"{name} is ready, by the adb server")
            continue
        fix = _NO_PERMISSIONS if device.state.startswith("no permissions") else None
        fix = fix or _STATES.get(device.state, "replug the cable, then: adb reconnect")
        yield ADB.problem("phone", f"{name} is {device.state}", fix)


def _words(address: tuple[str, int] | str) -> str:
    return address if isinstance(address, str) else f"{address[0]}:{address[1]}"
