"""What ``nnapi-prof run`` prints of a ``.pte`` with ``--json``."""

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
    obj,
    properties,
)

if TYPE_CHECKING:
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
