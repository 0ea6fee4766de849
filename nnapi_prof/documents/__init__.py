"""Define the JSON documents of ``--json``, and the JSON Schema of each.

Every document is an object whose first property ``schema`` is ``nnapi-prof/NAME/VERSION``. A later
release may add properties to a document without a new version, but removes none. Times are in ns
(``..._ns``), dates in ISO 8601 and UTC; objects with a latency say whether it is ``simulated`` or
``estimated``. This module has the schemas by name, and the functions to write them.
"""

from __future__ import annotations

import functools
import importlib
import itertools
import math
import pkgutil
import sys
from collections.abc import Callable, Mapping
from enum import Enum
from pathlib import Path
from typing import Any, TypeVar

Schema = dict[str, Any]
Document = dict[str, Any]
F = TypeVar("F", bound=Callable[..., Document])

TEXT: Schema = {"type": "string"}
TEXT_OR_NULL: Schema = {"type": ["string", "null"]}
COUNT: Schema = {"type": "integer", "minimum": 0}
COUNT_OR_NULL: Schema = {"type": ["integer", "null"], "minimum": 0}
NUMBER: Schema = {"type": "number"}
NUMBER_OR_NULL: Schema = {"type": ["number", "null"]}
TRUTH: Schema = {"type": "boolean"}

_DIALECT = "https://json-schema.org/draft/2020-12/schema"
_schemas: dict[str, Schema] = {}


def described(schema: Schema, words: str) -> Schema:
    """Return a copy of a schema with a description of the value."""
    return {**schema, "description": words}


def array(items: Schema) -> Schema:
    return {"type": "array", "items": items}


def mapping(values: Schema) -> Schema:
    """Return the schema of an object with arbitrary property names."""
    return {"type": "object", "additionalProperties": values}


def obj(**properties: Schema) -> Schema:
    """Return the schema of an object that has these properties; a later release may add more."""
    return {"type": "object", "properties": properties, "required": list(properties)}


def extended(schema: Schema, **properties: Schema) -> Schema:
    """Return a schema of :func:`obj` with more properties."""
    return obj(**schema["properties"], **properties)


def nullable(schema: Schema) -> Schema:
    return {"anyOf": [schema, {"type": "null"}]}


def finite(number: float) -> float | None:
    """Return a number, or None for infinity and NaN, which JSON lacks."""
    return number if math.isfinite(number) else None


def choice(*values: str) -> Schema:
    return {"enum": list(values)}


def properties(schema: Schema | str, source: object, **computed: Any) -> Document:
    """Return the properties of an object's schema, or of the document of that name: computed
    values first, else attributes of ``source`` with the same names, in JSON's types.

    An enumeration becomes its value, a target or a path becomes text, a number that is not finite
    becomes null; a data class becomes its properties where the schema has an object.
    """
    if isinstance(schema, str):
        schema = _schemas[schema]
    return {
        name: _json_value(computed[name] if name in computed else getattr(source, name), part)
        for name, part in schema["properties"].items()
        if name != "schema"
    }


def _json_value(value: Any, schema: Schema) -> Any:
    schema = schema.get("anyOf", [schema])[0]  # the type of a nullable value
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, Mapping):
        if "properties" in schema:  # already a document
            return value
        values = schema["additionalProperties"]
        return {name: _json_value(each, values) for name, each in value.items()}
    if isinstance(value, tuple | list):
        return [_json_value(each, schema["items"]) for each in value]
    if isinstance(value, float):
        return finite(value)
    if value is None or isinstance(value, str | int):
        return value
    return properties(schema, value) if "properties" in schema else str(value)


def document(name: str, version: int, title: str, /, **properties: Schema) -> Callable[[F], F]:
    """Register the schema of the documents that the decorated function makes.

    The function returns the properties; callers get them with ``schema`` in front. Raises
    ValueError for a name that is registered already.
    """
    if name in _schemas:
        raise ValueError(f"document {name} is registered already")
    stamp = f"nnapi-prof/{name}/{version}"
    _schemas[name] = {
        "$schema": _DIALECT,
        "$id": stamp,
        "title": title,
        **obj(schema={"const": stamp}, **properties),
    }

    def decorate(function: F) -> F:
        @functools.wraps(function)
        def made(*arguments: Any, **options: Any) -> Document:
            return {"schema": stamp, **function(*arguments, **options)}

        return made  # type: ignore[return-value]

    return decorate


def embedded(name: str) -> Schema:
    """Return the schema of a document, for use within another one's."""
    return {key: part for key, part in _schemas[name].items() if not key.startswith("$")}


def registered() -> Mapping[str, Schema]:
    """Return name -> JSON Schema of the documents in imported modules;
    :func:`nnapi_prof.documents.schemas` imports all modules."""
    return dict(sorted(_schemas.items()))


@document(
    "error",
    1,
    "A command failed before it had a result",
    kind=described(TEXT, "class of the error, as UsageError, DeviceNotFound, ModelFileError"),
    message=described(TEXT, "what was wrong, where, and what to do"),
    exit_code=described(
        {"enum": [1, 2, 130]}, "of the process: 1 failure, 2 usage, 130 interrupted"
    ),
)
def error_document(kind: str, message: str, exit_code: int) -> Document:
    """Return the document of an error. ``kind`` is the name of a class in
    :mod:`nnapi_prof.errors`, OSError, Interrupted, or InternalError for a bug of nnapi-prof."""
    return {"kind": kind, "message": message, "exit_code": exit_code}


COMMANDS = "nnapi_prof.commands"
"""The group of entry points for commands, and their documents, from installed packages."""
FORMATS = "nnapi_prof.formats"
"""The group of entry points for file formats: :class:`nnapi_prof.cli.command.FileFormat`."""


@functools.cache
def plugins(group: str) -> Mapping[str, str]:
    """Return the modules outside the core that define commands or formats, by the names of these,
    from entry points of installed packages.

    This reads the entry points' files itself, because importing :mod:`importlib.metadata` alone
    takes half as long as ``--help``.
    """
    modules: dict[str, str] = {}
    for folder in sys.path:
        for path in Path(folder).glob("*.dist-info/entry_points.txt"):
            _, header, rest = path.read_text(encoding="utf-8").partition(f"[{group}]\n")
            lines = itertools.takewhile(lambda line: line[:1] != "[", rest.splitlines())
            for name, equals, module in (line.partition("=") for line in lines):
                if header and equals:
                    modules.setdefault(name.strip(), module.strip())
    return modules


def schemas() -> Mapping[str, Schema]:
    """Return name -> JSON Schema (2020-12) of every document, sorted by name."""
    modules = [f"{__name__}.{module.name}" for module in pkgutil.iter_modules(__path__)]
    for name in [*modules, *plugins(COMMANDS).values(), *plugins(FORMATS).values()]:
        importlib.import_module(name)
    return registered()
