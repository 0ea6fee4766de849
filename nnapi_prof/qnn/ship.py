"""An ONNX file with the NPU's parts compiled for one chip, for ONNX Runtime in an app.

The compiler writes an ONNX whose NPU regions are nodes ``com.microsoft.EPContext``, and a context
binary beside it; what the NPU does not take stays as ONNX operators for the CPU.  The binary is for
this chip only.  That it loads on a phone was not tried: none was at hand.
"""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path

from nnapi_prof.errors import ConversionError
from nnapi_prof.qnn.chips import Chip, QnnPrecision
from nnapi_prof.qnn.compiler import CompileRequest, CompilerPool
from nnapi_prof.qnn.graphs import Form
from nnapi_prof.qnn.network import FLOAT_REFUSED, Refused, group_refusals

SUFFIX = ".qnn.onnx"


@dataclass(frozen=True, slots=True)
class ChipFiles:
    """The files written for a chip."""

    chip: str
    precision: QnnPrecision
    path: Path
    """The ONNX file."""
    binaries: tuple[Path, ...]
    """Context binaries beside it, which it names."""
    on_npu: int
    """Operations in the binary."""
    refused: tuple[Refused, ...]
    """Operations that stay on the CPU."""
    channels_last: tuple[str, ...]
    """Inputs that are images, and now [N, H, W, C]."""


def write_context(
    form: Form, chip: Chip, precision: QnnPrecision, path: Path, pool: CompilerPool
) -> ChipFiles:
    """Compiles a graph for a chip into ``path`` and its binary.

    Raises ConversionError where the compiler makes nothing, or the chip cannot run floats.
    """
    if precision is QnnPrecision.FP16 and not chip.float_runs:
        raise ConversionError(f"{chip.name}: {FLOAT_REFUSED}")
    before = set(path.parent.iterdir())
    with tempfile.TemporaryDirectory(prefix="nnapi-prof-qnn-") as folder:
        source = form.write(Path(folder) / "network.onnx")
        request = CompileRequest(
            source, form.hash, chip.soc_model, reasons=True, context=path.absolute()
        )
        (result,) = pool.compile([request])
    if result.error is not None or not path.exists():
        raise ConversionError(
            f"the compiler wrote nothing for {chip.name}:"
            f" {result.error or 'it takes no operation of the model'}"
        )
    names = [node.input[0] for node in form.model.graph.node if node.op_type == "Transpose"]
    inputs = {value.name for value in form.model.graph.input}
    return ChipFiles(
        chip=chip.name,
        precision=precision,
        path=path,
        binaries=tuple(sorted(set(path.parent.iterdir()) - before - {path})),
        on_npu=len(result.on_npu),
        refused=group_refusals(result),
        channels_last=tuple(name for name in names if name in inputs),
    )
