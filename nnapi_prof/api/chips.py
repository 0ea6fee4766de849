"""A model on Snapdragons that are not there: what their NPUs take of it, and how long it takes."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from nnapi_prof.api.events import SILENT, Listener
from nnapi_prof.api.model import Model
from nnapi_prof.qnn.chips import PREFIX, Chip, QnnPrecision, is_qnn, parse_device
from nnapi_prof.qnn.wheel import LICENCE, qairt_version, require

if TYPE_CHECKING:
    import pandas as pd

    from nnapi_prof.qnn.graphs import Form
    from nnapi_prof.qnn.network import ChipEstimate


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

    ``device`` is ``"qnn:SM8550,SM8750"``, with ``/int8`` behind for 8 bits. Needs the extra
    ``qnn``, no phone and no network. Nothing of it is measured: times are fitted to published
    networks, and each has its band.

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
    return _estimate(name, form, chips, precision, listener)


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
    with CompilerPool() as pool, listener.working("compiling for " + ", ".join(map(_name, chips))):
        estimates = estimate_network(form, chips, precision, pool, rival=rival)
    return ChipEstimates(name, precision, estimates, qairt_version())


def _name(chip: Chip) -> str:
    return chip.name


def whole_form(path: Path, inputs: Sequence[str] = ()) -> Form:
    """A model file as the ONNX graph that ships: an ExportedProgram as it is, TorchScript by way of
    its normalised graph. Raises what :func:`nnapi_prof.frontend.load` raises, ConversionError."""
    from nnapi_prof.frontend.loader import ModelKind, model_kind, read_exported
    from nnapi_prof.qnn.graphs import export_onnx, preprocess

    if model_kind(path) is ModelKind.EXPORTED:
        program = read_exported(path)
        if not inputs or not program.range_constraints:
            return preprocess(export_onnx(program, ()))
    from nnapi_prof.api.model import read_model

    loaded = read_model(path, inputs)
    return preprocess(export_onnx(loaded.module, loaded.example_inputs))
