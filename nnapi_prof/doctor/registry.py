"""The checks, in the order of their families, and the one way to run them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from nnapi_prof.device.adb_server import AdbServer
from nnapi_prof.doctor.findings import Family, Finding
from nnapi_prof.doctor.phone_facts import Phone
from nnapi_prof.errors import NnapiProfError

ISSUES = "report it with the output of `nnapi-prof doctor --json`; other checks are not affected"


@dataclass(frozen=True, slots=True)
class Host:
    """Where the checks of this host look; tests look elsewhere."""

    usb_devices: Path = Path("/sys/bus/usb/devices")
    usb_nodes: Path = Path("/dev/bus/usb")
    udev_rules: tuple[Path, ...] = (
        Path("/etc/udev/rules.d"),
        Path("/run/udev/rules.d"),
        Path("/lib/udev/rules.d"),
        Path("/usr/lib/udev/rules.d"),
    )

    @property
    def adb_server(self) -> AdbServer:
        """Where the environment says that the adb server is. Raises UsageError."""
        return AdbServer()


HostCheck = Callable[[Host], Iterable[Finding]]
PhoneCheck = Callable[[Phone], Iterable[Finding]]
T = TypeVar("T")

HOST: list[tuple[str, HostCheck]] = []
PHONE: list[tuple[str, PhoneCheck]] = []


def host_checks(family: str) -> Callable[[HostCheck], HostCheck]:
    """Registers a function that looks at this host."""

    def register(check: HostCheck) -> HostCheck:
        HOST.append((family, check))
        return check

    return register


def phone_checks(family: str) -> Callable[[PhoneCheck], PhoneCheck]:
    """Registers a function that looks at an open device."""

    def register(check: PhoneCheck) -> PhoneCheck:
        PHONE.append((family, check))
        return check

    return register


def run(checks: Iterable[tuple[str, Callable[[T], Iterable[Finding]]]], on: T) -> list[Finding]:
    """What the checks find, each for itself: one that fails becomes a finding."""
    found: list[Finding] = []
    for family, check in checks:
        try:
            found.extend(check(on))
        # Whatever it is: the user asked what is wrong, and the other checks may tell.
        except Exception as error:
            found.append(failed(family, check, error))
    return found


def failed(family: str, check: Callable[..., Any], error: Exception) -> Finding:
    """That a check could not be made: not known to be well, so a problem."""
    if isinstance(error, NnapiProfError):
        return told(Family(family), check.__name__.replace("_", " "), error)
    if isinstance(error, ModuleNotFoundError):
        words = f"not looked at: {error.name} is not installed"
        return Family(family).problem(
            check.__name__.replace("_", " "), words, "install what is missing: see Python above"
        )
    words = f"this check failed itself: {type(error).__name__}: {error}"
    return Family(family).problem(check.__name__.replace("_", " "), words, ISSUES)


def told(family: Family, check: str, error: NnapiProfError) -> Finding:
    """An error of ours as a finding: its message says what was wrong, then what to do."""
    found, _, fix = str(error).rpartition(": ")
    if not found:
        found, fix = str(error), "nnapi-prof devices (lists what is within reach)"
    return family.problem(check, found, fix)
