"""A model on Snapdragons that are not there: what their NPUs take of it, and how long it takes."""

from __future__ import annotations

import logging
import math
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from nnapi_prof.api.costs import CalibrationOptions
from nnapi_prof.api.model import Model
from nnapi_prof.api.options import SILENT, Listener
from nnapi_prof.errors import ConversionError
from nnapi_prof.qnn.chips import (
    LICENCE,
    PREFIX,
    Chip,
    QnnPrecision,
    is_qnn,
    one_chip,
    parse_device,
    qairt_version,
    require_compiler,
)

LOGGER = logging.getLogger(__name__)
FORMS_APART = 1.2
"""Times as slow, beyond which the form of one exporter is a bad one."""

if TYPE_CHECKING:
    import pandas as pd
    from torch import Tensor

    from nnapi_prof.qnn.graphs import Form
    from nnapi_prof.qnn.network import ChipEstimate, ChipFiles


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
    samples: CalibrationOptions | None = None,
    listener: Listener = SILENT,
) -> ChipEstimates:
    """Estimates a whole model on Snapdragons' NPUs by Qualcomm's own compiler and simulator.

    ``device`` is ``"qnn:SM8550,SM8750"``, with ``/int8`` behind for 8 bits, whose ranges are those
    of ``samples``, as :func:`nnapi_prof.profile` takes them. Needs the extra ``qnn``, no phone and
    no network. Nothing of it is measured: times are fitted to published networks, and each has its
    band. ``inputs`` are the shapes of a file that leaves them open, and a ``listener`` hears what
    takes time.

    Raises UsageError where the extra is missing or a chip does not exist, ConversionError where
    ``torch.onnx`` cannot export the model.
    """
    text = device if is_qnn(device) else f"{PREFIX}{device}"
    chips, precision = parse_device(text)
    require_compiler()
    path = model.path if isinstance(model, Model) else Path(model)
    stated = model.inputs if isinstance(model, Model) else tuple(inputs)
    with listener.working(f"exporting {path.name} to ONNX"):
        form = whole_form(path, stated)
    name = model.name if isinstance(model, Model) else path.stem
    own = samples or CalibrationOptions()
    drawn = None
    if precision is QnnPrecision.INT8:
        drawn = _drawn(path, stated, own, listener)
    else:
        own.refuse("/int8")
    first = _estimate(name, form, chips, drawn, listener)
    from nnapi_prof.qnn.graphs import attends

    if not attends(form.model) and not any(map(_suspect, first.chips)):
        return first
    with listener.working(f"exporting {path.name} in another form"):
        other = other_form(path)
    if other is None:
        return first
    return _better(first, _estimate(name, other, chips, drawn, listener))


def _suspect(one: ChipEstimate) -> bool:
    from nnapi_prof.qnn.doubts import SUSPECT

    return one.npu_ns is None or any(doubt.kind in SUSPECT for doubt in one.doubts)


def _better(first: ChipEstimates, second: ChipEstimates) -> ChipEstimates:
    """The other form's estimates, for all chips, where that is simulated to be faster by more than
    exporters mostly differ: one file ships."""
    from nnapi_prof.qnn.doubts import Doubt, DoubtKind

    times = _times_as_slow(first.chips[0], second.chips[0])
    if times is None or 0 < times < FORMS_APART:
        return first
    doubt = Doubt(DoubtKind.EXPORTERS_DIFFER, value=times, limit=FORMS_APART)
    chips = tuple(replace(one, doubts=(doubt, *one.doubts)) for one in second.chips)
    return replace(second, chips=chips)


def _times_as_slow(one: ChipEstimate, other: ChipEstimate) -> float | None:
    """The geometric mean over simulated generations of how many times as long ``one`` takes; 0
    where it has no estimate, None where the other one has none."""
    if not other.simulated_ns or (other.npu_ns is None and one.npu_ns is not None):
        return None
    ratios = [
        one.simulated_ns[generation] / ns
        for generation, ns in other.simulated_ns.items()
        if ns and generation in one.simulated_ns
    ]
    return math.prod(ratios) ** (1 / len(ratios)) if ratios else 0.0


Drawn = Sequence[Sequence["Tensor"]]
"""Inputs of a program, one after the other."""


def _drawn(
    path: Path, inputs: Sequence[str], options: CalibrationOptions, listener: Listener
) -> Drawn:
    from nnapi_prof.api.chip_costs import calibration_inputs
    from nnapi_prof.api.model import load_program

    return calibration_inputs(load_program(path, inputs), path, options, listener)


def _estimate(
    name: str, form: Form, chips: Sequence[Chip], drawn: Drawn | None, listener: Listener
) -> ChipEstimates:
    """In 8 bits with the ranges of what is ``drawn``; None: in fp16."""
    from nnapi_prof.qnn.compiler import CompilerPool
    from nnapi_prof.qnn.network import estimate_network

    rival, precision = None, QnnPrecision.FP16
    if drawn is not None:
        from nnapi_prof.qnn.graphs import quantise_form, samples_for

        precision = QnnPrecision.INT8
        with listener.working("quantising to int8"):
            form, rival = quantise_form(form, samples_for(form.model, drawn)), form
    with (
        CompilerPool() as pool,
        listener.working("compiling for " + ", ".join(map(_chip_name, chips))),
    ):
        estimates = estimate_network(form, chips, precision, pool, rival=rival)
    return ChipEstimates(name, precision, estimates, qairt_version())


def _chip_name(chip: Chip) -> str:
    return chip.name


def whole_form(path: Path, inputs: Sequence[str] = ()) -> Form:
    """A model file as the ONNX graph that ships: an ExportedProgram by the exporter that traces, as
    Qualcomm AI Hub's models are, else by the other one, TorchScript by way of its normalised graph.

    Raises what :func:`nnapi_prof.frontend.load` raises, and ConversionError.
    """
    from nnapi_prof.frontend.loader import ModelKind, model_kind, read_exported
    from nnapi_prof.qnn.graphs import export_by_trace, export_onnx, preprocess

    if model_kind(path) is ModelKind.EXPORTED:
        program = read_exported(path)
        if not inputs or not program.range_constraints:
            try:
                return preprocess(export_by_trace(program))
            except ConversionError as error:
                LOGGER.debug("%s: %s", path, error)
            if (other := other_form(path)) is not None:
                return other
    from nnapi_prof.api.model import load_program

    loaded = load_program(path, inputs)
    return preprocess(export_onnx(loaded.module, loaded.example_inputs))


def other_form(path: Path) -> Form | None:
    """An ExportedProgram's file by the exporter that does not trace; None where that fails."""
    from nnapi_prof.frontend.loader import ModelKind, model_kind, read_exported
    from nnapi_prof.qnn.graphs import export_onnx, preprocess

    if model_kind(path) is not ModelKind.EXPORTED:
        return None
    try:
        return preprocess(export_onnx(read_exported(path), ()))
    except ConversionError as error:
        LOGGER.debug("%s has one form only: %s", path, error)
        return None


def _faster_form(path: Path, form: Form, chip: Chip, listener: Listener) -> Form:
    """The other exporter's form where that is faster by more than exporters mostly differ."""
    other = other_form(path)
    if other is None:
        return form
    times = _times_as_slow(
        *(_estimate(path.stem, one, (chip,), None, listener).chips[0] for one in (form, other))
    )
    if times is None or 0 < times < FORMS_APART:
        return form
    listener.note(
        "the graph of torch.onnx's exporter with dynamo=True is faster there, and is taken"
    )
    return other


def convert_for_chip(
    model: str | os.PathLike[str],
    device: str,
    output: str | os.PathLike[str] | None = None,
    *,
    inputs: Sequence[str] = (),
    samples: CalibrationOptions | None = None,
    listener: Listener = SILENT,
) -> ChipFiles:
    """Writes an ONNX file whose NPU parts are compiled for one chip, and the binary beside it.

    ``device`` is ``"qnn:SM8650"`` or with ``/int8``; the file is ``MODEL.SM8650.qnn.onnx`` beside
    the model where ``output`` is None. ``samples`` set the ranges of 8 bits, as in
    :func:`estimate_chips`. Raises what :func:`estimate_chips` raises.
    """
    chip, precision = one_chip(device)
    require_compiler()
    path = Path(model)
    with listener.working(f"exporting {path.name} to ONNX"):
        form = whole_form(path, inputs)
    from nnapi_prof.qnn.compiler import CompilerPool
    from nnapi_prof.qnn.graphs import attends
    from nnapi_prof.qnn.network import SUFFIX, write_context

    if attends(form.model):
        form = _faster_form(path, form, chip, listener)
    if precision is QnnPrecision.INT8:
        from nnapi_prof.qnn.graphs import quantise_form, samples_for

        drawn = _drawn(path, inputs, samples or CalibrationOptions(), listener)
        with listener.working("quantising to int8"):
            form = quantise_form(form, samples_for(form.model, drawn))
    else:
        (samples or CalibrationOptions()).refuse("/int8")
    target = Path(output) if output is not None else path.with_suffix(f".{chip.name}{SUFFIX}")
    with CompilerPool(1) as pool, listener.working(f"compiling for {chip.name}"):
        return write_context(form, chip, precision, target, pool)
