"""The JSON documents of ``--json``: what makes them, and the JSON Schema of each.

Every document is an object whose first property ``schema`` is ``nnapi-prof/NAME/VERSION``. A later
release may add properties to a document without a new version, and takes none away. Times are in ns
(``..._ns``), dates in ISO 8601 and UTC; whatever has a latency says whether it is ``simulated`` or
``estimated``.
"""

from __future__ import annotations

import functools
import importlib
import itertools
import pkgutil
import sys
from collections.abc import Mapping
from pathlib import Path

from nnapi_prof.documents.schema import Schema, registered

COMMANDS = "nnapi_prof.commands"
"""The group of entry points by which installed packages add commands and their documents."""


@functools.cache
def plugins() -> Mapping[str, str]:
    """Return the modules outside the core that define commands and documents, by the names of the
    commands: entry points of installed packages.

    Their files are read here, since importing :mod:`importlib.metadata` alone takes half as long
    as ``--help``.
    """
    modules: dict[str, str] = {}
    for folder in sys.path:
        for path in Path(folder).glob("*.dist-info/entry_points.txt"):
            _, header, rest = path.read_text(encoding="utf-8").partition(f"[{COMMANDS}]\n")
            lines = itertools.takewhile(lambda line: line[:1] != "[", rest.splitlines())
            for name, equals, module in (line.partition("=") for line in lines):
                if header and equals:
                    modules.setdefault(name.strip(), module.strip())
    return modules


def schemas() -> Mapping[str, Schema]:
    """Name -> JSON Schema (2020-12) of every document, in the order of their names."""
    modules = [f"{__name__}.{module.name}" for module in pkgutil.iter_modules(__path__)]
    for name in [*modules, *plugins().values()]:
        importlib.import_module(name)
    return registered()
