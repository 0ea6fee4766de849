"""What ``--json`` prints where a command failed before it had a result."""

from __future__ import annotations

from nnapi_prof.documents.registry import TEXT, Document, described, document


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
    """``kind`` is the name of a class in :mod:`nnapi_prof.errors`, OSError, Interrupted, or
    InternalError for a mistake of ours."""
    return {"kind": kind, "message": message, "exit_code": exit_code}
