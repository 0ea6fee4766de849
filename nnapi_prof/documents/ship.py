"""What ``nnapi-prof ship`` prints with ``--json``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from nnapi_prof.documents.schema import (
    COUNT,
    TEXT,
    TEXT_OR_NULL,
    Document,
    array,
    choice,
    described,
    document,
    nullable,
    obj,
    properties,
)

if TYPE_CHECKING:
    from nnapi_prof.api.ship import Archive
    from nnapi_prof.bundle.doors import Step


_ARCHIVE = obj(file=TEXT, asset=TEXT, abis=array(TEXT), n_bytes=COUNT)


@document(
    "ship",
    1,
    "How a bundle gets into an app",
    bundle=TEXT,
    steps=described(
        array(
            obj(
                door=choice("aar", "library", "executorch", "cpp", "stock"),
                command=TEXT,
                refusal=described(TEXT_OR_NULL, "why the bundle cannot go there"),
            )
        ),
        "one for each way into an app",
    ),
    archive=described(
        nullable(_ARCHIVE),
        "what --aar wrote",
    ),
)
def of_shipping(bundle: Path, steps: Sequence[Step], archive: Archive | None) -> Document:
    return {
        "bundle": str(bundle),
        "steps": [
            {"door": step.door.name.lower(), "command": step.command, "refusal": step.refusal}
            for step in steps
        ],
        "archive": archive and properties(_ARCHIVE, archive, file=str(archive.path)),
    }
