"""Builds the document of ``nnapi-prof ship --json``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from nnapi_prof.documents import schema as s
from nnapi_prof.documents.schema import Document, document, properties

if TYPE_CHECKING:
    from nnapi_prof.api.ship import AndroidArchive
    from nnapi_prof.bundle.deployment import DeployStep


_ARCHIVE = s.obj(file=s.TEXT, asset=s.TEXT, abis=s.array(s.TEXT), n_bytes=s.COUNT)


@document(
    "ship",
    1,
    "How a bundle gets into an app",
    bundle=s.TEXT,
    steps=s.described(
        s.array(
            s.obj(
                door=s.choice("aar", "library", "executorch", "cpp", "stock"),
                command=s.TEXT,
                refusal=s.described(s.TEXT_OR_NULL, "why the bundle cannot go there"),
            )
        ),
        "one for each way into an app",
    ),
    archive=s.described(
        s.nullable(_ARCHIVE),
        "what --aar wrote",
    ),
)
def of_shipping(
    bundle: Path, steps: Sequence[DeployStep], archive: AndroidArchive | None
) -> Document:
    return {
        "bundle": str(bundle),
        "steps": [
            {"door": step.runtime.name.lower(), "command": step.command, "refusal": step.refusal}
            for step in steps
        ],
        "archive": archive and properties(_ARCHIVE, archive, file=str(archive.path)),
    }
