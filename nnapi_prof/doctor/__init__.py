"""Find problems that prevent measuring, on this host and on a phone, and the remedy for each.

There is one file per theme. Each check is a function that returns a finding, or None if there is
nothing to report. Nothing changes on the host; on a phone the agent is installed if it is built.
"""

from __future__ import annotations

import enum
import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from nnapi_prof.device.protocol import AgentInfo
from nnapi_prof.device.transport import Transport
from nnapi_prof.device.transport.adb_server import AdbServer
from nnapi_prof.errors import NnapiProfError

ISSUES = "report it with the output of `nnapi-prof doctor --json`; other checks are not affected"


class Severity(enum.Enum):
    """The severity of a finding."""

    OK = "ok"
    WARNING = "warning"
    """It works, or may be intended, but is worth knowing."""
    PROBLEM = "problem"
    """Something will fail."""


@dataclass(frozen=True, slots=True)
class CheckResult:
    """A finding in one line and, unless all is well, its fix in one line."""

    level: Severity
    found: str
    fix: str | None = None
    family: str = ""
    check: str = ""
    """Short name of the check: ``packages``, ``adb key``."""

    def __post_init__(self) -> None:
        # Messages of systems and devices may have several lines.
        object.__setattr__(self, "found", " ".join(self.found.split()))
        if (self.fix is None) != (self.level is Severity.OK):
            raise ValueError(f"{self.found}: what is not ok has a fix, what is ok has none")


def ok(found: str) -> CheckResult:
    return CheckResult(Severity.OK, found)


def warning(found: str, fix: str) -> CheckResult:
    return CheckResult(Severity.WARNING, found, fix)


def problem(found: str, fix: str) -> CheckResult:
    return CheckResult(Severity.PROBLEM, found, fix)


def joined(findings: Sequence[CheckResult]) -> CheckResult:
    """Return one finding that combines several: the worst level, with its fixes."""
    levels = list(Severity)
    worst = max((each.level for each in findings), key=levels.index)
    bad = [each for each in findings if each.level is worst]
    fixes = dict.fromkeys(each.fix for each in bad if each.fix is not None)
    words = "; ".join(each.found for each in (findings if worst is Severity.OK else bad))
    return CheckResult(worst, words, "; ".join(fixes) or None)


@dataclass(frozen=True)
class Family:
    """A group of checks: ``@PYTHON("packages")`` adds one."""

    name: str
    checks: list[tuple[str, Callable[[Any], CheckResult | None]]] = field(default_factory=list)

    def __call__(self, check: str, *, of_phones: bool = False) -> Callable[[Any], Any]:
        """Add a function of :class:`Host` or :class:`CheckedDevice`; ``of_phones`` marks a check of
        a phone's own system, which ``local`` and simulated phones do not have."""

        def add(
            function: Callable[[Any], CheckResult | None],
        ) -> Callable[[Any], CheckResult | None]:
            @functools.wraps(function)
            def check_where_it_applies(on: Any) -> CheckResult | None:
                return None if of_phones and on.host_only else function(on)

            self.checks.append((check, check_where_it_applies))
            return function

        return add


def run(families: Iterable[Family], on: object) -> list[CheckResult]:
    """Return the findings of all checks; a check that fails becomes a finding itself."""
    findings: list[CheckResult] = []
    for family in families:
        for check, function in family.checks:
            try:
                finding = function(on)
            # Any error: the user asked what is wrong, and the other checks may still find it.
            except Exception as error:
                finding = failed(error)
            if finding is not None:
                findings.append(replace(finding, family=family.name, check=check))
    return findings


def failed(error: Exception) -> CheckResult:
    """Return the finding that a check failed: a problem, because the state is unknown."""
    if isinstance(error, NnapiProfError):
        return error_finding(error)
    if isinstance(error, ModuleNotFoundError):
        words = f"not looked at: {error.name} is not installed"
        return problem(words, "install what is missing: see Python above")
    return problem(f"this check failed itself: {type(error).__name__}: {error}", ISSUES)


def error_finding(error: NnapiProfError) -> CheckResult:
    """Return an error of nnapi-prof as a finding."""
    return problem(error.problem, error.remedy or "nnapi-prof devices (lists what is within reach)")


# ---- subjects of the checks ----------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Host:
    """The places that the checks of this host read; tests replace them."""

    usb_devices: Path = Path("/sys/bus/usb/devices")
    usb_nodes: Path = Path("/dev/bus/usb")

    @property
    def adb_server(self) -> AdbServer:
        """The address of the adb server from the environment. Raises UsageError."""
        return AdbServer()


@dataclass(frozen=True, slots=True)
class CheckedDevice:
    """An open device. ``os`` is ``android`` or ``linux``, ``abi`` in Android's words."""

    transport: Transport
    abi: str
    os: str
    facts: Mapping[str, str]
    """``sdk``, ``release``, ``maker``, ``model``, ``page``, ``selinux``; empty if not reported."""
    remote_dir: str
    """The agent's folder on the device."""
    info: AgentInfo | None = None
    """The agent's report; None if the agent is not built."""
    host_only: bool = False
    """The device is ``local`` or a simulated phone, without a phone's system to check."""

    def ask(self, script: str, *arguments: str) -> tuple[int, str]:
        """Run a shell script and return its exit code and output; the arguments are $0, $1, ...

        Raises DeviceOffline.
        """
        result = self.transport.shell(["sh", "-c", script, *arguments])
        return result.exit_code, result.output
