"""USB: whether this user may open phones, and who has them open.

What the kernel says under /sys is asked, not libusb: a phone that may not be opened tells libusb
nothing.
"""

from __future__ import annotations

import grp
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from nnapi_prof.doctor.findings import Family, Finding
from nnapi_prof.doctor.registry import Host, host_checks

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


@host_checks(USB.name)
def libusb(_: Host) -> Iterator[Finding]:
    from nnapi_prof.device.adb import has_libusb

    if not has_libusb():
        yield USB.warning(
            "libusb",
            "libusb-1.0 is missing: phones on USB are reached by an adb server only",
            "sudo apt install libusb-1.0-0 (or: adb start-server)",
        )
    else:
        yield USB.ok("libusb", "found")


@host_checks(USB.name)
def phones(host: Host) -> Iterator[Finding]:
    if not host.usb_devices.is_dir():
        yield USB.warning(
            "USB",
            f"this system shows no USB ({host.usb_devices} is absent): a container or WSL?",
            "docker run --device /dev/bus/usb ..., or use the host's adb server: export "
            "ADB_SERVER_SOCKET=tcp:HOST:5037",
        )
        return
    found = list(usb_phones(host))
    if not found:
        yield USB.ok("phone", "none is on USB")
    owned = {device.serial for device in host.adb_server.devices()} if found else set()
    for phone in found:
        yield _opened(phone, phone.serial in owned, host)


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


def _opened(phone: UsbPhone, owned: bool, host: Host) -> Finding:
    """Whether we or the adb server can use it. Opening disturbs nobody: nothing is claimed."""
    if owned:
        return USB.ok("phone", f"{phone.name}: the adb server owns it and is used")
    try:
        os.close(os.open(phone.node, os.O_RDWR))
    except PermissionError:
        return USB.problem(
            "phone", f"{phone.name}: this user may not open {phone.node}", _permission(host)
        )
    except OSError as error:
        return USB.problem(
            "phone",
            f"{phone.name}: {phone.node} cannot be opened: {error.strerror}",
            "replug the cable; in a container, map /dev/bus/usb into it",
        )
    if phone.claimed:
        holders = ", ".join(_holders(phone.node)) or "a process of another user"
        return USB.problem(
            "phone",
            f"{phone.name}: {holders} has it open, and no adb server that answers here owns it",
            f"end that process (sudo fuser -k {phone.node}), or start one server: "
            "adb kill-server && adb start-server",
        )
    return USB.ok("phone", f"{phone.name} can be opened")


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
            links = [os.readlink(link) for link in (process / "fd").iterdir()]
            if str(node) in links and int(process.name) != os.getpid():
                yield f"{(process / 'comm').read_text().strip()} ({process.name})"
        except OSError:
            continue  # another user's, or it ended


def _text(path: Path) -> str:
    try:
        return path.read_text(errors="replace").strip()
    except OSError:
        return ""
