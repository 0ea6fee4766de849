"""Running single checks, and losing the rights of root for a while."""

import contextlib
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from nnapi_prof.doctor import CheckResult, Severity

NOBODY = 65534
Found = CheckResult | Sequence[CheckResult] | None


def only(found: Found, check: str | None = None) -> CheckResult:
    """The finding, of one check where several were looked at."""
    findings = [found] if isinstance(found, CheckResult) else found or []
    (finding,) = (each for each in findings if check in (None, each.check))
    return finding


def problem(found: Found, check: str | None = None) -> tuple[str, str]:
    """What a finding, a problem, says: found and fix."""
    return _of(Severity.PROBLEM, found, check)


def warning(found: Found, check: str | None = None) -> tuple[str, str]:
    return _of(Severity.WARNING, found, check)


def well(found: Found, check: str | None = None) -> str:
    finding = only(found, check)
    assert finding.level is Severity.OK, finding
    return finding.found


def _of(level: Severity, found: Found, check: str | None) -> tuple[str, str]:
    finding = only(found, check)
    assert finding.level is level and finding.fix is not None, finding
    return finding.found, finding.fix


def script(path: Path, text: str) -> None:
    """A program of the shell."""
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)


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


def without_rights(check: Callable[[Any], CheckResult | None], on: Any) -> CheckResult | None:
    """What a check finds as another user; once before as this one, so that its imports are done."""
    check(on)
    with without_root():
        return check(on)
