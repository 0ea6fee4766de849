"""A model on Snapdragons that are not there: what their NPUs take of it, and how long it takes."""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from nnapi_prof.api.events import SILENT, Listener
from nnapi_prof.api.model import Model
from nnapi_prof.errors import ConversionError
from nnapi_prof.qnn.chips import (
    PREFIX,
    Chip,
    QnnPrecision,
    is_qnn,
    one_chip,
    parse_device,
)
from nnapi_prof.qnn.wheel import LICENCE, qairt_version, require

LOGGER = logging.getLogger(__name__)
FORMS_APART = 1.2
"""Times as slow, beyond which the form of one exporter is a bad one."""

if TYPE_CHECKING:
    import pandas as pd

    from nnapi_prof.qnn.graphs import Form
    from nnapi_prof.qnn.network import ChipEstimate
    from nnapi_prof.qnn.ship import ChipFiles


@dataclass(frozen=True)
class ChipEstimates:
    """One model's estimates for several chips."""

    model: str
    precision: QnnPrecision
    chips: tuple[ChipEstimate, ...]
    qairt: str
    """Version of Qualcomm's compiler and simulator."""
    licence: str = LICENCE

    def frame(self) -> pd.DataFrame:
        """One row for each chip: ``chip``, ``whole_ms``, ``low_ms``, ``high_ms`` (nine of ten
        published networks lie between), ``taken`` and ``refused`` (operations), ``doubts``."""
        import pandas as pd

        rows = [
            {
                "chip": one.chip,
                "whole_ms": _ms(one.whole_ns),
                "low_ms": _ms(one.low_ns),
                "high_ms": _ms(one.high_ns),
                "taken": sum(one.taken.values()),
                "refused": sum(part.count for part in one.refused),
                "doubts": len(one.doubts),
            }
            for one in self.chips
        ]
        return pd.DataFrame(rows)


def _ms(ns: float | None) -> float:
    return float("nan") if ns is None else ns / 1e6


def estimate_chips(
    model: Model | str | os.PathLike[str],
    device: str,
    *,
    inputs: Sequence[str] = (),
    listener: Listener = SILENT,
) -> ChipEstimates:
    """Estimates a whole model on Snapdragons' NPUs by Qualcomm's own compiler and simulator.

    ``inputs`` are shapes as :func:`nnapi_prof.load` takes them; a ``listener`` hears notes.
    ``device`` is ``"qnn:SM8550,SM8750"``, with ``/int8`` behind for 8 bits. Needs the extra
    ``qnn``, no phone and no network. Nothing of it is measured: times are fitted to published
    networks, and each has its band. ``inputs`` are the shapes of a file that leaves them open, and
    a ``listener`` hears what takes time.

    Raises UsageError where the extra is missing or a chip does not exist, ConversionError where
    ``torch.onnx`` cannot export the model.
    """
    text = device if is_qnn(device) else f"{PREFIX}{device}"
    chips, precision = parse_device(text)
    require()
    path = model.path if isinstance(model, Model) else Path(model)
    stated = model.inputs if isinstance(model, Model) else tuple(inputs)
    with listener.working(f"exporting {path.name} to ONNX"):
        form = whole_form(path, stated)
    name = model.name if isinstance(model, Model) else path.stem
    first = _estimate(name, form, chips, precision, listener)
    if not any(map(_suspect, first.chips)):
        return first
    with listener.working(f"exporting {path.name} in another form"):
        other = traced_form(path)
    if other is None:
        return first
    return _better(first, _estimate(name, other, chips, precision, listener))


def _suspect(one: ChipEstimate) -> bool:
    from nnapi_prof.qnn.doubts import SUSPECT

    return one.npu_ns is None or any(doubt.kind in SUSPECT for doubt in one.doubts)


def _better(first: ChipEstimates, traced: ChipEstimates) -> ChipEstimates:
    """The traced form's estimates where they are faster by more than the rest of exporters is."""
    from nnapi_prof.qnn.doubts import Doubt, DoubtKind

    chosen = []
    for one, other in zip(first.chips, traced.chips, strict=True):
        times = one.npu_ns / other.npu_ns if one.npu_ns and other.npu_ns else 0.0
        if other.npu_ns is None or 0 < times < FORMS_APART:
            chosen.append(one)
        else:
            doubt = Doubt(DoubtKind.EXPORTERS_DIFFER, value=times, limit=FORMS_APART)
            chosen.append(replace(other, doubts=(doubt, *other.doubts)))
    return replace(first, chips=tuple(chosen))


def _estimate(
    name: str, form: Form, chips: Sequence[Chip], precision: QnnPrecision, listener: Listener
) -> ChipEstimates:
    from nnapi_prof.qnn.compiler import CompilerPool
    from nnapi_prof.qnn.network import estimate_network

    rival = None
    if precision is QnnPrecision.INT8:
        from nnapi_prof.qnn.int8 import quantise_form

        with listener.working("quantising to int8"):
            form, rival = quantise_form(form), form
    with (
        CompilerPool() as pool,
        listener.working("compiling for " + ", ".join(map(_chip_name, chips))),
    ):
        estimates = estimate_network(form, chips, precision, pool, rival=rival)
    return ChipEstimates(name, precision, estimates, qairt_version())


def _chip_name(chip: Chip) -> str:
    return chip.name


def traced_form(path: Path) -> Form | None:
    """An ExportedProgram's file by the exporter that traces; None where that cannot be had."""
    from nnapi_prof.frontend.loader import ModelKind, model_kind, read_exported
    from nnapi_prof.qnn.graphs import export_by_trace, preprocess

    if model_kind(path) is not ModelKind.EXPORTED:
        return None
    try:
        return preprocess(export_by_trace(read_exported(path)))
    except ConversionError as error:
        LOGGER.debug("%s has one form only: %s", path, error)
        return None


def whole_form(path: Path, inputs: Sequence[str] = ()) -> Form:
    """A model file as the ONNX graph that ships: an ExportedProgram as it is, by the exporter that
    can, TorchScript by way of its normalised graph.

    Raises what :func:`nnapi_prof.frontend.load` raises, and ConversionError.
    """
    from nnapi_prof.frontend.loader import ModelKind, model_kind, read_exported
    from nnapi_prof.qnn.graphs import export_onnx, preprocess

    if model_kind(path) is ModelKind.EXPORTED:
        program = read_exported(path)
        if not inputs or not program.range_constraints:
            try:
                return preprocess(export_onnx(program, ()))
            except ConversionError as error:
                LOGGER.debug("%s: %s", path, error)
            if (traced := traced_form(path)) is not None:
                return traced
    from nnapi_prof.api.model import load_program

    loaded = load_program(path, inputs)
    return preprocess(export_onnx(loaded.module, loaded.example_inputs))


def convert_for_chip(
    model: str | os.PathLike[str],
    device: str,
    output: str | os.PathLike[str] | None = None,
    *,
    inputs: Sequence[str] = (),
    listener: Listener = SILENT,
) -> ChipFiles:
    """Writes an ONNX file whose NPU parts are compiled for one chip, and the binary beside it.

    ``device`` is ``"qnn:SM8650"`` or with ``/int8``; the file is ``MODEL.SM8650.qnn.onnx`` beside
    the model where ``output`` is None. Raises what :func:`estimate_chips` raises.
    """
    chip, precision = one_chip(device)
    require()
    path = Path(model)
    with listener.working(f"exporting {path.name} to ONNX"):
        form = whole_form(path, inputs)
    if precision is QnnPrecision.INT8:
        from nnapi_prof.qnn.int8 import quantise_form

        listener.note("int8 ranges are of random inputs: the times are right, the outputs are not")
        form = quantise_form(form)
    from nnapi_prof.qnn.compiler import CompilerPool
    from nnapi_prof.qnn.ship import SUFFIX, write_context

    target = Path(output) if output is not None else path.with_suffix(f".{chip.name}{SUFFIX}")
    with CompilerPool(1) as pool, listener.working(f"compiling for {chip.name}"):
        return write_context(form, chip, precision, target, pool)
