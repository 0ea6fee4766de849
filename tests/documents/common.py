"""Holding a document against its schema."""

from typing import Any

import jsonschema

from nnapi_prof.documents import schemas


def closed(schema: Any) -> Any:
    """A schema that takes no property it does not name: nothing goes out undocumented."""
    if isinstance(schema, list):
        return [closed(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    result = {key: closed(value) for key, value in schema.items()}
    if isinstance(schema.get("properties"), dict) and "type" in schema:
        result.setdefault("additionalProperties", False)
    return result


def check(document: dict[str, Any], name: str) -> None:
    """Raises ValidationError, or AssertionError for a document of another name."""
    stamp = str(document["schema"])
    assert next(iter(document)) == "schema" and stamp.split("/")[:2] == ["nnapi-prof", name]
    schema = schemas()[name]
    assert schema["$id"] == stamp
    jsonschema.Draft202012Validator(closed(schema)).validate(document)
