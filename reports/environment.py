"""Where and how a report was written: program, packages, host, command."""

from __future__ import annotations

import datetime
import os
import platform
import re
import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from nnapi_prof import __version__

PROGRAM = "nnapi-prof"
PACKAGES = ("torch", "numpy", "scipy", "pandas", "sqlalchemy", "matplotlib", "jinja2", "adb-shell")
"""What measured numbers, plans and figures rest on."""

_SECRET = re.compile(r"(?<=://)([^:/@\s]+:)\S*(?=@)|(?<=[?&]password=)[^&\s']+")
"""A password of a URL, behind its user's name or as an argument."""


@dataclass(frozen=True)
class Environment:
    """As it was when the report was written."""

    written_at: str
    """UTC, ISO 8601."""
    command: str
    """As typed, without passwords; empty where a program asked for the report."""
    host: str
    """``Linux 6.1, x86_64, 8 CPUs``."""
    python: str
    nnapi_prof: str
    packages: Mapping[str, str]
    """Name -> version."""


def this_environment(command: Sequence[str] | None = None) -> Environment:
    """The environment now. ``command`` is what was typed; None is this process's own command line
    where it is nnapi-prof's."""
    if command is None:
        command = sys.argv if is_ours(sys.argv) else ()
    cpus = os.cpu_count()
    cores = "" if cpus is None else f", {cpus} CPU{'' if cpus == 1 else 's'}"
    return Environment(
        written_at=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        command=typed(command),
        host=f"{platform.system()} {platform.release()}, {platform.machine()}{cores}",
        python=platform.python_version(),
        nnapi_prof=__version__,
        packages={name: version for name in PACKAGES if (version := _version(name))},
    )


def is_ours(command: Sequence[str]) -> bool:
    """Whether a command line is nnapi-prof's, not that of a program that imports it."""
    program = Path(command[0]) if command else Path()
    return program.stem == PROGRAM or program.parts[-2:] == ("nnapi_prof", "__main__.py")


def typed(command: Sequence[str]) -> str:
    """A command line as one would type it: the program by its name, URLs without passwords."""
    if not command:
        return ""
    words = [PROGRAM if is_ours(command) else Path(command[0]).name, *command[1:]]
    return _SECRET.sub(lambda found: (found[1] or "") + "***", shlex.join(words))


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None
