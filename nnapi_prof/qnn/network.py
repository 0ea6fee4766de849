"""Compile a whole network for chips: operations on the NPU, estimated time, files for an app.

The compiler writes an ONNX file whose NPU regions are nodes ``com.microsoft.EPContext``, and a
context binary beside it; operators that the NPU does not take stay ONNX operators for the CPU. The
binary is for this chip only. It has not been loaded on a phone: none was available.
"""

from __future__ import annotations

import logging
import math
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from nnapi_prof.errors import ConversionError, CostError
from nnapi_prof.qnn import Chip, NpuGeneration, QnnPrecision, qairt_version
from nnapi_prof.qnn import doubts as odd
from nnapi_prof.qnn.calibration import ChipCalibration, calibrate, mean_ns
from nnapi_prof.qnn.compiler import Compiled, CompileRequest, CompilerPool
from nnapi_prof.qnn.doubts import Doubt, DoubtKind
from nnapi_prof.qnn.graphs import Form, count_macs

LOGGER = logging.getLogger(__name__)
AT_BORDERS = ("QuantizeLinear", "DequantizeLinear")
FLOAT_REFUSED = "the NPU of this generation computes in integers only: use /int8"


@dataclass(frozen=True, slots=True)
class Refused:
    """Operations of one kind that stay on the CPU for one reason."""

    operation: str
    count: int
    reason: str
    """In the compiler's words; empty where it gives none."""
    nodes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ChipEstimate:
    """The estimate for a network on a chip's NPU, made without the chip."""

    chip: str
    precision: QnnPrecision
    whole_ns: float | None
    """Estimated time of the whole network; None where the NPU does not take all of it, or there is
    no estimate."""
    low_ns: float | None
    high_ns: float | None
    """Bounds that nine of ten published networks lie between."""
    npu_ns: float | None
    """Estimated time of the part on the NPU."""
    calibration: ChipCalibration | None
    taken: Mapping[str, int]
    """Operation -> number of them that the NPU takes."""
    refused: tuple[Refused, ...]
    doubts: tuple[Doubt, ...]
    simulated_ns: Mapping[str, float] = field(default_factory=dict)
    """Generation -> the simulator's own time."""
    error: str | None = None
    """Reason that the compiler made nothing, or there is no estimate."""


def estimate_network(
    form: Form,
    chips: Sequence[Chip],
    precision: QnnPrecision,
    pool: CompilerPool,
    *,
    rival: Form | None = None,
) -> tuple[ChipEstimate, ...]:
    """Compiles the graph for each chip and both simulated generations.

    ``rival`` is its form in fp16 where ``form`` is in int8: a slower time in 8 bits is doubted.
    """
    simulations = tuple(NpuGeneration)
    with tempfile.TemporaryDirectory(prefix="nnapi-prof-qnn-") as folder:
        path, graph = form.write(Path(folder) / "network.onnx"), form.hash
        requests = [CompileRequest(path, graph, s.soc_model) for s in simulations]
        if rival is not None:
            other, hashed = rival.write(Path(folder) / "rival.onnx"), rival.hash
            requests += [CompileRequest(other, hashed, s.soc_model) for s in simulations]
        requests += [CompileRequest(path, graph, chip.soc_model, reasons=True) for chip in chips]
        answers = pool.compile(requests)
    n = len(simulations)
    simulated = dict(zip(simulations, answers[:n], strict=True))
    odd_ones = list(
        odd.of_compiled(simulated, precision, count_macs(form.model), _numbers_moved(form))
    )
    if packed := odd.packed_attention(form.model):
        odd_ones.insert(0, Doubt(DoubtKind.PACKED_ATTENTION, nodes=packed))
    if rival is not None:
        odd_ones += odd.of_int8(simulated, dict(zip(simulations, answers[n : 2 * n], strict=True)))
    if precision is QnnPrecision.INT8 and (outside := odd.outside_quantisation(form.model)):
        odd_ones.append(Doubt(DoubtKind.INT8_IN_FLOAT, nodes=outside))
    own = answers[-len(chips) :]
    return tuple(
        _of_chip(chip, precision, simulated, answer, tuple(odd_ones))
        for chip, answer in zip(chips, own, strict=True)
    )


def _of_chip(
    chip: Chip,
    precision: QnnPrecision,
    simulated: Mapping[NpuGeneration, Compiled],
    own: Compiled,
    odd_ones: tuple[Doubt, ...],
) -> ChipEstimate:
    taken = Counter(kind for _, kind in own.on_npu)
    refused = group_refusals(own)
    error = own.error
    if precision is QnnPrecision.FP16 and not chip.float_runs:
        refused = tuple(
            Refused(kind, count, FLOAT_REFUSED) for kind, count in sorted(taken.items())
        )
        taken, error = Counter(), FLOAT_REFUSED
    calibration = None
    try:
        calibration = calibrate(chip, precision, qairt_version())
    except CostError as failure:
        error = error or str(failure)
    npu_ns = whole_ns = None
    missing = [one.error for s, one in simulated.items() if one.us is None and one.error]
    if error is None and missing:
        error = missing[0]
    if calibration is not None and error is None and all(one.us for one in simulated.values()):
        x_ns = mean_ns(chip, {s: float(one.us or 0) * 1e3 for s, one in simulated.items()})
        npu_ns = calibration.whole_ns(x_ns, max(own.subgraphs, 1))
        whole_ns = npu_ns if not refused else None
    low, high = (None, None)
    if whole_ns is not None and calibration is not None:
        low, high = calibration.band(whole_ns)
    return ChipEstimate(
        chip=chip.name,
        precision=precision,
        whole_ns=whole_ns,
        low_ns=low,
        high_ns=high,
        npu_ns=npu_ns,
        calibration=calibration,
        taken=dict(sorted(taken.items())),
        refused=refused,
        doubts=odd_ones,
        simulated_ns={s.value: one.us * 1e3 for s, one in simulated.items() if one.us},
        error=error,
    )


def group_refusals(own: Compiled) -> tuple[Refused, ...]:
    """Groups operations that stay on the CPU by kind and reason.

    In int8 the app quantises the graph's float inputs and outputs, which is not a refusal.
    """
    groups: dict[tuple[str, str], list[str]] = {}
    for name, kind in own.on_cpu:
        if kind in AT_BORDERS:
            continue
        reason = own.reasons.get(name) or own.reasons.get(f"<{kind}>") or ""
        groups.setdefault((kind, reason), []).append(name)
    return tuple(
        Refused(kind, len(nodes), reason, tuple(nodes))
        for (kind, reason), nodes in sorted(groups.items())
    )


def _numbers_moved(form: Form) -> float:
    """Returns the count of numbers in weights, inputs and outputs."""
    graph = form.model.graph
    count = sum(math.prod(constant.dims) for constant in graph.initializer)
    for value in (*graph.input, *graph.output):
        count += math.prod(max(d.dim_value, 1) for d in value.type.tensor_type.shape.dim)
    return float(count)


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
    """Number of operations in the binary."""
    refused: tuple[Refused, ...]
    """Operations that stay on the CPU."""
    channels_last: tuple[str, ...]
    """Image inputs, which are now [N, H, W, C]."""


def write_context(
    form: Form, chip: Chip, precision: QnnPrecision, path: Path, pool: CompilerPool
) -> ChipFiles:
    """Compiles a graph for a chip into ``path`` and its binary.

    Raises ConversionError where the compiler makes nothing, or the chip cannot run floats.
    """
    if precision is QnnPrecision.FP16 and not chip.float_runs:
        raise ConversionError(f"{chip.name}: {FLOAT_REFUSED}")
    with tempfile.TemporaryDirectory(prefix="nnapi-prof-qnn-", dir=path.parent) as name:
        folder = Path(name).absolute()
        source, own = form.write(folder / "network.onnx"), folder / "own" / path.name
        own.parent.mkdir()
        request = CompileRequest(source, form.hash, chip.soc_model, reasons=True, context=own)
        (result,) = pool.compile([request])
        if result.error is not None or not own.exists():
            raise ConversionError(
                f"the compiler wrote nothing for {chip.name}:"
                f" {result.error or 'it takes no operation of the model'}"
            )
        written = [file.replace(path.parent / file.name) for file in [*own.parent.iterdir()]]
    names = [node.input[0] for node in form.model.graph.node if node.op_type == "Transpose"]
    inputs = {value.name for value in form.model.graph.input}
    return ChipFiles(
        chip=chip.name,
        precision=precision,
        path=path,
        binaries=tuple(sorted(file for file in written if file != path)),
        on_npu=len(result.on_npu),
        refused=group_refusals(result),
        channels_last=tuple(name for name in names if name in inputs),
    )


FORMS_APART = 1.2
"""Ratio of times beyond which the form of one exporter is a bad one."""


def times_as_slow(one: ChipEstimate, other: ChipEstimate) -> float | None:
    """Returns how many times as long ``one`` takes, as geometric mean over simulated generations; 0
    where it has no estimate, None where the other one has none."""
    if not other.simulated_ns or (other.npu_ns is None and one.npu_ns is not None):
        return None
    ratios = [
        one.simulated_ns[generation] / ns
        for generation, ns in other.simulated_ns.items()
        if ns and generation in one.simulated_ns
    ]
    return math.prod(ratios) ** (1 / len(ratios)) if ratios else 0.0


def other_form(path: Path) -> Form | None:
    """Returns an ExportedProgram's graph by the non-tracing exporter; None where that fails."""
    from nnapi_prof.frontend.loader import ModelKind, model_kind, read_exported
    from nnapi_prof.qnn.graphs import export_onnx, preprocess

    if model_kind(path) is not ModelKind.EXPORTED:
        return None
    try:
        return preprocess(export_onnx(read_exported(path), ()))
    except ConversionError as error:
        LOGGER.debug("%s has one form only: %s", path, error)
        return None


def exported_form(path: Path, inputs: Sequence[str] = ()) -> Form | None:
    """Return an ExportedProgram's file as the ONNX graph that ships, by the tracing exporter if
    possible; None for other files, for ``inputs`` with open sizes, and where both fail."""
    from nnapi_prof.frontend.loader import ModelKind, model_kind, read_exported
    from nnapi_prof.qnn.graphs import export_by_trace, preprocess

    if model_kind(path) is not ModelKind.EXPORTED:
        return None
    program = read_exported(path)
    if inputs and program.range_constraints:
        return None
    try:
        return preprocess(export_by_trace(program))
    except ConversionError as error:
        LOGGER.debug("%s: %s", path, error)
    return other_form(path)
