"""Running single checks, and losing the rights of root for a while."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from nnapi_prof.doctor.checks import Finding, Level

NOBODY = 65534


def only(findings: Iterable[Finding], check: str | None = None) -> Finding:
    """The one finding there is, of one check where several were looked at."""
    (finding,) = (each for each in findings if check in (None, each.check))
    return finding


def problem(findings: Iterable[Finding], check: str | None = None) -> tuple[str, str]:
    """What the one finding, a problem, says: found and fix."""
    return _of(Level.PROBLEM, findings, check)


def warning(findings: Iterable[Finding], check: str | None = None) -> tuple[str, str]:
    return _of(Level.WARNING, findings, check)


def well(findings: Iterable[Finding], check: str | None = None) -> str:
    finding = only(findings, check)
    assert finding.level is Level.OK, finding
    return finding.found


def _of(level: Level, findings: Iterable[Finding], check: str | None) -> tuple[str, str]:
    finding = only(findings, check)
    assert finding.level is level and finding.fix is not None, finding
    return finding.found, finding.fix


@contextlib.contextmanager
def without_root() -> Iterator[None]:
    """As a user who owns nothing: root is stopped by no file mode. A user stays who they are."""
    if os.geteuid() != 0:
        yield
        return
    group = os.getegid()
    os.setegid(NOBODY)
    os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(0)
        os.setegid(group)


def without_rights(check: Callable[[Any], Iterable[Finding]], on: Any) -> list[Finding]:
    """What a check finds as another user; once before as this one, so that its imports are done."""
    list(check(on))
    with without_root():
        return list(check(on))


def unreadable(path: Path) -> Path:
    path.chmod(0)
    return path
