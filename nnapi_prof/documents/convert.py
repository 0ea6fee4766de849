"""What ``nnapi-prof convert --json`` prints."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from nnapi_prof.documents.bundle import OUTPUT, of_check
from nnapi_prof.documents.plans import NOTES
from nnapi_prof.documents.registry import (
    COUNT,
    TEXT,
    Document,
    array,
    choice,
    described,
    document,
    obj,
)

if TYPE_CHECKING:
    from nnapi_prof.convert.dynamic_shapes.template import OpenSize
    from nnapi_prof.execution.report import OutputCheck

_FORMAT = choice("stock", "json", "cpp", "runtime")


@document(
    "convert",
    1,
    "What was converted, and the files that were written",
    source=described(TEXT, "the model or the bundle"),
    formats=array(_FORMAT),
    files=array(
        obj(
            file=TEXT,
            format=choice("stock", "json", "cpp", "runtime", "weights"),
            n_bytes=COUNT,
        )
    ),
    regions=described(array(obj(n_operations=COUNT)), "NNAPI models that were made, in order"),
    cpu_units=described(COUNT, "units that stay on the CPU"),
    kept=described(
        array(obj(name=TEXT, label=TEXT, reason=TEXT)), "of these, what NNAPI cannot run, and why"
    ),
    in_floats=described(
        array(obj(name=TEXT, label=TEXT, reason=TEXT)),
        "quantised units that NNAPI computes in float32, and the rule that quant8 would break",
    ),
    precision=described(
        array(OUTPUT), "how far --float16 or --relaxed moves the outputs, where that is known"
    ),
    open_sizes=array(
        obj(
            input=COUNT,
            dim=COUNT,
            least=COUNT,
            most=COUNT,
            step=COUNT,
            equal=described(array(obj(input=COUNT, dim=COUNT)), "dimensions of the same size"),
        )
    ),
    notes=NOTES,
)
def of_conversion(
    source: Path,
    formats: Sequence[str],
    files: Sequence[tuple[Path, str]],
    regions: Sequence[int],
    cpu_units: int,
    cpu_reasons: Sequence[tuple[str, str, str]],
    in_floats: Sequence[tuple[str, str, str]],
    checks: Sequence[OutputCheck],
    opens: Sequence[OpenSize],
    notes: Sequence[str],
) -> Document:
    """See :class:`nnapi_prof.cli.convert.OutputFiles`."""
    return {
        "source": str(source),
        "formats": list(dict.fromkeys(formats)),
        "files": [
            {"file": str(path), "format": kind, "n_bytes": path.stat().st_size}
            for path, kind in files
        ],
        "regions": [{"n_operations": n} for n in regions],
        "cpu_units": cpu_units,
        "kept": _reasons(cpu_reasons),
        "in_floats": _reasons(in_floats),
        "precision": [of_check(check) for check in checks],
        "open_sizes": [
            {
                "input": each.input,
                "dim": each.dim,
                "least": each.least,
                "most": each.most,
                "step": each.step,
                "equal": [{"input": i, "dim": dim} for i, dim in each.equal],
            }
            for each in opens
        ],
        "notes": list(notes),
    }


def _reasons(rows: Sequence[tuple[str, str, str]]) -> list[dict[str, str]]:
    return [{"name": name, "label": label, "reason": reason} for name, label, reason in rows]
