"""Builds the documents of ``nnapi-prof run --json`` for a ``.pte`` and of a choice among
partitioners."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nnapi_prof.documents import schema as s
from nnapi_prof.documents.plans import NOTES, OUTPUT, of_checks
from nnapi_prof.documents.schema import Document, document, properties

if TYPE_CHECKING:
    from pathlib import Path

    from nnapi_prof.executorch.choice import FileChoice
    from nnapi_prof.executorch.runner import FileRun


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
