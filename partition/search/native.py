"""The solver's compiled loops: C, built once for each version into the cache of builds.

Where no compiler is to be had, or with ``NNAPI_PROF_INTERPRETED=1``, the same loops run as Python
(:mod:`.ideal_kernels`, :mod:`.anneal_kernels`): slower, with the same results for the same effort.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import logging
import os
import platform
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from nnapi_prof.errors import BuildError
from nnapi_prof.toolchain import cache_dir, find_compiler, locked, run_tool

LOGGER = logging.getLogger(__name__)
SOURCES = Path(__file__).resolve().parent / "kernels"
FLAGS = ("-std=c11", "-O2", "-fPIC", "-shared", "-ffp-contract=off")
"""Without contraction into fused operations sums are those of Python, bit by bit."""


@functools.cache
def library() -> ctypes.CDLL | None:
    """The compiled loops, built unless the cache has them; None where they cannot be had."""
    if os.environ.get("NNAPI_PROF_INTERPRETED") == "1":
        return None
    try:
        return ctypes.CDLL(str(_built()))
    except (BuildError, OSError) as error:
        LOGGER.warning("planning is not compiled, and slow: %s", error)
        return None


def _built() -> Path:
    """Path of the library. Raises BuildError where there is no compiler, OSError without a cache
    that can be written."""
    files = sorted(SOURCES.glob("*.[ch]"))
    digest = hashlib.sha256(" ".join((*FLAGS, platform.machine())).encode())
    for file in files:
        digest.update(file.name.encode() + file.read_bytes())
    folder = cache_dir() / "solver"
    made = folder / f"{digest.hexdigest()[:16]}.so"
    if made.exists():
        return made
    folder.mkdir(parents=True, exist_ok=True)
    with locked(folder / "lock"):
        if made.exists():
            return made
        compiler = find_compiler(cache_dir())
        with tempfile.TemporaryDirectory(prefix="nnapi-prof-", dir=folder) as work:
            draft = Path(work) / "solver.so"
            sources = [str(file) for file in files if file.suffix == ".c"]
            command = [str(compiler.path), *FLAGS, *sources, "-o", str(draft), "-lm"]
            run_tool(command, "the solver's loops do not compile")
            draft.rename(made)
    return made


def pointers(arrays: Sequence[np.ndarray[Any, Any]]) -> Any:
    """A C structure of pointers to some arrays, in their order. They must outlive it.

    Raises ValueError where one is not contiguous: C would read other numbers than Python.
    """
    for position, array in enumerate(arrays):
        if not array.flags.c_contiguous:
            raise ValueError(f"array {position} of {len(arrays)} is not contiguous")
    return (ctypes.c_void_p * len(arrays))(*(array.ctypes.data for array in arrays))


def integers(*numbers: int) -> Any:
    """A C structure of 64-bit integers."""
    return (ctypes.c_int64 * len(numbers))(*numbers)
