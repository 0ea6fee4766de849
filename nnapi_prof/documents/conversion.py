"""Builds the document of ``nnapi-prof convert --json``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from nnapi_prof import documents as s
from nnapi_prof.documents import Document, document, properties
from nnapi_prof.documents.plans import NOTES, OUTPUT

if TYPE_CHECKING:
    from nnapi_prof.api.convert import AndroidArchive
    from nnapi_prof.bundle.deployment import DeployStep
    from nnapi_prof.convert.dynamic_shapes.template import OpenSize
    from nnapi_prof.execution.report import OutputCheck

COMPARED_FILE = s.obj(
    name=s.described(
        s.TEXT,
        "plan, a partitioner's name, list-order or portable; of a plan's baselines xnnpack, nnapi"
        " TARGET and list-order TARGET",
    ),
    status=s.described(s.TEXT, "ok, refused, failed, crashed or timeout"),
    reason=s.described(s.nullable(s.TEXT), "why it has no times"),
    backends=s.described(s.array(s.obj(name=s.TEXT, calls=s.COUNT)), "back ends that it calls"),
    median_ns=s.nullable(s.NUMBER),
    rounds_ns=s.described(s.array(s.array(s.COUNT)), "runs, round by round; files took turns"),
)
COMPARED = s.obj(
    device=s.TEXT,
    simulated_times=s.described(s.TRUTH, "times are a simulated phone's, by its driver"),
    chosen=s.described(s.TEXT, "the name of the file that was written"),
    files=s.described(s.array(COMPARED_FILE), "the fastest first; those that do not run last"),
)
"""Schema of a comparison of a plan's file with those of its baselines."""


@dataclass(frozen=True)
class UnitReason:
    """A unit, and the reason why it does not run on NNAPI, or not as quantised."""

    name: str
    label: str
    reason: str


@dataclass
class ConversionFiles:
    """The files of one conversion, and facts about them."""

    source: Path
    files: list[tuple[Path, str]] = field(default_factory=list)
    """Paths with their formats."""
    regions: list[int] = field(default_factory=list)
    """Number of NNAPI operations of each model in them."""
    cpu_units: int = 0
    """Number of units that stay on the CPU."""
    kept: list[UnitReason] = field(default_factory=list)
    """Units that NNAPI cannot run."""
    in_floats: list[UnitReason] = field(default_factory=list)
    """Quantised units that NNAPI computes in float32."""
    precision: Sequence[OutputCheck] = ()
    """Changes of the outputs by less precision; empty if not requested or unknown."""
    open_sizes: Sequence[OpenSize] = ()
    notes: list[str] = field(default_factory=list)
    executorch: Document | None = None
    """The comparison that a file for ExecuTorch was chosen by: :data:`COMPARED`."""


_REASON = s.obj(name=s.TEXT, label=s.TEXT, reason=s.TEXT)
_OPEN_SIZE = s.obj(
    input=s.COUNT,
    dim=s.COUNT,
    least=s.COUNT,
    most=s.COUNT,
    step=s.COUNT,
    equal=s.described(s.array(s.obj(input=s.COUNT, dim=s.COUNT)), "dimensions of the same size"),
)
_FORMATS = ("stock", "json", "cpp", "runtime", "executorch")


@document(
    "convert",
    1,
    "What was converted, and the files that were written",
    source=s.described(s.TEXT, "the model or the bundle"),
    formats=s.array(s.choice(*_FORMATS)),
    files=s.array(
        s.obj(
            file=s.TEXT,
            format=s.choice(*_FORMATS, "weights"),
            n_bytes=s.COUNT,
        )
    ),
    regions=s.described(
        s.array(s.obj(n_operations=s.COUNT)), "NNAPI models that were made, in order"
    ),
    cpu_units=s.described(s.COUNT, "units that stay on the CPU"),
    kept=s.described(
        s.array(_REASON),
        "of these, what NNAPI cannot run, and why",
    ),
    in_floats=s.described(
        s.array(_REASON),
        "quantised units that NNAPI computes in float32, and the rule that quant8 would break",
    ),
    precision=s.described(
        s.array(OUTPUT), "how far --float16 or --relaxed moves the outputs, where that is known"
    ),
    open_sizes=s.array(_OPEN_SIZE),
    executorch=s.described(
        s.nullable(COMPARED),
        "files that one for ExecuTorch was chosen among, where they were timed",
    ),
    notes=NOTES,
)
def of_conversion(written: ConversionFiles, formats: Sequence[str]) -> Document:
    return properties(
        "convert",
        written,
        formats=list(dict.fromkeys(formats)),
        files=[
            {"file": str(path), "format": kind, "n_bytes": path.stat().st_size}
            for path, kind in written.files
        ],
        regions=[{"n_operations": n} for n in written.regions],
        open_sizes=[
            properties(_OPEN_SIZE, each, equal=[{"input": i, "dim": dim} for i, dim in each.equal])
            for each in written.open_sizes
        ],
    )


# Builds the document of ``nnapi-prof ship --json``.

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
