"""Check how this host reaches phones: its adb key, the adb server, and USB.

USB devices are read from the kernel, under /sys, because libusb cannot identify a phone that this
user may not open.
"""

from __future__ import annotations

import base64
import os
import re
import shutil
import stat
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from nnapi_prof.device.transport.adb_server import ServerDevice, server_address
from nnapi_prof.doctor import CheckResult, Family, Host, joined, ok, problem, warning
from nnapi_prof.errors import DeviceError, DeviceOffline, UsageError

ADB = Family("ADB")
ANDROID_KEY_BITS = 2048


@ADB("adb key")
def adb_key(_: Host) -> CheckResult:
    """Check that only this user can read the key, and that its public half, which phones see,
    matches it."""
    from nnapi_prof.device.transport.adb import key_file

    path = key_file()
    public = Path(f"{path}.pub")
    looked_at = path
    try:
        content, looked_at = path.read_bytes(), public
        public_words = public.read_bytes().split() if public.exists() else None
    except FileNotFoundError:
        return ok(f"{path} is not there yet: made when a phone is first connected")
    except OSError as error:
        return problem(
            f"{looked_at} cannot be read: {error.strerror}", f"sudo chown $USER '{looked_at}'"
        )
    public_half = _public_half(path, content)
    if public_half is None:
        return problem(
            f"{path} holds no RSA key of {ANDROID_KEY_BITS} bits",
            f"mv '{path}' '{path}.old' (a new one is made; phones ask their owner again)",
        )
    if public_words is not None and public_words[:1] != [public_half]:
        return problem(
            f"{public} is the public half of another key: phones that confirm it refuse this one",
            f"mv '{public}' '{public}.old' (the right one is made)",
        )
    mode = stat.S_IMODE(path.stat().st_mode)
    if mode & 0o077:
        return warning(
            f"{path} may be used by other users of this host (mode {mode:o})", f"chmod 600 '{path}'"
        )
    half = "matches" if public_words is not None else "is made when a phone is first connected"
    return ok(f"{path} is readable, and its public half {half}")


def _public_half(path: Path, pem: bytes) -> bytes | None:
    """Return the public key of a private one in Android's format, base64; None if it has none."""
    from adb_shell.auth.keygen import encode_pubkey
    from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    try:
        key = load_pem_private_key(pem, None)
    except (ValueError, TypeError):  # no key; one under a password
        return None
    if not isinstance(key, RSAPrivateKey) or key.key_size != ANDROID_KEY_BITS:
        return None
    return base64.b64encode(bytes(encode_pubkey(str(path))))


# ---- the adb server: whether one runs, what else may listen, and the phones it owns --------------


TIMEOUT_S = 1.0
"""Time limit for a server on this host; one that takes longer hangs."""
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


@ADB("adb server")
def adb_server(host: Host) -> CheckResult:
    server = host.adb_server
    where = _address_text(server_address())
    try:
        version = server.version(TIMEOUT_S)
    except DeviceOffline:
        return ok(f"none runs at {where}: phones on USB are opened directly, without one")
    except DeviceError as error:
        return problem(
            f"what listens at {where} is {error}",
            "end it (`ss -ltnp` names it), or export ADB_SERVER_SOCKET=tcp:PORT of the right one",
        )
    client = _client_version()
    if client is not None and client != version:
        # A client of another version stops the server when it starts, and with it running jobs.
        return warning(
            f"the server at {where} has version {version}, the `adb` on the PATH {client}: that "
            "one ends the server whenever it is called, and what is being measured",
            f"{_RESTART} (and keep one adb: `which -a adb`)",
        )
    return ok(f"version {version}, at {where}: it owns the phones on USB, which are reached by it")


@ADB("phones")
def served_phones(host: Host) -> CheckResult | None:
    """Check the phones that the adb server owns."""
    try:
        devices = host.adb_server.devices()
    except (DeviceError, UsageError):
        return None  # the server has its own finding
    return joined([_served(device) for device in devices]) if devices else None


def _served(device: ServerDevice) -> CheckResult:
    name = f"{device.serial} ({device.description})" if device.description else device.serial
    if device.state == "device":
        return ok(f"{name} is ready, by the adb server")
    fix = _NO_PERMISSIONS if device.state.startswith("no permissions") else None
    fix = fix or _STATES.get(device.state, "replug the cable, then: adb reconnect")
    return problem(f"{name} is {device.state}", fix)


def _client_version() -> int | None:
    """Return 41 for ``Android Debug Bridge version 1.0.41``; None without adb. Starts no server."""
    adb = shutil.which("adb")
    if adb is None:
        return None
    try:
        done = subprocess.run(
            [adb, "version"], capture_output=True, text=True, timeout=5, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    version = re.search(r"version \d+\.\d+\.(\d+)", done.stdout)
    return int(version[1]) if version else None


def _address_text(address: tuple[str, int] | str) -> str:
    return address if isinstance(address, str) else f"{address[0]}:{address[1]}"


# ---- USB: whether this user may open phones, and who has them open -------------------------------


USB = Family("USB")

_ADB_INTERFACE = ("ff", "42", "01")
"""Class, subclass and protocol of adb's interface."""
_RULES = "sudo apt install android-sdk-platform-tools-common"
_GROUP = "sudo usermod -aG plugdev $USER"


@dataclass(frozen=True, slots=True)
class UsbPhone:
    """A device with an adb interface. ``node`` is its file below /dev/bus/usb."""

    name: str
    serial: str
    node: Path
    claimed: bool
    """A process has claimed its adb interface."""


@USB("libusb")
def libusb(_: Host) -> CheckResult:
    from nnapi_prof.device.transport.adb import has_libusb

    if has_libusb():
        return ok("found")
    return warning(
        "libusb-1.0 is missing: phones on USB are reached by an adb server only",
        "sudo apt install libusb-1.0-0 (or: adb start-server)",
    )


@USB("phones")
def phones(host: Host) -> CheckResult:
    if not host.usb_devices.is_dir():
        return warning(
            f"this system shows no USB ({host.usb_devices} is absent): a container or WSL?",
            "docker run --device /dev/bus/usb ..., or use the host's adb server: export "
            "ADB_SERVER_SOCKET=tcp:HOST:5037",
        )
    connected = list(usb_phones(host))
    if not connected:
        return ok("none is on USB")
    owned = {device.serial for device in host.adb_server.devices()}
    return joined([_phone_finding(phone, phone.serial in owned) for phone in connected])


def usb_phones(host: Host) -> Iterator[UsbPhone]:
    """Yield the USB devices with an adb interface."""
    for interface in sorted(host.usb_devices.glob("*:*")):
        kind = tuple(
            _read_text(interface / f"bInterface{name}")
            for name in ("Class", "SubClass", "Protocol")
        )
        if kind != _ADB_INTERFACE:
            continue
        device = host.usb_devices / interface.name.partition(":")[0]
        bus, number = (int(_read_text(device / name) or 0) for name in ("busnum", "devnum"))
        names = [_read_text(device / name) for name in ("manufacturer", "product")]
        serial = _read_text(device / "serial")
        yield UsbPhone(
            " ".join(filter(None, [*names, serial])) or interface.name,
            serial,
            host.usb_nodes / f"{bus:03d}" / f"{number:03d}",
            (interface / "driver").exists(),
        )


def _phone_finding(phone: UsbPhone, owned: bool) -> CheckResult:
    """Check whether nnapi-prof or the adb server can use a phone. Opening it claims nothing, so it
    is harmless."""
    if owned:
        return ok(f"{phone.name}: the adb server owns it and is used")
    try:
        os.close(os.open(phone.node, os.O_RDWR))
    except PermissionError:
        return problem(
            f"{phone.name}: this user may not open {phone.node}",
            f"{_RULES} && {_GROUP}, then log in again and replug the phone",
        )
    except OSError as error:
        return problem(
            f"{phone.name}: {phone.node} cannot be opened: {error.strerror}",
            "replug the cable; in a container, map /dev/bus/usb into it",
        )
    if phone.claimed:
        return problem(
            f"{phone.name}: a process has it open, and no adb server that answers here owns it",
            f"end that process (sudo fuser -v {phone.node} names it), or start one server: "
            f"{_RESTART}",
        )
    return ok(f"{phone.name} can be opened")


def _read_text(path: Path) -> str:
    try:
        return path.read_text(errors="replace").strip()
    except OSError:
        return ""
