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
)

if TYPE_CHECKING:
    from nnapi_prof.api.ship import Archive
    from nnapi_prof.bundle.doors import Step


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
        nullable(obj(file=TEXT, asset=TEXT, abis=array(TEXT), n_bytes=COUNT)),
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
        "archive": None
        if archive is None
        else {
            "file": str(archive.path),
            "asset": archive.asset,
            "abis": list(archive.abis),
            "n_bytes": archive.n_bytes,
        },
    }
