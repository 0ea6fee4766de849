"""This host under a made /sys: clocks capped by the vendor for good, one clock with two capacities,
temperatures in whole degrees, a core that is offline or goes so. Each profile is the host's own:
nothing is waited for, nothing counts as hot, and the cores are those that are there."""

import contextlib
import itertools
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch import nn

from nnapi_prof.costs.store import CostStore
from nnapi_prof.device.find import open_device
from nnapi_prof.execution.profile import ProfileOptions, Progress, ProgressCallback
from nnapi_prof.execution.profile.session import profile
from nnapi_prof.frontend import prepare
from nnapi_prof.graph.plan import CPU
from tests.parts import again_but
from tests.phones.conftest import CLEAN, check_like

CPUS = sorted(os.sched_getaffinity(0))
two_cores = pytest.mark.skipif(len(CPUS) < 2, reason="cores of two kinds, or one to go offline")


def put(root: Path, name: str, text: object) -> None:
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"{text}\n")


def put_cpus(root: Path, *, allowed: int = 2_500_000) -> None:
    """As many as this host has, all alike."""
    for cpu in range(CPUS[-1] + 1):
        folder = f"devices/system/cpu/cpu{cpu}"
        put(root, f"{folder}/cpu_capacity", 1024)
        put(root, f"{folder}/cpufreq/cpuinfo_max_freq", 2_500_000)
        put(root, f"{folder}/cpufreq/scaling_max_freq", allowed)
        put(root, f"{folder}/cpufreq/scaling_cur_freq", allowed)


def capped(root: Path) -> None:
    put_cpus(root, allowed=1_996_800)
    put(root, "class/thermal/cooling_device0/type", "thermal-cpufreq-0")
    put(root, "class/thermal/cooling_device0/cur_state", 3)


def one_clock(root: Path) -> None:
    put_cpus(root)
    for cpu in range(CPUS[-1]):
        put(root, f"devices/system/cpu/cpu{cpu}/cpu_capacity", 400)


def whole_degrees(root: Path) -> None:
    put_cpus(root)
    put(root, "class/thermal/thermal_zone0/temp", 45)
    put(root, "class/thermal/thermal_zone0/trip_point_0_type", "passive")
    put(root, "class/thermal/thermal_zone0/trip_point_0_temp", 95)


def offline(root: Path) -> None:
    one_clock(root)
    put(root, f"devices/system/cpu/cpu{CPUS[-1]}/online", 0)


def hot_from_the_start(root: Path) -> None:
    """Garbage in some files, too: a phone that tells nothing useful of its heat."""
    capped(root)
    for zone, text in enumerate(["", "-274000", "nan", "99999999999999999999", "\x00\xff"]):
        put(root, f"class/thermal/thermal_zone{zone}/temp", text)
    put(root, "class/thermal/cooling_device1/type", "gpu")
    put(root, "class/thermal/cooling_device1/cur_state", "on")


def nonsense(root: Path) -> None:
    """In each file of the CPUs, and of the memory's."""
    words = itertools.cycle(["", "-5", "99999999999999999999", "fast", "1e9", "\x00\xff"])
    put_cpus(root)
    for path in sorted(root.rglob("*")):
        if path.is_file():
            path.write_text(next(words))
    put(root, "devices/system/cpu/online", "0-,7-3,x")


def no_clocks(root: Path) -> None:
    for cpu in range(CPUS[-1] + 1):
        (root / f"devices/system/cpu/cpu{cpu}/cpufreq").mkdir(parents=True)


MEMORY = ["", "MemTotal: -5 kB\nMemAvailable: none\n", f"MemAvailable: {'9' * 30} kB\n"]


def closed(root: Path) -> None:
    """No file at all: no core is bigger than another."""


ALL = sum(1 << cpu for cpu in CPUS)
LAST = 1 << CPUS[-1]
MASKS = {offline: ALL & ~LAST, capped: ALL, one_clock: LAST, whole_degrees: ALL, closed: ALL}
"""The cores on which the CPU's units run."""
WHY = "test_sysfs.c reads such files"


def profile_host(folder: Path, progress: ProgressCallback | None = None):
    """A small network on this host: the outcome, and the rows."""
    net = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.Sigmoid()).eval()
    program = prepare(net, (torch.zeros(1, 3, 32, 32),), "small")
    few = dict(accelerators=("nnapi-reference",), preferences=("fast",), rounds=3)
    options = ProfileOptions(refine=False, **few)
    with CostStore(folder / "costs.db") as store, open_device("local") as opened:
        outcome = profile(program, opened.client, store, options, progress)
        return outcome, store.measurements(outcome.fingerprint)


@pytest.mark.slow("measures a network on this machine")
@two_cores
@pytest.mark.parametrize("made", again_but(MASKS, offline, why=WHY))
def test_a_profile_is_that_of_the_host(built_host, tmp_path, monkeypatch, made):
    mask = MASKS[made]
    made(tmp_path / "sys")
    monkeypatch.setenv("NNAPI_PROF_SYSFS", str(tmp_path / "sys"))
    outcome, rows = profile_host(tmp_path)
    assert (outcome.waited_s, outcome.stayed_hot, outcome.n_failed) == (0, False, 0)
    rounds = [each for row in rows for each in row.rounds]
    assert rounds and not any(each.throttled for each in rounds)
    masks = {int(row.cpu_mask, 16) for row in rows if row.cpu_mask and row.target == CPU}
    assert masks == {mask}
    for row in rows:
        if row.target == CPU:
            assert all(each.cpus is None or int(each.cpus, 16) & ~mask == 0 for each in row.rounds)
    if made is whole_degrees:
        assert {row.thermal_mc_before for row in rows} == {45_000}


def descendants(pid: int) -> Iterator[int]:
    """Of a process; those that end meanwhile are left out."""
    with contextlib.suppress(OSError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            for child in map(int, (task / "children").read_text().split()):
                yield child
                yield from descendants(child)


@contextlib.contextmanager
def offline_after_a_row(root: Path) -> Iterator[ProgressCallback]:
    """A callback of progress after whose first row the last core is offline. As the kernel does it,
    who kept to that core alone may use all others from then on."""
    gone, moves = threading.Event(), list[int]()

    def move_all() -> None:
        for pid in descendants(os.getpid()):
            with contextlib.suppress(OSError):
                if os.sched_getaffinity(pid) == {CPUS[-1]}:
                    put(root, f"devices/system/cpu/cpu{CPUS[-1]}/online", 0)
                    os.sched_setaffinity(pid, set(CPUS[:-1]))
                    moves.append(pid)

    def keep_moving() -> None:
        while not gone.wait(0.002):
            move_all()

    mover = threading.Thread(target=keep_moving)

    def progress(report: Progress) -> None:
        if report.done >= 1 and not moves:
            move_all()  # the thread may get no turn before the last row
        if report.done == 1 and mover.ident is None:
            mover.start()

    try:
        yield progress
    finally:
        gone.set()
    mover.join()
    assert moves, "nobody kept to the core"


EASY = (capped, whole_degrees, offline, no_clocks)
HARD = (one_clock, hot_from_the_start, nonsense, closed)


@pytest.mark.slow
@two_cores
@pytest.mark.parametrize("made", again_but([*EASY, *HARD], *HARD, why=WHY))
def test_a_simulated_phones_plan_is_its_twins(profiled, tmp_path, monkeypatch, made):
    """Under the same made /sys, with times that repeat: plan and costs of units, and no wait."""
    clean = profiled(CLEAN, "twin")
    made(tmp_path / "sys")
    monkeypatch.setenv("NNAPI_EMULATOR_SYSFS", str(tmp_path / "sys"))
    monkeypatch.setenv("NNAPI_PROF_PROC", str(tmp_path / "proc"))
    if made in (nonsense, no_clocks):
        put(tmp_path / "proc", "meminfo", MEMORY[made is nonsense])
    began = time.monotonic()
    troubled = profiled(CLEAN)
    assert time.monotonic() - began < 30, "a wait for a cool phone takes a minute"
    check_like(troubled, clean)
    outcome = troubled.costs.outcome
    assert (outcome.waited_s, outcome.stayed_hot) == (0, False)
    assert not any(each.throttled for row in troubled.rows for each in row.rounds)


@pytest.mark.slow
@two_cores
def test_a_plan_is_its_twins_without_the_prime_core(profiled, tmp_path, monkeypatch):
    clean = profiled(CLEAN, "twin")
    one_clock(tmp_path / "sys")
    monkeypatch.setenv("NNAPI_EMULATOR_SYSFS", str(tmp_path / "sys"))
    with offline_after_a_row(tmp_path / "sys") as progress:
        troubled = profiled(CLEAN, progress=progress)
    check_like(troubled, clean)
    masks = {int(row.cpu_mask, 16) for row in troubled.rows if row.cpu_mask}
    assert ALL & ~LAST in masks and masks <= {ALL, LAST, ALL & ~LAST}


@pytest.mark.slow("profiles at the rates of this host's clock, with a core and without")
@two_cores
def test_a_prime_core_that_goes_offline_meanwhile(built_host, tmp_path, monkeypatch):
    """As the kernel does it: who kept to that core alone may use all others from then on."""
    root = tmp_path / "sys"
    one_clock(root)
    monkeypatch.setenv("NNAPI_PROF_SYSFS", str(root))
    with offline_after_a_row(root) as progress:
        outcome, rows = profile_host(tmp_path, progress)
    assert (outcome.waited_s, outcome.n_failed) == (0, 0)
    masks = [int(row.cpu_mask, 16) for row in rows if row.cpu_mask and row.target == CPU]
    assert set(masks) <= {LAST, ALL & ~LAST} and masks[-1] == ALL & ~LAST
    for row in rows:
        last = row.rounds[-1] if row.rounds else None
        if row.target == CPU and row.cpu_mask and int(row.cpu_mask, 16) != LAST and last:
            assert last.cpus is None or int(last.cpus, 16) & LAST == 0
