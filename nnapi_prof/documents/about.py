"""What ``--version``, ``schema`` and ``completion`` print with ``--json``."""

from __future__ import annotations

from collections.abc import Mapping

from nnapi_prof.documents.registry import (
    TEXT,
    TEXT_OR_NULL,
    Document,
    Schema,
    array,
    described,
    document,
    mapping,
    obj,
)


@document(
    "version",
    1,
    "What this nnapi-prof is, and what it runs on",
    version=TEXT,
    python=TEXT,
    platform=TEXT,
    packages=described(mapping(TEXT_OR_NULL), "package -> version; null where it is not installed"),
)
def of_version(
    version: str, python: str, platform: str, packages: Mapping[str, str | None]
) -> Document:
    return {
        "version": version,
        "python": python,
        "platform": platform,
        "packages": dict(packages),
    }


@document(
    "schema",
    1,
    "The documents that commands print with --json",
    documents=array(
        obj(
            name=described(TEXT, "what `nnapi-prof schema` takes"),
            id=described(TEXT, "what the document's own property `schema` says"),
            title=TEXT,
        )
    ),
)
def of_schemas(by_name: Mapping[str, Schema]) -> Document:
    return {
        "documents": [
            {"name": name, "id": schema["$id"], "title": schema["title"]}
            for name, schema in by_name.items()
        ]
    }


@document(
    "completion",
    1,
    "A script that lets a shell complete commands, options and values",
    shell=TEXT,
    script=TEXT,
)
def of_completion(shell: str, script: str) -> Document:
    return {"shell": shell, "script": script}
