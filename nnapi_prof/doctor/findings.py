"""What a check found, as data."""

from __future__ import annotations

import enum
from collections.abc import Iterable, Iterator
from dataclasses import dataclass


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


class Family:
    """Makes the findings of one family: ``numpy.ok("...")`` reads better than five arguments."""

    def __init__(self, name: str) -> None:
        self.name = name

    def ok(self, check: str, found: str) -> Finding:
        return Finding(self.name, check, Level.OK, found)

    def warning(self, check: str, found: str, fix: str) -> Finding:
        return Finding(self.name, check, Level.WARNING, found, fix)

    def problem(self, check: str, found: str, fix: str) -> Finding:
        return Finding(self.name, check, Level.PROBLEM, found, fix)


def count(findings: Iterable[Finding], level: Level) -> int:
    return sum(finding.level is level for finding in findings)


def by_family(findings: Iterable[Finding]) -> Iterator[tuple[str, list[Finding]]]:
    """Findings in the order in which their families first appear."""
    families: dict[str, list[Finding]] = {}
    for finding in findings:
        families.setdefault(finding.family, []).append(finding)
    yield from families.items()
