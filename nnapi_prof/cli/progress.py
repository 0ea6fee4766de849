"""Progress on standard error: bars with the time left on a terminal, else a line for each phase.

On a terminal, the bar of a phase stays when the phase is done; work without parts to count (reading
a model, planning) has a bar only while it lasts. Where standard error is not a terminal, a phase
that took longer than :data:`WORTH_A_LINE_S` gets one line when it is done (a build gets one every
:data:`BUILD_LINE_S`), and work without parts gets none. ``--quiet`` shows nothing.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nnapi_prof.cli.output import current, say

if TYPE_CHECKING:
    from rich.progress import Progress as Bars
    from rich.progress import Task, TaskID

    from nnapi_prof.api import Listener
    from nnapi_prof.execution.profile import Progress


LOGGER = logging.getLogger(__name__)
WORTH_A_LINE_S = 2.0
BUILDING = "compiling"
BUILD_LINE_S = 60.0


@contextmanager
def listening() -> Iterator[Listener]:
    """Yields a listener that prints notes and shows progress; in a nested block, the outer one."""
    output = current()
    if output.listener is not None:
        yield output.listener
        return
    with _listening() as listener:
        output.listener = listener
        try:
            yield listener
        finally:
            output.listener = None


@contextmanager
def _listening() -> Iterator[Listener]:
    from nnapi_prof.api import Listener
    from nnapi_prof.execution.profile import Progress
    from nnapi_prof.toolchain import build_steps, cache_dir

    board = _board(Durations(cache_dir() / "durations.json"))
    with (
        board.shown(),
        build_steps(lambda done, of: board.show(Progress(BUILDING, done, of, ""))),
    ):
        yield Listener(
            note=lambda text: say(f"note: {text}"),
            busy=say,
            progress=board.show,
            working=board.working,
        )


@contextmanager
def working(what: str) -> Iterator[None]:
    """Shows that a command is busy, for commands that need no listener."""
    with listening() as listener, listener.working(what):
        yield


def _board(durations: Durations) -> Board:
    output = current()
    bars = output.stderr.is_terminal and not output.quiet
    return Terminal(durations) if bars else Board(durations)


class Board:
    """Progress where standard error is not a terminal: a line after each long phase."""

    def __init__(self, durations: Durations, now: Callable[[], float] = time.monotonic) -> None:
        self.durations = durations
        self.now = now
        self._phase: Progress | None = None
        self._began = self._last_line = 0.0

    @contextmanager
    def shown(self) -> Iterator[None]:
        """Ends the last phase after a block of reports."""
        try:
            yield
        finally:
            self._ended()

    def show(self, progress: Progress) -> None:
        """Reports the start or the progress of a phase."""
        if self._phase is None or self._phase.phase != progress.phase:
            self._ended()
            self._began = self._last_line = self.now()
        self._phase = progress
        if progress.phase == BUILDING and self.now() - self._last_line >= BUILD_LINE_S:
            self._last_line = self.now()
            say(f"{BUILDING}: {progress.done} of {progress.total} files")
        if progress.done >= progress.total:
            self._ended()

    def _ended(self) -> None:
        phase, self._phase = self._phase, None
        if phase is None or (took := self.now() - self._began) < WORTH_A_LINE_S:
            return
        of = "" if phase.done >= phase.total else f" of {phase.total}"
        say(f"{phase.phase}: {phase.done}{of} in {took:.0f} s")

    @contextmanager
    def working(self, what: str) -> Iterator[None]:
        """Times a block of work without parts."""
        began = self.now()
        yield
        took = self.now() - began
        self.durations.remember(what, took)
        LOGGER.debug("%s took %.2f s", what, took)


class Terminal(Board):
    """Progress bars, with the command's remaining time beside the moving one."""

    def __init__(self, durations: Durations, now: Callable[[], float] = time.monotonic) -> None:
        super().__init__(durations, now)
        self._bars = _bars()
        self._tasks: dict[str, TaskID] = {}
        self._left = TimeLeft(now)
        self._moving: TaskID | None = None

    @contextmanager
    def shown(self) -> Iterator[None]:
        try:
            yield
        finally:
            self._stop(self._moving)
            self._bars.stop()

    def show(self, progress: Progress) -> None:
        if progress.total == 0:
            return  # there is nothing to measure
        self._bars.start()  # only now, so that earlier lines stay above the bars
        task = self._tasks.get(progress.phase)
        if task is None:
            self._stop(self._moving)
            task = self._bars.add_task(progress.phase, total=progress.total, label="", until=None)
            self._tasks[progress.phase] = self._moving = task
        left = self._left.seconds(progress)
        over = progress.done >= progress.total
        self._bars.update(
            task,
            completed=progress.done,
            total=progress.total,
            label="" if over else progress.label,
            until=None if over or left is None else self.now() + left,
        )

    def _stop(self, task: TaskID | None) -> None:
        """Hides the remaining time of a phase that is over, or that ended early."""
        if task is not None:
            self._bars.update(task, label="", until=None)
            self._bars.stop_task(task)
        self._moving = None

    @contextmanager
    def working(self, what: str) -> Iterator[None]:
        self._bars.start()
        expected = self.durations.expected(what)
        until = None if expected is None else self.now() + expected
        task = self._bars.add_task(what, total=None, label="", until=until)
        try:
            with super().working(what):
                yield
        finally:
            self._bars.remove_task(task)


def _bars() -> Bars:
    from rich.progress import BarColumn, MofNCompleteColumn, ProgressColumn, TextColumn
    from rich.progress import Progress as Bars
    from rich.table import Column
    from rich.text import Text

    class Count(MofNCompleteColumn):
        def render(self, task: Task) -> Text:
            return Text("") if task.total is None else super().render(task)

    class Time(ProgressColumn):
        """The remaining time where it is known, else the elapsed time."""

        max_refresh = 0.5

        def render(self, task: Task) -> Text:
            until = task.fields["until"]
            if until is not None and (left := until - task.get_time()) > 0:
                return Text(f"about {in_words(left)} left", style="progress.remaining")
            return Text(in_words(task.elapsed or 0.0), style="progress.elapsed")

    def text(of: str, **column: Any) -> TextColumn:
        fitting = Column(no_wrap=True, overflow="ellipsis", **column)
        return TextColumn(of, markup=False, table_column=fitting)

    return Bars(
        text("{task.description}", min_width=18),
        BarColumn(bar_width=20),
        Count(),
        Time(table_column=Column(no_wrap=True, min_width=15)),
        text("{task.fields[label]}", ratio=1),
        console=current().stderr,
        expand=True,
    )


_LEAST_S = 0.5
"""Time of finished parts that is needed to estimate the rest."""
_REMEMBERED = 200
_WORTH_REMEMBERING_S = 1.0


class TimeLeft:
    """Remaining time of phases with parts of similar duration, from the time of finished parts.

    The clock of a phase starts when its first part is done: work before that (reading a model,
    building a request) happens once. The rest of a phase is estimated from that phase, if enough of
    it is done; a phase that has just begun, and later ones, are estimated from all phases.
    """

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._phase = ""
        self._first: tuple[float, int] | None = None
        """Time of this phase's first report with finished parts, and their number."""
        self._parts, self._seconds = 0, 0.0
        """Finished parts of earlier phases, and their seconds; ``_here`` has this phase's."""
        self._here = (0, 0.0)

    def seconds(self, progress: Progress) -> float | None:
        """Returns the remaining seconds after this report; None while too little is known."""
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
    """Durations of earlier work, stored in a small file in the cache folder."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def expected(self, what: str) -> float | None:
        """Returns the last duration of ``what`` in seconds."""
        seconds = self._read().get(what)
        return None if seconds is None else float(seconds)

    def remember(self, what: str, seconds: float) -> None:
        """Stores a duration, unless the file cannot be written."""
        if seconds < _WORTH_REMEMBERING_S:
            return
        durations = self._read()
        durations.pop(what, None)
        durations[what] = round(seconds, 2)
        newest = dict(list(durations.items())[-_REMEMBERED:])
        with contextlib.suppress(OSError):  # only the next estimate is then missing
            self._path.parent.mkdir(parents=True, exist_ok=True)
            draft = self._path.with_suffix(f".{os.getpid()}")
            draft.write_text(json.dumps(newest, indent=1))
            draft.replace(self._path)

    def _read(self) -> dict[str, float]:
        try:
            content = json.loads(self._path.read_text())
        except (OSError, ValueError):
            return {}
        if not isinstance(content, dict):
            return {}
        return {k: v for k, v in content.items() if isinstance(v, int | float)}


def in_words(seconds: float) -> str:
    """Returns a duration as ``0:07``, ``1:20`` or ``1:02:00``."""
    whole = max(0, round(seconds))
    minutes, rest = divmod(whole, 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
