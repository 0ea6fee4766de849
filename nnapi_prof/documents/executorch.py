"""What ``nnapi-prof run`` of a ``.pte`` and a choice among partitioners print with ``--json``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nnapi_prof.documents.plans import NOTES, OUTPUT, of_checks
from nnapi_prof.documents.schema import (
    COUNT,
    NUMBER,
    TEXT,
    TRUTH,
    Document,
    array,
    described,
    document,
    nullable,
    obj,
    properties,
)

if TYPE_CHECKING:
    from pathlib import Path

    from nnapi_prof.executorch.choice import Choice
    from nnapi_prof.executorch.runner import FileRun


@document(
    "run-pte",
    1,
    "A program of ExecuTorch's, run on this host",
    path=TEXT,
    device=TEXT,
    simulated=described(TRUTH, "its NNAPI is a simulated phone's; times are this host's even so"),
    n_bytes=COUNT,
    load_ns=COUNT,
    first_ns=described(COUNT, "of the first run, the cold one"),
    samples_ns=described(array(COUNT), "of whole runs, warm"),
    median_ns=NUMBER,
    parts=described(
        array(obj(name=TEXT, delegated=TRUTH, median_ns=NUMBER)),
        "delegates' segments and operators, and kernels, in order, by ExecuTorch's event tracer",
    ),
    agrees=described(TRUTH, "every output that was compared does; else the exit code is 1"),
    outputs=described(array(OUTPUT), "against eager PyTorch; empty where no model was named"),
    notes=NOTES,
)
def of_file_run(run: FileRun) -> Document:
    return properties("run-pte", run, outputs=of_checks(run.checks))


_FILE = obj(
    name=described(
        TEXT,
        "plan, a partitioner's name, list-order or portable; of a plan's baselines xnnpack, nnapi"
        " TARGET and list-order TARGET",
    ),
    status=described(TEXT, "ok, refused, failed, crashed or timeout"),
    reason=described(nullable(TEXT), "why it has no times"),
    backends=described(array(obj(name=TEXT, calls=COUNT)), "back ends that it calls"),
    median_ns=nullable(NUMBER),
    rounds_ns=described(array(array(COUNT)), "runs, round by round; files took turns"),
)
COMPARED = obj(
    device=TEXT,
    simulated_times=described(TRUTH, "times are a simulated phone's, by its driver"),
    chosen=described(TEXT, "the name of the file that was written"),
    files=described(array(_FILE), "the fastest first; those that do not run last"),
)
"""Of a plan's file and those of its baselines."""


def of_compared(choice: Choice) -> Document:
    return properties(COMPARED, choice, chosen=choice.file.name, files=_files(choice))


def _files(choice: Choice) -> list[Document]:
    return [
        properties(
            _FILE,
            file,
            status=file.status.value,
            backends=[{"name": name, "calls": n} for name, n in file.backends.items()],
            median_ns=file.median_ns if file.rounds_ns else None,
            rounds_ns=[list(own) for own in file.rounds_ns],
        )
        for file in choice.files
    ]


_SEGMENT = obj(
    target=described(TEXT, "executorch:NAME"),
    units=array(COUNT),
    label=TEXT,
    predicted_ns=NUMBER,
    cause=TEXT,
)


@document(
    "executorch-choice",
    1,
    "ExecuTorch's partitioners measured on a model, and the file that is the fastest",
    model=TEXT,
    device=TEXT,
    simulated=described(TRUTH, "NNAPI is a simulated phone's; times are this host's even so"),
    path=described(TEXT, "the file that was written"),
    chosen=described(TEXT, "its name among the files"),
    files=described(array(_FILE), "the fastest first; those that do not run last"),
    segments=described(array(_SEGMENT), "of the plan that the file follows, in order"),
    refusals=described(
        array(obj(candidate=TEXT, label=TEXT, units=array(COUNT), status=TEXT, reason=TEXT)),
        "regions that a partitioner, its back end or its run does not take",
    ),
    notes=NOTES,
)
def of_choice(choice: Choice, path: Path) -> Document:
    return properties(
        "executorch-choice",
        choice,
        path=str(path),
        chosen=choice.file.name,
        files=_files(choice),
        segments=[
            properties(
                _SEGMENT,
                segment,
                target=segment.target.key,
                units=list(segment.units),
                label=choice.graph.label(segment.units),
            )
            for segment in choice.plan.segments
        ],
        refusals=[
            {
                "candidate": refusal.candidate,
                "label": refusal.label,
                "units": list(refusal.units),
                "status": refusal.status.value,
                "reason": refusal.reason,
            }
            for refusal in choice.refusals
        ],
    )
