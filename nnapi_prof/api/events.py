"""Passes on what a step tells while it works: the steps themselves never print."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

from nnapi_prof.execution.profile.options import Progress, ProgressCallback, tell_planning
from nnapi_prof.partition import Report

PLANNING = "finding the best plan"
"""The phase in which the partitioner searches: seconds of those it may take."""


def _ignore(_: object) -> None:
    """Whoever does not listen."""


def _no_work(_: str) -> AbstractContextManager[None]:
    return nullcontext()


@dataclass(frozen=True, slots=True)
class Listener:
    """Callbacks; those that are not given hear nothing."""

    note: Callable[[str], None] = _ignore
    """Told what the user should know: a guessed shape, a device that was not named."""
    busy: Callable[[str], None] = _ignore
    """Told in a line what comes next or takes a while: building the agent, pushing it."""
    progress: ProgressCallback = _ignore
    """Told how far a phase is, whenever a part of it is done."""
    working: Callable[[str], AbstractContextManager[None]] = _no_work
    """Entered around what may take seconds and has no parts to count: reading a model, planning."""

    def notes(self, *texts: str) -> None:
        """Tells several notes."""
        for text in texts:
            self.note(text)

    def counting(self, phase: str, total: int) -> Callable[[str, int, int], None]:
        """Tells that a phase of so many parts begins; what is returned is called with what is at
        work, how many parts are done, and of how many."""
        self.progress(Progress(phase, 0, total, ""))
        return lambda label, done, of: self.progress(Progress(phase, done, of, label))

    def planning(self) -> Report:
        """Tells how far the partitioner is, in the phase :data:`PLANNING`."""
        return tell_planning(lambda *told: self.progress(Progress(*told)), PLANNING)


SILENT = Listener()
"""Hears nothing."""

__all__ = ["SILENT", "Listener", "Progress", "ProgressCallback"]


LOGGER = logging.getLogger("nnapi_prof")


def to_log(progress: ProgressCallback | None) -> Listener:
    """Notes go to the log as INFO, progress to ``progress`` where there is one."""

    def tell(text: str) -> None:
        LOGGER.info("%s", text)

    if progress is None:
        return Listener(note=tell, busy=tell)
    return Listener(note=tell, busy=tell, progress=progress)
