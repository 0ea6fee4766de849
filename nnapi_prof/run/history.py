"""The runs that a bundle keeps: the last one as ``run.json``, those before it in ``runs/``."""

from __future__ import annotations

import fnmatch
from collections.abc import Sequence
from pathlib import Path

from nnapi_prof.bundle.storage import read_file
from nnapi_prof.costs.selection import instant
from nnapi_prof.errors import SerializationError, UsageError
from nnapi_prof.run.result import RunReport

RESULT_FILE = "run.json"
"""In the bundle: the last run's report."""
EARLIER = "runs"
"""In the bundle: the folder of those before, each named by its time."""
MOST_BYTES = 1 << 26
"""Of one run's report: a plan of a thousand segments, run a thousand times, has a fifth of that."""
MOST_KEPT = 50
"""Earlier runs; the oldest make room. `nnapi-prof partition` begins anew: it writes another
bundle."""


def keep(bundle: Path, report: RunReport) -> Path:
    """Writes a run's report into its bundle, as the last one; returns the file.

    What stood there goes to the earlier ones, where it is a run's report at all.
    """
    kept = bundle / RESULT_FILE
    text = report.to_json()
    for place in (kept, bundle / EARLIER):
        if place.is_symlink():  # a stranger's, to have something written elsewhere
            place.unlink()
    if kept.is_file():
        _file_away(bundle, kept, text)
    kept.write_text(text, encoding="utf-8")
    return kept


def _file_away(bundle: Path, kept: Path, text: str) -> None:
    try:
        former = read_file(kept, MOST_BYTES)
        time = RunReport.from_json(former.decode()).created_at
    except (SerializationError, UnicodeDecodeError):
        kept.unlink()  # damaged, or a link: there is no run in it
        return
    if former == text.encode():
        return
    folder = bundle / EARLIER
    folder.mkdir(exist_ok=True)
    name = "".join(c if c.isalnum() else "-" for c in time.partition("+")[0])[:40]
    path, n = folder / f"{name}.json", 1
    while path.exists():  # another one of the same second
        n += 1
        path = folder / f"{name}-{n:02}.json"
    path.write_bytes(former)
    for old in _earlier(bundle)[:-MOST_KEPT]:
        old.unlink()


def _earlier(bundle: Path) -> list[Path]:
    """Files, the oldest first."""
    return sorted((bundle / EARLIER).glob("*.json"), key=lambda path: path.stem)


def last(bundle: Path) -> RunReport | None:
    """What the bundle's last run kept, None where it was never run.

    Raises SerializationError where that is damaged.
    """
    kept = bundle / RESULT_FILE
    if not kept.is_file():
        return None
    return _read(kept, "`nnapi-prof run` makes it again")


def every(bundle: Path) -> tuple[RunReport, ...]:
    """All runs that are kept, the oldest first. Raises SerializationError as :func:`last`."""
    files = _earlier(bundle)[-MOST_KEPT:]
    earlier = [_read(path, "remove the file to do without it") for path in files]
    newest = last(bundle)
    return (*earlier, newest) if newest is not None else tuple(earlier)


def _read(path: Path, remedy: str) -> RunReport:
    try:
        return RunReport.from_json(read_file(path, MOST_BYTES).decode())
    except (SerializationError, UnicodeDecodeError) as error:
        raise SerializationError(f"{path}: {error}; {remedy}") from error


def choose(runs: Sequence[RunReport], words: str) -> RunReport:
    """The last of ``runs`` that fits.

    ``words`` are a date (the last run until its end), a device (its fingerprint or the beginning
    of it, or a part of its name; ``*`` and ``?`` stand for anything) or ``DEVICE@DATE``. Raises
    UsageError, listing the runs, where none fits.
    """
    device, _, date = words.rpartition("@")
    try:
        until = instant(date, end=True)
    except ValueError:
        device, until = words, None
    fitting = [
        run
        for run in runs
        if (not device or _is_on(run, device))
        and (until is None or instant(run.created_at) <= until)
    ]
    if fitting:
        return fitting[-1]
    there = "; ".join(f"{run.created_at[:19]} on {run.device}" for run in runs)
    raise UsageError(
        f"no run of the bundle fits {words!r}: "
        + (f"there are {there}" if there else "it was never run: `nnapi-prof run` does it")
    )


def _is_on(run: RunReport, device: str) -> bool:
    pattern = device.lower()
    name = run.device.partition(" (")[0].lower()  # without system and drivers
    named = fnmatch.fnmatchcase(name, f"*{pattern}*")
    return run.fingerprint.startswith(pattern) or named
