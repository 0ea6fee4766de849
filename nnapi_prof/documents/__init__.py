"""The JSON documents of ``--json``: what makes them, and the JSON Schema of each.

Every document is an object whose first property ``schema`` is ``nnapi-prof/NAME/VERSION``. A later
release may add properties to a document without a new version, and takes none away. Times are in ns
(``..._ns``), dates in ISO 8601 and UTC; whatever has a latency says whether it is ``simulated`` or
``estimated``.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Mapping

from nnapi_prof.documents.schema import Schema, registered


def schemas() -> Mapping[str, Schema]:
    """Name -> JSON Schema (2020-12) of every document, in the order of their names."""
    for module in pkgutil.iter_modules(__path__):
        importlib.import_module(f"{__name__}.{module.name}")
    return registered()
