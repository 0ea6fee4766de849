"""Records which lines and branches of Python a process runs, for :mod:`tests.measure_coverage`.

It must be imported before any module of nnapi_prof: slipcover rewrites modules as they load, which
costs some ten milliseconds a module, and next to nothing afterwards.
"""

import atexit
import json
import os
import sys
from collections import defaultdict
from pathlib import Path
from typing import NoReturn

import slipcover

MEASURED = ("nnapi_prof", "partition", "reports")
"""Folders of the repository whose modules are measured."""
RECORDED = ("pytest", "sys.stdin.readline")
"""Command lines of processes that are recorded have one of these: pytest's and its workers'. Their
forks are, too. Programs that tests start are not: they would load for seconds longer, or run for a
third of a second longer as forks of :mod:`tests.warm`."""


def record(tree: Path, results: Path) -> None:
    """Writes what this process and its forks run of a tree into a folder, one file each."""
    if not any(part in " ".join(sys.orig_argv) for part in RECORDED):
        return
    recorder = slipcover.Slipcover(branch=True, exclude_lines=[])
    matcher = slipcover.FileMatcher(sources=[tree / name for name in MEASURED])
    slipcover.ImportManager(recorder, matcher).__enter__()
    leave = os._exit

    def save() -> None:
        os.chdir(tree)  # names of files are relative to it, and a test may have removed its folder
        ran = {}
        for name, file in recorder.get_coverage()["files"].items():
            ran[str(Path(name).resolve())] = file["executed_lines"] + file["executed_branches"]
        recorder.signal_child_process()  # forgets them, should this be called again
        (results / f"{os.getpid()}-{os.urandom(8).hex()}.json").write_text(json.dumps(ran))

    def save_and_leave(status: int) -> NoReturn:
        save()
        leave(status)

    atexit.register(save)
    os._exit = save_and_leave  # as forks end
    os.register_at_fork(after_in_child=recorder.signal_child_process)


def percent_run(tree: Path, results: Path) -> float:
    """Returns how many per cent of all lines and branches ran, by the files in a folder."""
    ran: dict[str, set[int | tuple[int, int]]] = defaultdict(set)
    for file in results.iterdir():
        for name, own in json.loads(file.read_text()).items():
            ran[name].update(tuple(place) if isinstance(place, list) else place for place in own)
    os.chdir(tree)
    every = slipcover.Slipcover(branch=True, source=[str(tree / name) for name in MEASURED])
    places = {
        # nnapi_prof has links to the other packages: their files have two names.
        str(Path(name).resolve()): {*file["missing_lines"], *map(tuple, file["missing_branches"])}
        for name, file in every.get_coverage()["files"].items()
    }
    seen = sum(len(ran[name] & of_file) for name, of_file in places.items())
    return 100 * seen / sum(map(len, places.values()))
