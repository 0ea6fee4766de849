"""How this host reaches phones: its adb key, the adb server, and USB.

Of USB the kernel is asked, under /sys, not libusb: a phone that may not be opened tells libusb
nothing.
"""

from __future__ import annotations

import base64
import grp
import os
import re
import shutil
import stat
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from nnapi_prof.device.transport.adb_server import AdbServer, server_address
from nnapi_prof.doctor.checks import Family, Finding, Host
from nnapi_prof.errors import DeviceError, DeviceOffline, UsageError

ADB = Family("ADB")
ANDROID_KEY_BITS = 2048
_CHECK = "adb key"


@ADB.on_host
def adb_key(_: Host) -> Iterator[Finding]:
    from nnapi_prof.device.transport.adb import key_file

    path = key_file()
    public = Path(f"{path}.pub")
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        yield ADB(_CHECK).ok(f"{path} is not there yet: made when a phone is first connected")
        return
    except OSError as error:
        yield ADB(_CHECK).problem(
            f"{path} cannot be read: {error.strerror}", f"sudo chown $USER '{path}'"
        )
        return
    public_half = _public_half(path, content)
    if public_half is None:
        yield ADB(_CHECK).problem(
            f"{path} holds no RSA key of {ANDROID_KEY_BITS} bits",
            f"mv '{path}' '{path}.old' (a new one is made; phones ask their owner again)",
        )
        return
    yield from _mode(path)
    yield _pair(path, public, public_half)


def _mode(path: Path) -> Iterator[Finding]:
    mode = stat.S_IMODE(path.stat().st_mode)
    if mode & 0o077:
        yield ADB(_CHECK).warning(
            f"{path} may be used by other users of this host (mode {mode:o})", f"chmod 600 '{path}'"
        )


def _pair(path: Path, public: Path, public_key: bytes) -> Finding:
    """Whether the public half is that of the private one: phones are shown it."""
    try:
        shown = public.read_bytes().split()
    except FileNotFoundError:
        return ADB(_CHECK).ok(f"{path}; its public half is made when a phone is first connected")
    except OSError as error:
        return ADB(_CHECK).problem(
            f"{public} cannot be read: {error.strerror}", f"sudo chown $USER '{public}'"
        )
    if not shown or shown[0] != public_key:
        return ADB(_CHECK).problem(
            f"{public} is the public half of another key: phones that confirm it refuse this one",
            f"mv '{public}' '{public}.old' (the right one is made)",
        )
    return ADB(_CHECK).ok(f"{path} is readable, and its public half matches")


def _public_half(path: Path, pem: bytes) -> bytes | None:
    """The public key of a private one in Android's form, base64; None where it holds none."""
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


# ---- the adb server: whether one runs, whether it is one, and the phones it owns -----------------


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


@ADB.on_host
def adb_server(host: Host) -> Iterator[Finding]:
    try:
        server = host.adb_server
    except UsageError as error:
        problem_text, _, fix = str(error).partition(": ")
        yield ADB("adb server").problem(problem_text, fix)
        return
    where = _words(server_address())
    try:
        version = server.version(TIMEOUT_S)
    except DeviceOffline:
        yield ADB("adb server").ok(
            f"none runs at {where}: phones on USB are opened directly, without one"
        )
        return
    except DeviceError as error:
        yield ADB("adb server").problem(
            f"what listens at {where} is {error}",
            "end it (`ss -ltnp` names it), or export ADB_SERVER_SOCKET=tcp:PORT of the right one",
        )
        return
    yield _version_finding(version, where)
    yield from _devices(server)


def _version_finding(version: int, where: str) -> Finding:
    """A client of another version ends the server when it starts, and with it what runs."""
    client = _client_version()
    owner = f"version {version}, at {where}: it owns the phones on USB, which are reached by it"
    if client is not None and client != version:
        return ADB("adb server").warning(
            f"the server at {where} has version {version}, the `adb` on the PATH {client}: that "
            "one ends the server whenever it is called, and what is being measured",
            f"{_RESTART} (and keep one adb: `which -a adb`)",
        )
    return ADB("adb server").ok(owner)


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
    version = re.search(r"version \d+\.\d+\.(\d+)", done.stdout)
    return int(version[1]) if version else None


def _devices(server: AdbServer) -> Iterator[Finding]:
    for device in server.devices():
        name = f"{device.serial} ({device.description})" if device.description else device.serial
        if device.state == "device":
            yield ADB("phone").ok(f"{name} is ready, by the adb server")
            continue
        fix = _NO_PERMISSIONS if device.state.startswith("no permissions") else None
        fix = fix or _STATES.get(device.state, "replug the cable, then: adb reconnect")
        yield ADB("phone").problem(f"{name} is {device.state}", fix)


def _words(address: tuple[str, int] | str) -> str:
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
    """Some process has its adb interface."""


@USB.on_host
def libusb(_: Host) -> Iterator[Finding]:
    from nnapi_prof.device.transport.adb import has_libusb

    if not has_libusb():
        yield USB("libusb").warning(
            "libusb-1.0 is missing: phones on USB are reached by an adb server only",
            "sudo apt install libusb-1.0-0 (or: adb start-server)",
        )
    else:
        yield USB("libusb").ok("found")


@USB.on_host
def phones(host: Host) -> Iterator[Finding]:
    if not host.usb_devices.is_dir():
        yield USB("USB").warning(
            f"this system shows no USB ({host.usb_devices} is absent): a container or WSL?",
            "docker run --device /dev/bus/usb ..., or use the host's adb server: export "
            "ADB_SERVER_SOCKET=tcp:HOST:5037",
        )
        return
    connected = list(usb_phones(host))
    if not connected:
        yield USB("phone").ok("none is on USB")
    owned = {device.serial for device in host.adb_server.devices()} if connected else set()
    for phone in connected:
        yield _phone_finding(phone, phone.serial in owned, host)


def usb_phones(host: Host) -> Iterator[UsbPhone]:
    """Devices on USB that have adb's interface."""
    for interface in sorted(host.usb_devices.glob("*:*")):
        kind = tuple(
            _text(interface / f"bInterface{name}") for name in ("Class", "SubClass", "Protocol")
        )
        if kind != _ADB_INTERFACE:
            continue
        device = host.usb_devices / interface.name.partition(":")[0]
        bus, number = (int(_text(device / name) or 0) for name in ("busnum", "devnum"))
        names = [_text(device / name) for name in ("manufacturer", "product")]
        serial = _text(device / "serial")
        yield UsbPhone(
            " ".join(filter(None, [*names, serial])) or interface.name,
            serial,
            host.usb_nodes / f"{bus:03d}" / f"{number:03d}",
            (interface / "driver").exists(),
        )


def _phone_finding(phone: UsbPhone, owned: bool, host: Host) -> Finding:
    """Whether we or the adb server can use it. Opening it claims nothing, so it is harmless."""
    if owned:
        return USB("phone").ok(f"{phone.name}: the adb server owns it and is used")
    try:
        os.close(os.open(phone.node, os.O_RDWR))
    except PermissionError:
        return USB("phone").problem(
            f"{phone.name}: this user may not open {phone.node}", _permission(host)
        )
    except OSError as error:
        return USB("phone").problem(
            f"{phone.name}: {phone.node} cannot be opened: {error.strerror}",
            "replug the cable; in a container, map /dev/bus/usb into it",
        )
    if phone.claimed:
        holders = ", ".join(_holders(phone.node)) or "a process of another user"
        return USB("phone").problem(
            f"{phone.name}: {holders} has it open, and no adb server that answers here owns it",
            f"end that process (sudo fuser -k {phone.node}), or start one server: "
            "adb kill-server && adb start-server",
        )
    return USB("phone").ok(f"{phone.name} can be opened")


def _permission(host: Host) -> str:
    """What this user lacks: udev's rules for phones, the group they give phones to, or both."""
    rules = any(list(folder.glob("*android*.rules")) for folder in host.udev_rules)
    steps = [] if rules else [_RULES]
    if "plugdev" not in _groups():
        steps.append(_GROUP)
    if len(steps) > 1 or steps == [_GROUP]:
        return f"{' && '.join(steps)}, then log in again and replug the phone"
    return f"{steps[0] if steps else 'sudo udevadm control --reload'}, then replug the phone"


def _groups() -> set[str]:
    names = set()
    for number in (os.getegid(), *os.getgroups()):
        try:
            names.add(grp.getgrgid(number).gr_name)
        except KeyError:
            continue  # a number without a name
    return names


def _holders(node: Path) -> Iterator[str]:
    """Processes that have a file open, as far as this user may see: ``adb (1234)``."""
    for process in Path("/proc").glob("[0-9]*"):
        try:
            links = [str(link.readlink()) for link in (process / "fd").iterdir()]
            if str(node) in links and int(process.name) != os.getpid():
                yield f"{(process / 'comm').read_text().strip()} ({process.name})"
        except OSError:
            continue  # another user's, or it ended


def _text(path: Path) -> str:
    try:
        return path.read_text(errors="replace").strip()
    except OSError:
        return ""
