"""Commands that work right now, for who watches from another process: how far each is.

A command that shows progress keeps a small file in the cache folder while it works; pages of
``nnapi-prof report --serve`` read them.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

from nnapi_prof.execution.profile.options import Progress, ProgressCallback
from nnapi_prof.reports.data import is_ours, typed
from nnapi_prof.toolchain import cache_dir

FIRST_S = 1.0
"""What ends before that leaves no file."""
EVERY_S = 0.5
STALE_S = 24 * 3600.0
"""A process of the same number may be another one by then."""


@dataclass(frozen=True, slots=True)
class Running:
    """A command and how far it is."""

    pid: int
    command: str
    """As typed, without passwords; empty where a program called us."""
    began: float
    """Seconds since 1970, as is ``at``."""
    at: float
    """Of this report."""
    phase: str
    done: int
    total: int
    label: str
    """What was measured last."""


def folder() -> Path:
    """Where the files are."""
    return cache_dir() / "running"


class Publisher:
    """Keeps this process's file up to date; :meth:`close` removes it."""

    def __init__(self, hear: ProgressCallback, now: Callable[[], float] = time.time) -> None:
        """``hear`` is told of progress, too."""
        self._hear = hear
        self._now = now
        self._began = self._next = now()
        self._next += FIRST_S
        self._file = folder() / f"{os.getpid()}.json"

    def __call__(self, progress: Progress) -> None:
        self._hear(progress)
        if (at := self._now()) < self._next:
            return
        self._next = at + EVERY_S
        state = Running(
            os.getpid(),
            typed(sys.argv) if is_ours(sys.argv) else "",
            self._began,
            at,
            progress.phase,
            progress.done,
            progress.total,
            progress.label,
        )
        with contextlib.suppress(OSError):  # nobody can watch, and nothing else is lost
            self._file.parent.mkdir(parents=True, exist_ok=True)
            draft = self._file.with_suffix(".part")
            draft.write_text(json.dumps(asdict(state)), encoding="utf-8")
            draft.replace(self._file)

    def close(self) -> None:
        """The command ended."""
        with contextlib.suppress(OSError):
            self._file.unlink(missing_ok=True)


def running(now: Callable[[], float] = time.time) -> list[Running]:
    """The commands that work now, the one that began first at the front; what processes that
    ended without a word left is passed over."""
    states = []
    for file in sorted(folder().glob("*.json")):
        try:
            state = Running(**json.loads(file.read_text(encoding="utf-8")))
        except (OSError, ValueError, TypeError):
            continue
        if now() - state.at < STALE_S and _is_alive(state.pid):
            states.append(state)
    return sorted(states, key=lambda state: state.began)


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except PermissionError:
        return True
    except (OSError, OverflowError, TypeError):
        return False
    return True
