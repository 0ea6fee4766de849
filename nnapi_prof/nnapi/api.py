"""NNAPI's C API: which of its functions came with which API level.

Read once, on first use, from ``data/nnapi_api.json``.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Collection
from pathlib import Path

DATA = Path(__file__).resolve().parent / "data" / "nnapi_api.json"
FIRST_API = 27


@functools.cache
def functions_by_api() -> dict[int, frozenset[str]]:
    """API level -> the functions that it brought, of those that are open to all."""
    levels: dict[int, set[str]] = {}
    for function in json.loads(DATA.read_text())["functions"]:
        if not function.get("platform_only"):
            levels.setdefault(function["api_level"], set()).add(function["name"])
    return {level: frozenset(levels[level]) for level in sorted(levels)}


def api_of(missing: Collection[str]) -> int:
    """The API level of a libneuralnetworks.so that lacks these functions: the newest all of whose
    functions it has, and all of those before; 27 at least."""
    highest = FIRST_API
    for level, names in functions_by_api().items():
        if not names.isdisjoint(missing):
            return highest
        highest = level
    return highest
