"""What a run prints at its end: seconds by folder, and what was not tested on this machine.

``tests/durations.json`` holds the seconds of the longest tests, as ``.ci/durations.py`` reads them
from the JUnit XML of a run. The files that take longest begin, and a test of more than
:data:`LIMIT_S` must say why: ``@pytest.mark.slow("reason")``.
"""

import contextlib
import json
import os
import resource
from collections import Counter, defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parent
DURATIONS = TESTS / "durations.json"
LIMIT_S = 5.0
"""Seconds of a test that needs no reason."""
CPU = "seconds of CPU"
"""Name of the property that each test has in the JUnit XML."""
FIXTURES = "seconds of CPU of its fixtures"
"""The same, for what the test is the first to ask for."""
TICKS = os.sysconf("SC_CLK_TCK")


@cache
def recorded_seconds() -> dict[str, float]:
    """Seconds by node id, of the tests that took long when the file was made."""
    seconds: dict[str, float] = json.loads(DURATIONS.read_text())
    return seconds


def seconds_by_file() -> Counter[str]:
    """Recorded seconds by test file, relative to the repository."""
    total: Counter[str] = Counter()
    for node, seconds in recorded_seconds().items():
        total[node.partition("::")[0]] += seconds
    return total


def reason_of(item: pytest.Item) -> str | None:
    """Why a test may take long: what its mark says; None without one."""
    marks = (mark for name in ("slow", "again", "docs") for mark in item.iter_markers(name))
    return next((str(mark.args[0]) for mark in marks if mark.args), None)


def _cpu_s() -> float:
    """CPU seconds of this process and of all that it started, whether they ended or still run."""
    used = map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(usage.ru_utime + usage.ru_stime for usage in used) + _running_s(os.getpid())


def _running_s(parent: int) -> float:
    """CPU seconds of the running descendants of a process, and of their ended children.

    Read four times a test, of each thread of a process: pathlib would take half a millisecond.
    """
    total, tasks = 0.0, f"/proc/{parent}/task"
    with contextlib.suppress(OSError):  # it ended meanwhile
        for thread in os.listdir(tasks):
            with contextlib.suppress(OSError):
                for child in map(int, _read(f"{tasks}/{thread}/children").split()):
                    fields = _read(f"/proc/{child}/stat").rpartition(b")")[2].split()
                    total += sum(map(int, fields[11:15])) / TICKS + _running_s(child)
    return total


def _read(path: str) -> bytes:
    file = os.open(path, os.O_RDONLY)
    try:
        return os.read(file, 1 << 16)
    finally:
        os.close(file)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    """Fails a test that takes long without a reason; records its CPU seconds, without those of
    its fixtures: they hold on a busy machine."""
    seconds = recorded_seconds().get(item.nodeid, 0.0)
    if seconds > LIMIT_S and reason_of(item) is None:
        words = f"took {seconds:.0f} s when recorded: give the reason, @pytest.mark.slow(REASON)"
        pytest.fail(words, pytrace=False)
    return (yield from _measured(item, CPU))


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> Iterator[None]:
    """Records the CPU seconds of a test's fixtures."""
    return (yield from _measured(item, FIXTURES))


def _measured(item: pytest.Item, name: str) -> Iterator[None]:
    before = _cpu_s()
    try:
        return (yield)
    finally:
        item.user_properties.append((name, round(_cpu_s() - before, 3)))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    stats = terminalreporter.stats
    reports = [r for each in stats.values() for r in each if isinstance(r, pytest.TestReport)]
    folders: dict[str, list[float]] = defaultdict(lambda: [0, 0.0, 0.0])
    for report in reports:
        folder = Path(report.nodeid.partition("::")[0]).parent.name
        folders[folder][0] += report.when == "call"
        folders[folder][1] += report.duration
        if report.when == "teardown":
            seconds = dict(report.user_properties)
            folders[folder][2] += seconds.get(CPU, 0.0) + seconds.get(FIXTURES, 0.0)
    if len(folders) > 1:
        terminalreporter.section("seconds by folder", "=")
        terminalreporter.write_line(f"{'':<14}{'tests':>7}{'seconds':>10}{'of CPU':>10}")
        for folder, (n, wall, cpu) in sorted(folders.items(), key=lambda pair: -pair[1][1]):
            terminalreporter.write_line(f"{folder:<14}{n:>7.0f}{wall:>10.1f}{cpu:>10.1f}")
    skipped = Counter(_reason(report) for report in stats.get("skipped", []))
    if skipped:
        terminalreporter.section("not tested on this machine", "=")
        terminalreporter.write_line("tests  what is missing, and how to get it")
        for reason, n in skipped.most_common():
            terminalreporter.write_line(f"{n:>5}  {reason}")


def _reason(report: pytest.TestReport | pytest.CollectReport) -> str:
    """Why a test or a module was skipped."""
    words = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
    return " ".join(words.removeprefix("Skipped: ").split())
