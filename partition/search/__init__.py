"""Search for the best plan: a file for each step; :mod:`.anytime` runs them in turn.

Here are the loops that several steps share: C, built once for each version into the cache of
builds. Building takes one and a half seconds with the system's compiler and three with the one of
the package ``ziglang``, which is always there; loading takes none. The same loops stand in Python
in ``tests/partition``, as their judge: they take some hundred times longer.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import logging
import platform
import tempfile
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np

from nnapi_prof.partition.arrays import Arrays
from nnapi_prof.toolchain import cache_dir, find_compiler, locked, run_tool

LOGGER = logging.getLogger(__name__)
SOURCES = Path(__file__).resolve().parent / "kernels"
FLAGS = ("-std=c11", "-O2", "-fPIC", "-shared", "-ffp-contract=off")
"""Without contraction into fused operations sums are those of Python, bit by bit."""


@functools.cache
def library() -> ctypes.CDLL:
    """The compiled loops, built unless the cache has them.

    Raises BuildError where they cannot be built.
    """
    try:
        return ctypes.CDLL(str(_build(cache_dir())))
    except OSError as error:  # no room in the cache, or it may not be written
        LOGGER.warning("the partitioner is compiled for this once: %s", error)
        with tempfile.TemporaryDirectory(prefix="nnapi-prof-") as work:
            return ctypes.CDLL(str(_build(Path(work))))


def _build(cache: Path) -> Path:
    """Path of the library in a cache. Raises BuildError where there is no compiler, OSError where
    the cache cannot be written."""
    folder = cache / "solver"
    files = sorted(SOURCES.glob("*.[ch]"))
    digest = hashlib.sha256(" ".join((*FLAGS, platform.machine())).encode())
    for file in files:
        digest.update(file.name.encode() + file.read_bytes())
    binary = folder / f"{digest.hexdigest()[:16]}.so"
    if binary.exists():
        return binary
    folder.mkdir(parents=True, exist_ok=True)
    with locked(folder / "lock"):
        if binary.exists():
            return binary
        compiler = find_compiler(cache)
        with tempfile.TemporaryDirectory(prefix="nnapi-prof-", dir=folder) as work:
            draft = Path(work) / "solver.so"
            sources = [str(file) for file in files if file.suffix == ".c"]
            command = [str(compiler.path), *FLAGS, *sources, "-o", str(draft), "-lm"]
            run_tool(command, "the solver's loops do not compile")
            draft.rename(binary)
    return binary


def pointers(arrays: Sequence[np.ndarray[Any, Any]] | Arrays) -> Any:
    """A C structure of pointers to some arrays, in their order. They must outlive it.

    Raises ValueError where one is not contiguous: C would read other numbers than Python.
    """
    if isinstance(arrays, Arrays):
        arrays = [getattr(arrays, field.name) for field in fields(arrays)]
    for position, array in enumerate(arrays):
        if not array.flags.c_contiguous:
            raise ValueError(f"array {position} of {len(arrays)} is not contiguous")
    return (ctypes.c_void_p * len(arrays))(*(array.ctypes.data for array in arrays))


def integers(*numbers: int) -> Any:
    """A C structure of 64-bit integers."""
    return (ctypes.c_int64 * len(numbers))(*numbers)
