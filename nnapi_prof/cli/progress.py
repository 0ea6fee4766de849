"""Progress on standard error."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from nnapi_prof.cli.options import say, stderr

if TYPE_CHECKING:
    from nnapi_prof.api.listener import Listener
    from nnapi_prof.measure.outcome import Progress


@contextmanager
def listening() -> Iterator[Listener]:
    """A listener that says notes and draws a bar for each phase that a step goes through."""
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        TaskID,
        TextColumn,
        TimeElapsedColumn,
    )
    from rich.progress import Progress as Bar

    from nnapi_prof.api.listener import Listener

    columns = (
        TextColumn("{task.description:<18}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.fields[label]}", markup=False),
    )
    bar = Bar(*columns, console=stderr())
    tasks: dict[str, TaskID] = {}

    def show(progress: Progress) -> None:
        if not tasks:
            bar.start()  # not before: what is said until then stands above it
        if progress.phase not in tasks:
            tasks[progress.phase] = bar.add_task(progress.phase, total=progress.total, label="")
        bar.update(
            tasks[progress.phase],
            completed=progress.done,
            total=progress.total,
            label=progress.label[:40] if progress.done < progress.total else "",
        )

    try:
        yield Listener(note=lambda text: say(f"note: {text}"), busy=say, progress=show)
    finally:
        if tasks:
            bar.stop()
