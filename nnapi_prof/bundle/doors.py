"""The ways of a bundle into an app, each with its command."""

from __future__ import annotations

import os
import shlex
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from nnapi_prof.bundle.bundle import Bundle
from nnapi_prof.bundle.runtime import runtime_bundle
from nnapi_prof.errors import UsageError
from nnapi_prof.graph.plan import Engine


class Door(Enum):
    """What runs a bundle in an app."""

    AAR = "Android app (Java, Kotlin)"
    LIBRARY = "C library"
    EXECUTORCH = "ExecuTorch"
    CPP = "C++ classes for NNAPI"
    STOCK = "stock PyTorch"


@dataclass(frozen=True)
class Step:
    """The command that leads to one of the doors."""

    door: Door
    command: str
    refusal: str | None
    """Why the bundle cannot go there; None where it can."""


def steps(bundle: Bundle, folder: str | os.PathLike[str]) -> tuple[Step, ...]:
    """What to type next, to have a bundle that stands in ``folder`` in an app: one step for each
    door."""
    path = Path(folder)
    if path.name in ("", ".."):
        path = path.resolve()
    stem, named = path.with_suffix(""), _quoted(path)
    try:
        runtime_bundle(bundle)
        refusal = None
    except UsageError as error:
        refusal = str(error)
    on_nnapi = any(s.target.engine is Engine.NNAPI for plan in bundle.plans for s in plan.segments)
    none = None if on_nnapi else "no plan in it gives anything to NNAPI"
    return (
        Step(Door.AAR, f"nnapi-prof ship --aar {named}", refusal),
        Step(
            Door.LIBRARY,
            f"nnapi-prof convert --format runtime -o {_quoted(stem.with_suffix('.nnprt'))} {named}",
            refusal,
        ),
        Step(
            Door.EXECUTORCH,
            f"nnapi-prof convert --to executorch -o {_quoted(stem.with_suffix('.pte'))} {named}",
            refusal,
        ),
        Step(Door.CPP, f"nnapi-prof convert --format cpp -o {_quoted(stem)} {named}", none),
        Step(Door.STOCK, f"nnapi-prof convert {named}", none),
    )


def _quoted(path: Path) -> str:
    return shlex.quote(str(path))
