"""How long something will still take: from what is done of it, or from how long it took before."""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from nnapi_prof.execution.profile.options import Progress

_LEAST_S = 0.5
"""Before that, what is done says too little about the rest."""
_REMEMBERED = 200
_WORTH_REMEMBERING_S = 1.0


class TimeLeft:
    """Time left of phases whose parts take about alike, by the time that the parts done took.

    The clock of a phase starts with its first part done: what came before that (reading a model,
    building a request) comes once. The rest of a phase is judged by that phase, where enough of it
    is done; a phase that has only begun, and what comes after it, by all of them.
    """

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._phase = ""
        self._first: tuple[float, int] | None = None
        """When the first report of parts done in this phase came, and of how many."""
        self._parts, self._seconds = 0, 0.0
        """Of earlier phases, and of this one until its last report."""
        self._here = (0, 0.0)

    def seconds(self, progress: Progress) -> float | None:
        """Seconds left after this report; None while too little is known."""
        if progress.phase != self._phase:
            self._parts += self._here[0]
            self._seconds += self._here[1]
            self._phase, self._first, self._here = progress.phase, None, (0, 0.0)
        if self._first is None and progress.done:
            self._first = (self._now(), progress.done)
        if self._first is not None:
            began, before = self._first
            self._here = (progress.done - before, self._now() - began)
        parts, seconds = self._here
        n, spent = self._parts + parts, self._seconds + seconds
        if n == 0 or spent < _LEAST_S:
            return None
        usual = spent / n
        rate = seconds / parts if parts and seconds >= _LEAST_S else usual
        return rate * (progress.total - progress.done) + usual * progress.later


class Durations:
    """How long things took before, kept in a small file of the cache folder."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def expected(self, what: str) -> float | None:
        """Seconds that ``what`` took last time."""
        found = self._read().get(what)
        return None if found is None else float(found)

    def remember(self, what: str, seconds: float) -> None:
        """A file that cannot be written forgets."""
        if seconds < _WORTH_REMEMBERING_S:
            return
        known = self._read()
        known.pop(what, None)
        known[what] = round(seconds, 2)
        newest = dict(list(known.items())[-_REMEMBERED:])
        with contextlib.suppress(OSError):  # next time there is an estimate less, and nothing else
            self._path.parent.mkdir(parents=True, exist_ok=True)
            draft = self._path.with_suffix(f".{os.getpid()}")
            draft.write_text(json.dumps(newest, indent=1))
            draft.replace(self._path)

    def _read(self) -> dict[str, float]:
        try:
            found = json.loads(self._path.read_text())
        except (OSError, ValueError):
            return {}
        if not isinstance(found, dict):
            return {}
        return {k: v for k, v in found.items() if isinstance(v, int | float)}


def in_words(seconds: float) -> str:
    """``0:07``, ``1:20``, ``1:02:00``."""
    whole = max(0, round(seconds))
    minutes, rest = divmod(whole, 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
