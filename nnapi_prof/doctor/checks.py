"""What a check is: a function that yields findings, and is registered under its family."""

from __future__ import annotations

import enum
import functools
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from nnapi_prof.device.protocol.results import AgentInfo
from nnapi_prof.device.transport import Transport
from nnapi_prof.device.transport.adb_server import AdbServer
from nnapi_prof.errors import NnapiProfError


class Level(enum.Enum):
    """How much a finding matters."""

    OK = "ok"
    WARNING = "warning"
    """Works, or may be meant so; worth knowing."""
    PROBLEM = "problem"
    """Something will fail."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One line about one thing, and one line how to mend it where there is something to mend."""

    family: str
    check: str
    """Short name of what was looked at: ``numpy``, ``adb key``."""
    level: Level
    found: str
    fix: str | None = None

    def __post_init__(self) -> None:
        # Words of systems and devices may have several lines.
        object.__setattr__(self, "found", " ".join(self.found.split()))
        if (self.fix is None) != (self.level is Level.OK):
            raise ValueError(f"{self.check}: what is not ok has a fix, what is ok has none")


@dataclass(frozen=True, slots=True)
class Check:
    """Makes findings about one thing: ``NUMPY.ok("...")`` reads better than five arguments."""

    family: str
    name: str

    def ok(self, found: str) -> Finding:
        return Finding(self.family, self.name, Level.OK, found)

    def warning(self, found: str, fix: str) -> Finding:
        return Finding(self.family, self.name, Level.WARNING, found, fix)

    def problem(self, found: str, fix: str) -> Finding:
        return Finding(self.family, self.name, Level.PROBLEM, found, fix)


@dataclass(frozen=True, slots=True)
class Family:
    """Checks that stand together; called with a name it gives the :class:`Check`."""

    name: str

    def __call__(self, check: str) -> Check:
        return Check(self.name, check)

    def on_host(self, check: HostCheck) -> HostCheck:
        """Registers a function that looks at this host."""
        HOST.append((self.name, check))
        return check

    def on_phone(self, check: PhoneCheck) -> PhoneCheck:
        """Registers a function that looks at an open device."""
        PHONE.append((self.name, check))
        return check

    def on_system(self, check: PhoneCheck) -> PhoneCheck:
        """:meth:`on_phone` of a function that looks at a phone's own system, which `local` and
        simulated phones have not."""

        @functools.wraps(check)
        def of_phones(phone: Phone) -> Iterable[Finding]:
            return () if phone.host_only else check(phone)

        return self.on_phone(of_phones)


def by_family(findings: Iterable[Finding]) -> Iterator[tuple[str, list[Finding]]]:
    """Findings in the order in which their families first appear."""
    families: dict[str, list[Finding]] = {}
    for finding in findings:
        families.setdefault(finding.family, []).append(finding)
    yield from families.items()


# ---- the phone that is looked at -----------------------------------------------------------------


_FACTS_SCRIPT = (
    'p() { echo "$1=$(getprop $2 2>/dev/null)"; }; '
    "p sdk ro.build.version.sdk; p release ro.build.version.release; "
    "p maker ro.product.manufacturer; p model ro.product.model; "
    'echo "page=$(getconf PAGE_SIZE 2>/dev/null || getconf PAGESIZE 2>/dev/null)"; '
    'echo "selinux=$(getenforce 2>/dev/null)"'
)


@dataclass(frozen=True, slots=True)
class Phone:
    """An open device. ``os`` is ``android`` or ``linux``, ``abi`` in Android's words."""

    transport: Transport
    abi: str
    os: str
    facts: Mapping[str, str]
    """``sdk``, ``release``, ``maker``, ``model``, ``page``, ``selinux``; empty where not told."""
    remote_dir: str
    """The agent's folder there."""
    info: AgentInfo | None = None
    """What the agent says, where it could be had without building it."""
    host_only: bool = False
    """``local`` or a simulated phone: there is no phone's system to look at."""

    @property
    def serial(self) -> str:
        return self.transport.serial

    @property
    def sdk(self) -> int | None:
        """Android's API level."""
        text = self.facts.get("sdk", "")
        return int(text) if text.isdigit() else None

    def ask(self, script: str, *arguments: str) -> tuple[int, str]:
        """A shell script's exit code and output; the arguments are $0, $1, ...

        Raises DeviceOffline.
        """
        result = self.transport.shell(["sh", "-c", script, *arguments])
        return result.exit_code, result.output


def read_facts(transport: Transport) -> dict[str, str]:
    """Raises DeviceOffline."""
    output = transport.shell(["sh", "-c", _FACTS_SCRIPT]).output
    pairs = (line.strip().split("=", 1) for line in output.splitlines() if "=" in line)
    return {name: value.strip() for name, value in pairs}


# ---- the checks, and how they are run ------------------------------------------------------------


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


def run(checks: Iterable[tuple[str, Callable[[T], Iterable[Finding]]]], on: T) -> list[Finding]:
    """What the checks find, each for itself: one that fails becomes a finding."""
    findings: list[Finding] = []
    for family, check in checks:
        try:
            findings.extend(check(on))
        # Whatever it is: the user asked what is wrong, and the other checks may tell.
        except Exception as error:
            findings.append(failed(family, check, error))
    return findings


def failed(family: str, check: Callable[..., Any], error: Exception) -> Finding:
    """That a check could not be made: not known to be well, so a problem."""
    one = Check(family, check.__name__.replace("_", " "))
    if isinstance(error, NnapiProfError):
        return error_finding(one, error)
    if isinstance(error, ModuleNotFoundError):
        words = f"not looked at: {error.name} is not installed"
        return one.problem(words, "install what is missing: see Python above")
    return one.problem(f"this check failed itself: {type(error).__name__}: {error}", ISSUES)


def error_finding(check: Check, error: NnapiProfError) -> Finding:
    """An error of ours as a finding: its message says what was wrong, then what to do."""
    text, _, fix = str(error).rpartition(": ")
    if not text:
        text, fix = str(error), "nnapi-prof devices (lists what is within reach)"
    return check.problem(text, fix)
