"""Progress on standard error: bars with the time left on a terminal, else a line for each phase.

A phase is shown on a terminal while it lasts and stays there when it is done; what has no parts to
count (reading a model, planning) is shown while it lasts only. Where standard error is no terminal,
a phase that took longer than :data:`WORTH_A_LINE_S` is one line, once it is done (a build says
every :data:`BUILD_LINE_S` how far it is), and what has no parts is not told. ``--quiet`` shows
nothing.
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
    """A listener that says notes and shows how far each phase is; in another one, that one."""
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
    """Shows that a command works, for those that need no listener."""
    with listening() as listener, listener.working(what):
        yield


def _board(durations: Durations) -> Board:
    output = current()
    bars = output.stderr.is_terminal and not output.quiet
    return Terminal(durations) if bars else Board(durations)


class Board:
    """Progress where standard error is no terminal: a line for each long phase, after it."""

    def __init__(self, durations: Durations, now: Callable[[], float] = time.monotonic) -> None:
        self.durations = durations
        self.now = now
        self._phase: Progress | None = None
        self._began = self._last_line = 0.0

    @contextmanager
    def shown(self) -> Iterator[None]:
        """While this lasts, there may be reports."""
        try:
            yield
        finally:
            self._ended()

    def show(self, progress: Progress) -> None:
        """A phase began or went on."""
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
        """While this lasts, something without parts goes on."""
        began = self.now()
        yield
        took = self.now() - began
        self.durations.remember(what, took)
        LOGGER.debug("%s took %.2f s", what, took)


class Terminal(Board):
    """Bars, the time left of the command beside the one that moves."""

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
            return  # nothing to do: all was known
        self._bars.start()  # not before: what is said until then stands above it
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
        """Hides the remaining time of a phase that others follow, or that ended early."""
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
        """Time left where it is known, else the time that it takes so far."""

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
        seconds = self._read().get(what)
        return None if seconds is None else float(seconds)

    def remember(self, what: str, seconds: float) -> None:
        """A file that cannot be written forgets."""
        if seconds < _WORTH_REMEMBERING_S:
            return
        durations = self._read()
        durations.pop(what, None)
        durations[what] = round(seconds, 2)
        newest = dict(list(durations.items())[-_REMEMBERED:])
        with contextlib.suppress(OSError):  # next time there is an estimate less, and nothing else
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
    """``0:07``, ``1:20``, ``1:02:00``."""
    whole = max(0, round(seconds))
    minutes, rest = divmod(whole, 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
