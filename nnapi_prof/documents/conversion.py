"""Builds the document of ``nnapi-prof convert --json``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from nnapi_prof.documents import schema as s
from nnapi_prof.documents.executorch import COMPARED, of_compared
from nnapi_prof.documents.plans import NOTES, OUTPUT
from nnapi_prof.documents.schema import Document, document, properties

if TYPE_CHECKING:
    from nnapi_prof.convert.dynamic_shapes.template import OpenSize
    from nnapi_prof.execution.report import OutputCheck
    from nnapi_prof.executorch.choice import FileChoice


@dataclass(frozen=True)
class UnitReason:
    """A unit, and why it does not run as it might."""

    name: str
    label: str
    reason: str


@dataclass
class ConversionFiles:
    """The files of one conversion, and what is to be known of them."""

    source: Path
    files: list[tuple[Path, str]] = field(default_factory=list)
    """Each with its format."""
    regions: list[int] = field(default_factory=list)
    """NNAPI operations of each model in them."""
    cpu_units: int = 0
    """Units that stay on the CPU."""
    kept: list[UnitReason] = field(default_factory=list)
    """Those of them that NNAPI cannot run."""
    in_floats: list[UnitReason] = field(default_factory=list)
    """Quantised units that NNAPI computes in float32."""
    precision: Sequence[OutputCheck] = ()
    """What less precision costs, where that was asked for and is known."""
    open_sizes: Sequence[OpenSize] = ()
    notes: list[str] = field(default_factory=list)
    executorch: FileChoice | None = None
    """What a file for ExecuTorch was chosen among."""


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
        executorch=written.executorch and of_compared(written.executorch),
    )
