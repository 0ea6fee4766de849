"""Builds the document of ``nnapi-prof convert --json``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from nnapi_prof import documents as s
from nnapi_prof.documents import Document, document, properties
from nnapi_prof.documents.plans import NOTES, OUTPUT, of_checks

if TYPE_CHECKING:
    from nnapi_prof.api.convert import AndroidArchive
    from nnapi_prof.bundle.deployment import DeployStep
    from nnapi_prof.convert.dynamic_shapes.template import OpenSize
    from nnapi_prof.execution.report import OutputCheck
    from nnapi_prof.executorch.runner import FileRun
    from nnapi_prof.executorch.whole import FileChoice

# Builds the documents of ``nnapi-prof run --json`` for a ``.pte`` and of a choice among
# partitioners.


@document(
    "run-pte",
    1,
    "A program of ExecuTorch's, run on this host",
    path=s.TEXT,
    device=s.TEXT,
    simulated=s.described(
        s.TRUTH, "its NNAPI is a simulated phone's; times are this host's even so"
    ),
    n_bytes=s.COUNT,
    load_ns=s.COUNT,
    first_ns=s.described(s.COUNT, "of the first run, the cold one"),
    samples_ns=s.described(s.array(s.COUNT), "of whole runs, warm"),
    median_ns=s.NUMBER,
    parts=s.described(
        s.array(s.obj(name=s.TEXT, delegated=s.TRUTH, median_ns=s.NUMBER)),
        "delegates' segments and operators, and kernels, in order, by ExecuTorch's event tracer",
    ),
    agrees=s.described(s.TRUTH, "every output that was compared does; else the exit code is 1"),
    outputs=s.described(s.array(OUTPUT), "against eager PyTorch; empty where no model was named"),
    notes=NOTES,
)
def of_file_run(run: FileRun) -> Document:
    return properties("run-pte", run, outputs=of_checks(run.checks))


_FILE = s.obj(
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
    files=s.described(s.array(_FILE), "the fastest first; those that do not run last"),
)
"""Of a plan's file and those of its baselines."""


def of_compared(choice: FileChoice) -> Document:
    return properties(COMPARED, choice, chosen=choice.file.name, files=_files(choice))


def _files(choice: FileChoice) -> list[Document]:
    return [
        properties(
            _FILE,
            file,
            backends=[{"name": name, "calls": n} for name, n in file.backends.items()],
            median_ns=file.median_ns if file.rounds_ns else None,
        )
        for file in choice.files
    ]


_SEGMENT = s.obj(
    target=s.described(s.TEXT, "executorch:NAME"),
    units=s.array(s.COUNT),
    label=s.TEXT,
    predicted_ns=s.NUMBER,
    cause=s.TEXT,
)


@document(
    "executorch-choice",
    1,
    "ExecuTorch's partitioners measured on a model, and the file that is the fastest",
    model=s.TEXT,
    device=s.TEXT,
    simulated=s.described(s.TRUTH, "NNAPI is a simulated phone's; times are this host's even so"),
    path=s.described(s.TEXT, "the file that was written"),
    chosen=s.described(s.TEXT, "its name among the files"),
    files=s.described(s.array(_FILE), "the fastest first; those that do not run last"),
    segments=s.described(s.array(_SEGMENT), "of the plan that the file follows, in order"),
    refusals=s.described(
        s.array(
            s.obj(
                candidate=s.TEXT, label=s.TEXT, units=s.array(s.COUNT), status=s.TEXT, reason=s.TEXT
            )
        ),
        "regions that a partitioner, its back end or its run does not take",
    ),
    notes=NOTES,
)
def of_choice(choice: FileChoice, path: Path) -> Document:
    return properties(
        "executorch-choice",
        choice,
        path=str(path),
        chosen=choice.file.name,
        files=_files(choice),
        segments=[
            properties(_SEGMENT, segment, label=choice.graph.label(segment.units))
            for segment in choice.plan.segments
        ],
    )


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
