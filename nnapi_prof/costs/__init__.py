"""Cost tables: measurements, their store, and the models that turn them into a region's latency.

Here is only where the default table lies: SQLAlchemy, pandas and scipy load when a module that
needs them does.
"""

from __future__ import annotations

import os
from pathlib import Path

from nnapi_prof.errors import UsageError, for_caller

VARIABLE = "NNAPI_PROF_COSTS"


def default_location() -> str:
    """``$NNAPI_PROF_COSTS`` (a path or a database URL), else a file under ``$XDG_DATA_HOME``."""
    named = os.environ.get(VARIABLE)
    if named:
        return named
    data = os.environ.get("XDG_DATA_HOME") or str(Path.home() / ".local" / "share")
    return str(Path(data) / "nnapi-prof" / "costs.sqlite")


def is_there(location: str) -> bool:
    """Whether a table can be read from there: a file that exists; of a URL its server tells."""
    return "://" in location or Path(location).expanduser().exists()


def existing(costs: str | None) -> str:
    """The table to read from, of ``--costs``: a mistyped path makes no new file.

    Raises UsageError where it is a file that does not exist.
    """
    where = default_location() if costs is None else costs
    if not is_there(where):
        makes = for_caller("`nnapi-prof profile`", "profile()")
        raise UsageError(f"cost table {where} does not exist: {makes} makes one")
    return where


def absolute(location: str) -> str:
    """A table's place, named from any folder: of a file its whole path, a URL as it is."""
    return location if "://" in location else str(Path(location).expanduser().absolute())
